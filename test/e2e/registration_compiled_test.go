package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// What gatehouse compile makes of a policy, and what is applied, the API server enforces itself: the status says so, and nothing is sent for it
// with --leave-compiled. As soon as a document is gone or another one, the status says that, and the requests are sent again.
func TestRegistrationLeavesCompiledPolicies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := newManagedInstall(t, w)
	m.start(t, "gatehouse-a", "--leave-compiled")
	const native, missing = "Native=True/Enforced", "Native=False/OutOfDate"
	sent, left := map[string][]string{"fail.validate": {"/configmaps CREATE"}}, map[string][]string{}
	policy := policyAbout("maps", "configmaps", "Fail")
	must(t, w.apply(t.Context(), policy))
	m.hasRules(t, sent)
	m.refusesMap(t, "red", true)

	config := t.TempDir()
	must(t, os.WriteFile(filepath.Join(config, "maps.yaml"), []byte(policy), 0o600))
	compiled, err := gatehouse.Run(t.Context(), "compile", "--config", config, "-o", "yaml")
	must(t, err)
	must(t, w.apply(t.Context(), compiled))
	w.hasConditions(t, "admissionpolicy", "", "maps", native, "maps.gatehouse.dev", healthy)
	m.hasRules(t, left)
	m.refusesMap(t, "red", true)
	m.refusesMap(t, "blue", false)

	kubectl := func(args ...string) {
		t.Helper()
		if output, err := w.Kubectl(t.Context(), args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", args, output)
		}
	}
	kubectl("delete", "validatingadmissionpolicybinding", "maps.gatehouse.dev")
	w.hasConditions(t, "admissionpolicy", "", "maps", missing, "is missing: ValidatingAdmissionPolicyBinding/maps.gatehouse.dev", healthy)
	w.event(t, "default", "AdmissionPolicy", "maps", "OutOfDate", "is missing")
	m.hasRules(t, sent)
	m.refusesMap(t, "red", true)

	must(t, w.apply(t.Context(), compiled))
	w.hasConditions(t, "admissionpolicy", "", "maps", native)
	m.hasRules(t, left)
	// The annotations stay, and the spec is another one.
	must(t, w.apply(t.Context(), strings.ReplaceAll(compiled, "!= 'red'", "!= 'green'")))
	w.hasConditions(t, "admissionpolicy", "", "maps", missing, "is not what gatehouse compile makes now")
	m.hasRules(t, sent)

	kubectl("delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", "maps.gatehouse.dev")
	support.Eventually(t, "the end of the condition Native", func() error {
		if got, err := w.conditions(t.Context(), "admissionpolicy", "", "maps"); err != nil || strings.Contains(got, "Native=") {
			return fmt.Errorf("%s, %w", got, err)
		}
		return nil
	})
	m.refusesMap(t, "red", true)
	m.refusesMap(t, "green", false)
}
