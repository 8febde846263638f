package offline

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
)

// schemaErrors validates a document with the schema that --dir has written for its kind. It is false if there is none.
func schemaErrors(t *testing.T, dir, document string) ([]error, bool) {
	t.Helper()
	var value map[string]any
	if err := yaml.Unmarshal([]byte(document), &value); err != nil {
		t.Fatal(err)
	}
	kind, _ := value["kind"].(string)
	apiVersion, _ := value["apiVersion"].(string)
	group, version, _ := strings.Cut(apiVersion, "/")
	text, err := os.ReadFile(filepath.Join(dir, group, strings.ToLower(kind)+"_"+version+".json"))
	if err != nil {
		return nil, false
	}
	var schema spec.Schema
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	return validate.NewSchemaValidator(&schema, nil, "", strfmt.Default).Validate(value).Errors, true
}

// TestSchema has the schemas accept all examples, and reject what is misspelled in documents of every kind.
func TestSchema(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if got := clitest.Run(t.Context(), "", []string{"schema", "--dir", dir}, NewSchemaCommand); got.Code != 0 {
		t.Fatal(got)
	}
	seen := map[string]bool{}
	for _, root := range []string{"../../../../../manifests/examples", "../../../../../manifests/policies"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".yaml" {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for document := range strings.SplitSeq(string(text), "\n---\n") {
				problems, ok := schemaErrors(t, dir, document)
				if len(problems) > 0 {
					t.Errorf("%s: %v", path, problems)
				}
				seen[entry.Name()] = seen[entry.Name()] || ok
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if !seen["exception.yaml"] || !seen["tests.yaml"] {
		t.Errorf("got no schema of the examples: %v", seen)
	}
	const own = "apiVersion: gatehouse.dev/v1alpha1\nkind: "
	for kind, cases := range map[string]struct{ right, wrong string }{
		own + "AccessToken": {"spec: {sha256: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, expiresAt: '2030-01-01T00:00:00Z', user: {username: a}}", "spec: {hash: a}"},
		own + "AdmissionPolicy": {
			"spec: {validations: [{expression: 'true'}], validationActions: [Deny]}", "spec: {validations: [{expresion: 'true'}]}",
		},
		own + "AdmissionPolicyBinding":      {"spec: {policyName: a, validationActions: [Deny]}", "spec: {policy: a, validationActions: [Deny]}"},
		own + "PolicyException":             {"spec: {policies: [{name: a}], match: {namespaces: [b]}, reason: c}", "spec: {policies: [a], match: {}, reason: c}"},
		own + "SidecarProfile":              {"spec: {injection: OptIn, template: {spec: {anything: true}}}", "spec: {injection: Sometimes}"},
		own + "TokenRevocation":             {"spec: {user: a, issuedBefore: '2030-01-01T00:00:00Z'}", "spec: {users: [a]}"},
		own + "AuthenticationConfiguration": {"jwt: {keyRefreshInterval: 5m, issuers: []}", "jwt: {keyRefreshInterval: 5}"},
		own + "PolicyConfiguration":         {"requestCostBudget: 1000", "requestCostBudget: a lot"},
		own + "RecordingConfiguration":      {"sampling: {}", "samples: {}"},
		own + "Test":                        {"cases: [{name: a, object: {any: thing}, expect: {verdict: Allowed}}]", "cases: [{name: a, expects: {}}]"},
		"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration": {"jwt: [{issuer: {url: 'https://a'}}]", "jwt: [{issuers: {}}]"},
	} {
		if problems, ok := schemaErrors(t, dir, kind+"\n"+cases.right); !ok || len(problems) > 0 {
			t.Errorf("%s: %v", kind, problems)
		}
		if problems, _ := schemaErrors(t, dir, kind+"\n"+cases.wrong); len(problems) == 0 {
			t.Errorf("%s: accepted: %s", kind, cases.wrong)
		}
	}
}

// TestSchemaOutput holds what is printed of all kinds.
func TestSchemaOutput(t *testing.T) {
	t.Parallel()
	got := clitest.Run(t.Context(), "", []string{"schema"}, NewSchemaCommand)
	if got.Code != 0 || !strings.Contains(got.Out, `"pattern": "^gatehouse.dev/"`) || !json.Valid([]byte(got.Out)) {
		t.Errorf("got %+v", got)
	}
}
