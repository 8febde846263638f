package replay

import (
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	celbound "github.com/gatehouse-dev/gatehouse/webhooks/cel/bound"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// unansweredError is a policy.ErrUnanswered, without the text of that.
type unansweredError string

// Error completes a sentence about what is read.
func (e unansweredError) Error() string { return string(e) }

// Is makes it policy.ErrUnanswered.
func (unansweredError) Is(target error) bool { return target == policy.ErrUnanswered }

const (
	// errRedacted is the error of an expression that reads a redacted value.
	errRedacted = unansweredError("the result depends on a value that is redacted in the recording")
	// errMissing is wrapped by the errors of lookups that a recording has no answer to.
	errMissing = unansweredError("which the recording does not hold")
)

var _ celbound.Option = failOnRedacted

// failOnRedacted returns the option of a program by which reading a redacted value is errRedacted. As any
// error, it is absorbed where a logical operator does not need it.
//
// An expression gets a value by an attribute, that is by a variable with fields and elements of it, which fails if the
// value is redacted: so no operator sees one. It sees objects and lists that hold some. Those may be selected from and looped
// over, and the functions of passes may have them as arguments; any other function would look into them. Whether a field is
// there may be asked.
func failOnRedacted(env *cel.Env) cel.ProgramOption {
	seen := map[interpreter.Attribute]bool{} // an attribute is shown again with each field that is selected
	return cel.CustomDecoratorV2(func(part interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		switch part := part.(type) {
		case interpreter.InterpretableAttribute:
			if seen[part.Attr()] {
				return part, nil
			}
			seen[part.Attr()] = true
			return &checkedAttribute{part}, nil
		case interpreter.InterpretableCall:
			if len(part.Args()) == 0 || passes[part.Function()] {
				return part, nil
			}
			return newCheckedCall(env, part), nil
		default:
			return part, nil
		}
	})
}

// checkedAttribute is an attribute whose value must not be redacted.
type checkedAttribute struct {
	interpreter.InterpretableAttribute
}

// Exec evaluates the attribute.
func (a *checkedAttribute) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	out := a.InterpretableAttribute.Exec(frame)
	if isRedacted(out) {
		return types.LabelErrNode(a.ID(), types.WrapErr(errRedacted))
	}
	return out
}

// Eval is Exec for an activation.
func (a *checkedAttribute) Eval(activation interpreter.Activation) ref.Val {
	return a.Exec(interpreter.AsFrame(activation))
}

// AddQualifier adds a field or element.
func (a *checkedAttribute) AddQualifier(q interpreter.Qualifier) (interpreter.Attribute, error) {
	_, err := a.InterpretableAttribute.AddQualifier(q)
	return a, err
}

// Resolve returns the value as the key of another attribute.
func (a *checkedAttribute) Resolve(vars interpreter.Activation) (any, error) {
	out, err := a.InterpretableAttribute.Resolve(vars)
	if err == nil && isRedacted(out) {
		return nil, errRedacted
	}
	return out, err
}

// Qualify and QualifyIfPresent select by the value of the attribute.
func (a *checkedAttribute) Qualify(vars interpreter.Activation, object any) (any, error) {
	if _, err := a.Resolve(vars); err != nil {
		return nil, err
	}
	return a.InterpretableAttribute.Qualify(vars, object)
}

// QualifyIfPresent is Qualify for what need not be there.
func (a *checkedAttribute) QualifyIfPresent(vars interpreter.Activation, object any, presenceOnly bool) (any, bool, error) {
	if _, err := a.Resolve(vars); err != nil {
		return nil, false, err
	}
	return a.InterpretableAttribute.QualifyIfPresent(vars, object, presenceOnly)
}

// passes are the functions that do not look into what their arguments hold.
//
//nolint:gochecknoglobals // constant
var passes = map[string]bool{
	operators.Add: true, "size": true, "dyn": true, "optional.of": true, "value": true, "hasValue": true, "or": true, "orValue": true, operators.NotStrictlyFalse: true,
}

// checkedCall is a call whose arguments must not hold redacted values.
type checkedCall struct {
	interpreter.InterpretableCall

	// apply is the function, nil for one that is part of the plan, as operators of optional values are: it evaluates the arguments again.
	apply functions.FunctionOp
}

func newCheckedCall(env *cel.Env, call interpreter.InterpretableCall) *checkedCall {
	out := &checkedCall{InterpretableCall: call}
	switch call.Function() {
	case operators.Equals:
		out.apply = func(args ...ref.Val) ref.Val { return types.Equal(args[0], args[1]) }
	case operators.NotEquals:
		out.apply = func(args ...ref.Val) ref.Val { return types.Bool(types.Equal(args[0], args[1]) != types.True) }
	default:
		if binding, err := celbound.Binding(env, call); err == nil {
			out.apply = binding
		}
	}
	return out
}

// Exec evaluates the arguments and then calls the function. Like cel-go's own calls, one with
// two arguments evaluates both before it checks either, and any other stops at the first that
// is an error.
func (c *checkedCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	const binary = 2
	parts := c.Args()
	args := make([]ref.Val, len(parts))
	for i, part := range parts {
		args[i] = part.Exec(frame)
		if len(parts) != binary && types.IsUnknownOrError(args[i]) {
			return args[i]
		}
	}
	for i, arg := range args {
		_, isMap := arg.(traits.Mapper)
		switch {
		case types.IsUnknownOrError(arg):
			return arg
		case i == 1 && isMap && (c.Function() == operators.In || c.Function() == operators.OldIn): // names are never redacted
		case holdsRedacted(arg):
			return types.LabelErrNode(c.ID(), types.WrapErr(errRedacted))
		}
	}
	if c.apply == nil {
		return c.InterpretableCall.Exec(frame)
	}
	return types.LabelErrNode(c.ID(), c.apply(args...))
}

// Eval is Exec for an activation.
func (c *checkedCall) Eval(activation interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(activation))
}

// isRedacted reports whether a value of an expression is a redacted one, or a string of which a part is.
func isRedacted(value any) bool {
	switch v := value.(type) {
	case types.String:
		return strings.Contains(string(v), record.Mark)
	case string:
		return strings.Contains(v, record.Mark)
	case *types.Optional:
		return v.HasValue() && isRedacted(v.GetValue())
	default:
		return false
	}
}

// holdsRedacted reports whether a value is a redacted one, or holds one.
func holdsRedacted(value ref.Val) bool {
	switch v := value.(type) {
	case *types.Optional:
		return v.HasValue() && holdsRedacted(v.GetValue())
	case traits.Mapper:
		for it := v.Iterator(); it.HasNext() == types.True; {
			if key := it.Next(); isRedacted(key) || holdsRedacted(v.Get(key)) {
				return true
			}
		}
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True; {
			if holdsRedacted(it.Next()) {
				return true
			}
		}
	default:
		return isRedacted(value)
	}
	return false
}
