package manifest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// Workloads are the kinds of objects that hold a pod, and where in them. They
// are safe for concurrent use.
type Workloads struct {
	// paths are the paths of pod templates. That of a Pod is empty: it is one.
	paths map[schema.GroupKind][]string
}

// builtIn are the kinds of Kubernetes itself. All versions of a group count:
// none of them has had the pod elsewhere.
func builtIn() map[schema.GroupKind][]string {
	template := []string{"spec", "template"}
	return map[schema.GroupKind][]string{
		{Kind: "Pod"}:                             {},
		{Kind: "PodTemplate"}:                     {"template"},
		{Kind: "ReplicationController"}:           template,
		{Group: "apps", Kind: "Deployment"}:       template,
		{Group: "apps", Kind: "StatefulSet"}:      template,
		{Group: "apps", Kind: "DaemonSet"}:        template,
		{Group: "apps", Kind: "ReplicaSet"}:       template,
		{Group: "extensions", Kind: "Deployment"}: template,
		{Group: "extensions", Kind: "DaemonSet"}:  template,
		{Group: "extensions", Kind: "ReplicaSet"}: template,
		{Group: "batch", Kind: "Job"}:             template,
		{Group: "batch", Kind: "CronJob"}:         {"spec", "jobTemplate", "spec", "template"},
	}
}

// NewWorkloads are Kubernetes' own kinds and custom ones, each written
// Kind.group=path, as in "Rollout.argoproj.io=spec.template". The path is that
// of a pod template: an object with metadata and spec.
//
// The error says everything that is wrong with the custom ones.
func NewWorkloads(custom []string) (*Workloads, error) {
	w := &Workloads{paths: builtIn()}
	var problems []error
	for _, text := range custom {
		if err := w.add(text); err != nil {
			problems = append(problems, fmt.Errorf("%q: %w", text, err))
		}
	}
	return w, errors.Join(problems...)
}

func (w *Workloads) add(text string) error {
	const example = "(hint: as in Rollout.argoproj.io=spec.template)"
	name, path, ok := strings.Cut(text, "=")
	if !ok {
		return fmt.Errorf("must be KIND.GROUP=PATH %s", example)
	}
	kind, group, _ := strings.Cut(name, ".")
	switch {
	case kind == "" || kind[0] < 'A' || kind[0] > 'Z':
		return fmt.Errorf("must begin with a kind, as manifests write it, and not with a resource: %q does not begin with a capital letter %s", kind, example)
	case group == "":
		return fmt.Errorf("the kind %q needs its API group behind a dot %s", kind, example)
	case strings.Contains(group, "/"):
		return fmt.Errorf("the API group %q must be without a version %s", group, example)
	case len(validation.IsDNS1123Subdomain(group)) > 0:
		return fmt.Errorf("%q is not an API group %s", group, example)
	}
	steps := strings.Split(path, ".")
	if slices.ContainsFunc(steps, func(step string) bool { return step == "" || strings.ContainsAny(step, "[]/ \t") }) {
		return fmt.Errorf("%q is not the path of a pod template: names of fields with dots between them, without a list %s", path, example)
	}
	if steps[len(steps)-1] == "spec" && len(steps) > 1 {
		return fmt.Errorf("the path %q ends in spec: it must be that of the whole pod template, which has metadata too (hint: %q)",
			path, strings.Join(steps[:len(steps)-1], "."))
	}
	key := schema.GroupKind{Group: group, Kind: kind}
	if _, known := builtIn()[key]; known {
		return fmt.Errorf("%s is known without this", key)
	}
	if _, twice := w.paths[key]; twice {
		return fmt.Errorf("%s is given twice", key)
	}
	w.paths[key] = steps
	return nil
}

// path is the path of the pod template in an object of a kind.
func (w *Workloads) path(apiVersion, kind string) ([]string, bool) {
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil || apiVersion == "" {
		return nil, false
	}
	path, ok := w.paths[schema.GroupKind{Group: version.Group, Kind: kind}]
	return path, ok
}

// Holds tells whether there is an object in a document that may hold a pod.
func (w *Workloads) Holds(document rawjson.Value) bool {
	for o := range objectsIn(document) {
		if _, ok := w.path(o.apiVersion, o.kind); ok {
			return true
		}
	}
	return false
}
