package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
)

// TestLintGrows holds that the work of lint grows with what there is to lint, and not with its square. It counts allocations, which do
// not depend on the speed of the machine: from n to 2n as many are added as from 2n to 4n by halves, whatever a start costs. It is not
// parallel, because allocations are counted for the whole process.
func TestLintGrows(t *testing.T) { //nolint:paralleltest // as said above
	const (
		mutating = `---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: m%[1]d}
spec:
  reinvocationPolicy: IfNeeded
  failurePolicy: Fail
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "add", path: "/metadata/labels/m%[1]d", value: "a"}]'}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: m%[1]d}
spec: {policyName: m%[1]d}
`
		validating = `---
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: p%[1]d}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: "object.spec.containers.all(c, c.image.startsWith('a%[1]d/'))", message: wrong image}]
  validationActions: [Deny]
---
apiVersion: gatehouse.dev/v1alpha1
kind: PolicyException
metadata: {name: e%[1]d, namespace: shop}
spec: {policies: [{name: p%[1]d}], match: {names: [x]}, reason: it is old, expiresAt: 2999-01-01T00:00:00Z}
`
		object = "  - {name: c%d, object: {apiVersion: v1, kind: Pod, metadata: {name: web, labels: {a: b}}, spec: {containers: [{name: web, image: a}]}}, expect: {verdict: Allowed}}\n"
		fewest = 12
	)
	repeat := func(template string, n int) string {
		var b strings.Builder
		for i := range n {
			_, _ = fmt.Fprintf(&b, template, i) // to memory
		}
		return b.String()
	}
	for name, documents := range map[string]func(n int) string{
		"mutating policies and objects": func(n int) string {
			return repeat(mutating, n) + "---\napiVersion: gatehouse.dev/v1alpha1\nkind: Test\ncases:\n" + repeat(object, 20*n)
		},
		"policies and exceptions": func(n int) string { return repeat(validating, n) },
	} {
		t.Run(name, func(t *testing.T) {
			count := func(n int) float64 {
				dir := t.TempDir()
				if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(documents(n)), 0o600); err != nil {
					t.Fatal(err)
				}
				return testing.AllocsPerRun(1, func() {
					if got := clitest.Run(t.Context(), "", []string{"lint", "--config", dir}, commands()...); got.Code != cli.ExitYes {
						t.Fatalf("got %+v", got)
					}
				})
			}
			first, second, fourth := count(fewest), count(2*fewest), count(4*fewest)
			added, more := second-first, fourth-second
			t.Logf("%d, %d and %d allocations: %.2f times as many are added", int(first), int(second), int(fourth), more/added)
			const most = 2.6 // twice as many are linear, four times as many a square
			if more > most*added {
				t.Errorf("%d allocations are added for as many documents again, and %d for twice as many", int(added), int(more))
			}
		})
	}
}
