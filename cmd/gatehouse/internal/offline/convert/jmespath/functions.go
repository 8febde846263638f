package jmespath

import (
	"fmt"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/celexpr"
)

// function translates the call of a function.
func (s Scope) function(name string, args []Value) Value {
	var first Value
	if len(args) > 0 {
		first = args[0]
	}
	of := func(t celexpr.Type, e celexpr.Expr) Value {
		out := computed(e, t, args...)
		out.Name = first.Name
		return out
	}
	text, number, truth := celexpr.Plain(celexpr.String), celexpr.Plain(celexpr.Number), celexpr.Plain(celexpr.Truth)
	signature := fmt.Sprintf("%s/%d", name, len(args))
	// These are methods of their first argument in CEL.
	if m, ok := map[string]struct {
		name   string
		result celexpr.Type
	}{
		"ends_with/2":   {"endsWith", truth},
		"replace_all/3": {"replace", text},
		"split/2":       {"split", celexpr.ListOf(text)},
		"starts_with/2": {"startsWith", truth},
		"to_lower/1":    {"lowerAscii", text},
		"to_upper/1":    {"upperAscii", text},
	}[signature]; ok {
		var texts []celexpr.Expr
		for _, arg := range args[1:] {
			texts = append(texts, arg.Text())
		}
		return of(m.result, celexpr.Call(first.Text(), m.name, texts...))
	}
	switch signature {
	case "contains/2":
		return s.contains(first, args[1])
	case "join/2":
		return of(text, celexpr.Call(args[1].Expr, "join", first.Text()))
	case "keys/1":
		if first.mayBe(celexpr.Map, celexpr.Struct) { // a loop over a map is one over its keys
			list := celexpr.Call(first.Expr, "map", celexpr.Raw("key"), celexpr.Raw("key"))
			v := of(celexpr.ListOf(text), list)
			v.Name, v.keysOf = "keys", first.Expr
			return v
		}
	case "length/1":
		if first.mayBe(celexpr.Sequence, celexpr.Map, celexpr.String, celexpr.Quantity) {
			return of(number, celexpr.Func("size", first.Expr))
		}
	case "max/1", "min/1", "sum/1":
	case "regex_match/2":
		return of(truth, celexpr.Call(args[1].Text(), "matches", first.Expr))
	case "sort/1", "to_array/1":
		if name == "sort" {
			first = of(first.Type, celexpr.Call(first.Expr, "sort"))
		}
		if first.Type.Kind() == celexpr.Sequence {
			return first
		}
	case "to_number/1":
		return of(number, celexpr.Func("double", first.Text()))
	case "to_string/1":
		if first.Members != nil || !first.mayBe(celexpr.String, celexpr.Quantity, celexpr.Number, celexpr.Truth) {
			return s.refuse("name the fields that matter", "to_string() of an object or a list: CEL writes no JSON")
		}
		return of(text, first.Text())
	case "values/1":
		return s.values(first)
	default:
		return s.refuse("write it in CEL", "the JMESPath function %s(), which CEL has no equivalent of", name)
	}
	return s.refuse("write it in CEL", "the JMESPath function %s() with such arguments", name)
}

// contains translates contains(), of a list or a text.
func (s Scope) contains(of, what Value) Value {
	list := of.keysOf
	if list.IsZero() {
		list = of.Expr
	}
	e := celexpr.Rel(what.Expr, "in", list)
	switch of.Type.Kind() { //nolint:exhaustive // others contain nothing
	case celexpr.String, celexpr.Quantity:
		e = celexpr.Call(of.Expr, "contains", what.Text())
	case celexpr.Sequence:
	case celexpr.Unknown:
		if what.mayBe(celexpr.String) {
			isText := celexpr.Eq(celexpr.Func("type", of.Expr), celexpr.Raw("string"))
			e = celexpr.If(isText, celexpr.Call(of.Expr, "contains", what.Text()), e)
		}
	}
	return computed(e, celexpr.Plain(celexpr.Truth), of, what)
}
