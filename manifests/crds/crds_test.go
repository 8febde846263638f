package crds_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/manifests/crds"
)

func all(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	definitions, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	return definitions
}

func text(t *testing.T, definition *unstructured.Unstructured, path ...string) string {
	t.Helper()
	value, _, err := unstructured.NestedString(definition.Object, path...)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// TestKinds tells which kinds have a definition: what is a document of the directory alone has none.
func TestKinds(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"AccessToken": "Cluster", "AdmissionPolicy": "Cluster", "AdmissionPolicyBinding": "Cluster",
		"PolicyException": "Namespaced", "SidecarProfile": "Cluster", "TokenRevocation": "Cluster",
	}
	got := map[string]string{}
	for _, definition := range all(t) {
		got[text(t, definition, "spec", "names", "kind")] = text(t, definition, "spec", "scope")
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestEachDefinitionIsLabelledHasARevisionAndStatus(t *testing.T) {
	t.Parallel()
	for _, definition := range all(t) {
		if definition.GetLabels()["app.kubernetes.io/name"] != "gatehouse" {
			t.Errorf("%s: the labels are %v", definition.GetName(), definition.GetLabels())
		}
		if _, ok := crds.Revision(definition); !ok {
			t.Errorf("%s: the annotations are %v, without a revision", definition.GetName(), definition.GetAnnotations())
		}
		versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
		if len(versions) != 1 {
			t.Fatalf("%s: there are %d versions", definition.GetName(), len(versions))
		}
		version, _ := versions[0].(map[string]any)
		if _, ok, _ := unstructured.NestedMap(version, "subresources", "status"); !ok {
			t.Errorf("%s: there is no subresource status", definition.GetName())
		}
	}
}

func TestKustomizationNamesEveryDefinition(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var kustomization struct {
		Resources []string `json:"resources"`
	}
	if err := yaml.Unmarshal(raw, &kustomization); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("gatehouse.dev_*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(kustomization.Resources, files) {
		t.Errorf("kustomization.yaml has %v, and there are %v", kustomization.Resources, files)
	}
	if len(files) != len(all(t)) {
		t.Errorf("there are %d files and %d definitions", len(files), len(all(t)))
	}
}

func TestYAMLIsAStreamOfAllDefinitions(t *testing.T) {
	t.Parallel()
	stream, err := crds.YAML()
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split("\n"+string(stream), "\n---\n")[1:]
	var got, want []string
	for _, document := range documents {
		var definition unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(document), &definition.Object); err != nil {
			t.Fatal(err)
		}
		got = append(got, definition.GetName())
	}
	for _, definition := range all(t) {
		want = append(want, definition.GetName())
	}
	if !slices.Equal(got, want) || !slices.IsSorted(got) {
		t.Errorf("the stream has %v, want %v", got, want)
	}
}

// TestRevisionIsRaisedWithTheSchema compares each schema with the one that had the revision first. Whoever has changed
// one raises its schema-revision, in the markers of its Go type, and runs this test with UPDATE_GOLDEN=1.
func TestRevisionIsRaisedWithTheSchema(t *testing.T) {
	t.Parallel()
	const golden = "testdata/revisions.yaml"
	type entry struct {
		Revision int    `json:"revision"`
		SHA256   string `json:"sha256"`
	}
	before := map[string]entry{}
	raw, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(raw, &before); err != nil {
		t.Fatal(err)
	}
	now := map[string]entry{}
	for _, definition := range all(t) {
		revision, _ := crds.Revision(definition)
		now[definition.GetName()] = entry{revision, digest(t, definition)}
	}
	for name, is := range now {
		if was := before[name]; is.SHA256 != was.SHA256 && is.Revision <= was.Revision {
			t.Errorf("%s: the definition has changed, and its revision is %d as it was: raise schema-revision in the markers of its type to %d, and run make generate",
				name, was.Revision, was.Revision+1)
		}
	}
	if os.Getenv("UPDATE_GOLDEN") != "" && !t.Failed() {
		raw, err := yaml.Marshal(now)
		if err == nil {
			err = os.WriteFile(golden, raw, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if !t.Failed() && !maps.Equal(before, now) {
		t.Errorf("%s is not up to date (hint: run this test with UPDATE_GOLDEN=1): it has\n%v\nand there is\n%v", golden, before, now)
	}
}

// digest stands for a definition without its descriptions, which change nothing but what people read.
func digest(t *testing.T, definition *unstructured.Unstructured) string {
	t.Helper()
	spec, _, err := unstructured.NestedMap(definition.Object, "spec")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(plain(spec, false))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// plain is a part of a schema without descriptions. The names of properties are no keywords.
func plain(value any, names bool) any {
	switch value := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, member := range value {
			if _, is := member.(string); is && name == "description" && !names {
				continue
			}
			out[name] = plain(member, name == "properties" && !names)
		}
		return out
	case []any:
		out := make([]any, len(value))
		for i := range value {
			out[i] = plain(value[i], false)
		}
		return out
	default:
		return value
	}
}

func TestDigestIsOfWhatASchemaSays(t *testing.T) {
	t.Parallel()
	schema := func(description, kind string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"description": description,
			"properties":  map[string]any{"description": map[string]any{"type": kind, "description": description}},
		}}}
	}
	first := digest(t, schema("a", "string"))
	if second := digest(t, schema("b", "string")); first != second {
		t.Error("a description counts")
	}
	if second := digest(t, schema("a", "integer")); first == second {
		t.Error("a type of a property does not count")
	}
}

// TestDescriptions holds every field of ours to having one, for kubectl explain.
func TestDescriptions(t *testing.T) {
	t.Parallel()
	var walk func(path string, schema map[string]any)
	walk = func(path string, schema map[string]any) {
		properties, _, _ := unstructured.NestedMap(schema, "properties")
		for name, member := range properties {
			property, _ := member.(map[string]any)
			at := path + "." + name
			if name == "metadata" && !strings.Contains(path, ".") {
				continue // the API server knows what it is
			}
			if description, _ := property["description"].(string); description == "" {
				t.Errorf("%s has no description", at)
			}
			walk(at, property)
		}
		for _, below := range []string{"items", "additionalProperties"} {
			if inner, ok := schema[below].(map[string]any); ok {
				walk(path+fmt.Sprintf("[%s]", below), inner)
			}
		}
	}
	for _, definition := range all(t) {
		versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
		version, _ := versions[0].(map[string]any)
		schema, _, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema")
		walk(text(t, definition, "spec", "names", "kind"), schema)
	}
}
