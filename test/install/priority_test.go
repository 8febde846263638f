package install

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// TestPriorityClassIsForGatehouse: no pod of another namespace gets the PriorityClass that comes with Gatehouse.
func TestPriorityClassIsForGatehouse(t *testing.T) {
	t.Parallel()
	s := newSite(t, cluster.Options{})
	s.install(t, installed(t, false))
	create := func(namespace, metadata, class string) error {
		if class != "" {
			class = fmt.Sprintf(`"priorityClassName": %q,`, class)
		}
		pod := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {%s, "namespace": %q}, "spec": {%s "serviceAccountName": "gatehouse",
			"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
			"containers": [{"name": "app", "image": "app", "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}}`,
			metadata, namespace, class)
		// Nobody answers for Gatehouse here, and in an emergency its policies are not asked. This one is the API server's.
		said, err := s.tryKubectl(t.Context(), []byte(pod), "create", "--dry-run=server", "--as=root", "--as-group=system:masters", "--as-group=gatehouse.dev:break-glass", "-f", "-")
		if err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
		return nil
	}
	said, err := s.tryKubectl(t.Context(), nil, "create", "serviceaccount", "gatehouse", "--namespace=default")
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	const refusal = `the PriorityClass "gatehouse" is for pods of namespace gatehouse-system`
	isRefused := func(metadata string) error {
		err := create("default", metadata, "gatehouse")
		if err == nil || !strings.Contains(err.Error(), refusal) {
			return fmt.Errorf("got %w, want a refusal of the class", err)
		}
		return nil
	}
	// The API server learns of a policy a moment after it was stored.
	support.Eventually(t, "the policy of the priority class", func() error { return isRefused(`"name": "tenant"`) })
	if err := isRefused(`"generateName": "tenant-"`); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"no class":           create("default", `"name": "tenant"`, ""),
		"another class":      create("default", `"name": "tenant"`, "system-cluster-critical"),
		"a pod of Gatehouse": create(system, `"name": "gatehouse-1"`, "gatehouse"),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
