package template

import (
	"fmt"
	"slices"
	"sync"

	"github.com/google/cel-go/cel"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	celbound "github.com/gatehouse-dev/gatehouse/webhooks/cel/bound"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// Scope is what the expressions of one profile may name. It is immutable and safe
// for concurrent use.
type Scope struct {
	environment *Environment
	provider    *provider
	profile     string
	parameters  []parameter
	index       map[string]int
	presets     []string
	// defaults and sample are the values of the parameters where nobody says
	// anything, without and with plausible ones where there is no default.
	defaults, sample Params

	mu sync.Mutex
	// budget is that of the profile.
	budget *celbound.Budget
	// envs are what expressions are compiled in. Each is made when the first
	// expression needs it: most profiles have none.
	envs [uses]*cel.Env
	// compiled has every expression once: profiles repeat them.
	compiled map[source]*expression
}

type source struct {
	text string
	use  use
}

// Scope checks the parameters and presets of a profile and makes a scope of them.
// The profile's name is that of the object. There is a scope even if there are
// findings, so that what is wrong with expressions can be reported too. The
// fields of the diagnostics are paths in the profile. Patterns and expressions must keep to
// the budget.
func (e *Environment) Scope(budget *celbound.Budget, profile string, parameters []v1alpha1.SidecarParameter, presets []v1alpha1.SidecarPreset) (*Scope, diagnostic.List) {
	r := report{budget: budget}
	s := &Scope{
		environment: e, budget: budget, profile: profile, parameters: r.checkParameters(parameters), index: map[string]int{}, presets: r.checkPresets(presets),
		compiled: map[source]*expression{},
	}
	params, own := map[string]*cel.Type{}, objectTypes{}
	s.defaults = Params{scope: s, values: make([]resolved, len(s.parameters))}
	s.sample = Params{scope: s, values: make([]resolved, len(s.parameters))}
	for i := range s.parameters {
		p := &s.parameters[i]
		if _, twice := s.index[p.name]; twice {
			continue
		}
		s.index[p.name] = i
		params[p.name] = celType(p.kind)
		if p.fallback != nil {
			s.defaults.values[i] = resolved{p.fallback, FromDefault}
		}
		s.sample.values[i] = resolved{p.sample(), FromDefault}
	}
	own.declare(paramsType, params)
	sets := map[string]*cel.Type{}
	for _, name := range s.presets {
		sets[name] = cel.MapType(cel.StringType, cel.StringType)
	}
	own.declare(presetsType, sets)

	s.provider = &provider{Provider: e.base, shared: e.objects, own: own}
	return s, r.found
}

// HasParameter reports whether the profile declares the parameter.
func (s *Scope) HasParameter(name string) bool {
	_, ok := s.index[name]
	return ok
}

// HasParameters reports whether the profile declares any parameter.
func (s *Scope) HasParameters() bool { return len(s.parameters) > 0 }

// ParameterNames returns the profile's parameters, in the order in which it declares
// them.
func (s *Scope) ParameterNames() []string {
	names := make([]string, len(s.parameters))
	for i := range s.parameters {
		names[i] = s.parameters[i].name
	}
	return names
}

// declaration returns what a hint says about where names come from.
func (s *Scope) declaration(kind string, names []string) string {
	names = slices.DeleteFunc(slices.Sorted(slices.Values(names)), func(name string) bool { return name == "" })
	if len(names) == 0 {
		return fmt.Sprintf("declare it in spec.%s", kind)
	}
	return fmt.Sprintf("the profile declares %s", joined(names))
}

// Origin is where the value of a parameter comes from.
type Origin string

// The origins of values, the strongest first.
const (
	FromPod       Origin = "pod"
	FromNamespace Origin = "namespace"
	FromDefault   Origin = "default"
)

// Params are the values of a profile's parameters for one pod. They are immutable
// and safe for concurrent use.
type Params struct {
	scope *Scope
	// values are in the order in which the profile declares the parameters. A
	// value is nil where there is none that is valid.
	values []resolved
}

type resolved struct {
	*value

	from Origin
}

// ParamValue is the value of a parameter.
type ParamValue struct {
	Name string
	// Text is the value as it was written.
	Text string
	From Origin
}

// All returns the valid values, in the order in which the profile declares the
// parameters.
func (p Params) All() []ParamValue {
	all := make([]ParamValue, 0, len(p.values))
	for i, v := range p.values {
		if v.value != nil {
			all = append(all, ParamValue{Name: p.scope.parameters[i].name, Text: v.text, From: v.from})
		}
	}
	return all
}

// Invalid is a parameter whose value is not of the accepted form.
type Invalid struct {
	Parameter string
	// Text is the value, and of any length. From is where it was found, and empty
	// if it is nowhere: a parameter without a default must be given.
	Text string
	From Origin
	// Allowed is the accepted form, for people: "an integer from 1 to 10".
	Allowed string
	// Skip is true if the profile is left out, and false if the pod is refused.
	Skip bool
}

// Resolve gives every parameter its value, each for itself: the pod's text, else
// the namespace's, else the default. The functions tell what a pod and its
// namespace say about a parameter; nil says nothing about any. An invalid text is
// reported and does not give way to a weaker one.
func (s *Scope) Resolve(pod, namespace func(parameter string) (text string, ok bool)) (Params, []Invalid) {
	values, shared := s.defaults.values, true
	var invalid []Invalid
	for i := range s.parameters {
		p := &s.parameters[i]
		text, from, ok := "", FromPod, false
		if pod != nil {
			text, ok = pod(p.name)
		}
		if !ok && namespace != nil {
			from = FromNamespace
			text, ok = namespace(p.name)
		}
		if !ok {
			if p.fallback == nil {
				invalid = append(invalid, Invalid{Parameter: p.name, Allowed: p.allowed, Skip: p.skip})
			}
			continue
		}
		if shared {
			values, shared = slices.Clone(values), false
		}
		v := p.parse(text)
		if v == nil {
			invalid = append(invalid, Invalid{Parameter: p.name, Text: text, From: from, Allowed: p.allowed, Skip: p.skip})
		}
		values[i] = resolved{v, from} // nil if it is invalid
	}
	return Params{scope: s, values: values}, invalid
}
