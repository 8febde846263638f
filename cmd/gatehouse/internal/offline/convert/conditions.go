package convert

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/celexpr"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/jmespath"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/pattern"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// anyAll are conditions: of any at least one must hold, and of all each.
type anyAll struct {
	Any []condition `json:"any,omitempty"`
	All []condition `json:"all,omitempty"`
}

// decodeConditions decodes conditions: a list, of which all must hold, or an object.
func decodeConditions(value any, field string) (anyAll, error) {
	var out anyAll
	raw, err := json.Marshal(value)
	if err != nil {
		return out, err
	}
	if _, ok := value.([]any); ok {
		err = decodeStrictly(raw, field, &out.All)
	} else if value != nil {
		err = decodeStrictly(raw, field, &out)
	}
	return out, err
}

// readConditions translates the conditions of any, and those of all.
func (c *ruleConverter) readConditions(raw any, field string, s jmespath.Scope) (either, all []translated) {
	read, err := decodeConditions(raw, field)
	if err != nil {
		c.fail(err)
	}
	for i := range read.Any {
		either = append(either, c.condition(&read.Any[i], fmt.Sprintf("%s.any[%d]", field, i), s))
	}
	if read.Any != nil && len(either) == 0 {
		either = []translated{{holds: celexpr.False, there: celexpr.True}}
	}
	if _, isList := raw.([]any); !isList {
		field += ".all"
	}
	for i := range read.All {
		all = append(all, c.condition(&read.All[i], fmt.Sprintf("%s[%d]", field, i), s))
	}
	return either, all
}

// elementConditions returns the condition that conditions of an element hold. A value that is missing makes them false. As Kyverno does,
// they are evaluated until one of any holds, and then until one of all does not hold.
func (c *ruleConverter) elementConditions(raw any, field string, s jmespath.Scope) celexpr.Expr {
	either, all := c.readConditions(raw, field, s)
	anyHolds, allHolds := celexpr.Bool(len(either) == 0), celexpr.True
	for _, one := range slices.Backward(either) {
		anyHolds = celexpr.And(one.there, celexpr.Or(one.holds, anyHolds))
	}
	for _, one := range slices.Backward(all) {
		allHolds = celexpr.And(one.there, one.holds, allHolds)
	}
	return celexpr.And(anyHolds, allHolds)
}

// allowedBy returns the condition that conditions do not hold, and that no value is missing.
func (c *ruleConverter) allowedBy(raw any, field string, s jmespath.Scope) celexpr.Expr {
	either, all := c.readConditions(raw, field, s)
	anyHolds, anyThere, allHolds, allThere := celexpr.Bool(len(either) == 0), celexpr.True, celexpr.True, celexpr.True
	for _, one := range slices.Backward(either) {
		anyHolds, anyThere = celexpr.Or(one.holds, anyHolds), celexpr.And(one.there, celexpr.Or(one.holds, anyThere))
	}
	for i, one := range slices.Backward(all) {
		if len(either) > 0 || i < len(all)-1 { // else the evaluation fails, which denies the object too
			allThere = celexpr.And(one.there, celexpr.Or(celexpr.Not(one.holds), allThere))
		}
		allHolds = celexpr.And(one.holds, allHolds)
	}
	if len(all) == 0 { // as above
		anyThere = celexpr.True
	}
	return celexpr.And(anyThere, allThere, celexpr.Not(celexpr.And(anyHolds, allHolds)))
}

// preconditions returns the condition that preconditions hold, and whether its evaluation can fail because a value is missing. That
// denies the object, and neither && nor || may hide it.
func (c *ruleConverter) preconditions(raw any, s jmespath.Scope) (holds celexpr.Expr, canFail bool) {
	either, all := c.readConditions(raw, "preconditions", s)
	fails := func(one translated) bool { return !one.there.IsTrue() }
	anyFails, allFails := slices.ContainsFunc(either, fails), slices.ContainsFunc(all, fails)
	anyHolds, allHolds := celexpr.Bool(len(either) == 0), celexpr.True
	for i, one := range slices.Backward(either) {
		if fails(one) && i < len(either)-1 {
			anyHolds = celexpr.If(one.holds, celexpr.True, anyHolds)
		} else {
			anyHolds = celexpr.Or(one.holds, anyHolds)
		}
	}
	for _, one := range slices.Backward(all) {
		if fails(one) {
			allHolds = celexpr.If(one.holds, allHolds, celexpr.False)
		} else {
			allHolds = celexpr.And(one.holds, allHolds)
		}
	}
	switch {
	case anyFails && allFails:
		c.fail(unsupported("preconditions", `give the values defaults, as in "|| ''"`, "any and all, both with values that can be missing"))
	case anyFails:
		return celexpr.If(anyHolds, allHolds, celexpr.False), true
	case allFails:
		return celexpr.If(allHolds, anyHolds, celexpr.False), true
	}
	return celexpr.And(anyHolds, allHolds), false
}

// translated is a condition. Kyverno fails to evaluate it unless there holds.
type translated struct{ holds, there celexpr.Expr }

var operationForm = regexp.MustCompile(`^\{\{-?\s*request\.operation\s*(\|\|\s*['"` + "`" + `"]*[A-Z]*["` + "`" + `']*\s*)?\}\}$`)

// operationsOf returns those of operations for which conditions that are about nothing else hold, and the conditions without them.
func operationsOf(raw any, operations []string) ([]string, any) {
	read, err := decodeConditions(raw, "")
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

// operationCheck returns whether a condition holds for an operation, if it is about nothing else.
func operationCheck(one *condition) (func(operation string) bool, bool) {
	key, ok := one.Key.(string)
	if !ok || !operationForm.MatchString(strings.TrimSpace(key)) {
		return nil, false
	}
	values, isList := one.Value.([]any)
	if !isList {
		values = []any{one.Value}
	}
	for _, v := range values {
		if text, ok := v.(string); !ok || jmespath.HasVariables(text) {
			return nil, false
		}
	}
	operator := strings.ToLower(one.Operator)
	is := strings.Replace(operator, "not", "", 1)
	return func(o string) bool {
		among := slices.ContainsFunc(values, func(v any) bool { return pattern.MatchWildcard(v.(string), o) })
		return among == (is == operator)
	}, slices.Contains([]string{"equal", "equals", "in", "anyin", "allin"}, is)
}

// resolve translates a part of a condition: a text with variables, a list of such, or a constant.
func (c *ruleConverter) resolve(value any, field string, s jmespath.Scope) jmespath.Value {
	v, err := c.resolveAny(value, s)
	c.fail(atField(field, err))
	return v
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
			if !of.Constant && len(v) > 1 { // elements of a list are of one type in CEL
				of.Expr = celexpr.Func("string", of.Expr)
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
			return jmespath.Value{}, unsupported("", "write it in CEL", "an object with variables")
		}
	}
	return jmespath.Const(value), nil
}

// hasVariables reports whether there are variables in a value.
func hasVariables(value any) bool {
	return pattern.Some(value, func(key string, v any) bool {
		text, _ := v.(string)
		return jmespath.HasVariables(key) || jmespath.HasVariables(text)
	})
}

// atField adds the field, and a path below it, to an error of a translator.
func atField(field string, err error, path ...string) error {
	if of, ok := errors.AsType[*jmespath.UnsupportedError](err); ok {
		return &jmespath.UnsupportedError{Path: slices.Concat(strict.Steps(field), path, of.Path), Construct: of.Construct, Instead: of.Instead}
	}
	return err
}

// condition translates a condition.
func (c *ruleConverter) condition(one *condition, field string, s jmespath.Scope) translated {
	key, value := c.resolve(one.Key, field+".key", s), c.resolve(one.Value, field+".value", s)
	holds, err := c.compare(key, strings.ToLower(one.Operator), value)
	if err != nil {
		c.fail(unsupported(field, "write the comparison in CEL", "the operator %s with %s", one.Operator, err))
	}
	out := translated{holds: holds, there: celexpr.True}
	isFalseOfNothing := slices.Contains([]string{"anyin", "anynotin"}, strings.ToLower(one.Operator)) // of an empty list
	for _, v := range []jmespath.Value{value, key} {
		switch {
		case v.Always() || v.Total && isFalseOfNothing:
		case v.Fails && !v.Total:
			out.there = celexpr.And(v.Present, out.there)
		default:
			out.holds = celexpr.And(v.Present, out.holds)
		}
	}
	return out
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
	}
	order := map[string]string{"greaterthan": ">", "greaterthanorequals": ">=", "lessthan": "<", "lessthanorequals": "<="}[strings.TrimPrefix(operator, "duration")]
	if order == "" {
		return celexpr.Expr{}, errors.New("an unknown name")
	}
	return c.order(key, order, value)
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
			return celexpr.If(celexpr.Bool(literal), key.Expr, celexpr.Not(key.Expr)), nil
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
	left := key.Type.Kind()
	if !value.Constant {
		return celexpr.Expr{}, errors.New("a value that is computed")
	}
	if left == celexpr.Sequence || left == celexpr.Map || left == celexpr.Truth {
		return celexpr.False, nil
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
		text, _ := key.Literal.(string)
		if value.Expr.Mentions("*\"") || value.Expr.Mentions("\"*") || strings.ContainsAny(text, "*?") {
			return celexpr.Expr{}, errors.New("wildcards beside a value that is computed")
		}
		switch value.Type.Kind() { //nolint:exhaustive // others are no lists
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
		if is := celexpr.Raw(fmt.Sprint(items[0])); is.IsTrue() || is.IsFalse() {
			return celexpr.If(is, key.Expr, celexpr.Not(key.Expr)), nil
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
	// Of these fields, * is a usual value, and means all there. Kyverno reads it as a wildcard.
	hasStars := slices.Contains([]string{"verbs", "resources", "apiGroups", "resourceNames", "nonResourceURLs"}, key.Name)
	if hasStars && !slices.ContainsFunc(literals, celexpr.Str("*").Equal) {
		literals = append(literals, celexpr.Str("*"))
	}
	return celexpr.Or(append([]celexpr.Expr{celexpr.In(key.Expr, literals...)}, all...)...), nil
}
