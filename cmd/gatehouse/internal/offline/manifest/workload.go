package manifest

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
)

// Workloads are the kinds of objects that are a pod or have a pod template, with its path. They are safe for concurrent use.
type Workloads struct {
	kinds *workload.Kinds
}

// NewWorkloads returns Kubernetes' own kinds, and those of a PolicyConfiguration.
func NewWorkloads(configured ...workload.Kind) (*Workloads, error) {
	kinds, err := workload.New(configured)
	return &Workloads{kinds: kinds}, err
}

// path returns the path of the pod in an object of a kind. That of a Pod is empty.
func (w *Workloads) path(apiVersion, kind string) ([]string, bool) {
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil || apiVersion == "" {
		return nil, false
	}
	if version.Group == "" && kind == "Pod" {
		return nil, true
	}
	return w.kinds.Template(version.Group, kind)
}

// Holds reports whether there is an object in a document that may hold a pod.
func (w *Workloads) Holds(document rawjson.Value) bool {
	for o := range objectsIn(document) {
		if _, ok := w.path(o.apiVersion, o.kind); ok {
			return true
		}
	}
	return false
}
