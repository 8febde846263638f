package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// admissionConfiguration writes the files that 'gatehouse manifests --admission-configuration' prints for an address, and
// returns the flag of kube-apiserver that goes with them.
func admissionConfiguration(t *testing.T, address []string, certificate, key string) string {
	t.Helper()
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "admission.kubeconfig.yaml")
	arguments := slices.Concat([]string{"manifests", "--admission-configuration"}, address,
		[]string{"--kubeconfig-path", kubeconfig, "--client-cert", certificate, "--client-key", key})
	var flags []string
	for purpose, file := range map[string]string{"configuration": filepath.Join(dir, "admission.yaml"), "kubeconfig": kubeconfig} {
		text, err := gatehouse.Run(t.Context(), append(arguments, "--for", purpose)...)
		must(t, err)
		must(t, os.WriteFile(file, []byte(text), 0o600))
		flags = append(flags, commentedFlags(text)...)
	}
	if len(flags) != 1 {
		t.Fatalf("the comments name the flags %q, want one", flags)
	}
	return flags[0]
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
	address := []string{"--service", system + "/outage"}
	if !cluster.Namespaced() {
		address = []string{"--url", "https://" + server.Reviews.String()}
	}
	start := func(address ...string) kubernetes.Interface {
		flag := admissionConfiguration(t, address, w.path("client.crt"), w.path("client.key"))
		return cluster.New(t, cluster.Options{Join: w.Cluster, APIServerFlags: []string{flag}}).Client()
	}
	certified, other := start(address...), start("--service", system+"/somebody-else")
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
