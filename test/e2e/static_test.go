package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// staticCommands returns the commands by which docs/registration.md makes the files of kube-apiserver.
func staticCommands(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/registration.md")
	must(t, err)
	_, section, found := strings.Cut(string(page), "\n## Files in place of objects\n")
	_, section, shown := strings.Cut(section, "\n```sh\n")
	commands, _, ends := strings.Cut(section, "\n```\n")
	if !found || !shown || !ends {
		t.Fatal("docs/registration.md does not show the commands")
	}
	return commands
}

// staticFiles makes the files as the document says, in a directory of the test's, and returns it.
func (w *world) staticFiles(t *testing.T, config string, server *gatehouse.Server) string {
	t.Helper()
	program, err := gatehouse.Binary()
	must(t, err)
	const documented = "/etc/kubernetes/gatehouse"
	dir := t.TempDir()
	ca, err := os.ReadFile(w.path("ca.crt"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "ca.crt"), ca, 0o600))
	script := strings.NewReplacer(
		documented, dir, "https://192.0.2.10:9443", "https://"+server.Reviews.String(), "--config DIR", "--config "+config,
		"{ gatehouse ", "{ "+program+" ",
	).Replace(staticCommands(t))
	output, err := exec.CommandContext(t.Context(), "bash", "-euc", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, output, script)
	}
	for _, name := range []string{"admission.yaml", "mutating/gatehouse.yaml", "validating/gatehouse.yaml"} {
		file := filepath.Join(dir, name)
		text, err := os.ReadFile(file)
		must(t, err)
		text = bytes.ReplaceAll(text, []byte(documented), []byte(dir))
		must(t, os.WriteFile(file, []byte(gatehouse.Patient(string(text))), 0o600))
	}
	return dir
}

// doesNotStart checks that an API server does not start with the flags, and that its log has the reason.
func (w *world) doesNotStart(t *testing.T, reason string, flags ...string) {
	t.Helper()
	c, err := cluster.Start(t.Context(), cluster.Options{Join: w.Cluster, APIServerFlags: flags})
	if err == nil {
		t.Error("an API server starts with", flags, c.Stop())
	} else if !strings.Contains(err.Error(), reason) {
		t.Errorf("with %s there is no %s in %v", flags, reason, err)
	}
}

// ignoresStatic checks that an API server that does not know the directories ignores them beside a kubeConfigFile.
func (w *world) ignoresStatic(t *testing.T, dir string) {
	t.Helper()
	kubeconfig := filepath.Join(dir, "kubeconfig.yaml")
	must(t, os.WriteFile(kubeconfig, []byte("{apiVersion: v1, kind: Config}\n"), 0o600))
	text, err := os.ReadFile(filepath.Join(dir, "admission.yaml"))
	must(t, err)
	field := regexp.MustCompile(`(?m)^( *)staticManifestsDir: `)
	both := filepath.Join(dir, "both.yaml")
	must(t, os.WriteFile(both, field.ReplaceAll(text, []byte("${1}kubeConfigFile: "+kubeconfig+"\n$0")), 0o600))
	client := cluster.New(t, cluster.Options{Join: w.Cluster, APIServerFlags: []string{"--admission-control-config-file=" + both}}).Client()
	_, err = client.CoreV1().ConfigMaps("outage").Create(t.Context(), forbidden("ignored"), dryRun)
	if err != nil {
		t.Errorf("the directory is not ignored: %v", err)
	}
}

// A webhook configuration in a file of kube-apiserver has Gatehouse asked from its start, is not to be seen or made by the
// API, and goes when the file does. An API server that cannot read such files does not start with them.
func TestStaticRegistration(t *testing.T) {
	w := sharedWorld(t)
	config := w.outageConfig(t)
	server, err := w.serve(t.Context(), "static", config)
	must(t, err)
	dir := w.staticFiles(t, config, server)
	const gate = "--feature-gates=ManifestBasedAdmissionControlConfig=true"
	flags := []string{"--admission-control-config-file=" + filepath.Join(dir, "admission.yaml")}
	minor := w.Minor(t)
	const alpha, beta = 36, 37
	switch {
	case minor < alpha:
		w.doesNotStart(t, "kubeConfigFile", flags...)
		w.doesNotStart(t, "unrecognized feature gate: ManifestBasedAdmissionControlConfig", append(flags, gate)...)
		w.ignoresStatic(t, dir)
		return
	case minor < beta:
		w.doesNotStart(t, "staticManifestsDir requires the ManifestBasedAdmissionControlConfig feature gate", flags...)
		flags = append(flags, gate)
	}
	client := cluster.New(t, cluster.Options{Join: w.Cluster, APIServerFlags: flags}).Client()

	// From the start: no request comes before the registration.
	_, err = client.CoreV1().ConfigMaps("outage").Create(t.Context(), forbidden("no"), dryRun)
	must(t, refusal(err, 422, "forbidden, says the label"))
	created, err := client.CoreV1().Pods("outage").Create(t.Context(), pod("p", asking), dryRun)
	must(t, err)
	if n := injected(created); n != 1 {
		t.Errorf("%d sidecars are injected", n)
	}
	_, err = w.Client().CoreV1().ConfigMaps("outage").Create(t.Context(), forbidden("yes"), dryRun)
	if err != nil {
		t.Errorf("the API server without the files asks too: %v", err)
	}

	for _, name := range []string{"mutating", "validating"} {
		file := filepath.Join(dir, name, "gatehouse.yaml")
		// The name is one that nobody can take by the API.
		kubectl := w.Kubectl(t.Context(), "create", "--dry-run=server", "--filename", file)
		output, err := kubectl.CombinedOutput()
		if minor >= beta && (err == nil || !strings.Contains(string(output), "reserved for static manifest-based configurations")) {
			t.Errorf("kubectl create of %s: got %v: %s", name, err, output)
		}
	}
	listed, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, c := range listed.Items {
		if strings.HasSuffix(c.Name, ".static.k8s.io") {
			t.Errorf("the API has %s", c.Name)
		}
	}

	must(t, os.Rename(filepath.Join(dir, "validating/gatehouse.yaml"), filepath.Join(dir, "validating.yaml")))
	support.Eventually(t, "the API server asks no more", func() error {
		_, err := client.CoreV1().ConfigMaps("outage").Create(t.Context(), forbidden("gone"), dryRun)
		return err
	})
}
