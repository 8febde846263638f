// Package cost bounds the cost of CEL expressions without evaluating them.
//
// The bound of an expression is computed once, from its checked form. It is a polynomial of the sizes of
// what the expression may read: no list has more elements than its text has bytes. Where the bound stays
// below the cost limits, an evaluation need not count its cost, which takes longer than the evaluation.
//
// The cost is that of github.com/google/cel-go/interpreter.CostTracker with
// k8s.io/apiserver/pkg/cel/library.CostEstimator, and with has() for free. cel-go's own estimate,
// checker.Cost, is no upper bound: it takes types from declarations that dyn evades, and knows nothing of
// what loops have in common.
package cost

import (
	"math"
	"slices"

	"github.com/google/cel-go/common/ast"
)

// Sizes are upper bounds of what an expression may read. Bytes are those of all strings, and of the names of
// members, together. Values are all elements of lists and members of maps, nested ones included.
type Sizes struct {
	// Objects are object and oldObject together.
	ObjectBytes, ObjectValues int
	// Others are request, namespaceObject and params together.
	OtherBytes, OtherValues int
}

// Bound is an upper bound of the cost of expressions. The zero value is that of none. It is immutable.
type Bound struct{ terms []term }

// term is a part of a sum: a coefficient, and the power of each of the Sizes.
type term struct {
	times  float64
	powers [4]uint8
}

// Unbounded is the Bound of what may cost any amount.
func Unbounded() Bound { return Bound{terms: []term{{times: math.Inf(1)}}} }

// IsFinite reports whether the cost has a bound.
func (b Bound) IsFinite() bool {
	return !slices.ContainsFunc(b.terms, func(t term) bool { return math.IsInf(t.times, 1) })
}

// Add returns the bound of the expressions of both.
func (b Bound) Add(other Bound) Bound {
	sum := slices.Clone(b.terms)
	for _, t := range other.terms {
		if i := slices.IndexFunc(sum, func(s term) bool { return s.powers == t.powers }); i >= 0 {
			sum[i].times += t.times
		} else {
			sum = append(sum, t)
		}
	}
	return Bound{sum}
}

// At returns the bound for some sizes.
func (b Bound) At(s *Sizes) float64 {
	sizes := [4]float64{float64(s.ObjectBytes), float64(s.ObjectValues), float64(s.OtherBytes), float64(s.OtherValues)}
	sum := 0.0
	for i := range b.terms {
		product := b.terms[i].times
		for k, power := range b.terms[i].powers {
			for range power {
				product *= sizes[k]
			}
		}
		sum += product
	}
	return sum
}

// Value is what is known of the size of a value. The zero value is that of a number or null.
type Value struct {
	// bytes and values are as in Sizes, the value itself not included.
	bytes, values poly
}

// Of returns a bound of the cost of a checked expression, and of the size of its result. Variables gives what is
// known of a variable of the policy, and false if there is none of that name. Its own cost is not included.
func Of(checked *ast.AST, variables func(name string) (Value, bool)) (Bound, Value) {
	e := estimate{checked: checked, variables: variables, next: firstLocal}
	value, cost := e.visit(checked.Expr())
	return cost.bound(), value
}

// bound returns the polynomial, which has no local symbols.
func (p poly) bound() Bound {
	if p.isUnbounded() {
		return Unbounded()
	}
	var out Bound
	for symbols, times := range p {
		t := term{times: times}
		for _, s := range symbols {
			if s != none {
				t.powers[s-objectBytes]++
			}
		}
		out.terms = append(out.terms, t)
	}
	return out
}
