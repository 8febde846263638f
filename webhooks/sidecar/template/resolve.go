package template

import "slices"

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
		v, err := p.parse(text)
		if err != nil {
			invalid = append(invalid, Invalid{Parameter: p.name, Text: text, From: from, Allowed: p.allowed, Skip: p.skip})
		}
		values[i] = resolved{v, from} // nil if it is invalid
	}
	return Params{scope: s, values: values}, invalid
}
