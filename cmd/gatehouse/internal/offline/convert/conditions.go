package convert

import (
	"cmp"
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
func (c *ruleConverter) decodeConditions(value any, field string) (out anyAll) {
	into, above := any(&out), field+".all"
	if _, ok := value.([]any); ok {
		into, above = &out.All, field
	}
	if raw, err := json.Marshal(value); value != nil {
		c.fail(cmp.Or(err, decodeStrictly(raw, field, into)))
	}
	for i := range out.Any {
		out.Any[i].field = fmt.Sprintf("%s.any[%d]", field, i)
	}
	for i := range out.All {
		out.All[i].field = fmt.Sprintf("%s[%d]", above, i)
	}
	return out
}

// translateAll translates the conditions of any, and those of all.
func (c *ruleConverter) translateAll(read anyAll, s jmespath.Scope) (either, all []translated) {
	for i := range read.Any {
		either = append(either, c.condition(&read.Any[i], s))
	}
	if read.Any != nil && len(either) == 0 {
		either = []translated{{holds: celexpr.False, there: celexpr.True}}
	}
	for i := range read.All {
		all = append(all, c.condition(&read.All[i], s))
	}
	return either, all
}

// elementConditions returns the condition that conditions of an element hold. A value that is missing makes them false. As Kyverno does,
// they are evaluated until one of any holds, and then until one of all does not hold.
func (c *ruleConverter) elementConditions(raw any, field string, s jmespath.Scope) celexpr.Expr {
	either, all := c.translateAll(c.decodeConditions(raw, field), s)
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
	either, all := c.translateAll(c.decodeConditions(raw, field), s)
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
func (c *ruleConverter) preconditions(read anyAll) (holds celexpr.Expr, canFail bool) {
	either, all := c.translateAll(read, c.scope)
	first, second := celexpr.Bool(len(either) == 0), celexpr.True
	anyFails, allFails := false, false
	for _, one := range slices.Backward(either) {
		if one.there.IsTrue() {
			first = celexpr.Or(one.holds, first)
		} else {
			first, anyFails = celexpr.If(one.holds, celexpr.True, first), true
		}
	}
	for _, one := range slices.Backward(all) {
		if one.there.IsTrue() {
			second = celexpr.And(one.holds, second)
		} else {
			second, allFails = celexpr.If(one.holds, second, celexpr.False), true
		}
	}
	switch {
	case anyFails && allFails:
		c.fail(unsupported("preconditions", `give the values defaults, as in "|| ''"`, "any and all, both with values that can be missing"))
	case allFails:
		first, second = second, first
	case !anyFails:
		return celexpr.And(first, second), false
	}
	return celexpr.If(first, second, celexpr.False), true
}

// translated is a condition. Kyverno fails to evaluate it unless there holds.
type translated struct{ holds, there celexpr.Expr }

var operationForm = regexp.MustCompile(`^\{\{-?\s*request\.operation\s*(\|\|\s*['"` + "`" + `"]*[A-Z]*["` + "`" + `']*\s*)?\}\}$`)

// operationsOf returns those of operations for which conditions that are about nothing else hold, and the other conditions.
func operationsOf(read anyAll, operations []string) ([]string, anyAll) {
	keep := func(checks ...func(string) bool) {
		operations = slices.DeleteFunc(slices.Clone(operations), func(o string) bool {
			return !slices.ContainsFunc(checks, func(holds func(string) bool) bool { return holds(o) })
		})
	}
	read.All = slices.DeleteFunc(read.All, func(one condition) bool {
		holds, ok := operationCheck(&one)
		if ok {
			keep(holds)
		}
		return ok
	})
	var checks []func(string) bool
	for i := range read.Any {
		if holds, ok := operationCheck(&read.Any[i]); ok {
			checks = append(checks, holds)
		}
	}
	if len(checks) > 0 && len(checks) == len(read.Any) {
		keep(checks...)
		read.Any = nil
	}
	return operations, read
}

// operationCheck returns whether a condition holds for an operation, if it is about nothing else.
func operationCheck(one *condition) (func(operation string) bool, bool) {
	key, _ := one.Key.(string)
	values, isList := one.Value.([]any)
	if !isList {
		values = []any{one.Value}
	}
	operator := strings.ToLower(one.Operator)
	is := strings.Replace(operator, "not", "", 1)
	return func(o string) bool {
			among := slices.ContainsFunc(values, func(v any) bool { return pattern.MatchWildcard(fmt.Sprint(v), o) })
			return among == (is == operator)
		}, operationForm.MatchString(strings.TrimSpace(key)) && !hasVariables(values) &&
			slices.Contains([]string{"equal", "equals", "in", "anyin", "allin"}, is)
}

// resolve translates a part of a condition: a text with variables, a list of such, or a constant.
func (c *ruleConverter) resolve(value any, field string, s jmespath.Scope) jmespath.Value {
	if !hasVariables(value) {
		return jmespath.Const(value)
	}
	list, isList := value.([]any)
	if !isList {
		text, ok := value.(string)
		if !ok {
			c.fail(unsupported(field, "write it in CEL", "an object with variables"))
		}
		v, err := jmespath.Template(text, s)
		c.fail(atField(field, err))
		return v
	}
	var all []celexpr.Expr
	var constants []any
	var out jmespath.Value
	for i, item := range list {
		of := c.resolve(item, field, s)
		if inner, ok := of.Literal.([]any); ok && of.Constant && len(list) > 1 {
			c.note("the list %v within a list is compared as one text, as by Kyverno", inner)
			of = jmespath.Const(fmt.Sprint(inner))
		}
		switch {
		case len(list) == 1 && of.Type.Kind() == celexpr.Sequence: // Kyverno compares the elements as texts
			return of
		case of.Constant:
			constants = append(constants, of.Literal)
		case len(list) > 1: // elements of a list are of one type in CEL
			of.Expr = celexpr.Func("string", of.Expr)
		}
		if !of.Always() && of.Total.IsZero() {
			out.Present, out.Fails = celexpr.And(out.Present, of.Present), true
		}
		if i == 0 {
			out.Type, out.Name = celexpr.ListOf(of.Type), of.Name
		}
		all = append(all, of.Expr)
	}
	if len(constants) == len(list) {
		return jmespath.Const(constants)
	}
	out.Expr = celexpr.List(all...)
	return out
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
func (c *ruleConverter) condition(one *condition, s jmespath.Scope) translated {
	key, value := c.resolve(one.Key, one.field+".key", s), c.resolve(one.Value, one.field+".value", s)
	for _, v := range []*jmespath.Value{&key, &value} {
		if !v.Total.IsZero() {
			v.Expr = v.Total
		}
	}
	operator := strings.ToLower(one.Operator)
	holds, err := c.compare(key, operator, value)
	if err != nil {
		c.fail(unsupported(one.field, "write the comparison in CEL", "the operator %s with %s", one.Operator, err))
	}
	out := translated{holds: holds, there: celexpr.True}
	isFalseOfNothing := operator == "anyin" || operator == "anynotin" // of an empty list
	for _, v := range []jmespath.Value{value, key} {
		switch {
		case v.Always() || !v.Total.IsZero() && isFalseOfNothing:
		case v.Fails:
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
	switch {
	case order == "":
		return celexpr.Expr{}, errors.New("an unknown name")
	case !value.Constant:
		return celexpr.Expr{}, errors.New("a value that is computed")
	case key.Type.Kind() == celexpr.Sequence || key.Type.Kind() == celexpr.Map:
		return celexpr.False, nil
	}
	switch value.Literal.(type) {
	case int64, float64, string:
		return pattern.Compare(key.Expr, key.Type, order, fmt.Sprint(value.Literal))
	default:
		return celexpr.False, nil
	}
}

// equal translates Equals.
func (c *ruleConverter) equal(key, value jmespath.Value) (celexpr.Expr, error) {
	if key.Constant && !value.Constant {
		if text, _ := key.Literal.(string); strings.ContainsAny(text, "*?") { // only the second one is a pattern
			return matches(key, value), nil
		}
		key, value = value, key
	}
	kind := key.Type.Kind()
	if !value.Constant {
		if kind == celexpr.Quantity || value.Type.Kind() == celexpr.Quantity {
			return celexpr.Eq(celexpr.Func("quantity", key.Text()), celexpr.Func("quantity", value.Text())), nil
		}
		if (value.Expr.Mentions("params.") || value.Expr.Mentions("namespaceObject")) && key.Type.IsText() {
			return matches(key, value), nil
		}
		return celexpr.Eq(key.Expr, value.Expr), nil
	}
	switch literal := value.Literal.(type) {
	case string:
		switch {
		case kind == celexpr.Sequence && literal == "" && key.Literal == "": // an empty one with || '' is that
			return celexpr.Eq(celexpr.Func("size", key.Expr), celexpr.Int(0)), nil
		case slices.Contains([]celexpr.Kind{celexpr.Truth, celexpr.Sequence, celexpr.Map, celexpr.Struct}, kind):
			return celexpr.False, nil
		case key.Constant:
			return celexpr.Bool(key.Literal == value.Literal), nil
		}
		return pattern.Compare(key.Expr, key.Type, "==", literal)
	case bool:
		return pattern.Scalar(key.Expr, key.Type, literal)
	case int64, float64:
		if kind != celexpr.Number && kind != celexpr.Unknown {
			return celexpr.False, nil
		}
	case nil:
		return celexpr.False, nil
	}
	return celexpr.Eq(key.Expr, value.Expr), nil
}

// matches returns the condition that a text matches one that is computed, which may have wildcards.
func matches(key, value jmespath.Value) celexpr.Expr {
	form := celexpr.Call(value.Text(), "replace", celexpr.Str("*"), celexpr.Str(`\E.*\Q`))
	form = celexpr.Call(form, "replace", celexpr.Str("?"), celexpr.Str(`\E.\Q`))
	return celexpr.Call(key.Text(), "matches", celexpr.Add(celexpr.Str(`^\Q`), form, celexpr.Str(`\E$`)))
}

// hasWildcards reports whether elements of a computed list may be patterns: texts of which Kubernetes or what runs them does not forbid it.
func hasWildcards(v jmespath.Value) bool {
	k := v.Type.Elem().Kind()
	plain := []string{"name", "namespace", "kind", "image", "key", "keys", "groups", "add", "drop"}
	return k != celexpr.Number && k != celexpr.Truth && !slices.Contains(plain, v.Name)
}

// in translates the operators about lists.
func (c *ruleConverter) in(key jmespath.Value, operator string, value jmespath.Value) (celexpr.Expr, error) {
	name, _ := celexpr.Names{}.Element(key.Name)
	element, macro := key, "all"
	switch key.Type.Kind() { //nolint:exhaustive // others are compared themselves
	case celexpr.Map, celexpr.Struct:
		return celexpr.False, nil
	case celexpr.Sequence:
		if strings.Contains(key.Expr.String(), name+",") { // the variable of a loop within the list itself
			name = "item"
		}
		element = jmespath.Value{Expr: celexpr.Raw(name), Type: key.Type.Elem(), Name: key.Name}
	}
	if key.Type.Kind() == celexpr.Unknown && !key.Constant {
		c.note("%s is taken for a single value, and not for a list", cmp.Or(key.Name, key.Expr.String()))
	}
	exact := key.Type.Kind() == celexpr.Sequence && strings.TrimPrefix(operator, "not") == "in" // of these alone, nothing is a pattern
	is, err := c.among(element, value, exact)
	if strings.Contains(operator, "not") {
		is = celexpr.Not(is)
	}
	if err != nil || key.Type.Kind() != celexpr.Sequence {
		return is, err
	}
	if operator == "anyin" || operator == "anynotin" || operator == "notin" {
		macro = "exists"
	}
	return celexpr.Macro(key.List(), macro, name, is), nil
}

// among returns the condition that a scalar is among the values, which may have wildcards unless they are compared exactly.
func (c *ruleConverter) among(key, value jmespath.Value, exact bool) (celexpr.Expr, error) {
	kind := key.Type.Kind()
	if !value.Constant {
		text, _ := key.Literal.(string)
		if value.Expr.Mentions("*\"") || value.Expr.Mentions("\"*") || strings.ContainsAny(text, "*?") {
			return celexpr.Expr{}, errors.New("wildcards beside a value that is computed")
		}
		switch value.Type.Kind() { //nolint:exhaustive // others are no lists
		case celexpr.Sequence:
			if !exact && hasWildcards(value) {
				form := jmespath.Of(celexpr.Raw("form"), value.Type.Elem())
				return celexpr.Macro(value.Expr, "exists", "form", matches(key, form)), nil
			}
			return celexpr.Rel(key.Expr, "in", value.Expr), nil
		case celexpr.String: // a list in JSON, as in a ConfigMap, or one value
			text := key.Text()
			return celexpr.Or(celexpr.Eq(text, value.Expr), celexpr.Call(value.Expr, "contains", celexpr.Add(celexpr.Str(`"`), text, celexpr.Str(`"`)))), nil
		default:
			return celexpr.Expr{}, errors.New("a value of which nothing says that it is a list")
		}
	}
	items := []any{value.Literal}
	switch literal := value.Literal.(type) {
	case []any:
		items = literal
	case nil, map[string]any:
		return celexpr.Expr{}, errors.New("a value that is no list")
	case string:
		if pattern.IsRange(literal) {
			return pattern.Scalar(key.Expr, key.Type, literal)
		}
		if decoded, err := decodeJSON([]byte(literal)); err == nil {
			if list, ok := decoded.([]any); ok {
				items = list
			}
		}
	}
	if key.Constant {
		text := fmt.Sprint(key.Literal)
		return celexpr.Bool(slices.ContainsFunc(items, func(item any) bool {
			return pattern.MatchWildcard(fmt.Sprint(item), text) || pattern.MatchWildcard(text, fmt.Sprint(item))
		})), nil
	}
	if is := celexpr.Raw(fmt.Sprint(items...)); kind == celexpr.Truth && (is.IsTrue() || is.IsFalse()) {
		return celexpr.If(is, key.Expr, celexpr.Not(key.Expr)), nil
	}
	var literals, all []celexpr.Expr
	for _, item := range items {
		text := fmt.Sprint(item)
		switch {
		case strings.ContainsAny(text, "*?") && kind != celexpr.Truth && !exact:
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
	if hasStars(key) && !exact && !slices.ContainsFunc(literals, celexpr.Str("*").Equal) {
		literals = append(literals, celexpr.Str("*"))
	}
	return celexpr.Or(append([]celexpr.Expr{celexpr.In(key.Expr, literals...)}, all...)...), nil
}

// hasStars reports whether * is a usual value of a field, which means all there. Kyverno reads it as a wildcard.
func hasStars(v jmespath.Value) bool {
	return slices.Contains([]string{"verbs", "resources", "apiGroups", "resourceNames", "nonResourceURLs"}, v.Name)
}
