package expression

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	celbound "github.com/gatehouse-dev/gatehouse/webhooks/cel/bound"
	celvalue "github.com/gatehouse-dev/gatehouse/webhooks/cel/value"
)

// limit returns why a function must not be called with arguments: it would take
// time or memory that its cost, which is reckoned afterwards, does not bound. The
// types of the arguments are not known.
type limit func(args []ref.Val) error

// limitOf returns the limit of a function, and nil if it has none.
func limitOf(function string) limit {
	switch function {
	case "quantity", "isQuantity":
		return limitQuantity
	case "lists.range":
		return limitRange
	case "replace":
		return limitReplace
	case "join":
		return limitJoin
	}
	if celbound.IsPattern(function) {
		return limitPattern
	}
	return nil
}

const (
	// maxElements is how many elements a list may have that a function makes: as
	// many as one expression may cost, a unit for each.
	maxElements = celconfig.PerCallLimit
	// maxText is how many bytes a text may have that a function makes of others:
	// to read it once costs as much as one expression may, a unit for ten.
	maxText = 10 * celconfig.PerCallLimit
)

// maxPattern is how many parts a regular expression may have that is not written
// down. It is compiled each time.
const maxPattern = 10_000

var (
	errHugePattern = fmt.Errorf("a regular expression must not have more than %d parts, with repetitions written out", maxPattern)

	errHugeRange = fmt.Errorf("a list must not have more than %d elements", maxElements)
	errHugeText  = fmt.Errorf("a text must not have more than %d bytes", maxText)
)

func limitQuantity(args []ref.Val) error {
	if text, ok := args[0].(types.String); ok && celvalue.IsHugeQuantity(string(text)) {
		return celvalue.ErrHugeQuantity
	}
	return nil
}

func limitRange(args []ref.Val) error {
	if n, ok := args[0].(types.Int); ok && n > maxElements {
		return errHugeRange
	}
	return nil
}

// limitReplace reckons how long a text gets of which each occurrence of a second
// one, and if that is empty each place between two letters, becomes a third one.
func limitReplace(args []ref.Val) error {
	if len(args) < 3 { // text, old, new
		return nil
	}
	text, isText := args[0].(types.String)
	old, isOld := args[1].(types.String)
	by, isBy := args[2].(types.String)
	if !isText || !isOld || !isBy || len(by) <= len(old) {
		return nil
	}
	count := utf8.RuneCountInString(string(text)) + 1
	if old != "" {
		count = strings.Count(string(text), string(old))
	}
	if len(args) > 3 {
		if most, ok := args[3].(types.Int); ok && most >= 0 && most < types.Int(count) {
			count = int(most)
		}
	}
	if count > maxText || len(by) > maxText || len(text)+count*(len(by)-len(old)) > maxText {
		return errHugeText
	}
	return nil
}

func limitPattern(args []ref.Val) error {
	if len(args) < 2 { // text, pattern
		return nil
	}
	if text, ok := args[1].(types.String); ok && celbound.PatternSize(string(text)) > maxPattern {
		return errHugePattern
	}
	return nil
}

// limitJoin reckons how long the text gets that is made of a list of texts.
func limitJoin(args []ref.Val) error {
	list, ok := args[0].(traits.Lister)
	if !ok || len(args) < 2 {
		return nil // a list without a separator is no longer than its elements
	}
	separator, ok := args[1].(types.String)
	n, isInt := list.Size().(types.Int)
	if ok && isInt && n > 1 && len(separator) > 0 && n > types.Int(maxText/len(separator)) {
		return errHugeText
	}
	return nil
}

// limited makes functions keep to their limits, wherever an expression has their
// arguments from. A pattern that is a constant was judged with its expression, and is
// compiled already.
func limited(env *cel.Env) cel.ProgramOption {
	return cel.CustomDecoratorV2(func(part interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		call, ok := part.(interpreter.InterpretableCall)
		if !ok {
			return part, nil
		}
		limit, args := limitOf(call.Function()), call.Args()
		if limit == nil || celbound.IsPattern(call.Function()) && len(args) > 1 && isConstant(args[1]) {
			return part, nil
		}
		inner, err := celbound.Binding(env, call)
		if err != nil {
			return nil, err
		}
		return &limitedCall{InterpretableCall: call, args: args, limit: limit, inner: inner}, nil
	})
}

// limitedCall is a call of a function that has a limit. Whatever else is evaluated
// of it, and so costs something, is the same as without one.
type limitedCall struct {
	interpreter.InterpretableCall
	// args are those of the call, which makes a list of them each time.
	args  []interpreter.InterpretableV2
	limit limit
	inner functions.FunctionOp
}

// Exec evaluates the arguments, and calls the function unless the limit forbids it.
// Like cel-go's own calls, one with two arguments evaluates both before it checks
// either, and any other stops at the first that is an error.
func (c *limitedCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	const binary = 2
	args := make([]ref.Val, len(c.args))
	for i, part := range c.args {
		args[i] = part.Exec(frame)
		if len(args) != binary && types.IsUnknownOrError(args[i]) {
			return args[i]
		}
	}
	for _, arg := range args {
		if types.IsUnknownOrError(arg) {
			return arg
		}
	}
	if err := c.limit(args); err != nil {
		return types.LabelErrNode(c.ID(), types.WrapErr(err))
	}
	return types.LabelErrNode(c.ID(), c.inner(args...))
}

func (c *limitedCall) Eval(activation interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(activation))
}

func isConstant(part interpreter.InterpretableV2) bool {
	_, ok := part.(interpreter.InterpretableConst)
	return ok
}
