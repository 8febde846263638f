package convert

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/convert/celexpr"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/convert/jmespath"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/convert/pattern"
)

// anyAll are conditions: of any at least one must hold, and of all each.
type anyAll struct {
	Any []condition `json:"any,omitempty"`
	All []condition `json:"all,omitempty"`
}

// readConditions decodes conditions: a list, of which all must hold, or an object.
func readConditions(value any) (anyAll, error) {
	var out anyAll
	raw, err := json.Marshal(value)
	if err != nil {
		return out, err
	}
	if _, ok := value.([]any); ok {
		err = decodeStrictly(raw, &out.All)
	} else if value != nil {
		err = decodeStrictly(raw, &out)
	}
	return out, err
}

// conditionField returns the path of a condition.
func conditionField(field, list string, i int, raw any) string {
	if _, ok := raw.([]any); ok {
		return fmt.Sprintf("%s[%d]", field, i)
	}
	return fmt.Sprintf("%s.%s[%d]", field, list, i)
}

// conditions translates conditions. In the ones of elements, something that is missing makes a condition false; in others it is an error.
func (c *ruleConverter) conditions(raw any, field string, s jmespath.Scope, lenient bool) (celexpr.Expr, error) {
	read, err := readConditions(raw)
	if err != nil {
		return celexpr.Expr{}, unsupported(field, "write any and all, with key, operator and value", "conditions that cannot be read: %s", err)
	}
	var all, any []celexpr.Expr
	for i := range read.All {
		e, err := c.condition(&read.All[i], conditionField(field, "all", i, raw), s, lenient)
		if err != nil {
			return e, err
		}
		all = append(all, e)
	}
	for i := range read.Any {
		e, err := c.condition(&read.Any[i], conditionField(field, "any", i, raw), s, lenient)
		if err != nil {
			return e, err
		}
		any = append(any, e)
	}
	if read.Any != nil {
		all = append([]celexpr.Expr{celexpr.Or(any...)}, all...)
	}
	return celexpr.And(all...), nil
}

var operationForm = regexp.MustCompile(`^\{\{-?\s*request\.operation\s*(\|\|\s*['"` + "`" + `"]*[A-Z]*["` + "`" + `']*\s*)?\}\}$`)

// operationsOf returns those of operations for which conditions that are about nothing else hold, and the conditions without them.
func operationsOf(raw any, operations []string) ([]string, any) {
	read, err := readConditions(raw)
	if err != nil {
		return operations, raw
	}
	var kept []condition
	for _, one := range read.All {
		if holds, ok := operationCheck(&one); ok {
			operations = slices.DeleteFunc(slices.Clone(operations), func(o string) bool { return !holds(o) })
		} else {
			kept = append(kept, one)
		}
	}
	var checks []func(string) bool
	for i := range read.Any {
		if holds, ok := operationCheck(&read.Any[i]); ok {
			checks = append(checks, holds)
		}
	}
	if len(checks) > 0 && len(checks) == len(read.Any) {
		operations = slices.DeleteFunc(slices.Clone(operations), func(o string) bool {
			return !slices.ContainsFunc(checks, func(holds func(string) bool) bool { return holds(o) })
		})
		read.Any = nil
	}
	if len(kept) == len(read.All) && len(checks) == 0 {
		return operations, raw // unchanged, so that fields keep their places
	}
	if len(kept)+len(read.Any) == 0 {
		return operations, nil
	}
	rest := map[string]any{}
	for name, list := range map[string][]condition{"all": kept, "any": read.Any} {
		if list != nil {
			rest[name] = toJSON(list)
		}
	}
	return operations, rest
}

// toJSON returns a value as what a JSON decoder gives.
func toJSON(value any) any {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	out, _ := decodeJSON(raw)
	return out
}

// operationCheck returns whether a condition holds for an operation, if it is about nothing else.
func operationCheck(one *condition) (func(operation string) bool, bool) {
	key, ok := one.Key.(string)
	if !ok || !operationForm.MatchString(strings.TrimSpace(key)) {
		return nil, false
	}
	var values []string
	switch v := one.Value.(type) {
	case string:
		values = []string{v}
	case []any:
		for _, item := range v {
			text, ok := item.(string)
			if !ok {
				return nil, false
			}
			values = append(values, text)
		}
	default:
		return nil, false
	}
	if slices.ContainsFunc(values, jmespath.HasVariables) {
		return nil, false
	}
	is := func(o string) bool {
		return slices.ContainsFunc(values, func(v string) bool { return pattern.MatchWildcard(v, o) })
	}
	switch strings.ToLower(one.Operator) {
	case "equal", "equals", "in", "anyin", "allin":
		return is, true
	case "notequal", "notequals", "notin", "anynotin", "allnotin":
		return func(o string) bool { return !is(o) }, true
	default:
		return nil, false
	}
}

// resolve translates a part of a condition: a text with variables, a list of such, or a constant.
func (c *ruleConverter) resolve(value any, field string, s jmespath.Scope) (jmespath.Value, error) {
	v, err := c.resolveAny(value, s)
	return v, at(field, err)
}

func (c *ruleConverter) resolveAny(value any, s jmespath.Scope) (jmespath.Value, error) {
	switch v := value.(type) {
	case string:
		if jmespath.HasVariables(v) {
			return jmespath.Template(v, s)
		}
	case []any:
		if !hasVariables(v) {
			break
		}
		var all []celexpr.Expr
		var constants []any
		out := jmespath.Value{Type: celexpr.ListOf(celexpr.Type{})}
		for i, item := range v {
			of, err := c.resolveAny(item, s)
			if err != nil {
				return of, err
			}
			if list, ok := of.Literal.([]any); ok && of.Constant && len(v) > 1 {
				c.note("the list %v within a list is compared as one text, as by Kyverno", list)
				of = jmespath.Const(fmt.Sprint(list))
			}
			if of.Constant {
				constants = append(constants, of.Literal)
			}
			if len(v) == 1 && of.Type.Kind() == celexpr.Sequence { // Kyverno compares the elements as texts
				return of, nil
			}
			if !of.Always() && !of.Total {
				out.Present, out.Fails = celexpr.And(out.Present, of.Present), true
			}
			if i == 0 {
				out.Type = celexpr.ListOf(of.Type)
			}
			all = append(all, of.Expr)
		}
		if len(constants) == len(v) {
			return jmespath.Const(constants), nil
		}
		out.Expr = celexpr.List(all...)
		return out, nil
	case map[string]any:
		if hasVariables(v) {
			return jmespath.Value{}, &jmespath.UnsupportedError{Construct: "an object with variables", Instead: "write it in CEL"}
		}
	}
	return jmespath.Const(value), nil
}

// hasVariables reports whether there are variables in a value.
func hasVariables(value any) bool {
	switch v := value.(type) {
	case string:
		return jmespath.HasVariables(v)
	case []any:
		return slices.ContainsFunc(v, hasVariables)
	case map[string]any:
		for key, of := range v {
			if jmespath.HasVariables(key) || hasVariables(of) {
				return true
			}
		}
	}
	return false
}

// at adds the field to an error of a translator.
func at(field string, err error) error {
	if of, ok := errors.AsType[*jmespath.UnsupportedError](err); ok {
		for _, step := range of.Path {
			field += "\x00" + step
		}
		return unsupported(field, of.Instead, "%s", of.Construct)
	}
	return err
}

// condition translates a condition.
func (c *ruleConverter) condition(one *condition, field string, s jmespath.Scope, lenient bool) (celexpr.Expr, error) {
	key, err := c.resolve(one.Key, field+".key", s)
	if err != nil {
		return celexpr.Expr{}, err
	}
	value, err := c.resolve(one.Value, field+".value", s)
	if err != nil {
		return celexpr.Expr{}, err
	}
	e, err := c.compare(key, strings.ToLower(one.Operator), value)
	if err != nil {
		return e, unsupported(field, "write the comparison in CEL", "the operator %s with %s", one.Operator, err)
	}
	var present []celexpr.Expr
	for _, v := range []jmespath.Value{key, value} {
		if v.Always() || v.Fails && !lenient && !v.Total {
			continue
		}
		if v.Total && isFalseOfNothing(one.Operator) {
			continue
		}
		present = append(present, v.Present)
	}
	return celexpr.And(append(present, e)...), nil
}

// isFalseOfNothing reports whether an operator is false for an empty list.
func isFalseOfNothing(operator string) bool {
	return slices.Contains([]string{"anyin", "anynotin"}, strings.ToLower(operator))
}

// compare translates an operator. Key and value are there.
func (c *ruleConverter) compare(key jmespath.Value, operator string, value jmespath.Value) (celexpr.Expr, error) {
	switch operator {
	case "equal", "equals":
		return c.equal(key, value)
	case "notequal", "notequals":
		e, err := c.equal(key, value)
		return celexpr.Not(e), err
	case "in", "anyin", "allin", "notin", "anynotin", "allnotin":
		return c.in(key, operator, value)
	case "greaterthan", "durationgreaterthan":
		return c.order(key, ">", value)
	case "greaterthanorequals", "durationgreaterthanorequals":
		return c.order(key, ">=", value)
	case "lessthan", "durationlessthan":
		return c.order(key, "<", value)
	case "lessthanorequals", "durationlessthanorequals":
		return c.order(key, "<=", value)
	default:
		return celexpr.Expr{}, errors.New("an unknown name")
	}
}

// equal translates Equals.
func (c *ruleConverter) equal(key, value jmespath.Value) (celexpr.Expr, error) {
	if key.Constant && !value.Constant {
		key, value = value, key
	}
	kind := key.Type.Kind()
	if !value.Constant {
		if kind == celexpr.Quantity || value.Type.Kind() == celexpr.Quantity {
			return celexpr.Eq(celexpr.Func("quantity", key.Text()), celexpr.Func("quantity", value.Text())), nil
		}
		if (value.Expr.Mentions("params.") || value.Expr.Mentions("namespaceObject")) && key.Type.IsText() {
			c.note("of the text that a value is compared with, . * and ? are read as by Kyverno, and other characters as in regular expressions")
			form := value.Text()
			for _, replacement := range [][2]string{{".", "[.]"}, {"*", ".*"}, {"?", "."}} {
				form = celexpr.Call(form, "replace", celexpr.Str(replacement[0]), celexpr.Str(replacement[1]))
			}
			return celexpr.Call(key.Expr, "matches", celexpr.Add(celexpr.Str("^"), form, celexpr.Str("$"))), nil
		}
		return celexpr.Eq(key.Expr, value.Expr), nil
	}
	switch literal := value.Literal.(type) {
	case string:
		switch kind { //nolint:exhaustive // others are compared as texts
		case celexpr.Truth, celexpr.Sequence, celexpr.Map, celexpr.Struct:
			return celexpr.False, nil
		}
		if key.Constant {
			return celexpr.Bool(key.Literal == value.Literal), nil
		}
		return pattern.Compare(key.Expr, key.Type, "==", literal)
	case bool:
		if kind == celexpr.Truth {
			if literal {
				return key.Expr, nil
			}
			return celexpr.Not(key.Expr), nil
		}
		if kind != celexpr.Unknown {
			return celexpr.False, nil
		}
	case int64, float64:
		if kind != celexpr.Number && kind != celexpr.Unknown {
			return celexpr.False, nil
		}
	case nil:
		return celexpr.False, nil
	}
	return celexpr.Eq(key.Expr, value.Expr), nil
}

// order translates a comparison of numbers, quantities or durations.
func (c *ruleConverter) order(key jmespath.Value, operator string, value jmespath.Value) (celexpr.Expr, error) {
	left, right := key.Type.Kind(), value.Type.Kind()
	if key.Constant && !value.Constant {
		flipped := map[string]string{"<": ">", ">": "<", "<=": ">=", ">=": "<="}[operator]
		return c.order(value, flipped, key)
	}
	if left == celexpr.Sequence || left == celexpr.Map || left == celexpr.Truth {
		return celexpr.False, nil
	}
	if !value.Constant {
		switch {
		case left == celexpr.Number && right == celexpr.Number:
			return celexpr.Rel(key.Expr, operator, value.Expr), nil
		case left == celexpr.Quantity || right == celexpr.Quantity:
			a, b := celexpr.Func("quantity", key.Text()), celexpr.Func("quantity", value.Text())
			return celexpr.Rel(celexpr.Call(a, "compareTo", b), operator, celexpr.Int(0)), nil
		default:
			return celexpr.Expr{}, errors.New("values of which nothing says that they are numbers")
		}
	}
	switch literal := value.Literal.(type) {
	case int64, float64:
		if left == celexpr.Number {
			return celexpr.Rel(key.Expr, operator, value.Expr), nil
		}
		return pattern.Compare(key.Expr, key.Type, operator, fmt.Sprint(literal))
	case string:
		return pattern.Compare(key.Expr, key.Type, operator, literal)
	default:
		return celexpr.False, nil
	}
}

// in translates the operators about lists.
func (c *ruleConverter) in(key jmespath.Value, operator string, value jmespath.Value) (celexpr.Expr, error) {
	not := strings.Contains(operator, "not")
	name, _ := celexpr.Names{}.Element(key.Name)
	list := key.Type.Kind() == celexpr.Sequence
	if key.Type.Kind() == celexpr.Map || key.Type.Kind() == celexpr.Struct {
		return celexpr.False, nil
	}
	element := key
	if list {
		if strings.Contains(key.Expr.String(), name+",") { // the variable of a loop within the list itself
			name = "item"
		}
		element = jmespath.Of(celexpr.Raw(name), key.Type.Elem())
		element.Name = key.Name
	}
	is, err := c.among(element, value)
	if err != nil {
		return is, err
	}
	if not {
		is = celexpr.Not(is)
	}
	if !list {
		return is, nil
	}
	switch operator {
	case "anyin", "anynotin", "notin":
		return celexpr.Macro(key.List(), "exists", name, is), nil
	default:
		return celexpr.Macro(key.List(), "all", name, is), nil
	}
}

// among returns the condition that a scalar is among the values, which may have wildcards.
func (c *ruleConverter) among(key, value jmespath.Value) (celexpr.Expr, error) {
	kind := key.Type.Kind()
	if !value.Constant {
		if value.Expr.Mentions("*\"") || value.Expr.Mentions("\"*") {
			return celexpr.Expr{}, errors.New("wildcards in a value that is computed")
		}
		switch value.Type.Kind() {
		case celexpr.Sequence:
			return celexpr.Rel(key.Expr, "in", value.Expr), nil
		case celexpr.String: // a list in JSON, as in a ConfigMap, or one value
			text := key.Text()
			return celexpr.Or(celexpr.Eq(text, value.Expr), celexpr.Call(value.Expr, "contains", celexpr.Add(celexpr.Str(`"`), text, celexpr.Str(`"`)))), nil
		default:
			return celexpr.Expr{}, errors.New("a value of which nothing says that it is a list")
		}
	}
	var items []any
	switch literal := value.Literal.(type) {
	case []any:
		items = literal
	case string:
		if pattern.IsRange(literal) {
			return pattern.Scalar(key.Expr, key.Type, literal)
		}
		if strings.HasPrefix(strings.TrimSpace(literal), "[") {
			if decoded, err := decodeJSON([]byte(literal)); err == nil {
				items, _ = decoded.([]any)
			}
		}
		if items == nil {
			items = []any{literal}
		}
	case int64, float64, bool:
		items = []any{literal}
	default:
		return celexpr.Expr{}, errors.New("a value that is no list")
	}
	if key.Constant {
		text := fmt.Sprint(key.Literal)
		return celexpr.Bool(slices.ContainsFunc(items, func(item any) bool { return pattern.MatchWildcard(fmt.Sprint(item), text) })), nil
	}
	if len(items) == 1 && kind == celexpr.Truth {
		switch fmt.Sprint(items[0]) {
		case "true":
			return key.Expr, nil
		case "false":
			return celexpr.Not(key.Expr), nil
		}
	}
	var literals, all []celexpr.Expr
	for _, item := range items {
		text := fmt.Sprint(item)
		switch {
		case strings.ContainsAny(text, "*?") && kind != celexpr.Truth:
			all = append(all, pattern.Wildcard(key.Text(), text))
		case kind == celexpr.Number || kind == celexpr.Truth:
			if decoded, err := decodeJSON([]byte(text)); err == nil {
				literals = append(literals, celexpr.Literal(decoded))
			}
		case kind == celexpr.Unknown:
			literals = append(literals, celexpr.Literal(item))
		default:
			literals = append(literals, celexpr.Str(text))
		}
	}
	if hasStars(key.Name) && !slices.ContainsFunc(literals, celexpr.Str("*").Equal) {
		literals = append(literals, celexpr.Str("*"))
	}
	if len(literals) > 0 {
		all = append([]celexpr.Expr{celexpr.In(key.Expr, literals...)}, all...)
	}
	return celexpr.Or(all...), nil
}

// hasStars reports whether * is a usual value of a field, and means all there. Kyverno reads it as a wildcard.
func hasStars(field string) bool {
	return slices.Contains([]string{"verbs", "resources", "apiGroups", "resourceNames", "nonResourceURLs"}, field)
}
