package defaults_test

import (
	"testing"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/defaults"
)

// TestIgnoreMetadata holds that the defaults of such a kind are the same whatever its metadata are, which stay as they are.
func TestIgnoreMetadata(t *testing.T) {
	t.Parallel()
	count := 0
	for kind := range scheme.Scheme.AllKnownTypes() {
		if !defaults.IgnoreMetadata(kind) {
			continue
		}
		count++
		with, _ := scheme.Scheme.New(kind)
		without := with.DeepCopyObject()
		meta, _ := with.(metav1.Object)
		meta.SetName("a")
		meta.SetLabels(map[string]string{"a": "b"})
		meta.SetAnnotations(map[string]string{"a": "b", "kubernetes.io/config.mirror": "x"})
		sent := with.DeepCopyObject()
		defaults.Default(with)
		defaults.Default(without)
		before, _ := sent.(metav1.Object)
		if meta.GetName() != before.GetName() || !apiequality.Semantic.DeepEqual(meta.GetLabels(), before.GetLabels()) || !apiequality.Semantic.DeepEqual(meta.GetAnnotations(), before.GetAnnotations()) {
			t.Errorf("%s: metadata %v", kind, with)
		}
		meta.SetName("")
		meta.SetLabels(nil)
		meta.SetAnnotations(nil)
		if !apiequality.Semantic.DeepEqual(with, without) {
			t.Errorf("%s: %v, without metadata %v", kind, with, without)
		}
	}
	if count != 9 {
		t.Errorf("%d kinds", count)
	}
}
