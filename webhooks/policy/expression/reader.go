package expression

import (
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
)

// reader finds out what an expression looks at.
type reader struct {
	object    *Reads
	variables *Variables
	// names are those that comprehensions declare.
	names map[string]*part
	// keysOf has of those the ones that are a key of a map, with the path to it.
	keysOf map[string]string
	// left is how many parts may still be looked at.
	left *int
	*tracer
}

// readsOf returns what a rule looks at in the object, which is violated only if the
// conditions are true.
func readsOf(root ast.Expr, conditions []ast.Expr, variables *Variables) *Reads {
	left, tracer := maxParts, new(tracer)
	r := &reader{
		object: &Reads{tracer: tracer}, variables: variables, names: map[string]*part{}, keysOf: map[string]string{}, left: &left, tracer: tracer,
	}
	violated := r.judged(root, holds).whenFalse
	nothing := r.object.IsNothing()
	for _, condition := range conditions {
		violated = violated.and(r.judged(condition, fails).whenTrue)
	}
	r.object.onlyOfConditions = nothing && !r.object.IsNothing()
	for _, p := range violated.presences {
		p.count()
	}
	r.object.seal()
	return r.object
}

// judged notes all of what a condition looks at, and returns its cause.
func (r *reader) judged(e ast.Expr, u use) cause {
	of, why := r.judge(e, u)
	all := r.traced(of.all)
	return why.follows(all)
}

// judge is visit for a condition whose cause is separate from what is noted
// else.
func (r *reader) judge(e ast.Expr, u use) (of *part, why cause) {
	why = r.traced(func() { of = r.visitKind(e, u) })
	return of, why
}

// traced returns the cause that is noted meanwhile.
func (r *reader) traced(note func()) cause {
	outer := r.cause
	r.cause = cause{}
	note()
	inner := r.cause
	r.cause = outer
	return inner
}

// maxParts is how many parts of an expression are looked at: what is in a loop is
// looked at twice, and so is what variables stand for. It is far above what real
// expressions have; one that has more is taken to look at all of the object.
const maxParts = 1 << 14

// visit notes what is looked at to evaluate the expression, and returns what of
// the object its value may be. The use is what the value is for. It is noted for
// what goes into a value that is made here; for a value of the object, who uses
// it notes that.
func (r *reader) visit(e ast.Expr, u use) *part {
	of, why := r.judge(e, u)
	r.because(why.ofAny())
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
		return r.named(e.AsIdent(), u)
	case ast.SelectKind:
		return r.selected(e.AsSelect(), u)
	case ast.CallKind:
		return r.call(e.AsCall(), u)
	case ast.ComprehensionKind:
		return r.comprehension(e.AsComprehension(), u)
	case ast.ListKind:
		out := new(part)
		for i, element := range e.AsList().Elements() {
			of := r.visit(element, exactly)
			of.unused()
			if e.AsList().IsOptional(int32(i)) {
				of.there()
				r.because(resting(presencesOf(of)))
				of = of.instead(isError)
			}
			out.elements = join(out.elements, of)
		}
		return out
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			r.visit(entry.AsMapEntry().Key(), exactly).all()
			r.visit(entry.AsMapEntry().Value(), exactly).all()
		}
	case ast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			r.visit(field.AsStructField().Value(), exactly).all()
		}
	case ast.LiteralKind:
		r.whenFalse.impossible, r.whenTrue.impossible = isLiteral(e, types.True), isLiteral(e, types.False)
	case ast.UnspecifiedExprKind:
	}
	return nil
}

func (r *reader) named(name string, u use) *part {
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
		// Any of them, by a name that is not known here.
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
		return r.variable(rest, u)
	}
	return nil
}

// variable returns what a variable's value may be.
func (r *reader) variable(name string, u use) *part {
	root := r.variables.root(name)
	if root == nil {
		return nil
	}
	inner := &reader{object: r.object, variables: r.variables, names: map[string]*part{}, keysOf: map[string]string{}, left: r.left, tracer: r.tracer}
	of, why := inner.judge(root, u)
	r.because(why)
	return of
}

func (r *reader) selected(s ast.SelectExpr, u use) *part {
	if operand := s.Operand(); operand.Kind() == ast.IdentKind && r.isVariables(operand.AsIdent()) {
		return r.variable(s.FieldName(), u)
	}
	out := r.visit(s.Operand(), exactly).member(s.FieldName(), s.IsTestOnly())
	if s.IsTestOnly() {
		out.there()
		r.presentIf(true, presencesOf(out))
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

func (r *reader) call(c ast.CallExpr, u use) *part {
	if r.bounded(c, u) {
		return nil
	}
	args := c.Args()
	switch c.FunctionName() {
	case operators.OptSelect, operators.Index, operators.OptIndex:
		of, optional := r.visit(args[0], exactly), c.FunctionName() != operators.Index
		if name, ok := constant(args[1]); ok {
			return of.member(name, optional)
		}
		r.visit(args[1], exactly).all()
		of.numbered()
		if r.isKey(args[1], args[0]) {
			of = of.element(fewer) // what is gone is not asked for
		} else {
			of = of.element(anyOrder)
		}
		of.unused()
		if optional {
			return of.instead(isNone)
		}
		return of
	case operators.Conditional:
		condition := r.judged(args[0], exactly)
		a, whyA := r.judge(args[1], u)
		b, whyB := r.judge(args[2], u)
		// Who uses the value reads it.
		for _, branch := range []struct {
			of  *part
			why *cause
		}{{a, &whyA}, {b, &whyB}} {
			for _, p := range presencesOf(branch.of) {
				branch.why.whenFalse.isRead(p.Reads)
				branch.why.whenTrue.isRead(p.Reads)
			}
		}
		r.because(conditional(condition, whyA, whyB))
		return join(a, b)
	case operators.LogicalAnd:
		a, b := r.judged(args[0], u.ofCondition()), r.judged(args[1], u.ofCondition())
		r.because(cause{a.whenFalse.or(b.whenFalse), a.whenTrue.and(b.whenTrue)})
		return nil
	case operators.LogicalOr:
		a, b := r.judged(args[0], u.ofCondition()), r.judged(args[1], u.ofCondition())
		r.because(cause{a.whenFalse.and(b.whenFalse), a.whenTrue.or(b.whenTrue)})
		return nil
	case operators.LogicalNot:
		r.because(r.judged(args[0], u.negated()).negated())
		return nil
	case operators.Equals, operators.NotEquals:
		for i := range args {
			if isNull(args[1-i]) {
				of := r.visit(args[i], exactly)
				of.isNull()
				r.presentIf(c.FunctionName() == operators.NotEquals, presencesOf(of))
				return nil
			}
		}
	case operators.In:
		// A member's name is looked for, or an element.
		of := r.visit(args[1], anyOrder)
		if name, ok := constant(args[0]); ok && !of.isNothing() {
			of.contains(name)
			for _, p := range of.places {
				r.presentIf(true, []presence{{Reads: p.under(name)}})
				r.whenFalse.rests(presence{p.Reads, name, true})
			}
			return nil
		}
		r.visit(args[0], exactly).all()
		of.all()
		return nil
	case operators.Add:
		a, b := r.visit(args[0], u), r.visit(args[1], u)
		a.goInto()
		b.goInto()
		return join(a, b)
	case "size":
		if of := sized(c); of != nil {
			list := r.visit(of, anyOrder)
			list.element(anyOrder)
			r.because(resting(sizedBy(list)))
			return nil
		}
	case "dyn":
		if !c.IsMemberFunction() && len(args) == 1 {
			of, why := r.judge(args[0], u)
			r.because(why)
			return of
		}
	case "orValue", "or":
		if c.IsMemberFunction() && len(args) == 1 {
			return r.or(c)
		}
	case "value":
		if c.IsMemberFunction() && len(args) == 0 {
			of := r.visit(c.Target(), exactly)
			of.there()
			of.unused()
			return of.instead(isError)
		}
	case "hasValue":
		if c.IsMemberFunction() && len(args) == 0 {
			of := r.visit(c.Target(), exactly)
			of.there()
			r.presentIf(true, presencesOf(of))
			return nil
		}
	}
	if c.IsMemberFunction() {
		r.visit(c.Target(), exactly).all()
	}
	for _, arg := range args {
		r.visit(arg, exactly).all()
	}
	return nil
}

// or returns an optional's value, or what stands for it.
func (r *reader) or(c ast.CallExpr) *part {
	of, other := r.visit(c.Target(), exactly), c.Args()[0]
	if c.FunctionName() == "orValue" {
		switch {
		case other.Kind() == ast.MapKind && other.AsMap().Size() == 0:
			return of.instead(isEmptyObject)
		case other.Kind() == ast.ListKind && other.AsList().Size() == 0:
			return of.instead(isEmptyArray)
		}
	}
	of.there()
	if c.FunctionName() == "orValue" {
		of = of.instead(isError)
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
