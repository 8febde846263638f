package schema

import (
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// checkMetadata returns what is wrong with the owners and finalizers of an object of any kind, and with the size of its annotations.
// Values of a wrong type are not its matter.
func checkMetadata(object map[string]any) diagnostic.List {
	content, _ := object["metadata"].(map[string]any)
	checked := map[string]any{}
	for _, name := range []string{"ownerReferences", "finalizers", "annotations"} {
		if value := content[name]; value != nil {
			checked[name] = value
		}
	}
	var m metav1.ObjectMeta
	if len(checked) == 0 || runtime.DefaultUnstructuredConverter.FromUnstructured(checked, &m) != nil {
		return nil //nolint:nilerr // what does not decode is reported elsewhere
	}
	at := field.NewPath("metadata")
	errs := apivalidation.ValidateOwnerReferences(m.OwnerReferences, at.Child("ownerReferences"))
	errs = append(errs, apivalidation.ValidateFinalizers(m.Finalizers, at.Child("finalizers"))...)
	if apivalidation.ValidateAnnotationsSize(m.Annotations) != nil {
		errs = append(errs, field.TooLong(at.Child("annotations"), "", apivalidation.TotalAnnotationSizeLimitB))
	}
	return diagnosticsOf(errs)
}
