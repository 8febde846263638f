package jmespath

import (
	"reflect"
	"slices"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/celexpr"
)

// Value is what an expression comes to. The zero Value is none.
type Value struct {
	// Expr is the value. It cannot be evaluated while something is missing.
	Expr celexpr.Expr
	// Total is the value, or an empty list while something is missing, and none if it has no such form.
	Total celexpr.Expr
	// Opt is the value as an optional one, and none if it is always there or has no such form.
	Opt celexpr.Expr
	// Present is the condition that the value is there, and none if it always is.
	Present celexpr.Expr
	// Fails reports whether Kyverno fails to evaluate what is missing. Otherwise it is null there.
	Fails bool
	Type  celexpr.Type
	// Literal is the constant that the value is, if Constant holds, and of a list the value that it has by || where it is empty.
	Literal  any
	Constant bool
	// Name is what the value is called, for the variables of loops.
	Name string
	// Members are those that the value has, of which each is known, nil if they follow from the type.
	Members map[string]Value
	// keysOf is the object whose keys the value are.
	keysOf celexpr.Expr
}

// Always reports whether the value is always there.
func (v Value) Always() bool { return v.Present.IsZero() }

// Const returns a constant.
func Const(value any) Value {
	v := Value{Expr: celexpr.Literal(value), Literal: value, Constant: true}
	if value != nil {
		v.Type = celexpr.TypeOf(reflect.TypeOf(value))
	}
	if list, ok := value.([]any); ok && len(list) > 0 {
		elem := Const(list[0]).Type
		if !slices.ContainsFunc(list, func(item any) bool { return Const(item).Type.Kind() != elem.Kind() }) {
			v.Type = celexpr.ListOf(elem)
		}
	}
	return v
}

// Of returns a value that is always there.
func Of(e celexpr.Expr, t celexpr.Type) Value { return Value{Expr: e, Type: t} }

// throws reports whether a function fails while something is missing, which || does not help against.
func (v Value) throws() bool { return v.Fails && v.Opt.IsZero() }

// logical returns what is computed from conditions, in which missing fields are false.
func logical(e celexpr.Expr, from ...Value) Value {
	from = slices.DeleteFunc(from, func(v Value) bool { return !v.throws() })
	return computed(e, celexpr.Plain(celexpr.Truth), from...)
}

// computed returns what is computed from values: it is there if they all are.
func computed(e celexpr.Expr, t celexpr.Type, from ...Value) Value {
	out := Of(e, t)
	for _, v := range from {
		if !v.Always() {
			out.Present, out.Fails = celexpr.And(out.Present, v.Present), true
		}
	}
	return out
}

// mayBe reports whether the value is of one of these kinds, or of an unknown one.
func (v Value) mayBe(kinds ...celexpr.Kind) bool {
	k := v.Type.Kind()
	return k == celexpr.Unknown || slices.Contains(kinds, k)
}

// Member returns a member of a value.
func (v Value) Member(name string) Value {
	t, _ := v.Type.Member(name)
	out := Value{Expr: celexpr.Field(v.Expr, name), Type: t, Name: name, Fails: v.Fails || v.Always()}
	switch {
	case !v.Opt.IsZero() || !v.Always():
		out.setOpt(celexpr.OptField(v.optional(), name))
	case v.Type.IsAlways(name):
		out.Fails = false
	case v.Type.IsNullable(name):
		out.Opt = celexpr.Call(celexpr.OptField(v.Expr, name), "optFlatMap", celexpr.Raw(name), celexpr.Func("optional.ofNonZeroValue", celexpr.Raw(name)))
		out.Present = celexpr.And(celexpr.Has(v.Expr, name), celexpr.Rel(out.Expr, "!=", celexpr.Raw("null")))
	default:
		out.Opt = celexpr.OptField(v.Expr, name)
		out.Present = celexpr.Has(v.Expr, name)
	}
	return out
}

// setOpt sets the value as an optional one, which says whether it is there.
func (v *Value) setOpt(e celexpr.Expr) { v.Opt, v.Present = e, celexpr.Call(e, "hasValue") }

// At returns the element of an index, or the member whose name is the value of an expression.
func (v Value) At(key celexpr.Expr) Value {
	out, of := Value{Expr: celexpr.At(v.Expr, key), Type: v.Type.Elem(), Fails: true}, v.Opt
	if of.IsZero() {
		of = v.Expr
	}
	out.setOpt(celexpr.OptAt(of, key))
	return out
}

// OrElse returns the value, or a constant where it is missing.
func (v Value) OrElse(fallback celexpr.Expr) celexpr.Expr {
	switch {
	case !v.Opt.IsZero():
		return celexpr.Call(v.Opt, "orValue", fallback)
	case !v.Total.IsZero() && fallback.String() == "[]":
		return v.Total
	default:
		return celexpr.If(celexpr.And(v.Present), v.Expr, fallback)
	}
}

// List returns the value as a list, which is empty where it is missing.
func (v Value) List() celexpr.Expr { return v.OrElse(celexpr.List()) }

// optional returns the value as an optional one.
func (v Value) optional() celexpr.Expr {
	if !v.Opt.IsZero() {
		return v.Opt
	}
	return celexpr.If(celexpr.And(v.Present), celexpr.Func("optional.of", v.Expr), celexpr.Func("optional.none"))
}

// Holds returns the condition that a value is neither missing nor empty nor false.
func (v Value) Holds() celexpr.Expr {
	value, present := v.Expr, v.Present
	if v.throws() {
		present = celexpr.True
	}
	zero, isKnown := map[celexpr.Kind]celexpr.Expr{
		celexpr.Truth: celexpr.False, celexpr.String: celexpr.Str(""), celexpr.Quantity: celexpr.Str(""),
	}[v.Type.Kind()]
	if isKnown && !v.Opt.IsZero() {
		value, present = v.OrElse(zero), celexpr.True
	}
	switch v.Type.Kind() {
	case celexpr.Truth:
	case celexpr.String, celexpr.Quantity:
		value = celexpr.Rel(value, "!=", zero)
	case celexpr.Sequence, celexpr.Map:
		value = celexpr.Rel(celexpr.Func("size", value), ">", celexpr.Int(0))
	case celexpr.Number:
		value = celexpr.True
	case celexpr.Struct:
		value = celexpr.Rel(value, "!=", celexpr.Raw("{}"))
	case celexpr.Unknown:
		value = celexpr.Not(celexpr.In(value, celexpr.False, celexpr.Raw("null"), celexpr.Str(""), celexpr.List(), celexpr.Raw("{}")))
	}
	return celexpr.And(present, value)
}

// Text returns the value as a string.
func (v Value) Text() celexpr.Expr {
	switch v.Type.Kind() { //nolint:exhaustive // others are converted
	case celexpr.String, celexpr.Quantity:
		return v.Expr
	case celexpr.Sequence:
		elem := Of(celexpr.Raw("e"), v.Type.Elem())
		return celexpr.Call(celexpr.Macro(v.List(), "map", "e", elem.Text()), "join", celexpr.Str(", "))
	default:
		return celexpr.Func("string", v.Expr)
	}
}
