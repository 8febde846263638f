package cluster

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// What is kept of a custom resource is what a replica that starts would read: also
// when nothing but the time of its last change is new. What means nothing is not told.
func TestResourcesOfOneVersion(t *testing.T) {
	t.Parallel()
	const written, later = "2026-01-02T03:05:00Z", "2026-01-02T03:06:00Z"
	profile := func(labels map[string]any, managers ...any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "gatehouse.dev/v1alpha1", "kind": "SidecarProfile",
			"metadata": map[string]any{"name": "a", "uid": "0a1b", "generation": int64(1), "labels": labels, "managedFields": managers},
			"spec":     map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "a", "image": "x"}}}}},
		}}
	}
	manager := func(name, field, at string) any {
		return map[string]any{"manager": name, "operation": "Update", "time": at, "fieldsV1": map[string]any{field: map[string]any{}}}
	}
	told := 0
	s := newStore(readResource, sameResource, func() { told++ })
	for _, step := range []struct {
		name   string
		object *unstructured.Unstructured
		told   int
		at     string
	}{
		{"new", profile(nil, manager("edit", "f:spec", written)), 1, written},
		{"labelled", profile(map[string]any{"team": "x"}, manager("edit", "f:spec", written), manager("label", "f:metadata", later)), 1, written},
		{"labelled by who wrote it", profile(map[string]any{"team": "x"}, manager("edit", "f:spec", later)), 2, later},
		{"the same again", profile(nil, manager("edit", "f:spec", later)), 2, later},
	} {
		if err := s.Update(step.object); err != nil {
			t.Fatal(err)
		}
		item, _, _ := s.GetByKey("a")
		kept, ok := item.(*config.Resource)
		if !ok || kept.ChangedAt.UTC().Format(time.RFC3339) != step.at || told != step.told {
			t.Errorf("%s: %v, told %d times, want %s and %d", step.name, kept, told, step.at, step.told)
		}
	}
}
