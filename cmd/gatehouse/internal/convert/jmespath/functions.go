package jmespath

import (
	"regexp"

	"github.com/jmespath-community/go-jmespath/pkg/parsing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/convert/celexpr"
)

// function translates the call of a function.
func (s Scope) function(name string, nodes []parsing.ASTNode) (Value, error) {
	args := make([]Value, len(nodes))
	for i := range nodes {
		v, err := s.node(&nodes[i])
		if err != nil {
			return Value{}, err
		}
		args[i] = v
	}
	arity := map[string]int{
		"length": 1, "contains": 2, "keys": 1, "values": 1, "to_string": 1, "to_number": 1, "split": 2, "join": 2, "regex_match": 2,
		"regex_replace_all": 3, "regex_replace_all_literal": 3, "replace_all": 3, "starts_with": 2, "ends_with": 2, "to_upper": 1, "to_lower": 1,
		"trim": 2, "trim_prefix": 2, "sort": 1, "max": 1, "min": 1, "sum": 1, "add": 2, "subtract": 2, "to_array": 1, "not_null": 2, "pattern_match": 2,
		"truncate": 2, "type": 1, "reverse": 1,
	}
	if want, known := arity[name]; !known || want != len(args) {
		return Value{}, unsupported("write it in CEL", "the JMESPath function %s(), which CEL has no equivalent of", name)
	}
	text, truth := celexpr.Plain(celexpr.String), celexpr.Plain(celexpr.Truth)
	first := args[0]
	// A function whose argument is missing fails.
	of := func(t celexpr.Type, e celexpr.Expr) (Value, error) {
		out := Value{Expr: e, Type: t, Fails: true, Name: first.Name}
		for _, arg := range args {
			if !arg.Always() && !arg.Total {
				out.Present = celexpr.And(out.Present, arg.Present)
			}
		}
		if out.Always() {
			out.Fails = false
		}
		return out, nil
	}
	switch name {
	case "length":
		switch first.Type.Kind() { //nolint:exhaustive // others have no length
		case celexpr.Sequence, celexpr.Map, celexpr.String, celexpr.Quantity, celexpr.Unknown:
			return of(celexpr.Plain(celexpr.Number), celexpr.Func("size", first.Expr))
		}
	case "contains":
		return s.contains(first, args[1])
	case "keys":
		switch first.Type.Kind() { //nolint:exhaustive // others have no keys
		case celexpr.Map, celexpr.Unknown, celexpr.Struct:
			v, err := of(celexpr.ListOf(text), celexpr.Macro(first.Expr, "map", "key", celexpr.Raw("key")))
			if v.Expr.Equal(first.Expr) { // a loop over a map is one over its keys
				v.Expr = celexpr.Call(first.Expr, "map", celexpr.Raw("key"), celexpr.Raw("key"))
			}
			v.Name, v.keysOf = "keys", first.Expr
			return v, err
		}
	case "values":
		return s.mapValues(first)
	case "to_string":
		switch first.Type.Kind() { //nolint:exhaustive // others are written as JSON
		case celexpr.Sequence, celexpr.Map, celexpr.Struct:
			return Value{}, unsupported("name the fields that matter", "to_string() of an object or a list: CEL writes no JSON")
		}
		return of(text, first.Text())
	case "to_number":
		if first.Type.Kind() == celexpr.Number {
			return first, nil
		}
		v, err := of(celexpr.Plain(celexpr.Number), celexpr.Func("double", first.Text()))
		return v, err
	case "split":
		return of(celexpr.ListOf(text), celexpr.Call(first.Text(), "split", args[1].Text()))
	case "join":
		return of(text, celexpr.Call(args[1].Expr, "join", first.Text()))
	case "regex_match":
		if err := checkExpression(first); err != nil {
			return Value{}, err
		}
		if args[1].Type.Kind() == celexpr.Sequence || args[1].Type.Kind() == celexpr.Map {
			return Value{}, unsupported("write it in CEL", "regex_match() of something that is no text")
		}
		return of(truth, celexpr.Call(args[1].Text(), "matches", first.Text()))
	case "pattern_match":
		if !first.Constant {
			return Value{}, unsupported("write it in CEL", "pattern_match() with a computed pattern")
		}
	case "starts_with":
		return of(truth, celexpr.Call(first.Text(), "startsWith", args[1].Text()))
	case "ends_with":
		return of(truth, celexpr.Call(first.Text(), "endsWith", args[1].Text()))
	case "to_upper":
		return of(text, celexpr.Call(first.Text(), "upperAscii"))
	case "to_lower":
		return of(text, celexpr.Call(first.Text(), "lowerAscii"))
	case "replace_all":
		return of(text, celexpr.Call(first.Text(), "replace", args[1].Text(), args[2].Text()))
	case "trim_prefix":
		if args[1].Constant {
			cut := celexpr.Call(first.Text(), "substring", celexpr.Func("size", args[1].Expr))
			return of(text, celexpr.If(celexpr.Call(first.Text(), "startsWith", args[1].Expr), cut, first.Text()))
		}
	case "sort":
		if first.Type.Kind() == celexpr.Sequence {
			v, err := of(first.Type, celexpr.Call(first.List(), "sort"))
			v.Total, v.Present, v.Fails = first.Total, first.Present, first.Fails
			return v, err
		}
	case "max", "min", "sum":
		if first.Type.Elem().Kind() == celexpr.Number {
			return of(celexpr.Plain(celexpr.Number), celexpr.Call(first.Expr, name))
		}
	case "add", "subtract":
		if first.Type.Kind() == celexpr.Number && args[1].Type.Kind() == celexpr.Number {
			operator := map[string]string{"add": "+", "subtract": "-"}[name]
			if operator == "+" {
				return of(first.Type, celexpr.Add(first.Expr, args[1].Expr))
			}
			return of(first.Type, celexpr.Subtract(first.Expr, args[1].Expr))
		}
	case "to_array":
		if first.Type.Kind() == celexpr.Sequence {
			return first, nil
		}
	case "reverse":
		if first.Type.Kind() == celexpr.Sequence {
			return of(first.Type, celexpr.Call(first.Expr, "reverse"))
		}
	}
	return Value{}, unsupported("write it in CEL", "the JMESPath function %s() with such arguments", name)
}

// checkExpression returns an error if a regular expression is not valid.
func checkExpression(v Value) error {
	text, ok := v.Literal.(string)
	if !ok {
		return unsupported("write it in CEL", "a regular expression that is computed")
	}
	if _, err := regexp.Compile(text); err != nil {
		return unsupported("correct it", "the regular expression %s, which is invalid", quote(text))
	}
	return nil
}

// contains translates contains(), of a list or a text.
func (s Scope) contains(of, what Value) (Value, error) {
	truth := celexpr.Plain(celexpr.Truth)
	var e celexpr.Expr
	switch of.Type.Kind() {
	case celexpr.String, celexpr.Quantity:
		e = celexpr.Call(of.Expr, "contains", what.Text())
	case celexpr.Sequence:
		e = celexpr.Rel(what.Expr, "in", of.Expr)
		if !of.keysOf.IsZero() {
			e = celexpr.Rel(what.Expr, "in", of.keysOf)
		}
	case celexpr.Unknown:
		if what.Type.Kind() != celexpr.String && what.Type.Kind() != celexpr.Unknown {
			e = celexpr.Rel(what.Expr, "in", of.Expr)
			break
		}
		isText := celexpr.Eq(celexpr.Func("type", of.Expr), celexpr.Raw("string"))
		e = celexpr.If(isText, celexpr.Call(of.Expr, "contains", what.Text()), celexpr.Rel(what.Expr, "in", of.Expr))
	default:
		return Value{}, unsupported("write it in CEL", "contains() of something that is neither a text nor a list")
	}
	out := Value{Expr: e, Type: truth, Fails: true}
	for _, v := range []Value{of, what} {
		if !v.Always() && !v.Total {
			out.Present = celexpr.And(out.Present, v.Present)
		}
	}
	out.Fails = !out.Always()
	return out, nil
}
