package expression

import (
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
)

// reader determines what an expression reads.
type reader struct {
	object    *Reads
	variables *Variables
	// names are those that comprehensions declare.
	names map[string]*part
	// keysOf has of those the ones that are a key of a map, with the path to it.
	keysOf map[string]string
	// left is how many parts may still be visited.
	left *int
	*tracer
}

// readsOf returns what a rule reads of the object. The rule is violated only if the
// conditions are true.
func readsOf(root ast.Expr, conditions []ast.Expr, variables *Variables) *Reads {
	left, tracer := maxParts, new(tracer)
	r := &reader{
		object: &Reads{tracer: tracer}, variables: variables, names: map[string]*part{}, keysOf: map[string]string{}, left: &left, tracer: tracer,
	}
	violated := r.conditionCause(root, holds).whenFalse
	nothing := r.object.IsNothing()
	for _, condition := range conditions {
		violated = violated.and(r.conditionCause(condition, fails).whenTrue)
	}
	r.object.onlyOfConditions = nothing && !r.object.IsNothing()
	for _, p := range violated.presences {
		p.requireContent()
	}
	r.object.seal()
	return r.object
}

// conditionCause notes everything that a condition reads, and returns its cause.
func (r *reader) conditionCause(e ast.Expr, u use) cause {
	of, why := r.visitWithCause(e, u)
	all := r.causeDuring(of.readWhole)
	return why.after(all)
}

// visitWithCause is visit for a condition whose cause is kept apart.
func (r *reader) visitWithCause(e ast.Expr, u use) (of *part, why cause) {
	why = r.causeDuring(func() { of = r.visitKind(e, u) })
	return of, why
}

// causeDuring returns the cause that a function notes.
func (r *reader) causeDuring(note func()) cause {
	outer := r.cause
	r.cause = cause{}
	note()
	inner := r.cause
	r.cause = outer
	return inner
}

// maxParts is how many parts of an expression are visited: the body of a loop and the
// expressions of variables are visited twice. It is far above what real expressions have;
// one that has more counts as reading all of the object.
const maxParts = 1 << 14

// visit notes what is read to evaluate the expression, and returns the part of the object
// that may be its value. The use is what the value is for. It is noted here for values that
// the expression makes; for values of the object, the caller notes it.
func (r *reader) visit(e ast.Expr, u use) *part {
	of, why := r.visitWithCause(e, u)
	r.addCause(why.ofAny())
	return of
}

// visitKind is visit for each kind of expression.
func (r *reader) visitKind(e ast.Expr, u use) *part {
	if *r.left--; *r.left < 0 {
		r.object.whole = true
		return nil
	}
	switch e.Kind() {
	case ast.IdentKind:
		return r.visitName(e.AsIdent(), u)
	case ast.SelectKind:
		return r.visitSelect(e.AsSelect(), u)
	case ast.CallKind:
		return r.visitCall(e.AsCall(), u)
	case ast.ComprehensionKind:
		return r.visitComprehension(e.AsComprehension(), u)
	case ast.ListKind:
		out := new(part)
		for i, element := range e.AsList().Elements() {
			of := r.visit(element, exactly)
			of.markUnread()
			if e.AsList().IsOptional(int32(i)) {
				of.readPresence()
				r.addCause(causeOf(presencesOf(of)))
				of = of.withAbsence(isError)
			}
			out.elements = join(out.elements, of)
		}
		return out
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			r.visit(entry.AsMapEntry().Key(), exactly).readWhole()
			r.visit(entry.AsMapEntry().Value(), exactly).readWhole()
		}
	case ast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			r.visit(field.AsStructField().Value(), exactly).readWhole()
		}
	case ast.LiteralKind:
		r.whenFalse.impossible, r.whenTrue.impossible = isLiteral(e, types.True), isLiteral(e, types.False)
	case ast.UnspecifiedExprKind:
	}
	return nil
}

func (r *reader) visitName(name string, u use) *part {
	// A leading dot makes a name absolute: one that a comprehension declares does
	// not hide it.
	absolute := strings.HasPrefix(name, ".")
	name = strings.TrimPrefix(name, ".")
	if declared, ok := r.names[name]; ok && !absolute {
		return declared
	}
	switch name {
	case plugincel.ObjectVarName:
		return &part{places: []place{{Reads: r.object}}}
	case plugincel.VariableVarName:
		// Any of them, by a name that is not a constant.
		r.object.whole = true
		return nil
	}
	if rest, ok := strings.CutPrefix(name, plugincel.ObjectVarName+"."); ok {
		// A checked expression may have a path in one name.
		out := &part{places: []place{{Reads: r.object}}}
		for step := range strings.SplitSeq(rest, ".") {
			out = out.member(step, false)
		}
		return out
	}
	if rest, ok := strings.CutPrefix(name, plugincel.VariableVarName+"."); ok {
		return r.visitVariable(rest, u)
	}
	return nil
}

// visitVariable returns what a variable's value may be.
func (r *reader) visitVariable(name string, u use) *part {
	root := r.variables.root(name)
	if root == nil {
		return nil
	}
	inner := &reader{object: r.object, variables: r.variables, names: map[string]*part{}, keysOf: map[string]string{}, left: r.left, tracer: r.tracer}
	of, why := inner.visitWithCause(root, u)
	r.addCause(why)
	return of
}

func (r *reader) visitSelect(s ast.SelectExpr, u use) *part {
	if operand := s.Operand(); operand.Kind() == ast.IdentKind && r.isVariables(operand.AsIdent()) {
		return r.visitVariable(s.FieldName(), u)
	}
	out := r.visit(s.Operand(), exactly).member(s.FieldName(), s.IsTestOnly())
	if s.IsTestOnly() {
		out.readPresence()
		r.addPresence(true, presencesOf(out))
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

func (r *reader) visitCall(c ast.CallExpr, u use) *part {
	if r.visitSizeComparison(c, u) {
		return nil
	}
	args := c.Args()
	switch c.FunctionName() {
	case operators.OptSelect, operators.Index, operators.OptIndex:
		of, optional := r.visit(args[0], exactly), c.FunctionName() != operators.Index
		if name, ok := constant(args[1]); ok {
			return of.member(name, optional)
		}
		r.visit(args[1], exactly).readWhole()
		of.markIndexed()
		if r.isKey(args[1], args[0]) {
			of = of.element(fewer) // what is gone is not asked for
		} else {
			of = of.element(anyOrder)
		}
		of.markUnread()
		if optional {
			return of.withAbsence(isNone)
		}
		return of
	case operators.Conditional:
		condition := r.conditionCause(args[0], exactly)
		a, whyA := r.visitWithCause(args[1], u)
		b, whyB := r.visitWithCause(args[2], u)
		// The user of the value reads it.
		for _, branch := range []struct {
			of  *part
			why *cause
		}{{a, &whyA}, {b, &whyB}} {
			for _, p := range presencesOf(branch.of) {
				branch.why.whenFalse.noteRead(p.Reads)
				branch.why.whenTrue.noteRead(p.Reads)
			}
		}
		r.addCause(conditional(condition, whyA, whyB))
		return join(a, b)
	case operators.LogicalAnd:
		a, b := r.conditionCause(args[0], u.ofCondition()), r.conditionCause(args[1], u.ofCondition())
		r.addCause(cause{a.whenFalse.or(b.whenFalse), a.whenTrue.and(b.whenTrue)})
		return nil
	case operators.LogicalOr:
		a, b := r.conditionCause(args[0], u.ofCondition()), r.conditionCause(args[1], u.ofCondition())
		r.addCause(cause{a.whenFalse.and(b.whenFalse), a.whenTrue.or(b.whenTrue)})
		return nil
	case operators.LogicalNot:
		r.addCause(r.conditionCause(args[0], u.negated()).negated())
		return nil
	case operators.Equals, operators.NotEquals:
		for i := range args {
			if isNull(args[1-i]) {
				of := r.visit(args[i], exactly)
				of.readNull()
				r.addPresence(c.FunctionName() == operators.NotEquals, presencesOf(of))
				return nil
			}
		}
	case operators.In:
		// A member's name is looked for, or an element.
		of := r.visit(args[1], anyOrder)
		if name, ok := constant(args[0]); ok && !of.isNothing() {
			of.readContains(name)
			for _, p := range of.places {
				r.addPresence(true, []presence{{Reads: p.reads(name)}})
				r.whenFalse.dependOn(presence{p.Reads, name, true})
			}
			return nil
		}
		r.visit(args[0], exactly).readWhole()
		of.readWhole()
		return nil
	case operators.Add:
		a, b := r.visit(args[0], u), r.visit(args[1], u)
		a.enter()
		b.enter()
		return join(a, b)
	case "size":
		if of := sized(c); of != nil {
			list := r.visit(of, anyOrder)
			list.element(anyOrder)
			r.addCause(causeOf(sizedBy(list)))
			return nil
		}
	case "dyn":
		if !c.IsMemberFunction() && len(args) == 1 {
			of, why := r.visitWithCause(args[0], u)
			r.addCause(why)
			return of
		}
	case "orValue", "or":
		if c.IsMemberFunction() && len(args) == 1 {
			return r.visitOr(c)
		}
	case "value":
		if c.IsMemberFunction() && len(args) == 0 {
			of := r.visit(c.Target(), exactly)
			of.readPresence()
			of.markUnread()
			return of.withAbsence(isError)
		}
	case "hasValue":
		if c.IsMemberFunction() && len(args) == 0 {
			of := r.visit(c.Target(), exactly)
			of.readPresence()
			r.addPresence(true, presencesOf(of))
			return nil
		}
	}
	if c.IsMemberFunction() {
		r.visit(c.Target(), exactly).readWhole()
	}
	for _, arg := range args {
		r.visit(arg, exactly).readWhole()
	}
	return nil
}

// visitOr returns an optional's value, or the value in place of none.
func (r *reader) visitOr(c ast.CallExpr) *part {
	of, other := r.visit(c.Target(), exactly), c.Args()[0]
	if c.FunctionName() == "orValue" {
		switch {
		case other.Kind() == ast.MapKind && other.AsMap().Size() == 0:
			return of.withAbsence(isEmptyObject)
		case other.Kind() == ast.ListKind && other.AsList().Size() == 0:
			return of.withAbsence(isEmptyArray)
		}
	}
	of.readPresence()
	if c.FunctionName() == "orValue" {
		of = of.withAbsence(isError)
	}
	return join(of, r.visit(other, exactly))
}

func constant(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	text, ok := e.AsLiteral().Value().(string)
	return text, ok
}

func isNull(e ast.Expr) bool {
	return e.Kind() == ast.LiteralKind && e.AsLiteral() == types.NullValue
}
