package install

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support/installers"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/strict"
)

// valueSchema is what the tests look at of a JSON schema.
type valueSchema struct {
	Type                 string
	Properties           map[string]*valueSchema
	AdditionalProperties any
	Items                *valueSchema
	Enum                 []any
}

// valuesSchema is that of the chart's values.
func valuesSchema(t *testing.T) *valueSchema {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), chart, "values.schema.json"))
	must(t, err)
	s := &valueSchema{}
	must(t, json.Unmarshal(text, s))
	return s
}

// differences are the fields of a Go type that a schema lacks, or has too many, or in which it takes another kind of value,
// each by its path.
func (s *valueSchema) differences(of reflect.Type, path string) []string {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	want := map[reflect.Kind]string{
		reflect.String: "string", reflect.Int64: "integer", reflect.Int32: "integer", reflect.Float64: "number", reflect.Bool: "boolean", reflect.Slice: "array", reflect.Struct: "object",
	}[of.Kind()]
	if s.Type != want {
		return []string{fmt.Sprintf("%s: the schema has the type %q, the Go type is %s", path, s.Type, of)}
	}
	var found []string
	switch s.Type {
	case "array":
		if s.Items == nil {
			return []string{path + ": the schema takes anything in the list"}
		}
		found = s.Items.differences(of.Elem(), path+"[]")
	case "object":
		if s.AdditionalProperties != false {
			found = append(found, path+": the schema takes other fields too")
		}
		fields := strict.Fields(of)
		for _, field := range slices.Sorted(maps.Keys(fields)) {
			if s.Properties[field] == nil {
				found = append(found, path+"."+field+": the schema lacks it")
				continue
			}
			found = append(found, s.Properties[field].differences(fields[field], path+"."+field)...)
		}
		for _, field := range slices.Sorted(maps.Keys(s.Properties)) {
			if fields[field] == nil {
				found = append(found, path+"."+field+": the Go type lacks it")
			}
		}
	}
	return found
}

// TestSchemaFitsPolicyConfiguration: policyConfiguration takes the fields that the program takes, and no others, or every
// new pod would end at once. apiVersion and kind are in the template.
func TestSchemaFitsPolicyConfiguration(t *testing.T) {
	t.Parallel()
	of := valuesSchema(t).Properties["policyConfiguration"]
	for field := range strict.Fields(reflect.TypeFor[metav1.TypeMeta]()) {
		of.Properties[field] = &valueSchema{Type: "string"}
	}
	if found := of.differences(reflect.TypeFor[v1alpha1.PolicyConfiguration](), "policyConfiguration"); len(found) > 0 {
		t.Error(strings.Join(found, "\n"))
	}
}

// TestSchemaFitsRecordingConfiguration: so does recording.config. What selects requests is Kubernetes' own, and checked by the program.
func TestSchemaFitsRecordingConfiguration(t *testing.T) {
	t.Parallel()
	of := valuesSchema(t).Properties["recording"].Properties["config"]
	for field := range strict.Fields(reflect.TypeFor[metav1.TypeMeta]()) {
		of.Properties[field] = &valueSchema{Type: "string"}
	}
	found := slices.DeleteFunc(of.differences(reflect.TypeFor[v1alpha1.RecordingConfiguration](), "config"), func(text string) bool {
		return strings.HasPrefix(text, "config.match.matchConstraints")
	})
	if len(found) > 0 {
		t.Error(strings.Join(found, "\n"))
	}
}

// TestSchemaFitsRules: so do the rules of a webhook, which the API server would refuse.
func TestSchemaFitsRules(t *testing.T) {
	t.Parallel()
	of := valuesSchema(t).Properties["webhooks"].Properties["validate"].Properties["extraRules"]
	if found := of.differences(reflect.TypeFor[[]admissionregistrationv1.RuleWithOperations](), "extraRules"); len(found) > 0 {
		t.Error(strings.Join(found, "\n"))
	}
}

// TestSchemaDifferences: a field too many, one that is missing and one of another kind are found.
func TestSchemaDifferences(t *testing.T) {
	t.Parallel()
	type inner struct {
		A []string `json:"a"`
	}
	type outer struct {
		metav1.TypeMeta `json:",inline"`
		B               *int64  `json:"b,omitempty"`
		C               []inner `json:"c,omitempty"`
		D               bool    `json:"d"`
	}
	s := &valueSchema{}
	must(t, json.Unmarshal([]byte(`{"type":"object","additionalProperties":false,"properties":{"apiVersion":{"type":"string"},"kind":{"type":"string"},
"b":{"type":"number"},"c":{"type":"array","items":{"type":"object","properties":{"a":{"type":"array"},"e":{}}}}}}`), s))
	want := []string{
		`x.b: the schema has the type "number", the Go type is int64`, "x.c[]: the schema takes other fields too", "x.c[].a: the schema takes anything in the list",
		"x.c[].e: the Go type lacks it", "x.d: the schema lacks it",
	}
	if got := s.differences(reflect.TypeFor[outer](), "x"); !slices.Equal(got, want) {
		t.Errorf("found is %q, want %q", got, want)
	}
}

// configured is what a ConfigMap of the chart holds with a policyConfiguration, in a directory for the program.
func configured(t *testing.T, policyConfiguration string) (directory string) {
	t.Helper()
	program, err := installers.Binary(installers.Helm)
	must(t, err)
	text := run(t, program, "template", name, filepath.Join(root(t), chart), "--namespace", system, "--set-json", "policyConfiguration="+policyConfiguration)
	config := as[corev1.ConfigMap](t, newVariant(t, "helm", text).find(t, "ConfigMap", "gatehouse-config"))
	directory = t.TempDir()
	for file, text := range config.Data {
		must(t, os.WriteFile(filepath.Join(directory, file), []byte(text), 0o600))
	}
	return directory
}

// TestPolicyConfigurationFitsProgram: the program takes every field of what the schema takes, and of versions of CEL exactly
// those that the schema lists.
func TestPolicyConfigurationFitsProgram(t *testing.T) {
	t.Parallel()
	lint := func(directory string) (string, error) {
		output, err := exec.CommandContext(t.Context(), binary(t), "lint", "--config", directory).CombinedOutput()
		return string(output), err
	}
	full := `{"requestCostBudget":20000000,"exceptions":{"namespaces":["a"],"ownNamespaces":["*"],"requireExpiry":true},
"workloads":[{"group":"argoproj.io","kind":"Rollout","resource":"rollouts","template":"spec.template"}],"celCompatibilityVersion":"%s"}`
	versions := valuesSchema(t).Properties["policyConfiguration"].Properties["celCompatibilityVersion"].Enum
	if len(versions) == 0 {
		t.Fatal("the schema lists no versions of CEL")
	}
	first, last := fmt.Sprint(versions[0]), fmt.Sprint(versions[len(versions)-1])
	for _, version := range []string{first, last} {
		if said, err := lint(configured(t, fmt.Sprintf(full, version))); err != nil {
			t.Errorf("CEL of %s: %v\n%s", version, err, said)
		}
	}
	directory := t.TempDir()
	must(t, os.WriteFile(filepath.Join(directory, "x.yaml"), []byte("apiVersion: gatehouse.dev/v1alpha1\nkind: PolicyConfiguration\ncelCompatibilityVersion: '1.0'\n"), 0o600))
	said, err := lint(directory)
	if want := fmt.Sprintf("allowed are %q to %q", first, last); err == nil || !strings.Contains(said, want) {
		t.Errorf("of CEL of 1.0 the program says %q, want %q", said, want)
	}
}
