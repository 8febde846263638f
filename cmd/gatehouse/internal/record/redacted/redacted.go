// Package redacted is about values that a recording replaces by keyed hashes. An
// expression may ask whether such a value is present, or whether two of them are equal; any
// other use of one is an error, because the result would depend on what is not known.
package redacted

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"

	"github.com/gatehouse-dev/gatehouse/webhooks/celbound"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// Prefix begins each string that stands for a redacted value. Equal values have equal strings
// if they were redacted with the same key.
const Prefix = "gatehouse-redacted:"

// Err is wrapped by the errors of expressions whose result depends on a redacted value.
var Err = errors.New("the result depends on a value that is redacted in the recording")

// ErrMissing is wrapped by the errors of lookups that a recording has no answer to. It is a
// policy.ErrUnanswered, and completes a sentence about what is read.
var ErrMissing error = missingError{}

type missingError struct{}

func (missingError) Error() string { return "which the recording does not hold" }

// Is makes it policy.ErrUnanswered, without the text of that.
func (missingError) Is(target error) bool { return target == policy.ErrUnanswered }

// Guard is the celbound.Guard for redacted values.
type Guard struct{}

var _ celbound.Guard = Guard{}

// Explain implements celbound.Guard.
func (Guard) Explain(err error) error { return Explain(err) }

// Depends implements celbound.Guard.
func (Guard) Depends(err error) bool { return Depends(Explain(err).Error()) }

// Err implements celbound.Guard.
func (Guard) Err() error { return Err }

// Is implements celbound.Guard.
func (Guard) Is(text string) bool { return Is(text) }

// Is reports whether a string stands for a redacted value.
func Is(text string) bool { return strings.HasPrefix(text, Prefix) }

// Depends reports whether an error, or a message, says that a result depends on a redacted
// value. A key that is redacted and not found is named in cel-go's own message.
func Depends(message string) bool {
	return strings.Contains(message, Err.Error()) || strings.Contains(message, Prefix)
}

// Explain returns the error of a guarded program. It wraps Err unless it is known that no
// redacted value is the reason: a redacted boolean or number is a string, with which operators
// and functions fail that would have a result. A recording has all keys and elements, so that one
// that is missing was missing in the request.
func Explain(err error) error {
	if errors.Is(err, Err) || missing.MatchString(err.Error()) {
		return err
	}
	if _, ok := errors.AsType[*unrelatedError](err); ok {
		return err
	}
	return fmt.Errorf("%w: %w", Err, err)
}

// missing matches the messages of cel-go for a key or an element that there is not.
var missing = regexp.MustCompile(`(?:^|: )(?:no such key: [^:]*|index out of bounds: -?[0-9]+)$`)

// unrelatedError is the error of a call whose arguments hold nothing that is redacted.
type unrelatedError struct{ error }

// Unwrap returns the error of the call.
func (e *unrelatedError) Unwrap() error { return e.error }

// Option returns an option of CEL programs by which a call whose result depends on a redacted
// value is an error that wraps Err. As any error, it is absorbed where a logical operator
// does not need it. Evaluating costs the same with and without it. Explain has to be called with
// the errors of such a program.
func (Guard) Option(env *cel.Env) cel.ProgramOption {
	return cel.CustomDecoratorV2(func(part interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		if literal, ok := part.(interpreter.InterpretableConstructor); ok && literal.Type() == types.MapType {
			return guardedMap{literal}, nil
		}
		call, ok := part.(interpreter.InterpretableCall)
		if !ok || len(call.Args()) == 0 {
			return part, nil
		}
		guarded := &guardedCall{InterpretableCall: call}
		switch name := call.Function(); name {
		case operators.Equals:
			guarded.apply = func(args ...ref.Val) ref.Val { return Compare(args[0], args[1]).value(true) }
		case operators.NotEquals:
			guarded.apply = func(args ...ref.Val) ref.Val { return Compare(args[0], args[1]).value(false) }
		case operators.In, operators.OldIn:
			guarded.apply = contains
		default:
			inner, err := celbound.Binding(env, call)
			if err != nil {
				// It has no implementation apart from its plan, as operators of optional
				// values: it evaluates the arguments again.
				inner = func(...ref.Val) ref.Val { return nil }
				guarded.again = true
			}
			guarded.inner, guarded.apply = inner, inner
			guarded.passes = passes[name]
		}
		return guarded, nil
	})
}

// passes are the functions that only pass a redacted value on, or ask for the size of what holds
// one. The other functions use the values themselves.
//
//nolint:gochecknoglobals // constant
var passes = map[string]bool{
	operators.Add: true, operators.Index: true, operators.OptIndex: true, operators.OptSelect: true,
	"size": true, "dyn": true, "optional.of": true, "optional.ofNonZeroValue": true, "value": true, "hasValue": true,
	"or": true, "orValue": true, "first": true, "last": true, "unwrapOpt": true, "optional.unwrap": true,
	operators.NotStrictlyFalse: true,
}

// guardedMap is a map literal. With a redacted key, it is not known which keys it has.
type guardedMap struct {
	interpreter.InterpretableConstructor
}

// Exec evaluates the map.
func (m guardedMap) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	out := m.InterpretableConstructor.Exec(frame)
	if found, ok := out.(traits.Mapper); ok {
		for it := found.Iterator(); it.HasNext() == types.True; {
			if isValue(it.Next()) {
				return types.LabelErrNode(m.ID(), types.WrapErr(Err))
			}
		}
	}
	return out
}

// Eval is Exec for an activation.
func (m guardedMap) Eval(activation interpreter.Activation) ref.Val {
	return m.Exec(interpreter.AsFrame(activation))
}

// guardedCall is a call whose arguments are checked.
type guardedCall struct {
	interpreter.InterpretableCall

	// apply is the function, and inner that of a call that is no comparison.
	apply, inner functions.FunctionOp
	// passes is true if the function may have containers with redacted values as arguments.
	passes bool
	// again is true if the call evaluates its arguments itself.
	again bool
}

// Exec evaluates the arguments and then calls the function. Like cel-go's own calls, one with
// two arguments evaluates both before it checks either, and any other stops at the first that
// is an error.
func (c *guardedCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	const binary = 2
	parts := c.Args()
	args := make([]ref.Val, len(parts))
	for i, part := range parts {
		args[i] = part.Exec(frame)
		if len(parts) != binary && types.IsUnknownOrError(args[i]) {
			return args[i]
		}
	}
	for _, arg := range args {
		if types.IsUnknownOrError(arg) {
			return arg
		}
	}
	redacted := false
	for i, arg := range args {
		redacted = redacted || c.dependsOn(i, arg)
	}
	var out ref.Val
	switch {
	case c.inner != nil && redacted:
		out = types.WrapErr(Err)
	case c.again:
		out = c.InterpretableCall.Exec(frame)
	default:
		out = c.apply(args...)
	}
	if err, ok := out.(*types.Err); ok && !slices.ContainsFunc(args, holds) {
		out = types.WrapErr(&unrelatedError{err})
	}
	return types.LabelErrNode(c.ID(), out)
}

// Eval is Exec for an activation.
func (c *guardedCall) Eval(activation interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(activation))
}

// dependsOn reports whether the result depends on a redacted value in the i-th argument.
func (c *guardedCall) dependsOn(i int, arg ref.Val) bool {
	if c.inner == nil {
		return false // comparisons judge by themselves
	}
	if !c.passes {
		return holds(arg)
	}
	if !isValue(arg) {
		return false
	}
	switch c.Function() {
	case "size", operators.Add:
		return true
	case operators.Index, operators.OptIndex, operators.OptSelect:
		return i > 0
	default:
		return false
	}
}

// isValue reports whether a value is a redacted one, or a string of which a part is.
func isValue(value ref.Val) bool {
	text, ok := value.(types.String)
	return ok && strings.Contains(string(text), Prefix)
}

// holds reports whether a value is a redacted one, or holds one.
func holds(value ref.Val) bool {
	switch v := value.(type) {
	case types.String:
		return isValue(v)
	case *types.Optional:
		return v.HasValue() && holds(v.GetValue())
	case traits.Mapper:
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			if holds(key) || holds(v.Get(key)) {
				return true
			}
		}
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True; {
			if holds(it.Next()) {
				return true
			}
		}
	}
	return false
}

// Relation is the result of a comparison.
type Relation uint8

// The relations. That of lists and maps is the greatest of those of their parts.
const (
	Same Relation = iota
	// Unknown is the relation of a redacted value, or of a string of which a part is redacted, and
	// another scalar.
	Unknown
	Different
)

// value returns the result of == if equal is true, else that of !=.
func (r Relation) value(equal bool) ref.Val {
	if r == Unknown {
		return types.WrapErr(Err)
	}
	return types.Bool((r == Same) == equal)
}

func relationOf(equal bool) Relation {
	if equal {
		return Same
	}
	return Different
}

// Compare compares two values. Redacted values are equal if their strings are.
func Compare(a, b ref.Val) Relation {
	switch {
	case !holds(a) && !holds(b):
		return relationOf(types.Equal(a, b) == types.True)
	case isValue(a):
		return compareRedacted(a, b)
	case isValue(b):
		return compareRedacted(b, a)
	}
	switch left := a.(type) {
	case *types.Optional:
		if right, ok := b.(*types.Optional); ok && left.HasValue() && right.HasValue() {
			return Compare(left.GetValue(), right.GetValue())
		}
	case traits.Mapper:
		if right, ok := b.(traits.Mapper); ok && left.Size() == right.Size() {
			return compareMaps(left, right)
		}
	case traits.Lister:
		if right, ok := b.(traits.Lister); ok && left.Size() == right.Size() {
			return compareLists(left, right)
		}
	}
	return Different
}

func compareRedacted(value, other ref.Val) Relation {
	switch o := other.(type) {
	case types.String:
		if v, _ := value.(types.String); v == o || Is(string(v)) && Is(string(o)) {
			return relationOf(v == o)
		}
		return Unknown
	case types.Int, types.Uint, types.Double, types.Bool:
		return Unknown
	}
	return Different
}

func compareMaps(a, b traits.Mapper) (out Relation) {
	for it := a.Iterator(); it.HasNext() == types.True && out != Different; {
		key := it.Next()
		theirs, found := b.Find(key)
		if !found {
			return Different
		}
		out = max(out, Compare(a.Get(key), theirs))
	}
	return out
}

func compareLists(a, b traits.Lister) (out Relation) {
	size, _ := a.Size().(types.Int)
	for i := types.Int(0); i < size && out != Different; i++ {
		out = max(out, Compare(a.Get(i), b.Get(i)))
	}
	return out
}

// contains returns the result of the operator in.
func contains(args ...ref.Val) ref.Val {
	list, ok := args[1].(traits.Lister)
	if !ok {
		if holds(args[0]) {
			return types.WrapErr(Err)
		}
		if container, ok := args[1].(traits.Container); ok {
			return container.Contains(args[0])
		}
		return types.MaybeNoSuchOverloadErr(args[1])
	}
	unknown := false
	for it := list.Iterator(); it.HasNext() == types.True; {
		switch Compare(it.Next(), args[0]) {
		case Unknown:
			unknown = true
		case Same:
			return types.True
		case Different:
		}
	}
	if unknown {
		return types.WrapErr(Err)
	}
	return types.False
}
