package cost

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
)

// estimate is the estimate for one expression. Types do not count in it: an argument that is dyn can have
// any value, and can make the result of a function that is declared as a number a list.
type estimate struct {
	checked   *ast.AST
	variables func(string) (Value, bool)
	scope     []local
	next      symbol
	// unbounded is true once a part has no bound: then the rest does not matter.
	unbounded bool
}

// local is a name that a loop declares.
type local struct {
	name string
	Value
}

// loopSymbols are the sizes of what a loop declares.
type loopSymbols struct{ bytes, values symbol }

func (s loopSymbols) value() Value { return Value{of(s.bytes), of(s.values)} }

// symbols returns symbols of its own, and false if there are none left.
func (e *estimate) symbols() (loopSymbols, bool) {
	if e.next+1 > lastLocal {
		return loopSymbols{}, false
	}
	e.next += 2
	return loopSymbols{e.next - 2, e.next - 1}, true
}

// size is what the cost of a call depends on: the letters of a string, the elements of a list or the members of a
// map. Anything else counts as one.
func (v Value) size() poly { return plus(most(v.bytes, v.values), constant(1)) }

// either is the value of what is one of two.
func either(a, b Value) Value { return Value{most(a.bytes, b.bytes), most(a.values, b.values)} }

// joined is the value of what has the parts of all, and nothing else.
func joined(all ...Value) Value {
	var out Value
	for _, v := range all {
		out = Value{plus(out.bytes, v.bytes), plus(out.values, v.values)}
	}
	return out
}

func unknown() Value { return Value{unbounded(), unbounded()} }

// visit returns what is known of the value of an expression, and a bound of the cost of evaluating it once.
func (e *estimate) visit(x ast.Expr) (Value, poly) {
	if e.unbounded {
		return unknown(), unbounded()
	}
	value, cost := e.visitKind(x)
	e.unbounded = e.unbounded || cost.isUnbounded()
	return value, cost
}

func (e *estimate) visitKind(x ast.Expr) (Value, poly) {
	if ref, found := e.checked.ReferenceMap()[x.ID()]; found && x.Kind() == ast.SelectKind {
		// A name with dots, such as authorizer.requestResource.
		return e.name(ref.Name), constant(common.SelectAndIdentCost)
	}
	switch x.Kind() {
	case ast.LiteralKind:
		return literal(x), nil
	case ast.IdentKind:
		return e.name(x.AsIdent()), constant(common.SelectAndIdentCost)
	case ast.SelectKind:
		return e.selected(x.AsSelect())
	case ast.CallKind:
		return e.call(x)
	case ast.ListKind:
		return e.list(x.AsList())
	case ast.MapKind:
		return e.mapping(x.AsMap())
	case ast.ComprehensionKind:
		return e.loop(x.AsComprehension())
	case ast.StructKind, ast.UnspecifiedExprKind:
	}
	return unknown(), unbounded()
}

func literal(x ast.Expr) Value {
	switch v := x.AsLiteral().(type) {
	case types.String:
		return Value{bytes: constant(float64(len(v)))}
	case types.Bytes:
		return Value{bytes: constant(float64(len(v)))}
	default:
		return Value{}
	}
}

// maxTypeName is a bound of the length of the name of a type.
const maxTypeName = 100

// name returns the value of a name. With a dot in front it should be none that a loop declares, but may be.
func (e *estimate) name(name string) Value {
	bare := strings.TrimPrefix(name, ".")
	for _, l := range slices.Backward(e.scope) {
		switch l.name {
		case name:
			return l.Value
		case bare:
			return either(l.Value, global(bare))
		}
	}
	return global(bare)
}

// global returns the value of a name that no loop declares.
func global(name string) Value {
	switch name {
	case plugincel.ObjectVarName, plugincel.OldObjectVarName:
		return Value{of(objectBytes), of(objectValues)}
	case plugincel.RequestVarName, plugincel.NamespaceVarName, plugincel.ParamsVarName:
		return Value{of(otherBytes), of(otherValues)}
	case plugincel.AuthorizerVarName, plugincel.RequestResourceAuthorizerVarName:
		return Value{}
	case plugincel.VariableVarName:
		return unknown() // all of them
	default:
		return Value{bytes: constant(maxTypeName)}
	}
}

// isVariables reports whether an expression is the name of all variables.
func (e *estimate) isVariables(x ast.Expr) bool {
	if x.Kind() != ast.IdentKind || strings.TrimPrefix(x.AsIdent(), ".") != plugincel.VariableVarName {
		return false
	}
	return !slices.ContainsFunc(e.scope, func(l local) bool { return l.name == plugincel.VariableVarName })
}

// selected is a field. Of what is not a name, two steps count.
func (e *estimate) selected(s ast.SelectExpr) (Value, poly) {
	const steps = 2
	if e.isVariables(s.Operand()) {
		value, known := e.variables(s.FieldName())
		if !known {
			value = unknown()
		}
		return value, constant(steps)
	}
	value, cost := e.visit(s.Operand())
	if s.IsTestOnly() {
		value = Value{}
	}
	return value, plus(cost, constant(steps))
}

func (e *estimate) list(l ast.ListExpr) (Value, poly) {
	var value Value
	cost := constant(common.ListCreateBaseCost)
	for _, element := range l.Elements() {
		v, c := e.visit(element)
		value, cost = joined(value, v, Value{values: constant(1)}), plus(cost, c)
	}
	return value, cost
}

func (e *estimate) mapping(m ast.MapExpr) (Value, poly) {
	var value Value
	cost := constant(common.MapCreateBaseCost)
	for _, entry := range m.Entries() {
		key, keyCost := e.visit(entry.AsMapEntry().Key())
		v, c := e.visit(entry.AsMapEntry().Value())
		value, cost = joined(value, key, v, Value{values: constant(1)}), plus(cost, keyCost, c)
	}
	return value, cost
}

// loop is a comprehension.
func (e *estimate) loop(c ast.ComprehensionExpr) (Value, poly) {
	over, cost := e.visit(c.IterRange())
	first, firstCost := e.visit(c.AccuInit())
	element, ok1 := e.symbols()
	key, ok2 := e.symbols()
	sum, ok3 := e.symbols()
	if !ok1 || !ok2 || !ok3 {
		return unknown(), unbounded()
	}
	outer := len(e.scope)
	defer func() { e.scope = e.scope[:outer] }()
	e.scope = append(e.scope, local{c.AccuVar(), sum.value()})
	if c.HasIterVar2() {
		e.scope = append(e.scope, local{c.IterVar(), key.value()}, local{c.IterVar2(), element.value()})
	} else {
		e.scope = append(e.scope, local{c.IterVar(), element.value()})
	}
	_, conditionCost := e.visit(c.LoopCondition())
	step, stepCost := e.visit(c.LoopStep())
	e.scope = e.scope[:outer]

	// A step adds something to the sum, or replaces it.
	grown := func(step poly, by symbol, other symbol) poly {
		added := poly{}
		for m, n := range step {
			switch {
			case m == monomial{by} && n <= 1:
			case poly{m: 1}.hasAny(by, other):
				return unbounded() // it multiplies it
			default:
				added[m] = n
			}
		}
		return added.total(over, element, key)
	}
	last := Value{
		bytes:  plus(first.bytes, grown(step.bytes, sum.bytes, sum.values)),
		values: plus(first.values, grown(step.values, sum.values, sum.bytes)),
	}
	if len(over.values) == 0 {
		last = first // there is nothing to loop over, as in optMap
	}
	each := plus(conditionCost, stepCost).replace(map[symbol]poly{sum.bytes: last.bytes, sum.values: last.values})
	e.scope = append(e.scope, local{c.AccuVar(), last})
	result, resultCost := e.visit(c.Result())
	return result, plus(cost, firstCost, resultCost, each.total(over, element, key))
}

// call is a call of a function, an operator or a method. The arguments begin with the target.
func (e *estimate) call(x ast.Expr) (Value, poly) {
	c := x.AsCall()
	parts := c.Args()
	if c.IsMemberFunction() {
		parts = append([]ast.Expr{c.Target()}, parts...)
	}
	name := c.FunctionName()
	if name == operators.OptSelect || name == operators.Index || name == operators.OptIndex {
		if e.isVariables(parts[0]) {
			return unknown(), unbounded()
		}
	}
	args := make([]Value, len(parts))
	var cost poly
	for i, part := range parts {
		value, partCost := e.visit(part)
		args[i], cost = value, plus(cost, partCost)
	}
	f := called{name: name, parts: parts, args: args}
	if ref := e.checked.ReferenceMap()[x.ID()]; ref != nil && len(ref.OverloadIDs) == 1 {
		f.overload = ref.OverloadIDs[0]
	}
	value, own := f.estimate()
	return value, plus(cost, own)
}
