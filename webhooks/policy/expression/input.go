package expression

import (
	"context"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
)

// Source gives the values of names when an expression asks for them.
type Source interface {
	// ObjectValue, OldObjectValue, RequestValue and NamespaceValue are the values
	// of object, oldObject, request and namespaceObject.
	ObjectValue() ref.Val
	OldObjectValue() ref.Val
	RequestValue() ref.Val
	NamespaceValue() ref.Val
	// AuthorizerValue and ResourceAuthorizerValue are the values of authorizer and
	// authorizer.requestResource, and nil if there is no authorizer.
	AuthorizerValue() ref.Val
	ResourceAuthorizerValue() ref.Val
}

// Counting is whether the cost of expressions is counted.
type Counting uint8

const (
	// Counted counts the cost, and ends what costs too much.
	Counted Counting = iota
	// Uncounted is for what is known to cost less than every limit, by Program.Bound: its cost is 0.
	Uncounted
	// Brief is Uncounted for what is also known to end soon: the context is not checked.
	Brief
)

// Input is what the expressions of one policy are evaluated with, once. It is
// not safe for concurrent use.
type Input struct {
	Source Source
	// Params is the value of params; nil is null.
	Params ref.Val
	// Variables are those of the policy, and nil if it has none.
	Variables *Variables
	// Spent is what everything evaluated with this Input has cost, each variable
	// once.
	Spent int64
	// Counting is how what follows is evaluated, until the next Reset.
	Counting Counting

	values values
	phase  Phase
	// context is that of the expression under way, for the variables that it
	// asks for.
	context context.Context //nolint:containedctx // it is set and used within one call
}

// Reset makes the Input one for another evaluation. What was evaluated before is
// forgotten.
func (in *Input) Reset(source Source, params ref.Val, variables *Variables) {
	in.Source, in.Params, in.Variables, in.Spent, in.Counting = source, params, variables, 0, Counted
	in.values.reset(in)
	in.phase.pending = 0
}

var _ interpreter.Activation = (*Input)(nil)

// ResolveName returns the value of a name.
func (in *Input) ResolveName(name string) (any, bool) {
	switch name {
	case plugincel.ObjectVarName:
		return in.Source.ObjectValue(), true
	case plugincel.OldObjectVarName:
		return in.Source.OldObjectValue(), true
	case plugincel.RequestVarName:
		return in.Source.RequestValue(), true
	case plugincel.NamespaceVarName:
		return in.Source.NamespaceValue(), true
	case plugincel.ParamsVarName:
		if in.Params == nil {
			return types.NullValue, true
		}
		return in.Params, true
	case plugincel.VariableVarName:
		return &in.values, true
	case plugincel.AuthorizerVarName:
		if in.phase.unauthorized {
			return nil, false
		}
		value := in.Source.AuthorizerValue()
		return value, value != nil
	case plugincel.RequestResourceAuthorizerVarName:
		if in.phase.unauthorized {
			return nil, false
		}
		value := in.Source.ResourceAuthorizerValue()
		return value, value != nil
	default:
		return nil, false
	}
}

// Parent returns nil: there are no names but these.
func (*Input) Parent() interpreter.Activation { return nil }
