package audit

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// auditPolicy has the API server note all requests about pods and ConfigMaps.
const auditPolicy = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","rules":[{"level":"Metadata","resources":[{"group":"","resources":["pods","configmaps"]}],"namespaces":["shop","pay"]}]}`

// nativePolicies deny and audit ConfigMaps.
const nativePolicies = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: denying}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  validations: [{expression: "!('denied' in object.data)", message: no denied key}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: denying}
spec: {policyName: denying, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: auditing}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  validations: [{expression: "true"}, {expression: "!('audited' in object.data)", message: no audited key}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: auditing}
spec: {policyName: auditing, validationActions: [Audit, Warn]}
`

// TestAuditLog has an API server write an audit log of what its policies and Pod Security decide, and reads it.
func TestAuditLog(t *testing.T) {
	dir := t.TempDir()
	log, policy := filepath.Join(dir, "audit.log"), filepath.Join(dir, "policy.yaml")
	must(t, os.WriteFile(policy, []byte(auditPolicy), 0o600))
	c := cluster.New(t, cluster.Options{APIServerFlags: []string{"--audit-log-path=" + log, "--audit-policy-file=" + policy}})
	must(t, c.CreateNamespace(t.Context(), "shop", nil))
	must(t, c.CreateNamespace(t.Context(), "pay", map[string]string{"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/audit": "restricted"}))
	apply(t, c, nativePolicies)
	configMap := func(name, key string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"shop"},"data":{%q:""}}`, name, key)
	}
	support.Eventually(t, "both policies are enforced", func() error {
		for key, want := range map[string]string{"denied": "denied request", "audited": "no audited key"} {
			if text, _ := kubectl(t, c, configMap("probe", key), "create", "--dry-run=server", "-f", "-"); !strings.Contains(text, want) {
				return fmt.Errorf("got %s", text)
			}
		}
		return nil
	})
	pod := func(name, host string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"pay"},"spec":{"hostNetwork":%s,"containers":[{"name":"a","image":"a"}]}}`, name, host)
	}
	for _, one := range []struct{ manifest, says string }{
		{configMap("denied", "denied"), "no denied"},
		{configMap("audited", "audited"), "created"},
		{configMap("fine", "fine"), "created"},
		{pod("refused", "true"), "violates PodSecurity"},
		{pod("restricted", "false"), "created"},
	} {
		if text, _ := kubectl(t, c, one.manifest, "create", "-f", "-", "--as", "jane", "--as-group", "system:masters"); !strings.Contains(text, one.says) {
			t.Errorf("kubectl create says %s, want %s", text, one.says)
		}
	}
	want := []string{
		"fail PodSecurity baseline:latest  pods pay/refused by jane", "fail ValidatingAdmissionPolicy denying  configmaps shop/denied by jane",
		"warn PodSecurity restricted:latest  pods pay/restricted by jane", "warn ValidatingAdmissionPolicy auditing validations[1] configmaps shop/audited by jane",
	}
	support.Eventually(t, "the log has all requests", func() error {
		code, out, messages := program(t, "audit", "--audit-log", log, "-o", "ndjson")
		var got []string
		for line := range strings.Lines(out) {
			var r struct{ Status, Kind, Namespace, Name, User, PolicyKind, Policy, Rule, Message string }
			must(t, json.Unmarshal([]byte(line), &r))
			if r.User == "jane" && r.Namespace+"/"+r.Name != "pay/refused" || r.Status == "fail" && r.User == "jane" {
				got = append(got, fmt.Sprintf("%s %s %s %s %s %s/%s by %s", r.Status, r.PolicyKind, r.Policy, r.Rule, r.Kind, r.Namespace, r.Name, r.User))
			}
		}
		slices.Sort(got)
		if code != 0 || !slices.Equal(got, want) {
			return fmt.Errorf("exit code %d\n%s\nwant\n%s\n%s", code, strings.Join(got, "\n"), strings.Join(want, "\n"), messages)
		}
		return nil
	})
}
