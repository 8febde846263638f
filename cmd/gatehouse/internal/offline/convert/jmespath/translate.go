// Package jmespath translates Kyverno's JMESPath expressions into CEL. It knows what is certainly there and what may be missing, and of
// which type it is, so that the result has a default where Kyverno has null, and fails where Kyverno fails.
package jmespath

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jmespath-community/go-jmespath/pkg/parsing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/celexpr"
)

// Limits of an expression, which is untrusted.
const (
	maxLength = 8 << 10
	maxDepth  = 60
	maxHoles  = 50
	maxResult = 16 << 10
)

// UnsupportedError is a construct that has no translation.
type UnsupportedError struct {
	// Path is that of the construct in the document, as far as it is known.
	Path []string
	// Construct is what it is, and Instead what to write in its place.
	Construct, Instead string
}

// Error implements error.
func (e *UnsupportedError) Error() string { return e.Construct }

func unsupported(instead, format string, args ...any) error {
	return &UnsupportedError{Construct: fmt.Sprintf(format, args...), Instead: instead}
}

// Scope is what an expression sees.
type Scope struct {
	// Root returns the value of a name.
	Root func(name string) (Value, error)
	// Names are those of variables.
	Names celexpr.Names

	current *Value
	depth   int
	// holes are the variables within the expression, by the names in their places.
	holes map[string]Value
	// err is the first error. What is translated after it does not matter.
	err *error
}

// fail records an error, and returns no value.
func (s Scope) fail(err error) Value {
	if *s.err == nil {
		*s.err = err
	}
	return Value{}
}

// refuse records that there is no translation, and returns no value.
func (s Scope) refuse(instead, format string, args ...any) Value {
	return s.fail(unsupported(instead, format, args...))
}

// want records that there is no translation of a part of a value, unless that may be of these kinds.
func (s Scope) want(v Value, what, part string, kinds ...celexpr.Kind) {
	if !v.mayBe(kinds...) {
		s.refuse("name "+what, "%s of something that is not %s", part, what)
	}
}

// with returns the scope in which a value is the current one.
func (s Scope) with(current Value) Scope {
	s.current = &current
	return s
}

// Translate translates an expression.
func Translate(expression string, scope Scope) (Value, error) {
	if len(expression) > maxLength {
		return Value{}, unsupported("split the expression", "a JMESPath expression of more than %d bytes", maxLength)
	}
	expression, holes, err := cutHoles(expression, scope)
	if err != nil {
		return Value{}, err
	}
	node, err := parse(expression)
	if err != nil {
		return Value{}, unsupported("correct it, or write it in CEL", "the JMESPath %s, which cannot be parsed", quote(expression))
	}
	scope.holes, scope.err = holes, &err
	v := scope.node(&node)
	return v, err
}

// parse parses an expression. The parser may panic about an incomplete one.
func parse(expression string) (node parsing.ASTNode, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	return parsing.NewParser().Parse(expression)
}

// quote quotes an expression for a message.
func quote(text string) string {
	const most = 80
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return strconv.Quote(text)
}

// cutHoles replaces the variables {{ }} in a text by names, or by their values if these are constant texts.
func cutHoles(text string, scope Scope) (string, map[string]Value, error) {
	holes := map[string]Value{}
	var b strings.Builder
	for {
		from, to := nextVariable(text)
		if from < 0 {
			return b.String() + text, holes, nil
		}
		if len(holes) >= maxHoles {
			return "", nil, unsupported("split the expression", "a JMESPath expression with too many variables")
		}
		v, err := Translate(strings.TrimSpace(text[from+2:to-2]), scope)
		if err != nil {
			return "", nil, err
		}
		name, isText := v.Literal.(string)
		if !isText || !v.Constant {
			name = fmt.Sprintf("hole_%d_", len(holes))
			holes[name] = v
		}
		b.WriteString(text[:from] + name)
		text = text[to:]
	}
}

// Template translates a text with variables {{ }}. A text that is one variable alone has its value, of any type.
func Template(text string, scope Scope) (Value, error) {
	if from, to := nextVariable(text); from == 0 && to == len(text) {
		return Translate(strings.TrimSpace(text[2:to-2]), scope)
	}
	text, holes, err := cutHoles(text, scope)
	scope.holes = holes
	return scope.text(strings.ReplaceAll(text, `\{{`, "{{")), err
}

// nextVariable returns where the first outermost variable begins and ends, -1 for none.
func nextVariable(text string) (from, to int) {
	depth := 0
	for i := 0; i+1 < len(text); i++ {
		switch {
		case text[i:i+2] == "{{" && (i == 0 || text[i-1] != '\\'):
			if depth == 0 {
				from = i
			}
			depth++
			i++
		case text[i:i+2] == "}}" && depth == 1:
			return from, i + 2
		case text[i:i+2] == "}}" && depth > 0:
			depth--
			i++
		}
	}
	return -1, 0
}

// HasVariables reports whether a text has variables.
func HasVariables(text string) bool { return strings.Contains(text, "{{") }

// node translates a node of the syntax tree.
func (s Scope) node(n *parsing.ASTNode) Value {
	if s.depth++; s.depth > maxDepth {
		return s.refuse("split the expression", "a JMESPath expression that is too deep")
	}
	v := s.construct(n)
	if len(v.Expr.String()) > maxResult {
		return s.refuse("split the expression", "a JMESPath expression that becomes too large")
	}
	return v
}

// construct translates a node by its type.
func (s Scope) construct(n *parsing.ASTNode) Value {
	switch n.NodeType { //nolint:exhaustive // others have no translation
	case parsing.ASTLiteral:
		return s.literal(n.Value)
	case parsing.ASTCurrentNode, parsing.ASTIdentity:
		if s.current == nil {
			return s.refuse("name the field", "@ outside of an expression about an element")
		}
		return *s.current
	case parsing.ASTField:
		return s.field(n.Value.(string))
	case parsing.ASTSubexpression, parsing.ASTPipe, parsing.ASTIndexExpression:
		return s.with(s.node(&n.Children[0])).node(&n.Children[1])
	case parsing.ASTIndex:
		index := n.Value.(int)
		if s.want(*s.current, "a list", "an index", celexpr.Sequence); index < 0 {
			return s.refuse("write it in CEL", "an index that counts from the end of a list")
		}
		v := s.current.At(celexpr.Int(int64(index)))
		v.Name, v.Fails = s.current.Name, false
		return v
	case parsing.ASTFlatten:
		return s.flatten(&n.Children[0])
	case parsing.ASTProjection, parsing.ASTFilterProjection:
		list := s.node(&n.Children[0])
		s.want(list, "a list", "a projection", celexpr.Sequence)
		return s.each(list, n.Children[1:])
	case parsing.ASTValueProjection:
		return s.each(s.values(s.node(&n.Children[0])), n.Children[1:])
	case parsing.ASTMultiSelectList:
		return s.list(n.Children)
	case parsing.ASTMultiSelectHash:
		return s.refuse("write it in CEL", "a JMESPath object")
	case parsing.ASTComparator:
		return s.compare(n)
	case parsing.ASTOrExpression:
		return s.or(n)
	case parsing.ASTAndExpression:
		left, right := s.node(&n.Children[0]), s.node(&n.Children[1])
		if right.Type.Kind() != celexpr.Truth {
			return s.refuse("write it in CEL", "the operator && with a value that is no condition")
		}
		return logical(celexpr.And(left.Holds(), right.Holds()), left, right)
	case parsing.ASTNotExpression:
		of := s.node(&n.Children[0])
		return logical(celexpr.Not(of.Holds()), of)
	case parsing.ASTFunctionExpression:
		return s.function(n.Value.(string), s.nodes(n.Children))
	default:
		return s.refuse("write it in CEL", "the JMESPath operator %s", strings.TrimPrefix(n.NodeType.String(), "AST"))
	}
}

// nodes translates several nodes.
func (s Scope) nodes(all []parsing.ASTNode) []Value {
	out := make([]Value, len(all))
	for i := range all {
		out[i] = s.node(&all[i])
	}
	return out
}

// literal translates a literal, which may have variables.
func (s Scope) literal(value any) Value {
	switch v := value.(type) {
	case float64:
		if v == float64(int64(v)) {
			value = int64(v)
		}
	case string:
		return s.text(v)
	}
	return Const(value)
}

var holeForm = regexp.MustCompile(`hole_\d+_`)

// text translates a text with the names of variables.
func (s Scope) text(text string) Value {
	var parts []celexpr.Expr
	var values []Value
	end := 0
	add := func(until int) {
		if until > end {
			parts = append(parts, celexpr.Str(text[end:until]))
		}
	}
	for _, at := range holeForm.FindAllStringIndex(text, -1) {
		if v, ok := s.holes[text[at[0]:at[1]]]; ok {
			add(at[0])
			parts, values, end = append(parts, v.Text()), append(values, v), at[1]
		}
	}
	if len(values) == 0 {
		return Const(text)
	}
	add(len(text))
	out := computed(celexpr.Add(parts...), celexpr.Plain(celexpr.String), values...)
	out.Fails = slices.ContainsFunc(values, func(v Value) bool { return v.Fails })
	return out
}

// field translates a name: a member of the current value, or a root.
func (s Scope) field(name string) Value {
	hole, isHole := s.holes[name]
	if name == "null" { // no object has it
		return Const(nil)
	}
	if s.current == nil {
		if isHole {
			return s.refuse("write it in CEL", "a variable whose name is computed")
		}
		v, err := s.Root(name)
		if err != nil {
			return s.fail(err)
		}
		return v
	}
	if s.current.Members != nil {
		v, ok := s.current.Members[name]
		if !ok {
			return s.refuse("write it in CEL", "%s, which CEL does not know", quote(s.current.Name+"."+name))
		}
		return v
	}
	s.want(*s.current, "an object", fmt.Sprintf("the field %q", name), celexpr.Map, celexpr.Struct)
	if isHole {
		return s.current.At(hole.Text())
	}
	if fields, ok := s.current.Literal.(map[string]any); ok {
		return Const(fields[name])
	}
	return s.current.Member(name)
}

// flatten translates list[].
func (s Scope) flatten(n *parsing.ASTNode) Value {
	if n.NodeType == parsing.ASTSubexpression && n.Children[1].NodeType == parsing.ASTMultiSelectList {
		return s.with(s.node(&n.Children[0])).concat(n.Children[1].Children)
	}
	v := s.node(n)
	s.want(v, "a list", "[]", celexpr.Sequence)
	elem := v.Type.Elem()
	if k := elem.Kind(); k == celexpr.Sequence || k == celexpr.Unknown && !v.Total.IsZero() {
		return computedList(v, elem.Elem(), celexpr.Call(v.List(), "flatten"), celexpr.Call(v.Expr, "flatten"))
	}
	return v
}

// computedList returns a list that is made of another one, and there where that is.
func computedList(from Value, elem celexpr.Type, total, e celexpr.Expr) Value {
	return Value{Expr: e, Total: total, Present: from.Present, Type: celexpr.ListOf(elem), Name: from.Name}
}

// concat translates [a, b][], the elements of lists, of which some may be missing.
func (s Scope) concat(parts []parsing.ASTNode) Value {
	var all []celexpr.Expr
	var first Value
	for _, v := range s.nodes(parts) {
		s.want(v, "a list", "an element", celexpr.Sequence)
		all = append(all, v.List())
		if first.Name == "" || v.Name == "containers" {
			first = v
		}
	}
	list := celexpr.Add(all...)
	return Value{Expr: list, Total: list, Present: s.current.Present, Type: celexpr.ListOf(first.Type.Elem()), Name: first.Name}
}

// list translates [a, b].
func (s Scope) list(parts []parsing.ASTNode) Value {
	var all []celexpr.Expr
	for _, v := range s.nodes(parts) {
		all = append(all, v.OrElse(celexpr.Raw("null")))
	}
	out := Of(celexpr.List(all...), celexpr.ListOf(celexpr.Type{}))
	if s.current != nil {
		out.Present, out.Fails = s.current.Present, s.current.Fails
	}
	return out
}

// each translates what is done to each element of a list. The elements that a filter drops, and missing results, are left out.
func (s Scope) each(list Value, rightAndFilter []parsing.ASTNode) Value {
	right := &rightAndFilter[0]
	if len(rightAndFilter) == 1 && right.NodeType == parsing.ASTIdentity {
		list.Fails = false
		return list
	}
	name, names := s.Names.Element(list.Name)
	s = s.with(Value{Expr: celexpr.Raw(name), Type: list.Type.Elem(), Name: list.Name})
	s.Names = names
	condition := celexpr.True
	for i := range rightAndFilter[1:] {
		condition = s.node(&rightAndFilter[1+i]).Holds()
	}
	result := s.node(right)
	of := func(list celexpr.Expr) celexpr.Expr {
		return celexpr.Macro(celexpr.Macro(list, "filter", name, celexpr.And(condition, result.Present)), "map", name, result.Expr)
	}
	v := computedList(list, result.Type, of(list.List()), of(list.Expr))
	if result.Name != "" {
		v.Name = result.Name
	}
	return v
}

// values returns the values of the members of an object.
func (s Scope) values(of Value) Value {
	s.want(of, "an object", "the values", celexpr.Map, celexpr.Struct)
	m := of.OrElse(celexpr.Raw("{}"))
	list := celexpr.Macro(m, "map", "key", celexpr.At(m, celexpr.Raw("key")))
	return computedList(of, of.Type.Elem(), list, list)
}

// or translates left || right.
func (s Scope) or(n *parsing.ASTNode) Value {
	left := s.node(&n.Children[0])
	if right := &n.Children[1]; right.NodeType == parsing.ASTField && (right.Value == "" || right.Value == "null") { // "" is no text, but a field without a name
		left.Fails = false
		return left
	}
	right := s.node(&n.Children[1])
	if left.Type.Kind() == celexpr.Truth && right.Type.Kind() == celexpr.Truth {
		return logical(celexpr.Or(left.Holds(), right.Holds()), left, right)
	}
	if left.Type.Kind() == celexpr.Number && left.throws() {
		return left
	}
	if !right.Constant {
		if left.Type.Kind() == celexpr.Sequence && right.Type.Kind() == celexpr.Sequence {
			return s.refuse("write it in CEL", "one of two lists")
		}
		both := celexpr.Call(left.optional(), "or", right.optional())
		return Value{Expr: celexpr.Call(both, "value"), Opt: both, Present: celexpr.Call(both, "hasValue"), Type: left.Type, Name: left.Name}
	}
	if left.Type.Kind() == celexpr.Sequence || !left.Total.IsZero() {
		if list, ok := right.Literal.([]any); ok && len(list) == 0 || right.Literal == "" { // of an empty list, the length is that of ""
			return Value{Expr: left.List(), Type: left.Type, Name: left.Name, Literal: right.Literal}
		}
		return s.refuse("write it in CEL", "another default of a list than an empty one")
	}
	out := Value{Type: right.Type, Name: left.Name}
	switch k := left.Type.Kind(); { // an object or a text may be either
	case (k == celexpr.Struct || k == celexpr.Map) && right.Type.IsText():
		out.Type = celexpr.Type{}
	case k != celexpr.Unknown:
		out.Type = left.Type
	}
	out.Expr = left.OrElse(right.Expr)
	switch literal := right.Literal.(type) {
	case string:
		if left.Always() && left.Type.Kind() == celexpr.Truth {
			return s.refuse("write it in CEL", "a truth value or a text")
		}
		if literal != "" && left.Type.Kind() != celexpr.Number {
			empty := left.OrElse(celexpr.Str(""))
			value := left.Expr
			if !left.Opt.IsZero() {
				value = celexpr.Call(left.Opt, "value")
			}
			out.Expr = celexpr.If(celexpr.Rel(empty, "!=", celexpr.Str("")), value, right.Expr)
		}
	case bool:
		out.Expr = celexpr.Or(left.OrElse(celexpr.False), celexpr.Bool(literal))
	}
	return out
}

// compare translates a comparison. What is missing is null.
func (s Scope) compare(n *parsing.ASTNode) Value {
	left, right := s.node(&n.Children[0]), s.node(&n.Children[1])
	if n.Value != parsing.TOKEQ && n.Value != parsing.TOKNE {
		return s.refuse("write it in CEL", "the order of values within JMESPath")
	}
	var equal celexpr.Expr
	if left.Constant {
		left, right = right, left
	}
	switch {
	case right.Constant && right.Literal == nil:
		equal = celexpr.Not(celexpr.And(left.Present))
	case left.Always() && right.Always():
		equal = celexpr.Eq(left.Expr, right.Expr)
	case right.Constant:
		equal = celexpr.And(left.Present, celexpr.Eq(left.Expr, right.Expr))
	default:
		equal = celexpr.Eq(left.optional(), right.optional())
	}
	if n.Value == parsing.TOKNE {
		equal = celexpr.Not(equal)
	}
	return Of(equal, celexpr.Plain(celexpr.Truth))
}
