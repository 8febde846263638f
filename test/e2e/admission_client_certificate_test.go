package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// admissionConfiguration writes the files in docs/tasks/require-client-certificates.md, with other paths and another name of the user, and
// returns the flag of kube-apiserver that goes with them.
func admissionConfiguration(t *testing.T, user, certificate, key string) string {
	t.Helper()
	root, err := support.Root()
	must(t, err)
	document, err := os.ReadFile(filepath.Join(root, "docs", "tasks", "require-client-certificates.md"))
	must(t, err)
	dir := t.TempDir()
	const hosts = "/etc/kubernetes/gatehouse"
	replace := strings.NewReplacer(hosts+"/client.crt", certificate, hosts+"/client.key", key, hosts, dir, "gatehouse.gatehouse-system.svc", user)
	for kind, file := range map[string]string{"AdmissionConfiguration": "admission.yaml", "Config": "admission.kubeconfig.yaml"} {
		before, after, _ := strings.Cut(string(document), "kind: "+kind+"\n")
		begin, end := strings.LastIndex(before, "```yaml\n"), strings.Index(after, "```")
		if begin < 0 || end < 0 {
			t.Fatalf("the document has no %s", kind)
		}
		text := before[begin+len("```yaml\n"):] + "kind: " + kind + "\n" + after[:end]
		must(t, os.WriteFile(filepath.Join(dir, file), []byte(replace.Replace(text)), 0o600))
	}
	return "--admission-control-config-file=" + filepath.Join(dir, "admission.yaml")
}

// commentedFlags returns the flags of kube-apiserver that a file of 'gatehouse manifests' names in its comment.
func commentedFlags(text string) []string {
	var flags []string
	for line := range strings.Lines(text) {
		if flag, ok := strings.CutPrefix(line, "#   --"); ok {
			flags = append(flags, "--"+strings.TrimSpace(flag))
		}
	}
	return flags
}

// With --require-client-certificate, admission is answered to an API server that shows a certificate, and to no other:
// what fails closed is refused there, with the remedy, and what fails open is admitted.
func TestAdmissionWithClientCertificates(t *testing.T) {
	w := sharedWorld(t)
	config := w.outageConfig(t)
	flags := append([]string{"--require-client-certificate"}, w.serving...)
	server, err := w.serve(t.Context(), "certified", config, flags...)
	must(t, err)
	user := "outage." + system + ".svc"
	if !cluster.Namespaced() {
		user = server.Reviews.String()
	}
	start := func(user string) kubernetes.Interface {
		flag := admissionConfiguration(t, user, w.path("client.crt"), w.path("client.key"))
		return cluster.New(t, cluster.Options{Join: w.Cluster, APIServerFlags: []string{flag}}).Client()
	}
	certified, other := start(user), start("somebody-else."+system+".svc")
	must(t, w.register(t.Context(), "outage", config, server))
	t.Cleanup(func() { w.unregister(t, "outage", w.outageGone("outage")) })

	refuses := func(client kubernetes.Interface) error {
		_, err := client.CoreV1().ConfigMaps("outage").Create(t.Context(), forbidden("no"), dryRun)
		return refusal(err, 422, "forbidden, says the label")
	}
	support.Eventually(t, "the API server with the certificate", func() error {
		created, err := certified.CoreV1().Pods("outage").Create(t.Context(), pod("p", asking), dryRun)
		if err == nil && injected(created) != 1 {
			err = errors.New("a pod is not injected")
		}
		_, allowed := certified.CoreV1().ConfigMaps("outage").Create(t.Context(), configMap("yes", nil), dryRun)
		return errors.Join(err, allowed, refuses(certified))
	})

	for name, client := range map[string]kubernetes.Interface{"none": w.Client(), "one for another webhook": other} {
		notAsked := func(ctx context.Context) error {
			_, err := client.CoreV1().ConfigMaps("outage").Create(ctx, configMap("yes", nil), dryRun)
			return refusal(err, 500, `failed calling webhook "fail.validate.gatehouse.dev"`, "a client certificate is required here", "AdmissionConfiguration")
		}
		support.Eventually(t, "an API server whose certificate is "+name, func() error { return notAsked(t.Context()) })
		secret := &corev1.Secret{ObjectMeta: forbidden("open").ObjectMeta}
		_, err := client.CoreV1().Secrets("outage").Create(t.Context(), secret, dryRun)
		if err != nil {
			t.Errorf("certificate %s: what fails open is not admitted: %v", name, err)
		}
	}

	_, metrics, err := server.Get(t.Context(), "/metrics")
	must(t, err)
	if !strings.Contains(metrics, `gatehouse_reviews_total{decision="refused",endpoint="validate",reason="caller"}`) {
		t.Error("no refused caller in the metrics")
	}
}
