package expression

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/parser"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
)

// use is what a part of a rule is for: what must hold for it in the newer object, so that
// the rule does not become false, or an error, where it was true.
type use uint8

const (
	// exactly requires the same value.
	exactly use = iota
	// holds requires of a condition that it stays true if it was, and fails that it
	// stays false if it was.
	holds
	fails
	// fewer requires of a list the same elements, some of which may be gone.
	fewer
)

// ofCondition returns the use of what is joined to a condition by "and" and "or".
func (u use) ofCondition() use {
	if u == fewer {
		return exactly
	}
	return u
}

// negated returns the use of what is negated for a condition.
func (u use) negated() use {
	switch u {
	case holds:
		return fails
	case fails:
		return holds
	case exactly, fewer:
	}
	return exactly
}

// ofList returns the use of a list each element of which is asked, for a condition that
// fewer elements cannot make worse if it has the other use.
func (u use) ofList(better use) use {
	if u == better {
		return fewer
	}
	return exactly
}

// reader determines what an expression reads.
type reader struct {
	object    *Reads
	variables *Variables
	// names are those that comprehensions declare.
	names map[string]*declaration
	// left is how many parts may still be visited.
	left *int
}

// declaration is a name for a part.
type declaration struct {
	part
	isRead bool
}

// maxParts is how many parts of an expression are visited: the expressions of variables are
// visited each time that they are named. It is far above what real expressions have; one that
// has more counts as reading all of the object.
const maxParts = 1 << 16

// readsOf returns what a rule reads of the object. The rule is violated only if the
// conditions are true.
func readsOf(root ast.Expr, conditions []ast.Expr, variables *Variables) *Reads {
	left := maxParts
	r := &reader{object: new(Reads), variables: variables, left: &left}
	r.visit(root, holds).readWhole()
	nothing := r.object.isEmpty()
	for _, condition := range conditions {
		r.visit(condition, fails).readWhole()
	}
	r.object.onlyOfConditions = nothing
	r.object.seal()
	return r.object
}

// visitWhole notes that an expression is read, whatever its value is.
func (r *reader) visitWhole(expressions ...ast.Expr) {
	for _, e := range expressions {
		r.visit(e, exactly).readWhole()
	}
}

// visit notes what is read to evaluate the expression, and returns the part of the object
// that may be its value: of that, the caller notes what is read.
func (r *reader) visit(e ast.Expr, u use) part {
	if *r.left--; *r.left < 0 {
		r.object.whole = true
		return nil
	}
	switch e.Kind() {
	case ast.IdentKind:
		return r.visitName(e.AsIdent())
	case ast.SelectKind:
		return r.visitSelect(e.AsSelect(), u)
	case ast.CallKind:
		return r.visitCall(e, e.AsCall(), u)
	case ast.ComprehensionKind:
		return r.visitComprehension(e.AsComprehension(), u)
	case ast.ListKind:
		r.visitWhole(e.AsList().Elements()...)
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			r.visitWhole(entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
	case ast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			r.visitWhole(field.AsStructField().Value())
		}
	case ast.LiteralKind, ast.UnspecifiedExprKind:
	}
	return nil
}

func (r *reader) visitName(name string) part {
	// A leading dot makes a name absolute: one that a comprehension declares does
	// not hide it.
	absolute := strings.HasPrefix(name, ".")
	name = strings.TrimPrefix(name, ".")
	if declared, ok := r.names[name]; ok && !absolute {
		declared.isRead = true
		return declared.part
	}
	switch first, _, isPath := strings.Cut(name, "."); {
	case first == plugincel.ObjectVarName && !isPath:
		return part{{Reads: r.object}}
	case first == plugincel.ObjectVarName, first == plugincel.VariableVarName:
		r.object.whole = true // any of them, by a name that is not a constant
	}
	return nil
}

// visitVariable returns what a variable's value may be.
func (r *reader) visitVariable(name string, u use) part {
	root := r.variables.root(name)
	if root == nil {
		return nil
	}
	return (&reader{object: r.object, variables: r.variables, left: r.left}).visit(root, u)
}

func (r *reader) visitSelect(s ast.SelectExpr, u use) part {
	if operand := s.Operand(); operand.Kind() == ast.IdentKind && r.isVariables(operand.AsIdent()) {
		return r.visitVariable(s.FieldName(), u)
	}
	out := r.visit(s.Operand(), exactly).member(s.FieldName(), s.IsTestOnly())
	if s.IsTestOnly() {
		out.readWhole()
		return nil
	}
	return out
}

// isVariables reports whether a name is that of the policy's variables.
func (r *reader) isVariables(name string) bool {
	if name == plugincel.VariableVarName {
		_, hidden := r.names[name]
		return !hidden
	}
	return name == "."+plugincel.VariableVarName
}

func (r *reader) visitCall(e ast.Expr, c ast.CallExpr, u use) part {
	args := c.Args()
	switch function := c.FunctionName(); function {
	case operators.OptSelect, operators.Index, operators.OptIndex:
		if name, ok := constant(args[1]); ok {
			return r.visit(args[0], exactly).member(name, function != operators.Index)
		}
	case operators.Conditional:
		return r.visitConditional(args[0], args[1], args[2], u)
	case operators.LogicalAnd, operators.LogicalOr:
		r.visitChain(joined(e, function), function, u.ofCondition(), nil)
		return nil
	case operators.LogicalNot:
		r.visit(args[0], u.negated()).readWhole()
		return nil
	case operators.Equals, operators.NotEquals, operators.Greater:
		if name := pathOf(args[0]); name == plugincel.ObjectVarName && r.names[name] == nil && isLiteral(args[1], types.NullValue) {
			return nil // it is there before and after an update
		}
		if list, better := emptiness(function, args); list != nil {
			better = u.ofList(better)
			r.visit(list, better).counted(better)
			return nil
		}
	case operators.In:
		if name, ok := constant(args[0]); ok { // of a list, all is compared
			r.visit(args[1], exactly).member(name, true).readWhole()
			return nil
		}
	case operators.Add:
		return join(r.visit(args[0], u), r.visit(args[1], u))
	case "size":
		if list := sized(e); list != nil {
			r.visit(list, exactly).counted(exactly)
			return nil
		}
	case "dyn":
		if !c.IsMemberFunction() && len(args) == 1 {
			return r.visit(args[0], u)
		}
	case "flatten", "distinct": // fewer elements come of fewer
		if c.IsMemberFunction() && len(args) == 0 {
			r.visit(c.Target(), u).readWhole()
			return nil
		}
	case "orValue":
		if c.IsMemberFunction() && len(args) == 1 {
			of := r.visit(c.Target(), u)
			return join(of.with(emptyLiteral(args[0])), r.visit(args[0], u))
		}
	}
	if c.IsMemberFunction() {
		r.visitWhole(c.Target())
	}
	r.visitWhole(args...)
	return nil
}

// emptiness returns the list of which a comparison asks whether it is empty, nil for any other
// comparison, and the use of the comparison for which the list may have fewer elements.
func emptiness(operator string, args []ast.Expr) (list ast.Expr, better use) {
	better = fails
	if operator == operators.Equals {
		better = holds
	}
	switch {
	case isLiteral(args[1], types.Int(0)):
		return sized(args[0]), better
	case operator != operators.Greater && emptyLiteral(args[1]) != isError:
		return args[0], better
	case operator != operators.Greater && emptyLiteral(args[0]) != isError:
		return args[1], better
	default:
		return nil, exactly
	}
}

// visitConditional visits "condition ? a : b".
func (r *reader) visitConditional(condition, a, b ast.Expr, u use) part {
	conditions := joined(condition, operators.LogicalAnd)
	last := len(conditions) - 1
	// has(x) ? x : [] is x, and nothing if it is absent.
	isOptional := emptyLiteral(b) != isError && pathOf(a) != "" && tested(conditions[last]) == pathOf(a)
	if isOptional {
		conditions = conditions[:last]
	}
	r.visitChain(conditions, operators.LogicalAnd, exactly, a)
	of := r.visit(a, u)
	if isOptional {
		return of.with(emptyLiteral(b))
	}
	return join(of, r.visit(b, u))
}

// visitChain visits conditions that are joined by an operator. What is read after them may
// be nil.
func (r *reader) visitChain(conditions []ast.Expr, operator string, u use, then ast.Expr) {
	for i, condition := range conditions {
		asks := condition
		if operator == operators.LogicalOr {
			asks = nil
			if negated := calls(condition, operators.LogicalNot, 1); negated != nil {
				asks = negated[0]
			}
		}
		// has(x) && x.y == 1 and !has(x) || x.y == 1 read no more of x than what they
		// read once x is there.
		asked := tested(asks)
		isGuard := asked != "" && slices.ContainsFunc(append(conditions[i+1:len(conditions):len(conditions)], then), func(e ast.Expr) bool { return r.mustRead(e, asked) })
		if isGuard {
			s := asks.AsSelect()
			r.visit(s.Operand(), exactly).member(s.FieldName(), true).markStrict()
		} else {
			r.visit(condition, u).readWhole()
		}
	}
}

// joined returns what is joined by an operator, in that order.
func joined(e ast.Expr, operator string) []ast.Expr {
	if args := calls(e, operator, 2); args != nil {
		return append(joined(args[0], operator), joined(args[1], operator)...)
	}
	return []ast.Expr{e}
}

// tested returns the path of x in has(x), and "" for anything else.
func tested(e ast.Expr) string {
	if e == nil || e.Kind() != ast.SelectKind || !e.AsSelect().IsTestOnly() {
		return ""
	}
	return memberOf(pathOf(e.AsSelect().Operand()), e.AsSelect().FieldName())
}

// pathOf returns a text that differs for different paths of names, and "" for anything else.
func pathOf(e ast.Expr) string {
	switch e.Kind() {
	case ast.IdentKind:
		return e.AsIdent()
	case ast.SelectKind:
		if s := e.AsSelect(); !s.IsTestOnly() {
			return memberOf(pathOf(s.Operand()), s.FieldName())
		}
	case ast.CallKind:
		if args := calls(e, operators.Index, 2); args != nil {
			if name, ok := constant(args[1]); ok {
				return memberOf(pathOf(args[0]), name)
			}
		}
	case ast.ComprehensionKind, ast.ListKind, ast.LiteralKind, ast.MapKind, ast.StructKind, ast.UnspecifiedExprKind:
	}
	return ""
}

func memberOf(of, name string) string {
	if of == "" {
		return ""
	}
	return of + "[" + strconv.Quote(name) + "]"
}

// mustRead reports whether an expression, which may be nil, reads the value at a path
// whatever else there is.
func (r *reader) mustRead(e ast.Expr, at string) bool {
	if e == nil {
		return false
	}
	if *r.left--; *r.left < 0 || pathOf(e) == at {
		return true
	}
	reads := func(e ast.Expr) bool { return r.mustRead(e, at) }
	switch e.Kind() {
	case ast.SelectKind:
		return reads(e.AsSelect().Operand())
	case ast.ComprehensionKind:
		return reads(e.AsComprehension().IterRange())
	case ast.CallKind:
		c := e.AsCall()
		switch args := c.Args(); c.FunctionName() {
		case operators.LogicalAnd, operators.LogicalOr:
			return reads(args[0]) && reads(args[1])
		case operators.Conditional:
			return reads(args[0]) || reads(args[1]) && reads(args[2])
		default:
			return c.IsMemberFunction() && reads(c.Target()) || slices.ContainsFunc(args, reads)
		}
	case ast.IdentKind, ast.ListKind, ast.LiteralKind, ast.MapKind, ast.StructKind, ast.UnspecifiedExprKind:
	}
	return false
}

// visitComprehension notes what a loop reads.
func (r *reader) visitComprehension(c ast.ComprehensionExpr, u use) part {
	loop, over := loopOf(c), exactly
	switch loop.kind {
	case isAll:
		over = u.ofList(holds)
	case isExists:
		over = u.ofList(fails)
	case isGathering:
		over = u
	case isOther:
		r.visitWhole(c.IterRange(), c.AccuInit())
		r.declaring(c, nil, func() { r.visitWhole(c.LoopCondition(), c.LoopStep(), c.Result()) })
		return nil
	}
	list := r.visit(c.IterRange(), over)
	element := list.element(over)
	gathered := part(nil)
	r.declaring(c, element, func() {
		if loop.condition != nil {
			of := exactly
			if loop.kind != isGathering {
				of = u.ofCondition()
			}
			r.visit(loop.condition, of).readWhole()
		}
		if loop.element == nil {
			return
		}
		if loop.element.Kind() == ast.IdentKind && loop.element.AsIdent() == c.IterVar() {
			gathered = slices.Clone(list) // some of its elements
			for i := range gathered {
				gathered[i].selected = true
			}
			return
		}
		r.visitWhole(loop.element)
	})
	return gathered
}

// declaring visits the body of a loop with its variables. The accumulator is made of what is
// visited.
func (r *reader) declaring(c ast.ComprehensionExpr, element part, visit func()) {
	outer, of := r.names, &declaration{part: element}
	defer func() { r.names = outer }()
	r.names = map[string]*declaration{}
	maps.Copy(r.names, outer)
	for _, name := range []string{c.AccuVar(), c.IterVar2()} {
		r.names[name] = new(declaration)
	}
	r.names[c.IterVar()] = of
	visit()
	if !of.isRead {
		element.readWhole() // it counts that it is there, as for a value of which nothing is read
	}
}

// loop is what a comprehension does, according to the macro that it was written with.
type loop struct {
	kind loopKind
	// condition is asked of each element, and element what is gathered. Either
	// may be nil.
	condition, element ast.Expr
}

type loopKind uint8

const (
	isOther loopKind = iota
	isAll
	isExists
	// isGathering makes a list: filter and map.
	isGathering
)

// loopOf recognises what cel-go's macros with one variable are expanded to. Their
// accumulator has a name that no expression can have.
func loopOf(c ast.ComprehensionExpr) loop {
	if c.AccuVar() != parser.HiddenAccumulatorName || c.HasIterVar2() {
		return loop{}
	}
	isAccumulator := func(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == c.AccuVar() }
	// added is what an operator adds to the accumulator.
	added := func(e ast.Expr, operator string) ast.Expr {
		if args := calls(e, operator, 2); args != nil && isAccumulator(args[0]) && isAccumulator(c.Result()) {
			return args[1]
		}
		return nil
	}
	init, step := c.AccuInit(), c.LoopStep()
	if condition := added(step, operators.LogicalAnd); condition != nil && isLiteral(init, types.True) {
		return loop{kind: isAll, condition: condition}
	}
	if condition := added(step, operators.LogicalOr); condition != nil && isLiteral(init, types.False) {
		return loop{kind: isExists, condition: condition}
	}
	var condition ast.Expr
	if args := calls(step, operators.Conditional, 3); args != nil && isAccumulator(args[2]) {
		condition, step = args[0], args[1]
	}
	list := added(step, operators.Add)
	if list == nil || list.Kind() != ast.ListKind || list.AsList().Size() != 1 || len(list.AsList().OptionalIndices()) > 0 ||
		emptyLiteral(init) != isEmptyList || !isLiteral(c.LoopCondition(), types.True) {
		return loop{}
	}
	return loop{kind: isGathering, condition: condition, element: list.AsList().Elements()[0]}
}

// calls returns the arguments of a call of a function with as many, or nil.
func calls(e ast.Expr, function string, arguments int) []ast.Expr {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != function || len(e.AsCall().Args()) != arguments {
		return nil
	}
	return e.AsCall().Args()
}

// sized returns what an expression gives the size of, or nil.
func sized(e ast.Expr) ast.Expr {
	if args := calls(e, "size", 1); args != nil && !e.AsCall().IsMemberFunction() {
		return args[0]
	}
	if calls(e, "size", 0) != nil && e.AsCall().IsMemberFunction() {
		return e.AsCall().Target()
	}
	return nil
}

func constant(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	text, ok := e.AsLiteral().Value().(string)
	return text, ok
}

func isLiteral(e ast.Expr, value ref.Val) bool {
	return e.Kind() == ast.LiteralKind && e.AsLiteral() == value
}

// emptyLiteral returns the empty literal that an expression is, and isError for anything else.
func emptyLiteral(e ast.Expr) absence {
	switch {
	case e.Kind() == ast.ListKind && e.AsList().Size() == 0:
		return isEmptyList
	case e.Kind() == ast.MapKind && e.AsMap().Size() == 0:
		return isEmptyObject
	default:
		return isError
	}
}
