package console

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/schema"
	"github.com/gatehouse-dev/gatehouse/manifests/crds"
)

// resourceSchemas returns the schemas of Gatehouse's kinds. They have the defaults that an API server fills in.
var resourceSchemas = sync.OnceValues(func() (*schema.Schemas, error) { //nolint:gochecknoglobals // a constant
	definitions, err := crds.All()
	if err != nil {
		return nil, err
	}
	return schema.New(definitions), nil
})

// asInCluster returns a document as a cluster would have it, without what the API server and kubectl add by themselves. So a document of a
// file and the object that was made of it are the same.
func (d document) asInCluster() (document, error) {
	schemas, err := resourceSchemas()
	if err != nil {
		return d, err
	}
	u := unstructured.Unstructured{Object: d.Fields}
	u.SetCreationTimestamp(metav1.Time{})
	annotations := u.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	if u.SetAnnotations(annotations); len(annotations) == 0 {
		unstructured.RemoveNestedField(u.Object, "metadata", "annotations")
	}
	if err := schemas.Prepare(u.GroupVersionKind(), u.Object, nil, true); err != nil {
		return d, err
	}
	d.Text = []byte(asYAML(u.Object))
	return d, nil
}
