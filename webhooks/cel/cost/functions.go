package cost

import (
	"strings"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"k8s.io/apiserver/pkg/cel/library"
)

// called is a call of a function, whose arguments begin with the target of a method. The overload is "" if the types
// of the arguments are not known before they are evaluated.
type called struct {
	name, overload string
	parts          []ast.Expr
	args           []Value
}

// kind is how the cost of a function depends on its arguments. Each is at least as much as the interpreter counts.
type kind uint8

const (
	// unlisted is a function whose cost is not known here.
	unlisted kind = iota
	// scalar costs one, and the result is a number, a bool or a time.
	scalar
	// accessor costs one, and its result is no longer than its arguments and a constant.
	accessor
	// selector costs one, and its result is one of its arguments, or in one.
	selector
	// reader goes through its first argument, and its result is a number or a bool.
	reader
	// converter goes through its first argument, of which it gives a part, or another form.
	converter
	// comparison goes through the shorter one of two.
	comparison
	// special is any other.
	special
)

// Text that a conversion adds: a number, a time or a quantity has no more.
const converted = 64

// kindOf returns the kind of a function of Kubernetes' environments, and unlisted for any whose cost is not bounded. Among these are
// distinct, sort, sortBy and flatten with a depth: counting their cost panics if an argument is an error, and that is part of what they
// come to.
func kindOf(function string) kind {
	switch function {
	case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.NotStrictlyFalse, operators.Negate,
		operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo,
		"size", "int", "uint", "double", "bool", "timestamp", "duration", "hasValue",
		"getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours", "getMilliseconds", "getMinutes", "getMonth", "getSeconds",
		"sign", "isInteger", "asInteger", "asApproximateFloat", "isGreaterThan", "isLessThan", "compareTo", "major", "minor", "patch",
		"family", "prefixLength", "isUnspecified", "isLoopback", "isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast",
		"serviceAccount", "path", "group", "resource", "subresource", "namespace", "name", "allowed", "errored":
		return scalar
	case "type", "masked", "add", "sub", "getScheme", "getHost", "getHostname", "getPort", "getEscapedPath":
		return accessor
	case operators.Conditional, operators.Index, operators.OptIndex, operators.OptSelect,
		"dyn", "optional.of", "optional.ofNonZeroValue", "optional.none", "value", "or", "orValue", "optional.unwrap", "unwrapOpt", "first", "last":
		return selector
	case "isURL", "isIP", "isCIDR", "ip.isCanonical", "isQuantity", "isSemver", "isSorted", "indexOf", "lastIndexOf", "includes":
		return reader
	case "string", "bytes", "charAt", "lowerAscii", "upperAscii", "substring", "trim", "strings.quote", "url", "ip", "cidr", "quantity", "semver",
		"sum", "min", "max", "slice", "reverse":
		return converter
	case operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		return comparison
	case operators.Add, operators.In, "startsWith", "endsWith", "contains", "matches", "find", "findAll", "split", "replace", "join", "format",
		"getQuery", "containsIP", "containsCIDR", "format.named", "validate", "sets.contains", "sets.equivalent", "sets.intersects", "flatten",
		"lists.range", "cel.@mapInsert", "check", "fieldSelector", "labelSelector":
		return special
	default:
		return unlisted
	}
}

// linear is at least what it costs to go through a value several times: the interpreter counts a tenth for each letter, or for
// each byte, of which a letter has three at most here, and one for each value inside.
func linear(v Value) poly {
	return plus(scaled(v.bytes, 4*common.StringTraversalCostFactor), v.values, constant(3))
}

// matching is at least what it costs to match a text with a pattern.
func matching(text, pattern poly) poly {
	return times(
		plus(scaled(text, common.StringTraversalCostFactor), constant(2)),
		plus(scaled(pattern, common.RegexStringLengthCostFactor), constant(1)),
	)
}

// estimate returns what is known of the result, and the cost of the call without that of its arguments.
func (f *called) estimate() (Value, poly) {
	one := constant(1)
	k, n := kindOf(f.name), len(f.args)
	if n == 0 && (k == reader || k == converter) || n < 2 && k == comparison {
		return unknown(), unbounded() // there is no such function
	}
	switch k {
	case unlisted:
		return f.constantFormat()
	case scalar:
		return Value{}, one
	case accessor:
		v := joined(f.args...)
		return Value{bytes: plus(scaled(v.bytes, 3), constant(converted))}, one
	case selector:
		var v Value
		for _, arg := range f.args {
			v = either(v, arg)
		}
		// An index counts as up to three steps.
		return v, constant(3)
	case reader:
		return Value{}, linear(f.args[0])
	case converter:
		v := f.args[0]
		return Value{plus(scaled(v.bytes, 4), constant(converted)), v.values}, plus(linear(v), constant(callOfList))
	case comparison:
		return Value{}, plus(scaled(smaller(f.args[0].size(), f.args[1].size()), common.StringTraversalCostFactor), one)
	case special:
	}
	return f.special()
}

// callOfList is what the interpreter counts for a function that makes a list, at least.
const callOfList = common.ListCreateBaseCost + 2

// constantFormat is one of the functions that name a format, as format.dns1123Label(). No other function is known.
func (f *called) constantFormat() (Value, poly) {
	if name, ok := strings.CutPrefix(f.name, "format."); ok && len(f.args) == 0 && library.ConstantFormats[name].Name != "" {
		return Value{}, constant(1)
	}
	return unknown(), unbounded()
}

// authorizerCheck is what the interpreter counts for a question to the authorizer.
const authorizerCheck = 350_000

func (f *called) special() (Value, poly) {
	args, one := f.args, constant(1)
	switch f.name {
	case "check":
		return Value{}, constant(authorizerCheck)
	case "format.named":
		return Value{bytes: constant(converted)}, one
	}
	if len(args) == 0 {
		return unknown(), unbounded()
	}
	first, second := args[0], Value{}
	if len(args) > 1 {
		second = args[1]
	}
	switch f.name {
	case operators.Add:
		if f.overload == overloads.AddString || f.overload == overloads.AddBytes {
			return joined(args...), plus(scaled(plus(first.size(), second.size()), common.StringTraversalCostFactor), one)
		}
		return joined(args...), one
	case operators.In:
		if f.overload == overloads.InList {
			return Value{}, plus(second.size(), one)
		}
		return Value{}, one
	case "cel.@mapInsert":
		return joined(append([]Value{{values: one}}, args...)...), one
	case "startsWith", "endsWith":
		return Value{}, plus(scaled(second.size(), common.StringTraversalCostFactor), one)
	case "contains":
		tenth := func(v Value) poly { return plus(scaled(v.size(), common.StringTraversalCostFactor), one) }
		return Value{}, times(tenth(first), tenth(second))
	case "matches":
		return Value{}, matching(first.size(), second.size())
	case "find", "findAll":
		return Value{first.bytes, plus(first.bytes, constant(2))}, matching(first.size(), second.size())
	case "validate":
		// The result says what is wrong.
		return Value{plus(scaled(second.bytes, 4), constant(maxFormatErrors)), constant(maxFormatErrors)},
			matching(second.size(), constant(maxFormatPattern()))
	default:
		return f.ofLists(first, second)
	}
}

// ofLists is a function that makes a list or text.
func (f *called) ofLists(first, second Value) (Value, poly) {
	one := constant(1)
	switch f.name {
	case "split":
		return Value{first.bytes, plus(first.bytes, constant(2))}, linear(first)
	case "getQuery":
		return Value{plus(scaled(first.bytes, 3), constant(converted)), plus(scaled(first.bytes, 2), constant(2))}, one
	case "replace":
		if len(f.args) < 3 {
			break
		}
		// At most, the new text is between all letters.
		return Value{bytes: plus(first.bytes, times(plus(first.bytes, one), f.args[2].bytes))}, linear(first)
	case "join":
		text := plus(first.bytes, times(first.values, second.bytes))
		return Value{bytes: text}, plus(scaled(text, 2*common.StringTraversalCostFactor), constant(3))
	case "format":
		// A precision can make any length of a number.
		template, known := text(f.parts[0])
		if !known || strings.Contains(template, ".") {
			return unknown(), linear(first)
		}
		return Value{bytes: plus(first.bytes, scaled(second.bytes, 8), scaled(plus(second.values, one), maxFormatted))}, linear(first)
	case "containsIP", "containsCIDR":
		return Value{}, plus(linear(first), linear(second), constant(maxAddress))
	case "fieldSelector", "labelSelector":
		const perByte = 1 + (common.ListCreateBaseCost+common.StructCreateBaseCost)/2
		return Value{}, plus(scaled(second.size(), perByte), constant(2*perByte))
	case "sets.contains", "sets.intersects", "sets.equivalent":
		return Value{}, plus(scaled(times(first.size(), second.size()), 2), constant(2))
	case "flatten":
		if len(f.args) == 1 {
			return first, plus(first.size(), constant(callOfList))
		}
	case "lists.range":
		if n, known := number(f.parts[0]); known {
			size := constant(float64(max(0, n)))
			return Value{values: size}, plus(size, constant(callOfList))
		}
	}
	return unknown(), unbounded()
}

const (
	// maxFormatted is a bound of what a verb makes of a number or time.
	maxFormatted = 400
	// maxAddress is a bound of what it costs to compare addresses.
	maxAddress = 20
	// maxFormatErrors is a bound of the bytes of what validating a format says, and of the number of errors.
	maxFormatErrors = 4096
)

// maxFormatPattern returns the size that the interpreter takes for the pattern of the largest format.
func maxFormatPattern() float64 {
	size := 0
	for _, format := range library.ConstantFormats {
		size = max(size, format.MaxRegexSize)
	}
	return float64(size)
}

func text(x ast.Expr) (string, bool) {
	if x.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := x.AsLiteral().(types.String)
	return string(s), ok
}

func number(x ast.Expr) (int64, bool) {
	if x.Kind() != ast.LiteralKind {
		return 0, false
	}
	n, ok := x.AsLiteral().(types.Int)
	return int64(n), ok
}
