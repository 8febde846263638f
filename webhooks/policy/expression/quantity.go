package expression

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// errHugeQuantity is the failure of an expression that makes a quantity of a text
// that isHuge.
var errHugeQuantity = fmt.Errorf("a quantity must not have more than %d digits, or an exponent of more than %d", mostDigits, mostExponentDigits)

const (
	// mostDigits is how many digits a quantity may have in front of its suffix. To
	// read a million of them takes seconds.
	mostDigits = 100
	// mostExponentDigits is how many its exponent may have. To compare 1e9999999
	// takes minutes.
	mostExponentDigits = 2
)

// isHuge tells whether a text, if it is a quantity, is one that takes longer to
// read or to compare than its cost says: neither the cost limit nor the context
// ends that. The grammar is that of
// k8s.io/apimachinery/pkg/api/resource.ParseQuantity.
func isHuge(text string) bool {
	if text != "" && (text[0] == '+' || text[0] == '-') {
		text = text[1:]
	}
	suffix := strings.TrimLeft(text, "0123456789.")
	if len(text)-len(suffix) > mostDigits {
		return true
	}
	if suffix == "" || suffix[0] != 'e' && suffix[0] != 'E' {
		return false
	}
	exponent := strings.TrimLeft(suffix[1:], "+-")
	return len(exponent) > mostExponentDigits && strings.Trim(exponent, "0123456789") == ""
}

// boundQuantities makes quantity and isQuantity fail for texts that are huge,
// whatever an expression has them from.
func boundQuantities(env *cel.Env) cel.ProgramOption {
	return cel.CustomDecoratorV2(func(part interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		call, ok := part.(interpreter.InterpretableCall)
		if !ok || !makesQuantity(call.Function()) {
			return part, nil
		}
		inner, err := binding(env, call.Function())
		if err != nil {
			return nil, err
		}
		return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(args ...ref.Val) ref.Val {
			if text, ok := args[0].(types.String); ok && isHuge(string(text)) {
				return types.WrapErr(errHugeQuantity)
			}
			return inner(args[0])
		}), nil
	})
}

func makesQuantity(function string) bool { return function == "quantity" || function == "isQuantity" }

// binding is what upstream's function does.
func binding(env *cel.Env, function string) (functions.UnaryOp, error) {
	bindings, err := env.Functions()[function].Bindings()
	if err != nil {
		return nil, err
	}
	for _, b := range bindings {
		if b.Unary != nil {
			return b.Unary, nil
		}
	}
	return nil, errors.New(function + " is not a function of one argument")
}

// IsHugeQuantity tells whether a text, if it is a quantity, takes too long to
// compare.
func IsHugeQuantity(text []byte) bool { return isHuge(string(text)) }
