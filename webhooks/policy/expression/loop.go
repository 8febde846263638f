package expression

import (
	"maps"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/parser"
)

// visitComprehension notes what a loop reads.
func (r *reader) visitComprehension(c ast.ComprehensionExpr, u use) *part {
	outer, keys := r.names, r.keysOf
	r.names, r.keysOf = maps.Clone(outer), maps.Clone(keys)
	defer func() { r.names, r.keysOf = outer, keys }()
	loop := loopOf(c)
	over, body := exactly, exactly
	switch loop.kind {
	case isAll:
		over, body = anyOrder, u.ofCondition()
		if u == holds {
			over = fewer
		}
	case isExists:
		over, body = anyOrder, u.ofCondition()
		if u == fails {
			over = fewer
		}
	case isExistsOne:
		over = anyOrder
	case isGathering:
		over, body = loop.gathering(u)
	case isOther:
		return r.visitOtherLoop(c, u)
	}
	var counted []presence
	list := r.causeDuring(func() { counted = r.declareLoopVariables(c, over) })
	why := cause{}
	if loop.condition != nil {
		why = r.conditionCause(loop.condition, body)
	}
	switch loop.kind {
	case isAll:
		r.addCause(why.ofAll(list, counted))
		return nil
	case isExists:
		r.addCause(why.negated().ofAll(list, counted).negated())
		return nil
	case isExistsOne:
		why = why.ofAny()
		r.addCause(causeOf(withoutReadPresences(counted, why.whenTrue.read)).after(why).after(list))
		return nil
	case isGathering, isOther:
	}
	r.addCause(list)
	if loop.condition != nil {
		if body == fails {
			why.whenFalse = why.whenTrue // what counts is that there is one
		}
		why = why.ofAny()
		counted = withoutReadPresences(counted, why.whenTrue.read)
		r.addCause(why)
	}
	return &part{elements: r.visit(loop.element, exactly), counted: counted}
}

// gathering returns the uses of the list that a filter or map iterates over and of its
// condition, for a use of the list that it makes.
func (l loop) gathering(u use) (over, condition use) {
	switch u {
	case anyOrder, fewer:
		return u, exactly
	case empty:
		if l.condition == nil {
			return empty, exactly
		}
		// None of those that are left came through before. None must come through
		// now: this is "there is none".
		return fewer, fails
	case exactly, holds, fails:
	}
	return exactly, exactly
}

// declareLoopVariables declares the variables of a loop over a list or map with that use,
// and returns the elements that the length of the loop depends on.
func (r *reader) declareLoopVariables(c ast.ComprehensionExpr, u use) []presence {
	made := u
	if c.HasIterVar2() {
		made = exactly // an index is the position of an element
	}
	over := r.visit(c.IterRange(), made)
	path, ok := r.path(c.IterRange())
	element := over.element(u)
	delete(r.keysOf, c.IterVar2())
	delete(r.keysOf, c.IterVar())
	if ok {
		r.keysOf[c.IterVar()] = path
	}
	r.names[c.IterVar()] = element
	if c.HasIterVar2() {
		// Index and element, or key and value.
		over.markIndexed()
		r.names[c.IterVar()] = nil
		r.names[c.IterVar2()] = element
	}
	return sizedBy(over)
}

// isKey reports whether the key is one that the map has, whatever it has: it is the
// variable of a loop over that map.
func (r *reader) isKey(key, of ast.Expr) bool {
	if key.Kind() != ast.IdentKind {
		return false
	}
	in, ok := r.keysOf[key.AsIdent()]
	if !ok {
		return false
	}
	path, ok := r.path(of)
	return ok && path == in
}

// path distinguishes paths from a name that no loop declares, and is false for any
// other expression.
func (r *reader) path(e ast.Expr) (string, bool) {
	switch e.Kind() {
	case ast.IdentKind:
		name := e.AsIdent()
		_, declared := r.names[strings.TrimPrefix(name, ".")]
		return name, !declared
	case ast.SelectKind:
		of, ok := r.path(e.AsSelect().Operand())
		return of + "[" + strconv.Quote(e.AsSelect().FieldName()) + "]", ok && !e.AsSelect().IsTestOnly()
	case ast.CallKind:
		if c := e.AsCall(); c.FunctionName() == operators.Index {
			name, isName := constant(c.Args()[1])
			of, ok := r.path(c.Args()[0])
			return of + "[" + strconv.Quote(name) + "]", ok && isName
		}
	case ast.ComprehensionKind, ast.ListKind, ast.LiteralKind, ast.MapKind, ast.StructKind, ast.UnspecifiedExprKind:
	}
	return "", false
}

// visitOtherLoop visits a loop that is none of the known macros.
func (r *reader) visitOtherLoop(c ast.ComprehensionExpr, u use) *part {
	init := r.visit(c.AccuInit(), exactly)
	counted := r.declareLoopVariables(c, exactly)
	r.names[c.AccuVar()] = init
	delete(r.keysOf, c.AccuVar())
	if isEmptyLiteral(c.IterRange()) {
		// It gives a name to a value.
		return r.visit(c.Result(), u)
	}
	// What is gathered in the first round may be gathered further in the second.
	body := r.causeDuring(func() {
		for range 2 {
			r.visit(c.LoopCondition(), exactly).readWhole()
			gathered := r.visit(c.LoopStep(), exactly)
			if gathered.isNothing() {
				break
			}
			r.names[c.AccuVar()] = join(r.names[c.AccuVar()], gathered)
		}
	})
	r.addCause(causeOf(withoutReadPresences(counted, body.whenTrue.read)).after(body))
	return r.visit(c.Result(), exactly)
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
	isExistsOne
	// isGathering makes a list: filter, map and transformList.
	isGathering
)

// loopOf recognises what cel-go's macros are expanded to. Their accumulator has a
// name that no expression can have.
func loopOf(c ast.ComprehensionExpr) loop {
	if c.AccuVar() != parser.HiddenAccumulatorName {
		return loop{}
	}
	isAccumulator := func(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == c.AccuVar() }
	// grows is what is added to the accumulator.
	grows := func(e ast.Expr) ast.Expr {
		if args := calls(e, operators.Add, 2); args != nil && isAccumulator(args[0]) {
			return args[1]
		}
		return nil
	}
	init, step, result := c.AccuInit(), c.LoopStep(), c.Result()
	// joins is what is joined to the accumulator.
	joins := func(operator string) ast.Expr {
		if args := calls(step, operator, 2); args != nil && isAccumulator(args[0]) && isAccumulator(result) {
			return args[1]
		}
		return nil
	}
	if condition := joins(operators.LogicalAnd); condition != nil && isLiteral(init, types.True) {
		return loop{kind: isAll, condition: condition}
	}
	if condition := joins(operators.LogicalOr); condition != nil && isLiteral(init, types.False) {
		return loop{kind: isExists, condition: condition}
	}
	if !isLiteral(c.LoopCondition(), types.True) {
		return loop{}
	}
	var condition ast.Expr
	if args := calls(step, operators.Conditional, 3); args != nil && isAccumulator(args[2]) {
		condition, step = args[0], args[1]
	}
	added := grows(step)
	if added == nil {
		return loop{}
	}
	if isEmptyLiteral(init) && added.Kind() == ast.ListKind && added.AsList().Size() == 1 && isAccumulator(result) &&
		len(added.AsList().OptionalIndices()) == 0 {
		return loop{kind: isGathering, condition: condition, element: added.AsList().Elements()[0]}
	}
	equal := calls(result, operators.Equals, 2)
	if isLiteral(init, types.Int(0)) && isLiteral(added, types.Int(1)) && condition != nil && equal != nil && isAccumulator(equal[0]) && isLiteral(equal[1], types.Int(1)) {
		return loop{kind: isExistsOne, condition: condition}
	}
	return loop{}
}

// calls returns the arguments of a call of a function with as many, or nil.
func calls(e ast.Expr, function string, arguments int) []ast.Expr {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != function || len(e.AsCall().Args()) != arguments {
		return nil
	}
	return e.AsCall().Args()
}

func isLiteral(e ast.Expr, value ref.Val) bool {
	return e.Kind() == ast.LiteralKind && e.AsLiteral() == value
}
