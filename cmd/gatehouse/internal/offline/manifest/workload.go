package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
)

// Workloads are the kinds of objects that are a pod or have a pod template, with its path. They are safe for concurrent use.
type Workloads struct {
	kinds *workload.Kinds
}

// NewWorkloads returns Kubernetes' own kinds, custom ones, each written Kind.group=path as in "Rollout.argoproj.io=spec.template", and
// those of a PolicyConfiguration. The path is that of a pod template. A custom kind may be configured too, with the same path. The
// error has everything that is wrong.
func NewWorkloads(custom []string, configured ...workload.Kind) (*Workloads, error) {
	kinds := slices.Clone(configured)
	var problems []error
	for _, text := range custom {
		kind, err := parseKind(text)
		if err != nil {
			problems = append(problems, fmt.Errorf("%q: %w", text, err))
			continue
		}
		same := func(c workload.Kind) bool {
			return c.Group == kind.Group && c.Kind == kind.Kind && slices.Equal(c.Template, kind.Template)
		}
		if !slices.ContainsFunc(configured, same) {
			kinds = append(kinds, kind)
		}
	}
	all, err := workload.New(kinds)
	if wrong, ok := errors.AsType[workload.Errors](err); ok {
		for _, e := range wrong {
			problems = append(problems, fmt.Errorf("workloads%w", e))
		}
	}
	return &Workloads{kinds: all}, errors.Join(problems...)
}

const kindExample = "as in Rollout.argoproj.io=spec.template"

// parseKind returns the kind that a text describes. The first mistake in it is the error.
func parseKind(text string) (workload.Kind, error) {
	name, path, ok := strings.Cut(text, "=")
	if !ok {
		return workload.Kind{}, fmt.Errorf("must be KIND.GROUP=PATH (hint: %s)", kindExample)
	}
	name, group, _ := strings.Cut(name, ".")
	kind := workload.Kind{Group: group, Kind: name, Template: strings.Split(path, ".")}
	_, err := workload.New([]workload.Kind{kind})
	if wrong, ok := errors.AsType[workload.Errors](err); ok {
		return kind, fmt.Errorf("%s (hint: %s)", wrong[0].Reason, cmp.Or(wrong[0].Hint, kindExample))
	}
	return kind, err
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
