package admission_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	crdadmission "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/admission"
	"github.com/gatehouse-dev/gatehouse/manifests/crds"
)

// TestDefinitions compares the names that requests have with those of the
// CustomResourceDefinitions that are installed.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	installed, err := crds.All()
	must(t, err)
	said := func(crd *unstructured.Unstructured) [5]string {
		text := func(path ...string) string {
			found, _, err := unstructured.NestedString(crd.Object, path...)
			must(t, err)
			return found
		}
		versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
		must(t, err)
		version, _ := versions[0].(map[string]any)
		name, _ := version["name"].(string)
		return [5]string{text("spec", "group"), text("spec", "names", "plural"), text("spec", "names", "kind"), text("spec", "scope"), name}
	}
	want := map[[5]string]bool{}
	for _, crd := range installed {
		want[said(crd)] = true
	}
	for _, crd := range crdadmission.Definitions() {
		if !want[said(crd)] {
			t.Errorf("%v is not what is installed: %v", said(crd), want)
		}
		delete(want, said(crd))
	}
	if len(want) > 0 {
		t.Errorf("%v is installed, and nobody reviews it", want)
	}
}
