package sidecar

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/inject"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/template"
)

type renderer struct {
	request *request
	profile *profile.Profile
	report  *verdictReport
}

// rendering is what a profile adds to a pod, or why that cannot be decided. Exactly one is
// set: rendered, conflicts, or a reason.
type rendering struct {
	rendered  *profile.Rendered
	conflicts []inject.Conflict
	reason    Reason
}

func (r *renderer) render() rendering {
	p, first := r.profile, r.request.first
	r.warnUnknownParameters()
	if p.Fixed != nil && !p.Scope.HasParameters() && !first.HasGatehouseNames {
		return rendering{rendered: p.Fixed}
	}
	params, invalid := p.Scope.Resolve(
		func(name string) (string, bool) {
			if !first.HasGatehouseNames {
				return "", false
			}
			value := first.Annotations.Get(p.AnnotationPrefix + name)
			return value.Text(), value.Kind() == rawjson.String
		},
		func(name string) (string, bool) {
			text, ok := r.request.ns().annotations[p.AnnotationPrefix+name]
			return text, ok
		},
	)
	if x := r.report.verdict.Explanation; x != nil {
		for _, value := range params.All() {
			x.Parameters = append(x.Parameters, Parameter{value.Name, value.Text, string(value.From)})
		}
	}
	if reason := r.checkParameters(invalid); reason != "" {
		return rendering{reason: reason}
	}
	if p.Fixed != nil {
		return rendering{rendered: p.Fixed}
	}
	in := r.request.input(p)
	in.Params = params
	rendered, err := p.Render(func(t *template.Tree) ([]byte, error) { return t.Append(nil, in) })
	if err != nil {
		return r.classifyFailure(err)
	}
	if conflicts := r.checkLabels(rendered); len(conflicts) > 0 {
		return rendering{conflicts: conflicts}
	}
	return rendering{rendered: rendered}
}

// checkParameters handles parameters that are not what is allowed, and annotations that
// set none.
func (r *renderer) checkParameters(invalid []template.Invalid) Reason {
	p := r.profile
	var reason Reason
	refused := false
	for _, bad := range invalid {
		annotation := p.AnnotationPrefix + bad.Parameter
		path, message := "metadata.annotations["+annotation+"]", podtext.Quote(bad.Text)+" is invalid"
		if x := r.report.verdict.Explanation; x != nil {
			x.Parameters = append(x.Parameters, Parameter{bad.Parameter, bad.Text, strings.TrimPrefix(string(bad.From)+", invalid", ", ")})
		}
		switch bad.From {
		case template.FromNamespace:
			path = fmt.Sprintf("namespace %q: %s", r.request.namespaceName, path)
		case template.FromPod:
		case "", template.FromDefault:
			message = "the parameter is required"
		}
		message += ": must be " + bad.Allowed
		if bad.Skip {
			reason = InvalidParameter
			r.report.verdict.Detail = message
			r.report.notApplied(p.Name, inject.WithPath(path, message))
			continue
		}
		r.report.Refuse(path, "", "%s", message)
		refused = true
	}
	if r.request.first.HasGatehouseNames {
		for _, annotation := range gatehouseNames(r.request.first.Annotations) {
			name, ok := strings.CutPrefix(annotation, p.AnnotationPrefix)
			if ok && !r.request.set.hasParameter(p, name) {
				r.report.Refuse("metadata.annotations["+strict.Cut(p.AnnotationPrefix+name, maxName)+"]", parameterHint(p, name),
					"%s is not a parameter of sidecar profile %q", podtext.Quote(name), p.Name)
				refused = true
			}
		}
	}
	if refused {
		r.report.verdict.Detail = InvalidParameter.Text()
		return Refused
	}
	return reason
}

// classifyFailure returns the reason why the profile cannot be rendered for the pod. What fails on
// this pod every time is a conflict.
func (r *renderer) classifyFailure(err error) rendering {
	name := r.profile.Name
	if failed, ok := errors.AsType[*template.EvaluationError](err); ok {
		return rendering{conflicts: []inject.Conflict{{Message: fmt.Sprintf("sidecar profile %q cannot be rendered for this pod: %v", name, failed)}}}
	}
	r.report.verdict.Detail = err.Error()
	r.report.messages.cannotDecide(fmt.Errorf("sidecar profile %q: %w", name, err))
	return rendering{reason: Unknown}
}

// checkLabels finds labels that no object can have, which only a pod's values
// can have made so.
func (r *renderer) checkLabels(rendered *profile.Rendered) []inject.Conflict {
	var found []inject.Conflict
	for name, value := range rendered.Metadata.Get("labels").Members() {
		for _, message := range validation.IsValidLabelValue(value.Text()) {
			found = append(found, inject.Conflict{Message: fmt.Sprintf("sidecar profile %q would set the label %s to %s: %s", r.profile.Name, name.Text(), podtext.Quote(value.Text()), message)})
		}
	}
	return found
}

// warnUnknownParameters warns about annotations of the namespace that set no parameter
// of the profile. Refusing would stop every pod in it.
func (r *renderer) warnUnknownParameters() {
	p := r.profile
	var stray []string
	for key := range r.request.ns().annotations {
		if name, ok := strings.CutPrefix(key, p.AnnotationPrefix); ok && !r.request.set.hasParameter(p, name) {
			stray = append(stray, name)
		}
	}
	slices.Sort(stray)
	for _, name := range stray {
		r.report.Warn("the annotation %s of namespace %q has no effect: %s is not a parameter of sidecar profile %q",
			strict.Cut(p.AnnotationPrefix+name, maxName), r.request.namespaceName, podtext.Quote(name), p.Name)
	}
}

// parameterHint returns a hint for a name that is not a parameter of the profile.
func parameterHint(p *profile.Profile, name string) string {
	names := p.Scope.ParameterNames()
	if hint := diagnostic.DidYouMean(name, names...); hint != "" || len(names) == 0 {
		return hint
	}
	const most = 12
	list := strings.Join(names[:min(len(names), most)], ", ")
	if len(names) > most {
		list += ", …"
	}
	return "the parameters are " + list
}

// hasParameter reports whether a profile has a parameter, or the other one of its
// rollout: a pod's annotations must suit both.
func (s *Set) hasParameter(p *profile.Profile, name string) bool {
	other := p.ReplacedBy
	if i, known := s.byName[p.Replaces]; known {
		other = i
	}
	return p.Scope.HasParameter(name) || other >= 0 && s.profiles[other].Scope.HasParameter(name)
}
