package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// TestRejectedConfiguration: a directory that is not valid any more changes no verdict, and is told of wherever an operator looks, until it
// is mended.
func TestRejectedConfiguration(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	must(t, w.applyDefinitions(t.Context()))
	w.createShop(t)
	dir := w.path("rejected")
	write := func(text string) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(dir, "blue.yaml"), []byte(text), 0o600))
	}
	must(t, os.Mkdir(dir, 0o700))
	blue := policyNamed("blue", "object.metadata.name != 'blue'", "")
	write(blue)
	// What is wrong with an active one is another problem, which has a line of its own.
	must(t, os.WriteFile(filepath.Join(dir, "limited.yaml"), []byte(`{apiVersion: gatehouse.dev/v1alpha1, kind: AdmissionPolicy, metadata: {name: limited}, spec: {paramKind: {apiVersion: v1, kind: ConfigMap},
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [podtemplates]}]}, validations: [{expression: "params.data.a == ''"}]}}
---
{apiVersion: gatehouse.dev/v1alpha1, kind: AdmissionPolicyBinding, metadata: {name: limited}, spec: {policyName: limited, validationActions: [Deny], paramRef: {name: limits, namespace: shop, parameterNotFoundAction: Deny}}}
`), 0o600))
	c := newResourceInstall(t, w, resourceOptions{})
	c.flags = append(c.flags, "--config", dir)
	c.start(t)
	must(t, w.apply(t.Context(), policyNamed("red", "object.metadata.name != 'red'", "")))
	w.hasConditions(t, "admissionpolicy", "", "red", inUse, healthy)
	w.refuses(t, "blue", "no blue")
	binary, err := gatehouse.Binary()
	must(t, err)
	// told waits until /readyz, which says that the server is ready, and probe tell of it, or do not.
	told := func(want bool) {
		t.Helper()
		const text = "Configuration=False since "
		support.Eventually(t, fmt.Sprintf("that the problem is told of: %t", want), func() error {
			code, body, err := c.server.Get(t.Context(), "/readyz?verbose")
			if err != nil || code != http.StatusOK || strings.Contains(body, text) != want {
				return fmt.Errorf("/readyz?verbose says %d %s, %w", code, body, err)
			}
			probe := exec.CommandContext(t.Context(), binary, "probe", "--kubeconfig", w.Kubeconfig(), "--timeout", "2s")
			output, _ := probe.CombinedOutput() // whether webhooks answer is another question
			if strings.Contains(string(output), "warning: "+c.name+": "+text) != want {
				return fmt.Errorf("probe says %s", output)
			}
			return nil
		})
	}
	told(false)
	c.logged(t, "params", func(l *logLine) bool { return strings.Contains(l.text, `\"limits\"`) })

	write("kind: [")
	told(true)
	w.event(t, c.namespace, "Pod", c.name, "ConfigurationRejected", "blue.yaml")
	w.hasConditions(t, "admissionpolicy", "", "red", inUse, "Degraded=True/ConfigurationRejected", "the previous one stays active", "blue.yaml")
	output, err := w.Kubectl(t.Context(), "get", "gatehouse", "--output", "wide").CombinedOutput()
	if err != nil || !strings.Contains(string(output), "blue.yaml") {
		t.Errorf("kubectl get gatehouse says %s, %v", output, err)
	}
	w.refuses(t, "blue", "no blue")
	w.refuses(t, "red", "no red")

	write(strings.ReplaceAll(blue, "'blue'", "'navy'"))
	told(false)
	w.event(t, c.namespace, "Pod", c.name, "ConfigurationActivated", "valid again")
	w.hasConditions(t, "admissionpolicy", "", "red", inUse, healthy)
	w.refuses(t, "navy", "no blue")
	w.refuses(t, "blue", "")
	if n := c.logged(t, "params", func(l *logLine) bool { return strings.Contains(l.text, `\"limits\"`) }); n != 1 {
		t.Errorf("%d lines are about params that do not exist", n)
	}
}
