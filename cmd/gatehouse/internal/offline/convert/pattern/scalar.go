package pattern

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/celexpr"
)

// comparison is an operator with the text behind it.
type comparison struct {
	operator, operand string
	// or is another comparison that may hold instead, nil for none.
	or *comparison
}

var rangeForm = regexp.MustCompile(`^([-+]?\d+(?:\.\d+)?[A-Za-z]*)(!?)-([-+]?\d+(?:\.\d+)?[A-Za-z]*)$`)

// IsRange reports whether a text is a range such as 10-20.
func IsRange(text string) bool {
	m := rangeForm.FindStringSubmatch(text)
	return m != nil && m[2] == ""
}

// parse returns the alternatives of the pattern of a string, of which each is a conjunction.
func parse(pattern string) [][]comparison {
	var out [][]comparison
	for alternative := range strings.SplitSeq(pattern, "|") {
		var all []comparison
		for text := range strings.SplitSeq(alternative, "&") {
			text = strings.Trim(text, " ")
			m := rangeForm.FindStringSubmatch(text)
			switch {
			case m == nil:
				all = append(all, parseComparison(text))
			case m[2] == "":
				all = append(all, comparison{operator: ">=", operand: m[1]}, comparison{operator: "<=", operand: m[3]})
			default:
				all = append(all, comparison{operator: "<", operand: m[1], or: &comparison{operator: ">", operand: m[3]}})
			}
		}
		out = append(out, all)
	}
	return out
}

func parseComparison(text string) comparison {
	if len(text) > 1 {
		for _, written := range []string{">=", "<=", ">", "<", "!"} {
			if rest, ok := strings.CutPrefix(text, written); ok {
				return comparison{operator: strings.Replace(written, "!", "!=", 1), operand: strings.TrimSpace(rest)}
			}
		}
	}
	return comparison{operator: "==", operand: text}
}

// Scalar returns the condition that a value, which is there and no list, matches the pattern of a scalar.
func Scalar(v celexpr.Expr, of celexpr.Type, pattern any) (celexpr.Expr, error) {
	kind := of.Kind()
	if kind == celexpr.Map || kind == celexpr.Struct || kind == celexpr.Sequence {
		return celexpr.False, nil
	}
	switch p := pattern.(type) {
	case nil: // the zero value of each type
		return oneOf(v, kind, nil, "", int64(0), false), nil
	case bool:
		return oneOf(v, kind, p), nil
	case int64, float64:
		return oneOf(v, kind, p, fmt.Sprint(p)), nil
	case string:
		return stringPattern(v, of, p)
	default:
		return celexpr.Expr{}, fmt.Errorf("a value of type %T", pattern)
	}
}

// oneOf returns the condition that a value is one of constants. It leaves out those of another kind.
func oneOf(v celexpr.Expr, kind celexpr.Kind, constants ...any) celexpr.Expr {
	var items []celexpr.Expr
	for _, constant := range constants {
		is := false
		switch constant.(type) {
		case string:
			is = kind == celexpr.String || kind == celexpr.Quantity
		case int64, float64:
			is = kind == celexpr.Number
		case bool:
			is = kind == celexpr.Truth
		}
		if is || kind == celexpr.Unknown {
			items = append(items, celexpr.Literal(constant))
		}
	}
	if kind == celexpr.Truth && len(items) > 0 {
		return celexpr.If(items[0], v, celexpr.Not(v))
	}
	return celexpr.In(v, items...)
}

// stringPattern translates the pattern of a string.
func stringPattern(v celexpr.Expr, of celexpr.Type, pattern string) (celexpr.Expr, error) {
	var out, literals []celexpr.Expr
	for _, conjunction := range parse(pattern) {
		if of.Kind() == celexpr.String && len(conjunction) == 1 && conjunction[0].isLiteral() {
			literals = append(literals, celexpr.Str(conjunction[0].operand))
			continue
		}
		var all []celexpr.Expr
		for i := range conjunction {
			either := celexpr.False
			for c := &conjunction[i]; c != nil; c = c.or {
				e, err := Compare(v, of, c.operator, c.operand)
				if err != nil {
					return celexpr.Expr{}, err
				}
				either = celexpr.Or(either, e)
			}
			all = append(all, either)
		}
		out = append(out, celexpr.And(all...))
	}
	return celexpr.Or(append([]celexpr.Expr{celexpr.In(v, literals...)}, out...)...), nil
}

// isLiteral reports whether a text is compared letter by letter.
func (c comparison) isLiteral() bool {
	_, duration := parseDuration(c.operand)
	_, quantity := parseQuantity(c.operand)
	return c.operator == "==" && !strings.ContainsAny(c.operand, "*?") && !duration && !quantity
}

func parseDuration(text string) (time.Duration, bool) {
	d, err := time.ParseDuration(text)
	return d, err == nil
}

func parseQuantity(text string) (resource.Quantity, bool) {
	const longest = 64 // comparing larger numbers takes long
	if len(text) > longest {
		return resource.Quantity{}, false
	}
	q, err := resource.ParseQuantity(text)
	return q, err == nil
}

// Compare returns the condition that a value compares with a text: as durations if both are some, else as quantities, and else as texts,
// of which the second one may have wildcards.
func Compare(v celexpr.Expr, of celexpr.Type, operator, operand string) (celexpr.Expr, error) {
	duration, hasDuration := parseDuration(operand)
	quantity, hasQuantity := parseQuantity(operand)
	if hasQuantity && strings.TrimLeft(operand, "+-0.") == "" {
		hasDuration = false // zero is the same as either
	}
	out := compareText(v, of.Kind(), operator, operand)
	s := v
	switch of.Kind() { //nolint:exhaustive // others are strings
	case celexpr.Truth:
		return out, nil
	case celexpr.Number:
		if hasQuantity {
			if n, ok := quantity.AsInt64(); ok {
				return celexpr.Rel(v, operator, celexpr.Int(n)), nil
			}
			return celexpr.Rel(celexpr.Func("double", v), operator, celexpr.Literal(quantity.AsApproximateFloat64())), nil
		}
		if hasDuration && operator != "==" && operator != "!=" {
			return celexpr.Expr{}, errors.New("a number that is compared with a duration")
		}
		return out, nil
	case celexpr.Quantity:
		if hasQuantity {
			return compareQuantity(v, operator, operand), nil
		}
		return out, nil
	case celexpr.Unknown:
		s = celexpr.Func("string", v)
	}
	if hasQuantity {
		is := celexpr.Func("isQuantity", s)
		out = celexpr.And(is, compareQuantity(s, operator, operand))
		if operator == "!=" {
			out = celexpr.Or(celexpr.Not(is), compareQuantity(s, operator, operand))
		}
	}
	if hasDuration {
		as := celexpr.Rel(celexpr.Func("duration", s), operator, celexpr.Func("duration", celexpr.Str(duration.String())))
		is := celexpr.Call(s, "matches", celexpr.Str(durationForm))
		if out.IsFalse() {
			return celexpr.And(is, as), nil
		}
		return celexpr.If(is, as, out), nil
	}
	return out, nil
}

// durationForm matches what Go's time.ParseDuration reads.
const durationForm = `^[+-]?([0-9]+([.][0-9]*)?(ns|us|ms|s|m|h))+$`

func compareQuantity(v celexpr.Expr, operator, operand string) celexpr.Expr {
	left, right := celexpr.Func("quantity", v), celexpr.Func("quantity", celexpr.Str(operand))
	switch operator {
	case "<":
		return celexpr.Call(left, "isLessThan", right)
	case ">":
		return celexpr.Call(left, "isGreaterThan", right)
	case "<=":
		return celexpr.Not(celexpr.Call(left, "isGreaterThan", right))
	case ">=":
		return celexpr.Not(celexpr.Call(left, "isLessThan", right))
	default:
		return celexpr.Rel(left, operator, right)
	}
}

// compareText compares texts with wildcards. Those have no order.
func compareText(v celexpr.Expr, kind celexpr.Kind, operator, operand string) celexpr.Expr {
	if operator != "==" && operator != "!=" {
		return celexpr.False
	}
	isWild := strings.ContainsAny(operand, "*?")
	var is celexpr.Expr
	switch {
	case kind == celexpr.Truth:
		yes, no := MatchWildcard(operand, "true"), MatchWildcard(operand, "false")
		is = celexpr.If(v, celexpr.Bool(yes), celexpr.Bool(no))
	case kind == celexpr.String || kind == celexpr.Quantity:
		is = Wildcard(v, operand)
	case kind == celexpr.Number || isWild && operand != "?*":
		is = Wildcard(celexpr.Func("string", v), operand)
	case operand == "?*":
		is = celexpr.Rel(v, "!=", celexpr.Str(""))
	case operand == "true" || operand == "false":
		is = celexpr.In(v, celexpr.Raw(operand), celexpr.Str(operand))
	default:
		is = celexpr.Eq(v, celexpr.Str(operand))
	}
	if operator == "!=" {
		return celexpr.Not(is)
	}
	return is
}

// Wildcard returns the condition that a string matches a text with the wildcards * and ?.
func Wildcard(v celexpr.Expr, text string) celexpr.Expr {
	inner := strings.Trim(text, "*")
	switch {
	case !strings.ContainsAny(text, "*?"):
		return celexpr.Eq(v, celexpr.Str(text))
	case inner == "":
		return celexpr.True
	case inner == "?":
		return celexpr.Rel(v, "!=", celexpr.Str(""))
	case strings.ContainsAny(inner, "*?"):
		return celexpr.Call(v, "matches", celexpr.Str(Expression(text)))
	case strings.HasPrefix(text, "*") && strings.HasSuffix(text, "*"):
		return celexpr.Call(v, "contains", celexpr.Str(inner))
	case strings.HasPrefix(text, "*"):
		return celexpr.Call(v, "endsWith", celexpr.Str(inner))
	default:
		return celexpr.Call(v, "startsWith", celexpr.Str(inner))
	}
}

var escapeForm = regexp.MustCompile(`\\[.+()|[\]{}$]`)

// Expression returns the regular expression of a text with wildcards.
func Expression(text string) string {
	form := escapeForm.ReplaceAllStringFunc(regexp.QuoteMeta(text), func(escape string) string { return "[" + escape[1:] + "]" })
	form = strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(form)
	return strings.TrimSuffix("^"+form+"$", ".*$")
}

// MatchWildcard reports whether a text matches one with wildcards.
func MatchWildcard(pattern, text string) bool {
	return pattern == text || strings.ContainsAny(pattern, "*?") && regexp.MustCompile("(?s)"+Expression(pattern)).MatchString(text)
}

// absentMatches reports whether a pattern holds for what is not there. Kyverno compares numbers in strings with 0 then.
func absentMatches(pattern any) bool {
	text, ok := pattern.(string)
	return pattern == nil || ok && slices.ContainsFunc(parse(text), func(all []comparison) bool {
		return !slices.ContainsFunc(all, func(c comparison) bool { return !c.holdsForZero() && (c.or == nil || !c.or.holdsForZero()) })
	})
}

// holdsForZero reports whether 0 compares so with a duration or quantity.
func (c comparison) holdsForZero() bool {
	var sign int
	if d, ok := parseDuration(c.operand); ok {
		sign = -int(min(max(d, -1), 1))
	} else if q, ok := parseQuantity(c.operand); ok {
		sign = -q.Sign()
	} else {
		return false
	}
	return map[string]bool{"==": sign == 0, "!=": sign != 0, "<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}[c.operator]
}
