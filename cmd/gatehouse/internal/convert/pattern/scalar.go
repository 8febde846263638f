package pattern

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/convert/celexpr"
)

// Operators of a pattern of a string.
const (
	equal     = "=="
	notEqual  = "!="
	inRange   = "-"
	notInside = "!-"
)

var (
	rangeForm    = regexp.MustCompile(`^([-+|]?\d+(?:\.\d+)?[A-Za-z]*)-([-+|]?\d+(?:\.\d+)?[A-Za-z]*)$`)
	notRangeForm = regexp.MustCompile(`^([-+|]?\d+(?:\.\d+)?[A-Za-z]*)!-([-+|]?\d+(?:\.\d+)?[A-Za-z]*)$`)
)

// splitOperator returns the operator of a pattern, and what follows it.
func splitOperator(text string) (operator, rest string) {
	if len(text) < 2 {
		return equal, strings.TrimSpace(text)
	}
	for _, o := range []struct{ written, operator string }{{">=", ">="}, {"<=", "<="}, {">", ">"}, {"<", "<"}, {"!", notEqual}} {
		if rest, ok := strings.CutPrefix(text, o.written); ok {
			return o.operator, strings.TrimSpace(rest)
		}
	}
	switch {
	case notRangeForm.MatchString(text):
		return notInside, text
	case rangeForm.MatchString(text):
		return inRange, text
	default:
		return equal, strings.TrimSpace(text)
	}
}

// IsRange reports whether a text is a range such as 10-20.
func IsRange(text string) bool {
	operator, _ := splitOperator(text)
	return operator == inRange
}

// Scalar returns the condition that a value, which is there and no list, matches the pattern of a scalar.
func Scalar(v celexpr.Expr, of celexpr.Type, pattern any) (celexpr.Expr, error) {
	kind := of.Kind()
	if kind == celexpr.Map || kind == celexpr.Struct || kind == celexpr.Sequence {
		return celexpr.False, nil
	}
	switch p := pattern.(type) {
	case nil:
		return emptyPattern(v, kind), nil
	case bool:
		if kind == celexpr.Truth {
			if p {
				return v, nil
			}
			return celexpr.Not(v), nil
		}
		if kind != celexpr.Unknown {
			return celexpr.False, nil
		}
		return celexpr.Eq(v, celexpr.Bool(p)), nil
	case int64:
		return numberPattern(v, kind, celexpr.Int(p), strconv.FormatInt(p, 10)), nil
	case float64:
		if p == math.Trunc(p) && math.Abs(p) < 1<<53 {
			return numberPattern(v, kind, celexpr.Int(int64(p)), strconv.FormatInt(int64(p), 10)), nil
		}
		return numberPattern(v, kind, celexpr.Double(p), strconv.FormatFloat(p, 'f', -1, 64)), nil
	case string:
		return stringPattern(v, kind, p)
	default:
		return celexpr.Expr{}, fmt.Errorf("a value of type %T", pattern)
	}
}

// emptyPattern is the pattern null, which the zero value of each type matches.
func emptyPattern(v celexpr.Expr, kind celexpr.Kind) celexpr.Expr {
	switch kind { //nolint:exhaustive // others may be anything
	case celexpr.String, celexpr.Quantity:
		return celexpr.Eq(v, celexpr.Str(""))
	case celexpr.Number:
		return celexpr.Eq(v, celexpr.Int(0))
	case celexpr.Truth:
		return celexpr.Not(v)
	default:
		return celexpr.In(v, celexpr.Raw("null"), celexpr.Str(""), celexpr.Int(0), celexpr.False)
	}
}

// numberPattern is the pattern of a number, which a string of its digits matches too.
func numberPattern(v celexpr.Expr, kind celexpr.Kind, number celexpr.Expr, digits string) celexpr.Expr {
	switch kind { //nolint:exhaustive // others may be anything
	case celexpr.Number:
		return celexpr.Eq(v, number)
	case celexpr.String, celexpr.Quantity:
		return celexpr.Eq(v, celexpr.Str(digits))
	case celexpr.Truth:
		return celexpr.False
	default:
		return celexpr.In(v, number, celexpr.Str(digits))
	}
}

// stringPattern translates alternatives, of which each is a conjunction.
func stringPattern(v celexpr.Expr, kind celexpr.Kind, pattern string) (celexpr.Expr, error) {
	var any []celexpr.Expr
	var literals []celexpr.Expr
	for alternative := range strings.SplitSeq(pattern, "|") {
		var all []celexpr.Expr
		for condition := range strings.SplitSeq(strings.Trim(alternative, " "), "&") {
			e, err := condition1(v, kind, strings.Trim(condition, " "))
			if err != nil {
				return celexpr.Expr{}, err
			}
			all = append(all, e)
		}
		if text := strings.Trim(alternative, " "); kind == celexpr.String && isLiteral(text) {
			literals = append(literals, celexpr.Str(text))
			continue
		}
		any = append(any, celexpr.And(all...))
	}
	if len(literals) > 0 {
		any = append([]celexpr.Expr{celexpr.In(v, literals...)}, any...)
	}
	return celexpr.Or(any...), nil
}

// isLiteral reports whether a pattern is compared letter by letter.
func isLiteral(text string) bool {
	operator, rest := splitOperator(text)
	_, duration := parseDuration(rest)
	_, quantity := parseQuantity(rest)
	return operator == equal && !strings.ContainsAny(rest, "*?&") && !duration && !quantity
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

// condition1 translates a pattern with at most one operator.
func condition1(v celexpr.Expr, kind celexpr.Kind, text string) (celexpr.Expr, error) {
	operator, rest := splitOperator(text)
	switch operator {
	case inRange:
		m := rangeForm.FindStringSubmatch(text)
		from, err := compare(v, kind, ">=", m[1])
		if err != nil {
			return from, err
		}
		to, err := compare(v, kind, "<=", m[2])
		return celexpr.And(from, to), err
	case notInside:
		m := notRangeForm.FindStringSubmatch(text)
		below, err := compare(v, kind, "<", m[1])
		if err != nil {
			return below, err
		}
		above, err := compare(v, kind, ">", m[2])
		return celexpr.Or(below, above), err
	default:
		return compare(v, kind, operator, rest)
	}
}

// Compare returns the condition that a value compares with a text: as durations if both are some, else as quantities, and else as texts,
// of which the second one may have wildcards.
func Compare(v celexpr.Expr, of celexpr.Type, operator, operand string) (celexpr.Expr, error) {
	return compare(v, of.Kind(), operator, operand)
}

// compare is Compare for a kind.
func compare(v celexpr.Expr, kind celexpr.Kind, operator, operand string) (celexpr.Expr, error) {
	duration, isDuration := parseDuration(operand)
	quantity, isQuantity := parseQuantity(operand)
	if isDuration && isQuantity && strings.TrimLeft(operand, "+-0.") == "" {
		isDuration = false // zero is the same as either
	}
	text := compareText(v, kind, operator, operand)
	switch kind { //nolint:exhaustive // others may be anything
	case celexpr.Truth:
		return text, nil
	case celexpr.Number:
		if isQuantity {
			return compareNumber(v, operator, quantity), nil
		}
		if isDuration && operator != equal && operator != notEqual {
			return celexpr.Expr{}, errors.New("a number that is compared with a duration")
		}
		return text, nil
	case celexpr.Quantity:
		if isQuantity {
			return compareQuantity(v, operator, operand), nil
		}
		return text, nil
	}
	s := v
	if kind == celexpr.Unknown {
		s = celexpr.Func("string", v)
	}
	out := text
	if isQuantity {
		is := celexpr.Func("isQuantity", s)
		if operator == notEqual {
			out = celexpr.Or(celexpr.Not(is), compareQuantity(s, operator, operand))
		} else {
			out = celexpr.And(is, compareQuantity(s, operator, operand))
		}
	}
	if isDuration {
		of := compareDuration(s, operator, duration)
		if out.IsFalse() {
			return celexpr.And(IsDuration(s), of), nil
		}
		return celexpr.If(IsDuration(s), of, out), nil
	}
	return out, nil
}

// durationForm matches what Go's time.ParseDuration reads.
const durationForm = `^[+-]?([0-9]+([.][0-9]*)?(ns|us|ms|s|m|h))+$`

// IsDuration returns the condition that a string is a duration.
func IsDuration(v celexpr.Expr) celexpr.Expr {
	return celexpr.Call(v, "matches", celexpr.Str(durationForm))
}

func compareDuration(v celexpr.Expr, operator string, with time.Duration) celexpr.Expr {
	return celexpr.Rel(celexpr.Func("duration", v), operator, celexpr.Func("duration", celexpr.Str(with.String())))
}

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

func compareNumber(v celexpr.Expr, operator string, with resource.Quantity) celexpr.Expr {
	if n, ok := with.AsInt64(); ok {
		return celexpr.Rel(v, operator, celexpr.Int(n))
	}
	return celexpr.Rel(celexpr.Func("double", v), operator, celexpr.Double(with.AsApproximateFloat64()))
}

// compareText compares texts with wildcards. Those have no order.
func compareText(v celexpr.Expr, kind celexpr.Kind, operator, operand string) celexpr.Expr {
	if operator != equal && operator != notEqual {
		return celexpr.False
	}
	var matches celexpr.Expr
	switch kind { //nolint:exhaustive // others may be anything
	case celexpr.String, celexpr.Quantity:
		matches = Wildcard(v, operand)
	case celexpr.Truth:
		yes, no := MatchWildcard(operand, "true"), MatchWildcard(operand, "false")
		matches = celexpr.Or(celexpr.And(celexpr.Bool(yes), v), celexpr.And(celexpr.Bool(no), celexpr.Not(v)))
		if yes && no {
			matches = celexpr.True
		}
	case celexpr.Number:
		matches = Wildcard(celexpr.Func("string", v), operand)
		if operand == "*" || operand == "?*" {
			matches = celexpr.True
		}
	default:
		switch {
		case operand == "*":
			matches = celexpr.True
		case operand == "?*":
			matches = celexpr.Rel(v, "!=", celexpr.Str(""))
		case operand == "true" || operand == "false":
			matches = celexpr.In(v, celexpr.Raw(operand), celexpr.Str(operand))
		case strings.ContainsAny(operand, "*?"):
			matches = Wildcard(celexpr.Func("string", v), operand)
		default:
			matches = celexpr.Eq(v, celexpr.Str(operand))
		}
	}
	if operator == notEqual {
		return celexpr.Not(matches)
	}
	return matches
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

// Expression returns the regular expression of a text with wildcards.
func Expression(text string) string {
	var b strings.Builder
	b.WriteString("^")
	for _, r := range text {
		switch {
		case r == '*':
			b.WriteString(".*")
		case r == '?':
			b.WriteString(".")
		case strings.ContainsRune(`.+()|[]{}^$\`, r) && r != '\\' && r != '^':
			b.WriteString("[" + string(r) + "]")
		default:
			b.WriteString(regexp.QuoteMeta(string(r)))
		}
	}
	form := b.String() + "$"
	return strings.TrimSuffix(form, ".*$")
}

// MatchWildcard reports whether a text matches one with wildcards.
func MatchWildcard(pattern, text string) bool {
	p, s := []rune(pattern), []rune(text)
	star, mark := -1, 0
	i, j := 0, 0
	for i < len(s) {
		switch {
		case j < len(p) && p[j] == '*':
			star, mark = j, i
			j++
		case j < len(p) && (p[j] == '?' || p[j] == s[i]):
			i, j = i+1, j+1
		case star >= 0:
			mark++
			i, j = mark, star+1
		default:
			return false
		}
	}
	for j < len(p) && p[j] == '*' {
		j++
	}
	return j == len(p)
}

// matchesAbsent reports whether a pattern holds for what is not there. Kyverno compares numbers in strings with 0 then.
func matchesAbsent(pattern any) bool {
	switch p := pattern.(type) {
	case nil:
		return true
	case string:
		for alternative := range strings.SplitSeq(p, "|") {
			all := true
			for condition := range strings.SplitSeq(strings.Trim(alternative, " "), "&") {
				all = all && zeroMatches(strings.Trim(condition, " "))
			}
			if all {
				return true
			}
		}
	}
	return false
}

// zeroMatches reports whether 0 matches a comparison, as a duration or quantity.
func zeroMatches(text string) bool {
	operator, rest := splitOperator(text)
	switch operator {
	case inRange:
		m := rangeForm.FindStringSubmatch(text)
		return zeroCompares(">=", m[1]) && zeroCompares("<=", m[2])
	case notInside:
		m := notRangeForm.FindStringSubmatch(text)
		return zeroCompares("<", m[1]) || zeroCompares(">", m[2])
	default:
		return zeroCompares(operator, rest)
	}
}

func zeroCompares(operator, operand string) bool {
	var sign int
	if d, ok := parseDuration(operand); ok {
		sign = -int(min(max(d, -1), 1))
	} else if q, ok := parseQuantity(operand); ok {
		sign = -q.Sign()
	} else {
		return false
	}
	return map[string]bool{equal: sign == 0, notEqual: sign != 0, "<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}[operator]
}

// scalarMatches reports whether a constant matches a pattern, for the value in place of one that is absent.
func scalarMatches(of celexpr.Type, value, pattern any) (bool, error) {
	switch v := value.(type) {
	case bool:
		if p, ok := pattern.(bool); ok {
			return p == v, nil
		}
	case string:
		if p, ok := pattern.(string); ok && !isAmbiguous(p) && !strings.ContainsAny(p, "<>!") {
			return emptyMatches(p), nil
		}
	case int64:
		switch p := pattern.(type) {
		case int64:
			return p == v, nil
		case string:
			return numberMatches(p), nil
		}
	}
	return false, fmt.Errorf("%v is not compared with %v", value, of.Kind())
}

// isAmbiguous reports whether a pattern may be about numbers in strings.
func isAmbiguous(pattern string) bool {
	for part := range strings.FieldsFuncSeq(pattern, func(r rune) bool { return r == '|' || r == '&' }) {
		_, rest := splitOperator(strings.Trim(part, " "))
		_, duration := parseDuration(rest)
		if _, quantity := parseQuantity(rest); duration || quantity || IsRange(rest) {
			return true
		}
	}
	return false
}

// emptyMatches reports whether "" matches a pattern without operators.
func emptyMatches(pattern string) bool {
	for alternative := range strings.SplitSeq(pattern, "|") {
		all := true
		for condition := range strings.SplitSeq(strings.Trim(alternative, " "), "&") {
			all = all && MatchWildcard(strings.Trim(condition, " "), "")
		}
		if all {
			return true
		}
	}
	return false
}

// numberMatches reports whether 0 as a number matches a pattern.
func numberMatches(pattern string) bool {
	for alternative := range strings.SplitSeq(pattern, "|") {
		all := true
		for condition := range strings.SplitSeq(strings.Trim(alternative, " "), "&") {
			condition = strings.Trim(condition, " ")
			operator, rest := splitOperator(condition)
			_, isQuantity := parseQuantity(rest)
			switch {
			case isQuantity || operator == inRange || operator == notInside:
				all = all && zeroMatches(condition)
			case operator == equal:
				all = all && MatchWildcard(rest, "0")
			case operator == notEqual:
				all = all && !MatchWildcard(rest, "0")
			default:
				all = false
			}
		}
		if all {
			return true
		}
	}
	return false
}
