package sidecar

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/status"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/template"
)

// request is a pod that is to be created, as it came, with what is known about it.
type request struct {
	set     *Set
	context context.Context //nolint:containedctx // it belongs to one call, like everything here
	// checked, index, workload and explain are those of the Input.
	checked  bool
	index    *rawjson.Index
	workload string
	explain  bool

	namespaceName string

	// pod is the pod as it came. first is the pod without what its status annotation
	// lists, as the first call saw it: no decision depends on what was added.
	pod, first      *podtext.Pod
	text, firstText []byte
	// status is the status annotation of the pod as it came, nil without one, and found
	// what of it is in the pod.
	status *status.Status
	found  *status.Undo

	namespace namespace
	lookedUp  bool // namespace is known, or known to be unknown

	podValue, namespaceValue injectValue

	expressions template.Input
	hasInput    bool // expressions is filled in
}

func (r *request) isAgain() bool { return r.first != nil && r.pod.StatusAnnotation != nil }

func (r *request) read(pod *podtext.Pod, messages *messages) error {
	r.pod = pod
	var err error
	if node, ok := r.index.Find(r.text, "request"); ok {
		err = pod.Read(r.index.Cursor(node))
	} else if r.checked {
		err = pod.Read(rawjson.Value(r.text).Cursor())
	} else {
		err = pod.Parse(r.text)
	}
	if err != nil {
		return err
	}
	r.first, r.firstText = r.pod, r.text
	if pod.StatusAnnotation == nil {
		return nil
	}
	st, err := status.Parse(pod.StatusAnnotation.Text())
	if err != nil {
		messages.warn("%s is invalid and is ignored: only Gatehouse writes it", status.Field)
		return nil //nolint:nilerr // whoever wrote it, the pod has not been here before
	}
	r.status = st
	if len(st.Profiles) == 0 {
		return nil
	}
	r.found = st.Undo()
	r.firstText, _, _ = r.found.Revert(make([]byte, 0, len(r.text)), r.text, "")
	r.first = new(podtext.Pod)
	if err := r.first.ReadAgain(r.firstText); err != nil {
		return fmt.Errorf("the pod without the additions that %s lists: %w", status.Field, err)
	}
	return nil
}

func (r *request) ns() *namespace {
	if !r.lookedUp {
		r.lookedUp = true
		r.namespace = r.set.lookUp(r.namespaceName)
	}
	return &r.namespace
}

func (r *request) has(profile string) bool {
	e := r.status.Find(profile)
	if e == nil {
		return false
	}
	there := e.Prune(r.found, r.pod.Names())
	return !there.IsEmpty()
}

// input returns what the expressions of a profile see, without parameters.
func (r *request) input(p *profile.Profile) *template.Input {
	e := &r.expressions
	if !r.hasInput {
		r.hasInput = true
		e.Context = r.context
		e.Pod = r.firstText
		e.NamespaceName = r.namespaceName
		if ns := r.ns(); ns.known {
			e.Namespace = &template.Namespace{Name: ns.name, Labels: ns.labels, Annotations: ns.annotations}
		}
	}
	e.Params = template.Params{}
	e.Presets = nil
	if len(p.Presets) > 0 {
		configMaps := r.set.configMaps
		e.Presets = func(name string) (map[string]string, error) {
			ref := p.Presets[name]
			if configMaps != nil {
				if values, known := configMaps.ConfigMapData(ref.Namespace, ref.Name); known {
					return values, nil
				}
			}
			return nil, fmt.Errorf("there is no ConfigMap %q in namespace %q", ref.Name, ref.Namespace)
		}
	}
	return e
}

// readAnnotations reads the inject annotations of the pod and its namespace. It returns
// false if the pod is refused for its own.
func (r *request) readAnnotations(messages *messages) bool {
	if inject := r.first.InjectAnnotation; inject != nil {
		var bad *invalidValue
		// Nobody can change the annotation of a mirror pod any more.
		if r.podValue, bad = r.set.parseInject(inject.Text()); bad != nil && !r.first.IsMirror {
			messages.refuse(injectField, bad.hint, "%s", bad.message)
			return false
		}
	}
	if r.first.HasGatehouseNames {
		r.warnUnknownNames(messages)
	}
	if r.set.namespaces == nil || len(r.set.profiles) == 0 {
		return true
	}
	if text, ok := r.ns().annotations[v1alpha1.InjectAnnotation]; ok {
		var bad *invalidValue
		if r.namespaceValue, bad = r.set.parseInject(text); bad != nil {
			messages.warn("the annotation %s of namespace %q is ignored: %s", v1alpha1.InjectAnnotation, r.namespaceName, bad.message)
		}
	}
	return true
}

// warnUnknownNames warns about annotations that are meant for Gatehouse and have no
// effect, and about labels that should be annotations.
func (r *request) warnUnknownNames(messages *messages) {
	const hinted = 4 // a pod can have thousands of annotations, and a hint compares one with each profile
	for i, name := range gatehouseNames(r.first.Annotations) {
		if because, hint := r.set.withoutEffect(name, i < hinted); because != "" {
			messages.warn("metadata.annotations[%s] has no effect: %s%s", strict.Cut(name, maxName), because, hint)
		}
	}
	for _, name := range gatehouseNames(r.first.Labels) {
		if name == v1alpha1.InjectAnnotation || strings.Contains(name, "."+v1alpha1.ParameterDomain+"/") {
			messages.warn("metadata.labels[%s] has no effect as a label (hint: make it an annotation)", strict.Cut(name, maxName))
		}
	}
}

// gatehouseNames returns the names that are meant for Gatehouse, sorted.
func gatehouseNames(object rawjson.Value) []string {
	var names []string
	for nameText := range object.Members() {
		if name := nameText.Text(); strings.Contains(name, podtext.Domain) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// withoutEffect says why an annotation has no effect, if it looks as if it should have
// one. The hint is the nearest name of a profile, if it is wanted.
func (s *Set) withoutEffect(name string, hinted bool) (because, hint string) {
	domain, rest, _ := strings.Cut(name, "/")
	profile, ofParameter := strings.CutSuffix(domain, "."+v1alpha1.ParameterDomain)
	switch {
	case name == v1alpha1.InjectAnnotation || name == v1alpha1.StatusAnnotation:
		return "", ""
	case domain == v1alpha1.ParameterDomain || domain == "gatehouse.dev" && rest == "inject":
		hint = fmt.Sprintf(" (hint: did you mean %s?)", v1alpha1.InjectAnnotation)
		if _, near := diagnostic.Nearest(rest, "inject"); !near {
			hint = ""
		}
		return "the annotation is unknown", hint
	case !ofParameter:
		return "", ""
	}
	i, known := s.byName[profile]
	switch {
	case !known:
		if hinted {
			if near, ok := diagnostic.Nearest(profile, s.Profiles()...); ok {
				hint = fmt.Sprintf(" (hint: did you mean %q?)", near)
			}
		}
		return "there is no sidecar profile " + podtext.Quote(profile), hint
	case s.profiles[i].Replaces != "":
		return fmt.Sprintf("sidecar profile %q replaces %q and reads the annotations of %[2]q", profile, s.profiles[i].Replaces), ""
	}
	return "", ""
}
