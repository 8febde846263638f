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
// error has everything that is wrong with the custom kinds, and then with the configured ones.
func NewWorkloads(custom []string, configured ...workload.Kind) (*Workloads, error) {
	kinds := slices.Clone(configured)
	problems := make([]error, len(custom)) // of each text
	var texts []int                        // of each kind behind the configured ones, the index of its text
	for i, text := range custom {
		kind, err := parseKind(text)
		if err == nil {
			var known bool
			if known, err = isConfigured(configured, &kind); known {
				continue
			}
		}
		if err != nil {
			problems[i] = err
			continue
		}
		kinds, texts = append(kinds, kind), append(texts, i)
	}
	all, err := workload.New(kinds)
	if wrong, ok := errors.AsType[workload.Errors](err); ok {
		for _, e := range wrong {
			if e.Index < len(configured) {
				problems = append(problems, fmt.Errorf("workloads%w", e))
			} else if i := texts[e.Index-len(configured)]; problems[i] == nil { // a text is short: its first mistake will do
				problems[i] = textError(&kinds[e.Index], e)
			}
		}
	}
	for i, text := range custom {
		if problems[i] != nil {
			problems[i] = fmt.Errorf("%q: %w", text, problems[i])
		}
	}
	return &Workloads{kinds: all}, errors.Join(problems...)
}

const kindExample = "as in Rollout.argoproj.io=spec.template"

// parseKind splits a text. workload.New validates its parts.
func parseKind(text string) (workload.Kind, error) {
	name, path, ok := strings.Cut(text, "=")
	if !ok {
		return workload.Kind{}, fmt.Errorf("must be KIND.GROUP=PATH (hint: %s)", kindExample)
	}
	kind, group, _ := strings.Cut(name, ".")
	return workload.Kind{Group: group, Kind: kind, Template: strings.Split(path, ".")}, nil
}

// isConfigured reports whether a kind is configured with the same path. Another path is an error.
func isConfigured(configured []workload.Kind, kind *workload.Kind) (bool, error) {
	at := slices.IndexFunc(configured, func(c workload.Kind) bool { return c.Group == kind.Group && c.Kind == kind.Kind })
	if at < 0 {
		return false, nil
	}
	if path := configured[at].Template; !slices.Equal(path, kind.Template) {
		return false, fmt.Errorf("%s.%s is configured with the path %q", kind.Kind, kind.Group, strings.Join(path, "."))
	}
	return true, nil
}

// textError returns an error about a kind for a user who has written it as a text.
func textError(kind *workload.Kind, e *workload.Error) error {
	reason, hint := e.Reason, e.Hint
	switch e.Field {
	case workload.KindName:
		reason, hint = "must begin with a kind, as manifests write it, and not with a resource: "+reason, kindExample
	case workload.Group:
		if hint = kindExample; kind.Group == "" {
			reason += " behind a dot"
		}
	case workload.Template:
		hint = cmp.Or(hint, kindExample)
	case workload.Resource: // a text has none
	}
	if hint == "" {
		return errors.New(reason)
	}
	return fmt.Errorf("%s (hint: %s)", reason, hint)
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
