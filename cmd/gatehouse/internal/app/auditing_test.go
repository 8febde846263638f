package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

const auditedPolicies = `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: pods}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations: [{expression: "true"}]
  validationActions: [Deny]
---
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: everything}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE], resources: ["*/*"]}]
  validations: [{expression: "true"}]
  validationActions: [Deny]
`

func loadText(t *testing.T, text string) *config.Config {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "policies.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestFingerprint changes with policies, and not with access tokens.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	first := fingerprint(loadText(t, auditedPolicies))
	for name, c := range map[string]struct {
		text    string
		changed bool
	}{
		"the same": {auditedPolicies, false},
		"an object beside them": {`{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
` + auditedPolicies, false},
		"an exception": {auditedPolicies + `
---
apiVersion: gatehouse.dev/v1alpha1
kind: PolicyException
metadata: {name: legacy, namespace: shop}
spec: {policies: [{name: pods}], match: {namespaces: [shop]}, reason: moves}
`, true},
		"a mutating policy": {auditedPolicies + `
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: labels}
spec:
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: "[]"}}]
`, true},
		"a policy": {strings.Replace(auditedPolicies, `"true"`, `"1 == 1"`, 1), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if changed := fingerprint(loadText(t, c.text)) != first; changed != c.changed {
				t.Errorf("changed is %v", changed)
			}
		})
	}
}

// TestReviewLoad measures the decisions since it was last asked, without what they wait for.
func TestReviewLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		load := &reviewLoad{since: time.Now()}
		time.Sleep(time.Second)
		load.observe(&review.Outcome{Took: time.Hour, Waited: time.Hour})
		if got := load.last(); got != 0 {
			t.Errorf("waiting is a load of %v", got)
		}
		time.Sleep(time.Second)
		load.observe(&review.Outcome{Took: time.Hour})
		if got := load.last(); got != 1 {
			t.Errorf("the load is %v", got)
		}
		time.Sleep(time.Second)
		if got := load.last(); got != 0 {
			t.Errorf("the load after that is %v", got)
		}
	})
}
