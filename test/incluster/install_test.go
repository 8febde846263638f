package incluster

import (
	"fmt"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/certmanager"
)

// Every install is applied in one command, comes up by itself, and does what it is for. The processes have the rights of
// their ServiceAccount, so that one that is missing shows.
func TestInstall(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		// args are those of helm template.
		args []string
		// replicas is how many there are without anybody saying so.
		replicas int
	}{
		{name: "install", replicas: 3},
		{name: "install-cert-manager", args: []string{"--set", "certificates.source=certManager"}, replicas: 3},
		{name: "high-availability", args: []string{"--values", chart + "/ci/high-availability-values.yaml"}, replicas: 3},
		{name: "development", args: []string{"--values", chart + "/ci/development-values.yaml"}, replicas: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			if test.name == "install-cert-manager" {
				certmanager.New(t, s.Cluster)
			}
			s.install(t, test.args...)
			s.waitForReplicas(t, test.replicas)
			s.createWorkloads(t)
			s.trusted(t)
			for _, pod := range s.kubelet.Pods() {
				content, err := os.ReadFile(pod.Log())
				must(t, err)
				for line := range strings.Lines(string(content)) {
					if strings.Contains(line, "forbidden") {
						t.Errorf("the replica %s may not do what it has to: %s", pod.Name, line)
					}
				}
				if n := pod.Restarts(); n > 0 {
					t.Errorf("the replica %s was started again %d times", pod.Name, n)
				}
			}
		})
	}
}

// trusted waits until every webhook has a CA to trust, whoever wrote it.
func (s *site) trusted(t *testing.T) {
	t.Helper()
	support.Eventually(t, "every webhook trusts somebody", func() error {
		for name, bundle := range s.bundles(t) {
			if len(bundle) == 0 {
				return fmt.Errorf("the caBundle of %s is empty", name)
			}
		}
		return nil
	})
}

// bundles are the caBundles by the name of the webhook.
func (s *site) bundles(t *testing.T) map[string]string {
	t.Helper()
	bundles := map[string]string{}
	configurations := s.Client().AdmissionregistrationV1()
	mutating, err := configurations.MutatingWebhookConfigurations().Get(t.Context(), "gatehouse", metav1.GetOptions{})
	must(t, err)
	for _, webhook := range mutating.Webhooks {
		bundles[webhook.Name] = string(webhook.ClientConfig.CABundle)
	}
	validating, err := configurations.ValidatingWebhookConfigurations().Get(t.Context(), "gatehouse", metav1.GetOptions{})
	must(t, err)
	for _, webhook := range validating.Webhooks {
		bundles[webhook.Name] = string(webhook.ClientConfig.CABundle)
	}
	return bundles
}
