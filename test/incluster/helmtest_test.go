package incluster

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// TestHelmTest: right after an install, "helm test" waits until every webhook has answered a review that went through the Service, with
// the rights of its own ServiceAccount. Without a replica that answers, what it runs fails and says why.
func TestHelmTest(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const clusterIP = "10.96.77.1" // of no other test
	_, err := s.helm(t.Context(), t.TempDir(), "install", "gatehouse", chart, "--namespace", system, "--create-namespace",
		"--set", "replicaCount=1", "--set", "service.clusterIP="+clusterIP, "--set-json", `networkPolicy.reviewsFrom=[{"ipBlock":{"cidr":"192.0.2.0/24"}}]`)
	must(t, err)
	must(t, s.kubelet.Proxy(t.Context(), system, "gatehouse"))

	output, err := s.helm(t.Context(), t.TempDir(), "test", "gatehouse", "--namespace", system, "--timeout", deadline.String())
	must(t, err)
	if !strings.Contains(output, "gatehouse-test") || !strings.Contains(output, "Succeeded") {
		t.Errorf("helm test says\n%s", output)
	}
	said := ""
	for _, pod := range s.kubelet.Pods() {
		if pod.Name == "gatehouse-test" {
			content, err := os.ReadFile(pod.Log())
			must(t, err)
			said = string(content)
		}
	}
	const answer = "answers: allowed\n"
	for _, webhook := range []string{
		"MutatingWebhookConfiguration/gatehouse: asked.mutate.gatehouse.dev ", "MutatingWebhookConfiguration/gatehouse: default.mutate.gatehouse.dev ",
		"ValidatingWebhookConfiguration/gatehouse: fail.validate.gatehouse.dev ", "ValidatingWebhookConfiguration/gatehouse: documents.validate.gatehouse.dev ",
	} {
		if !strings.Contains(said, webhook+answer) {
			t.Errorf("the test does not say that %sanswers:\n%s", webhook, said)
		}
	}

	err = s.kubectl(t.Context(), "", "scale", "deployment/gatehouse", "--namespace", system, "--replicas=0")
	must(t, err)
	err = s.kubectl(t.Context(), "", "wait", "--for=delete", "pod", "--namespace", system, "--selector", "app.kubernetes.io/component=server", "--timeout", deadline.String())
	must(t, err)
	code, said := runProbe(t.Context(), t, "--kubeconfig", s.Kubeconfig(), "--timeout", "1s")
	if want := "fail.validate.gatehouse.dev does not answer: "; code != 1 || !strings.Contains(said, want) {
		t.Errorf("without a replica, it ends with %d and says\n%s\nwant %q", code, said, want)
	}
}

// runProbe runs gatehouse probe, and returns its exit code and what it prints.
func runProbe(ctx context.Context, t *testing.T, args ...string) (int, string) {
	t.Helper()
	binary, err := gatehouse.Binary()
	must(t, err)
	command := exec.CommandContext(ctx, binary, append([]string{"probe"}, args...)...)
	output, err := command.CombinedOutput()
	if command.ProcessState == nil {
		t.Fatal(err)
	}
	return command.ProcessState.ExitCode(), string(output)
}
