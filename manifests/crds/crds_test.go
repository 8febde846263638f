package crds_test

import (
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
		"Grant": "Cluster", "PolicyBaseline": "Namespaced", "PolicyException": "Namespaced", "SidecarProfile": "Cluster", "TokenRevocation": "Cluster",
	}
	got := map[string]string{}
	for _, definition := range all(t) {
		got[text(t, definition, "spec", "names", "kind")] = text(t, definition, "spec", "scope")
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestEachDefinitionIsLabelledAndHasStatus(t *testing.T) {
	t.Parallel()
	for _, definition := range all(t) {
		if definition.GetLabels()["app.kubernetes.io/name"] != "gatehouse" {
			t.Errorf("%s: the labels are %v", definition.GetName(), definition.GetLabels())
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
