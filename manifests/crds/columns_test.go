package crds_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestColumns has the API server's own code print a list of actions: each in a column, and not the list as JSON.
func TestColumns(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, definition := range all(t) {
		var d apiextensionsv1.CustomResourceDefinition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(definition.Object, &d); err != nil {
			t.Fatal(err)
		}
		if d.Spec.Names.Kind != "AdmissionPolicy" && d.Spec.Names.Kind != "AdmissionPolicyBinding" {
			continue
		}
		seen++
		convertor, err := tableconvertor.New(d.Spec.Versions[0].AdditionalPrinterColumns)
		if err != nil {
			t.Fatal(err)
		}
		for actions, want := range map[string]string{
			`["Deny"]`: "Deny", `["Warn","Audit"]`: "Warn Audit", `["Audit","Deny"]`: "Deny Audit", `[]`: "",
		} {
			object := &unstructured.Unstructured{}
			if err := json.Unmarshal(fmt.Appendf(nil, `{"apiVersion": "gatehouse.dev/v1alpha1", "kind": %q, "metadata": {"name": "a"}, "spec": {"policyName": "p", "validationActions": %s}}`, d.Spec.Names.Kind, actions), object); err != nil {
				t.Fatal(err)
			}
			table, err := convertor.ConvertToTable(t.Context(), object, &metav1.TableOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i, column := range table.ColumnDefinitions {
				cell := table.Rows[0].Cells[i]
				if cell == nil {
					continue
				}
				text := fmt.Sprint(cell)
				if strings.ContainsAny(text, `["`) {
					t.Errorf("%s: column %s prints %s", d.Name, column.Name, text)
				}
				if text == column.Name {
					got = append(got, text)
				}
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s: %s is printed as %q", d.Name, actions, got)
			}
		}
	}
	if seen == 0 {
		t.Error("no definition has actions")
	}
}
