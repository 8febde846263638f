package audit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
)

// TestWith judges by policies in files of the API server, and says that there may be some.
func TestWith(t *testing.T) {
	t.Parallel()
	api := testCluster()
	for _, object := range []map[string]any{
		{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop"}},
		{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "shop", "labels": map[string]any{"a": "b"}}},
	} {
		api.Put(object)
	}
	dir := t.TempDir()
	const policy = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: data.static.k8s.io}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  validations: [{expression: "has(object.data)", message: no data}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: data.static.k8s.io}
spec: {policyName: data.static.k8s.io, validationActions: [Deny]}
`
	if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "policy.yaml"), []byte(strings.Replace(policy, "has(", "has((", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	const unseen = "policies and webhooks that API servers read from files (Kubernetes 1.37) are not considered"
	for name, c := range map[string]struct {
		args      []string
		code      int
		says, not string
	}{
		"without":       {nil, cli.ExitYes, "note: " + unseen, "data.static.k8s.io"},
		"JSON":          {[]string{"-o", "json"}, cli.ExitYes, `"unseen": "` + unseen, "data.static.k8s.io"},
		"with":          {[]string{"--with", dir}, cli.ExitNo, "ValidatingAdmissionPolicy data.static.k8s.io, validations[0]\n          in        shop (1)\n          fail      ConfigMap shop/a: no data", unseen},
		"in its name":   {[]string{"--with", dir}, cli.ExitNo, " with " + cli.InertName(dir) + ",", unseen},
		"a candidate":   {[]string{"--config", dir, "--with", dir}, cli.ExitUnknown, "--with is for what is active in the cluster, and --config replaces that (hint: --with-cluster)", ""},
		"no directory":  {[]string{"--with", filepath.Join(dir, "none")}, cli.ExitUnknown, "--with: ", ""},
		"with an error": {[]string{"--with", broken}, cli.ExitUnknown, "policy.yaml", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := clitest.Run(t.Context(), "", append([]string{"audit", "--partial", "--kubeconfig", fakeapi.Kubeconfig(t, api)}, c.args...), NewCommand)
			if text := got.Out + got.Err; got.Code != c.code || !strings.Contains(text, c.says) || c.not != "" && strings.Contains(text, c.not) {
				t.Errorf("exit code %d, want %d and %q without %q:\n%s", got.Code, c.code, c.says, c.not, text)
			}
		})
	}
}
