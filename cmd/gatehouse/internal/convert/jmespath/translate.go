// Package jmespath translates Kyverno's JMESPath expressions into CEL. It knows what is certainly there and what may be missing, and of
// which type it is, so that the result has a default where Kyverno has null, and fails where Kyverno fails.
package jmespath

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/jmespath-community/go-jmespath/pkg/parsing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/convert/celexpr"
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
	// Note is called with what the translation does otherwise. It may be nil.
	Note func(text string)

	current *Value
	depth   int
	// holes are the variables within the expression, by the names in their places.
	holes map[string]Value
}

func (s Scope) note(format string, args ...any) {
	if s.Note != nil {
		s.Note(fmt.Sprintf(format, args...))
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
	scope.holes = holes
	node, err := parse(expression)
	if err != nil {
		return Value{}, unsupported("correct it, or write it in CEL", "the JMESPath %s, which cannot be parsed", quote(expression))
	}
	v, err := scope.node(&node)
	if err == nil && len(v.Expr.String()) > maxResult {
		return Value{}, unsupported("split the expression", "a JMESPath expression that becomes too large")
	}
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

var variableForm = regexp.MustCompile(`\{\{((?:[^{}]|\{[^{}]*\})*)\}\}`)

// cutHoles replaces variables in an expression by names.
func cutHoles(expression string, scope Scope) (string, map[string]Value, error) {
	var holes map[string]Value
	for count := 0; ; count++ {
		m := variableForm.FindStringSubmatchIndex(expression)
		if m == nil {
			return expression, holes, nil
		}
		if count >= maxHoles || len(expression) > maxLength {
			return "", nil, unsupported("split the expression", "a JMESPath expression with too many variables")
		}
		v, err := Translate(strings.TrimSpace(expression[m[2]:m[3]]), scope)
		if err != nil {
			return "", nil, err
		}
		if holes == nil {
			holes = map[string]Value{}
		}
		name := fmt.Sprintf("hole_%d_", len(holes))
		if text, ok := v.Literal.(string); ok && v.Constant {
			name = text
		}
		holes[name] = v
		expression = expression[:m[0]] + name + expression[m[1]:]
	}
}

// Template is a text with variables {{ }}. A text that is one variable alone has its value, of any type.
func Template(text string, scope Scope) (Value, error) {
	if m := variableForm.FindStringSubmatchIndex(text); m != nil && m[0] == 0 && m[1] == len(text) {
		return Translate(strings.TrimSpace(text[m[2]:m[3]]), scope)
	} else if m == nil && strings.HasPrefix(text, "{{") && strings.HasSuffix(text, "}}") && len(text) >= 4 {
		return Translate(strings.TrimSpace(text[2:len(text)-2]), scope)
	}
	if strings.HasPrefix(text, "{{") && strings.HasSuffix(text, "}}") && isOneVariable(text) {
		return Translate(strings.TrimSpace(text[2:len(text)-2]), scope)
	}
	var parts []celexpr.Expr
	out := Value{Type: celexpr.Plain(celexpr.String)}
	rest := text
	constant := ""
	isConstant := true
	for {
		from, to := nextVariable(rest)
		if from < 0 {
			break
		}
		v, err := Translate(strings.TrimSpace(rest[from+2:to-2]), scope)
		if err != nil {
			return Value{}, err
		}
		if from > 0 {
			parts = append(parts, celexpr.Str(rest[:from]))
		}
		if literal, ok := v.Literal.(string); ok && v.Constant {
			constant += rest[:from] + literal
		} else {
			isConstant = false
		}
		parts = append(parts, v.Text())
		if !v.Always() && !v.Total {
			out.Present, out.Fails = celexpr.And(out.Present, v.Present), out.Fails || v.Fails
			if out.Present.IsTrue() {
				out.Present = celexpr.Expr{}
			}
		}
		rest = rest[to:]
	}
	if isConstant {
		return Const(strings.ReplaceAll(constant+rest, `\{{`, "{{")), nil
	}
	if rest != "" {
		parts = append(parts, celexpr.Str(rest))
	}
	out.Expr = celexpr.Add(parts...)
	return out, nil
}

// nextVariable returns where the first outermost variable begins and ends, -1 for none.
func nextVariable(text string) (from, to int) {
	from = -1
	depth := 0
	for i := 0; i+1 < len(text); i++ {
		switch {
		case text[i] == '{' && text[i+1] == '{' && (i == 0 || text[i-1] != '\\'):
			if depth == 0 {
				from = i
			}
			depth++
			i++
		case text[i] == '}' && text[i+1] == '}' && depth > 0:
			depth--
			if depth == 0 {
				to = i + 2
				for to < len(text) && text[to] == '}' { // of an object at the end of the expression
					to++
				}
				return from, to
			}
			i++
		}
	}
	return -1, 0
}

// isOneVariable reports whether the first variable of a text is all of it.
func isOneVariable(text string) bool {
	from, to := nextVariable(text)
	return from == 0 && to == len(text)
}

// HasVariables reports whether a text has variables.
func HasVariables(text string) bool { return strings.Contains(text, "{{") }

// node translates a node of the syntax tree.
func (s Scope) node(n *parsing.ASTNode) (Value, error) {
	if s.depth++; s.depth > maxDepth {
		return Value{}, unsupported("split the expression", "a JMESPath expression that is too deep")
	}
	switch n.NodeType {
	case parsing.ASTLiteral:
		return s.literal(n.Value)
	case parsing.ASTCurrentNode, parsing.ASTIdentity:
		if s.current == nil {
			return Value{}, unsupported("name the field", "@ outside of an expression about an element")
		}
		return *s.current, nil
	case parsing.ASTField:
		return s.field(n.Value.(string))
	case parsing.ASTSubexpression, parsing.ASTPipe:
		left, err := s.node(&n.Children[0])
		if err != nil {
			return Value{}, err
		}
		return s.with(left).node(&n.Children[1])
	case parsing.ASTIndexExpression:
		left, err := s.node(&n.Children[0])
		if err != nil {
			return Value{}, err
		}
		return s.with(left).node(&n.Children[1])
	case parsing.ASTIndex:
		if k := s.current.Type.Kind(); k != celexpr.Sequence && k != celexpr.Unknown {
			return Value{}, unsupported("name a list", "an index of something that is no list")
		}
		return s.current.Element(n.Value.(int)), nil
	case parsing.ASTFlatten:
		return s.flatten(&n.Children[0])
	case parsing.ASTProjection:
		return s.projection(&n.Children[0], &n.Children[1], nil)
	case parsing.ASTFilterProjection:
		return s.projection(&n.Children[0], &n.Children[1], &n.Children[2])
	case parsing.ASTValueProjection:
		return s.values(&n.Children[0], &n.Children[1])
	case parsing.ASTMultiSelectList:
		return s.list(n.Children)
	case parsing.ASTMultiSelectHash:
		return Value{}, unsupported("write it in CEL", "a JMESPath object")
	case parsing.ASTComparator:
		return s.compare(n)
	case parsing.ASTOrExpression:
		return s.or(n)
	case parsing.ASTAndExpression:
		left, right, err := s.two(n)
		if err != nil {
			return Value{}, err
		}
		if right.Type.Kind() != celexpr.Truth {
			return Value{}, unsupported("write it in CEL", "the operator && with a value that is no condition")
		}
		return Of(celexpr.And(left.Holds(), right.Holds()), celexpr.Plain(celexpr.Truth)), nil
	case parsing.ASTNotExpression:
		v, err := s.node(&n.Children[0])
		if err != nil {
			return Value{}, err
		}
		return Of(celexpr.Not(v.Holds()), celexpr.Plain(celexpr.Truth)), nil
	case parsing.ASTFunctionExpression:
		return s.function(n.Value.(string), n.Children)
	default:
		return Value{}, unsupported("write it in CEL", "the JMESPath operator %s", strings.TrimPrefix(n.NodeType.String(), "AST"))
	}
}

func (s Scope) two(n *parsing.ASTNode) (left, right Value, err error) {
	if left, err = s.node(&n.Children[0]); err == nil {
		right, err = s.node(&n.Children[1])
	}
	return left, right, err
}

// literal translates a literal, which may have variables.
func (s Scope) literal(value any) (Value, error) {
	if number, ok := value.(float64); ok && number == float64(int64(number)) {
		value = int64(number)
	}
	text, ok := value.(string)
	if !ok {
		return Const(value), nil
	}
	if v, ok := s.holes[text]; ok {
		return Value{Expr: v.Text(), Present: v.Present, Fails: v.Fails, Type: celexpr.Plain(celexpr.String)}, nil
	}
	var parts []celexpr.Expr
	out := Value{Type: celexpr.Plain(celexpr.String)}
	rest := text
	for {
		at, name := len(rest), ""
		for hole, v := range s.holes {
			if i := strings.Index(rest, hole); i >= 0 && i < at && !v.Constant {
				at, name = i, hole
			}
		}
		if name == "" {
			break
		}
		v := s.holes[name]
		if at > 0 {
			parts = append(parts, celexpr.Str(rest[:at]))
		}
		parts = append(parts, v.Text())
		if !v.Always() {
			out.Present, out.Fails = celexpr.And(out.Present, v.Present), true
		}
		rest = rest[at+len(name):]
	}
	if len(parts) == 0 {
		return Const(text), nil
	}
	if rest != "" {
		parts = append(parts, celexpr.Str(rest))
	}
	out.Expr = celexpr.Add(parts...)
	return out, nil
}

// field translates a name: a member of the current value, or a root.
func (s Scope) field(name string) (Value, error) {
	hole, isHole := s.holes[name]
	if s.current != nil && s.current.ByName != nil {
		key := celexpr.Str(name)
		if isHole {
			key = hole.Text()
		}
		if element, ok := strings.CutSuffix(key.String(), ".name"); ok { // the element itself
			return s.current.ByName(celexpr.Raw(element)), nil
		}
		same := celexpr.Eq(celexpr.Field(celexpr.Raw("e"), "name"), key)
		return s.current.ByName(celexpr.Index(celexpr.Macro(s.current.Expr, "filter", "e", same), 0)), nil
	}
	if s.current != nil && s.current.Members != nil {
		if v, ok := s.current.Members[name]; ok {
			return v, nil
		}
		return Value{}, unsupported("write it in CEL", "%s, which CEL does not know", quote(s.current.Name+"."+name))
	}
	if s.current != nil {
		switch s.current.Type.Kind() { //nolint:exhaustive // others have members, or may have
		case celexpr.Sequence, celexpr.String, celexpr.Quantity, celexpr.Number, celexpr.Truth:
			return Value{}, unsupported("write it in CEL", "the field %q of something that is no object", name)
		}
		if isHole && !hole.Constant {
			return s.current.At(hole.Text()), nil
		}
		if fields, ok := s.current.Literal.(map[string]any); ok && s.current.Constant {
			return Const(fields[name]), nil
		}
		return s.current.Member(name), nil
	}
	if isHole {
		return Value{}, unsupported("write it in CEL", "a variable whose name is computed")
	}
	return s.Root(name)
}

// flatten translates list[].
func (s Scope) flatten(n *parsing.ASTNode) (Value, error) {
	if n.NodeType == parsing.ASTSubexpression && n.Children[1].NodeType == parsing.ASTMultiSelectList {
		left, err := s.node(&n.Children[0])
		if err != nil {
			return Value{}, err
		}
		return s.with(left).concat(n.Children[1].Children)
	}
	v, err := s.node(n)
	if err != nil {
		return Value{}, err
	}
	elem := v.Type.Elem()
	switch k := v.Type.Kind(); {
	case k != celexpr.Sequence && k != celexpr.Unknown:
		return Value{}, unsupported("name a list", "[] behind something that is no list")
	case elem.Kind() == celexpr.Sequence:
		return computedList(v, elem.Elem(), celexpr.Call(v.List(), "flatten")), nil
	case elem.Kind() == celexpr.Unknown && v.Total:
		return computedList(v, celexpr.Type{}, celexpr.Call(v.List(), "flatten")), nil
	default:
		return v, nil
	}
}

// computedList returns a list that is made of another one, and there where that is.
func computedList(from Value, elem celexpr.Type, list celexpr.Expr) Value {
	return Value{Expr: list, Total: true, Present: from.Present, Type: celexpr.ListOf(elem), Name: from.Name}
}

// concat translates [a, b][], the elements of lists, of which some may be missing.
func (s Scope) concat(parts []parsing.ASTNode) (Value, error) {
	var all []celexpr.Expr
	var elem celexpr.Type
	name := ""
	for i := range parts {
		v, err := s.node(&parts[i])
		if err != nil {
			return Value{}, err
		}
		if k := v.Type.Kind(); k != celexpr.Sequence && k != celexpr.Unknown {
			return Value{}, unsupported("name lists", "a list of values that are no lists")
		}
		all = append(all, v.List())
		if name == "" || v.Name == "containers" {
			name, elem = v.Name, v.Type.Elem()
		}
	}
	out := Value{Expr: celexpr.Add(all...), Total: true, Type: celexpr.ListOf(elem), Name: name}
	out.Present = s.current.Present
	return out, nil
}

// list translates [a, b].
func (s Scope) list(parts []parsing.ASTNode) (Value, error) {
	var all []celexpr.Expr
	for i := range parts {
		v, err := s.node(&parts[i])
		if err != nil {
			return Value{}, err
		}
		all = append(all, v.OrElse(celexpr.Raw("null")))
	}
	out := Value{Expr: celexpr.List(all...), Type: celexpr.ListOf(celexpr.Type{})}
	if s.current != nil {
		out.Present, out.Fails = s.current.Present, s.current.Fails
	}
	return out, nil
}

// projection translates what is done to each element of a list, of which those that a filter drops, and missing results, are left out.
func (s Scope) projection(left, right, filter *parsing.ASTNode) (Value, error) {
	list, err := s.node(left)
	if err != nil {
		return Value{}, err
	}
	if k := list.Type.Kind(); k != celexpr.Sequence && k != celexpr.Unknown {
		return Value{}, unsupported("name a list", "a projection of something that is no list")
	}
	name, names := s.Names.Element(list.Name)
	inner := s.with(Of(celexpr.Raw(name), list.Type.Elem()))
	inner.Names = names
	inner.current.Name = list.Name
	condition := celexpr.True
	if filter != nil {
		keep, err := inner.node(filter)
		if err != nil {
			return Value{}, err
		}
		condition = keep.Holds()
	} else if right.NodeType == parsing.ASTIdentity {
		list.Fails = false
		return list, nil
	}
	result, err := inner.node(right)
	if err != nil {
		return Value{}, err
	}
	out := list.List()
	condition = celexpr.And(condition, result.Present)
	if result.Expr.Equal(celexpr.Raw(name)) {
		out = celexpr.Macro(out, "filter", name, condition)
	} else if condition.IsTrue() {
		out = celexpr.Macro(out, "map", name, result.Expr)
	} else {
		out = celexpr.Macro(celexpr.Macro(out, "filter", name, condition), "map", name, result.Expr)
	}
	v := computedList(list, result.Type, out)
	v.Name = result.Name
	if v.Name == "" {
		v.Name = list.Name
	}
	return v, nil
}

// values translates map.*, of which the names of the members are not needed.
func (s Scope) values(left, right *parsing.ASTNode) (Value, error) {
	of, err := s.node(left)
	if err != nil {
		return Value{}, err
	}
	if of.ByName != nil {
		name, names := s.Names.Element(of.Name)
		inner := s.with(of.ByName(celexpr.Raw(name)))
		inner.Names = names
		result, err := inner.node(right)
		if err != nil {
			return Value{}, err
		}
		return computedList(of, result.Type, celexpr.Macro(of.Expr, "map", name, result.Expr)), nil
	}
	all, err := s.mapValues(of)
	if err != nil {
		return Value{}, err
	}
	if right.NodeType == parsing.ASTIdentity {
		return all, nil
	}
	name, names := s.Names.Element(of.Name)
	inner := s.with(Of(celexpr.Raw(name), all.Type.Elem()))
	inner.Names = names
	result, err := inner.node(right)
	if err != nil {
		return Value{}, err
	}
	out := all.Expr
	if !result.Always() {
		out = celexpr.Macro(out, "filter", name, result.Present)
	}
	return computedList(all, result.Type, celexpr.Macro(out, "map", name, result.Expr)), nil
}

// mapValues returns the values of the members of an object.
func (s Scope) mapValues(of Value) (Value, error) {
	if k := of.Type.Kind(); k != celexpr.Map && k != celexpr.Unknown && k != celexpr.Struct {
		return Value{}, unsupported("name an object", "the values of something that is no object")
	}
	m := of.OrElse(celexpr.Raw("{}"))
	return computedList(of, of.Type.Elem(), celexpr.Macro(m, "map", "key", celexpr.At(m, celexpr.Raw("key")))), nil
}

// or translates left || right.
func (s Scope) or(n *parsing.ASTNode) (Value, error) {
	if right := &n.Children[1]; right.NodeType == parsing.ASTField && right.Value == "" { // "" is no text, but a field without a name
		left, err := s.node(&n.Children[0])
		left.Fails = false
		return left, err
	}
	left, right, err := s.two(n)
	if err != nil {
		return Value{}, err
	}
	if left.Type.Kind() == celexpr.Truth && right.Type.Kind() == celexpr.Truth {
		return Of(celexpr.Or(left.Holds(), right.Holds()), celexpr.Plain(celexpr.Truth)), nil
	}
	if left.Always() && left.Type.Kind() == celexpr.Number {
		return left, nil
	}
	if !right.Constant {
		if left.Type.Kind() == celexpr.Sequence && right.Type.Kind() == celexpr.Sequence {
			return Value{}, unsupported("write it in CEL", "one of two lists")
		}
		both := celexpr.Call(left.optional(), "or", right.optional())
		return Value{
			Expr: celexpr.Call(both, "value"), Opt: both, Present: celexpr.Call(both, "hasValue"), Type: left.Type, Name: left.Name,
		}, nil
	}
	if left.Type.Kind() == celexpr.Sequence || left.Total {
		if list, ok := right.Literal.([]any); ok && len(list) == 0 || right.Literal == "" { // of an empty list, the length is that of ""
			return Value{Expr: left.List(), Type: left.Type, Name: left.Name}, nil
		}
		return Value{}, unsupported("write it in CEL", "another default of a list than an empty one")
	}
	out := Value{Type: right.Type, Name: left.Name}
	if left.Type.Kind() != celexpr.Unknown {
		out.Type = left.Type
	}
	switch literal := right.Literal.(type) {
	case string:
		out.Expr = left.OrElse(right.Expr)
		if literal != "" && left.Type.Kind() != celexpr.Number {
			empty := left.OrElse(celexpr.Str(""))
			value := left.Expr
			if !left.Opt.IsZero() {
				value = celexpr.Call(left.Opt, "value")
			}
			out.Expr = celexpr.If(celexpr.Rel(empty, "!=", celexpr.Str("")), value, right.Expr)
		}
	case bool:
		if left.Type.Kind() != celexpr.Truth && left.Type.Kind() != celexpr.Unknown {
			out.Type = celexpr.Type{}
		}
		out.Expr = celexpr.Or(left.OrElse(celexpr.False), celexpr.Bool(literal))
	default:
		out.Expr = left.OrElse(right.Expr)
	}
	return out, nil
}

// compare translates a comparison. What is missing is null.
func (s Scope) compare(n *parsing.ASTNode) (Value, error) {
	left, right, err := s.two(n)
	if err != nil {
		return Value{}, err
	}
	operator := map[string]string{
		"TOKEQ": "==", "TOKNE": "!=", "TOKGT": ">", "TOKGTE": ">=", "TOKLT": "<", "TOKLTE": "<=",
	}[fmt.Sprint(n.Value)]
	result := func(e celexpr.Expr) (Value, error) { return Of(e, celexpr.Plain(celexpr.Truth)), nil }
	if operator != "==" && operator != "!=" {
		if left.Type.Kind() != celexpr.Number || right.Type.Kind() != celexpr.Number {
			return Value{}, unsupported("write it in CEL", "the order of values that are not known to be numbers")
		}
		return result(celexpr.And(left.Present, right.Present, celexpr.Rel(left.Expr, operator, right.Expr)))
	}
	var equal celexpr.Expr
	if left.Constant {
		left, right = right, left
	}
	switch {
	case right.Constant && right.Literal == nil:
		equal = celexpr.Not(left.Present)
		if left.Always() {
			equal = celexpr.False
		}
	case left.Always() && right.Always():
		equal = celexpr.Eq(left.Expr, right.Expr)
	case right.Constant && right.Literal == false && left.Type.Kind() == celexpr.Truth && !left.Opt.IsZero():
		equal = celexpr.Not(celexpr.Call(left.Opt, "orValue", celexpr.True))
	case right.Constant:
		equal = celexpr.And(left.Present, celexpr.Eq(left.Expr, right.Expr))
	default:
		equal = celexpr.Eq(left.optional(), right.optional())
	}
	if operator == "!=" {
		equal = celexpr.Not(equal)
	}
	return result(equal)
}
