package mutation

import (
	"context"
	"reflect"
	"slices"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Conflict is a pair of policies that make different objects of one in different orders. An API server runs policies in no
// particular order, which changes with each change of a policy and differs between API servers.
type Conflict struct {
	// First and Second are the names of the policies.
	First, Second string
	// InOrder is the result with First before Second, and Reversed with Second before First.
	InOrder, Reversed Decision
	// Paths are those where the two results differ, as JSON pointers, and nil if one of the orders gives no object.
	Paths []string
}

// maxPairs is how many pairs of policies are evaluated for an object.
const maxPairs = 200

// Conflicts returns the pairs of policies whose order matters for a request, in the order of their names. Each pair is evaluated
// alone, in both orders. Complete is false if there are more pairs than are evaluated, as of 21 policies, or if the context ends.
func (s *Set) Conflicts(ctx context.Context, in Input) (found []Conflict, complete bool) {
	in.Explain = true
	r := s.newDecider(ctx, in, s.policies)
	r.decide()
	var matching []*compiledPolicy
	for _, p := range s.policies {
		if slices.ContainsFunc(r.evaluations, func(e Evaluation) bool {
			return e.Policy == p.name && (e.Why == Evaluated || e.Why == Failed || e.Why == ConditionNotMet)
		}) {
			matching = append(matching, p)
		}
	}
	in.Explain = false
	left := maxPairs
	for i, first := range matching {
		for _, second := range matching[i+1:] {
			if left--; left < 0 || ctx.Err() != nil {
				return found, false
			}
			one := s.decide(ctx, in, []*compiledPolicy{first, second})
			other := s.decide(ctx, in, []*compiledPolicy{second, first})
			if one.Err != nil || other.Err != nil {
				return found, false
			}
			if paths, differ := differences(&in, &one, &other); differ {
				found = append(found, Conflict{First: first.name, Second: second.name, InOrder: one, Reversed: other, Paths: paths})
			}
		}
	}
	return found, true
}

// differences returns the paths where the results of two decisions differ, and whether they do.
func differences(in *Input, a, b *Decision) (paths []string, differ bool) {
	if (a.Refusal != nil) != (b.Refusal != nil) {
		return nil, true
	}
	if a.Refusal != nil {
		return nil, false // both refuse, whatever they say
	}
	read := func(d *Decision) (out map[string]any) {
		raw := d.Object
		if raw == nil {
			raw = in.Request.Object.Raw
		}
		if utiljson.Unmarshal(raw, &out) != nil {
			return nil
		}
		return out
	}
	one, other := read(a), read(b)
	if reflect.DeepEqual(one, other) {
		return nil, false
	}
	var changes []Change
	collect(&changes, "", one, other)
	for _, c := range changes {
		paths = append(paths, c.Path)
	}
	return paths, true
}
