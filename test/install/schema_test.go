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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
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

// TestSchemaFitsRecordingConfiguration: so does recording.config.
func TestSchemaFitsRecordingConfiguration(t *testing.T) {
	t.Parallel()
	of := valuesSchema(t).Properties["recording"].Properties["config"]
	for field := range strict.Fields(reflect.TypeFor[metav1.TypeMeta]()) {
		of.Properties[field] = &valueSchema{Type: "string"}
	}
	if found := of.differences(reflect.TypeFor[v1alpha1.RecordingConfiguration](), "config"); len(found) > 0 {
		t.Error(strings.Join(found, "\n"))
	}
}

// TestSchemaFitsVersionsOfCEL: the program takes exactly the versions of CEL that the schema lists.
func TestSchemaFitsVersionsOfCEL(t *testing.T) {
	t.Parallel()
	versions := valuesSchema(t).Properties["policyConfiguration"].Properties["celCompatibilityVersion"].Enum
	if len(versions) == 0 {
		t.Fatal("the schema lists no versions of CEL")
	}
	directory := t.TempDir()
	must(t, os.WriteFile(filepath.Join(directory, "x.yaml"), []byte("apiVersion: gatehouse.dev/v1alpha1\nkind: PolicyConfiguration\ncelCompatibilityVersion: '1.0'\n"), 0o600))
	said, err := exec.CommandContext(t.Context(), binary(t), "lint", "--config", directory).CombinedOutput()
	if want := fmt.Sprintf("allowed are %q to %q", versions[0], versions[len(versions)-1]); err == nil || !strings.Contains(string(said), want) {
		t.Errorf("of CEL of 1.0 the program says %q, want %q", said, want)
	}
}

// TestSchemaHasAllValues: the schema describes every value of the chart, and values.yaml has every one that it describes.
func TestSchemaHasAllValues(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root(t), chart, "values.yaml"))
	must(t, err)
	values := map[string]any{}
	must(t, yaml.Unmarshal(text, &values))
	var check func(path string, s *valueSchema, values map[string]any)
	check = func(path string, s *valueSchema, values map[string]any) {
		for key, value := range values {
			property := s.Properties[key]
			if of, ok := value.(map[string]any); ok && property != nil && len(property.Properties) > 0 && len(of) > 0 {
				check(path+key+".", property, of)
			} else if property == nil && s.Properties != nil {
				t.Errorf("the schema lacks %s%s", path, key)
			}
		}
		for key := range s.Properties {
			if _, found := values[key]; !found && key != "global" {
				t.Errorf("values.yaml lacks %s%s", path, key)
			}
		}
	}
	check("", valuesSchema(t), values)
}
