package expression

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
)

// Reads is what of the object an expression looks at, through variables too: all
// of a value, whether it is there, some of its members, or some of each of its
// elements. The zero value looks at nothing. It is immutable, and safe for
// concurrent use, once it is made.
type Reads struct {
	// whole is true if all of it is looked at, presence if it is whether it is
	// there, and null if it is whether it is null.
	whole, presence, null bool
	// exact is true if the expression goes into it, and what it finds depends on
	// the kind that it has. With orObject alone, or orArray alone, what is absent
	// looks as an empty object does, or an empty array.
	exact, orObject, orArray bool
	members                  map[string]*Reads
	each                     *Reads
	// contained are names of members, or texts among the elements, of which it is
	// asked whether they are there.
	contained []string
}

// Touches tells whether the expression may look at what is at the path.
func (r *Reads) Touches(path ...string) bool {
	switch {
	case r == nil:
		return false
	case r.whole, len(path) == 0:
		return true
	case r.each != nil, slices.Contains(r.contained, path[0]):
		return true
	default:
		return r.members[path[0]].Touches(path[1:]...)
	}
}

// part is what an expression's value may be of the object: the value at each of
// the places, or a list made of elements.
type part struct {
	places   []place
	elements *part
}

// place is a value of the object, and what an expression has if it is absent.
type place struct {
	*Reads
	absent absence
}

// absence is what stands for a value that is absent.
type absence uint8

const (
	// isError is the failure that there is no such key.
	isError absence = iota
	// isNone is optional.none(): the value is an optional, and so is what is
	// selected of it.
	isNone
	// isEmptyObject and isEmptyArray are {} and [].
	isEmptyObject
	isEmptyArray
)

func (p *part) isNothing() bool { return p == nil || len(p.places) == 0 && p.elements == nil }

// mostPlaces is how many places a value may be at. It is far above what real
// expressions have; beyond it, all of them are taken to be looked at.
const mostPlaces = 64

func join(a, b *part) *part {
	switch {
	case a.isNothing():
		return b
	case b.isNothing():
		return a
	}
	out := &part{places: slices.Clone(a.places)}
	for _, p := range b.places {
		if !slices.Contains(out.places, p) {
			out.places = append(out.places, p)
		}
	}
	if len(out.places) > mostPlaces {
		out.all()
		out.places = nil
	}
	out.elements = join(a.elements, b.elements)
	return out
}

// goInto notes that something inside of it is looked at, or that it is taken for
// a value of its kind.
func (p *part) goInto() {
	if p == nil {
		return
	}
	for _, place := range p.places {
		switch place.absent {
		case isError:
			place.exact = true
		case isNone, isEmptyObject:
			place.orObject = true
		case isEmptyArray:
			place.orArray = true
		}
	}
}

// member is what is under a name. It is absent without an error if that is
// optional.
func (p *part) member(name string, optional bool) *part {
	if p.isNothing() {
		return nil
	}
	p.goInto()
	out := new(part)
	for _, of := range p.places {
		if of.members == nil {
			of.members = map[string]*Reads{}
		}
		if of.members[name] == nil {
			of.members[name] = new(Reads)
		}
		found := place{Reads: of.members[name], absent: isError}
		if optional || of.absent == isNone {
			found.absent = isNone
		} else {
			found.presence = true
		}
		out.places = append(out.places, found)
	}
	return out
}

// element is what an element may be.
func (p *part) element() *part {
	if p.isNothing() {
		return nil
	}
	p.goInto()
	out := new(part)
	for _, of := range p.places {
		if of.each == nil {
			of.each = new(Reads)
		}
		// There is no element that is absent.
		found := place{Reads: of.each}
		if of.absent == isNone {
			found.absent = isNone
		}
		out.places = append(out.places, found)
	}
	return join(out, p.elements)
}

// instead is the value with something else to stand for it where it is absent.
func (p *part) instead(absent absence) *part {
	if p.isNothing() {
		return nil
	}
	out := &part{elements: p.elements}
	for _, at := range p.places {
		out.places = append(out.places, place{Reads: at.Reads, absent: absent})
	}
	return out
}

// all notes that all of it is looked at.
func (p *part) all() {
	if p == nil {
		return
	}
	for _, place := range p.places {
		place.whole = true
	}
	p.elements.all()
}

// there notes that it is looked at whether it is there.
func (p *part) there() {
	if p == nil {
		return
	}
	for _, place := range p.places {
		place.presence = true
	}
}

// isNull notes that it is looked at whether it is null.
func (p *part) isNull() {
	if p == nil {
		return
	}
	for _, place := range p.places {
		place.presence, place.null = true, true
	}
}

// contains notes that it is looked at whether a text is in it.
func (p *part) contains(text string) {
	p.goInto()
	for _, place := range p.places {
		if !slices.Contains(place.contained, text) {
			place.contained = append(place.contained, text)
		}
	}
	// A list that is made of elements is made anew each time.
	p.elements.all()
}

// reader finds out what an expression looks at.
type reader struct {
	object    *Reads
	variables *Variables
	// names are those that comprehensions declare.
	names map[string]*part
	// left is how many parts may still be looked at.
	left *int
}

// readsOf is what an expression looks at in the object.
func readsOf(root ast.Expr, variables *Variables) *Reads {
	left := maxParts
	r := &reader{object: new(Reads), variables: variables, names: map[string]*part{}, left: &left}
	r.visit(root).all()
	return r.object
}

// maxParts is how many parts of an expression are looked at: what is in a loop is
// looked at twice, and so is what variables stand for. It is far above what real
// expressions have; one that has more is taken to look at all of the object.
const maxParts = 1 << 14

// visit notes what is looked at to evaluate the expression, and returns what of
// the object its value may be.
func (r *reader) visit(e ast.Expr) *part {
	if *r.left--; *r.left < 0 {
		r.object.whole = true
		return nil
	}
	switch e.Kind() {
	case ast.IdentKind:
		return r.named(e.AsIdent())
	case ast.SelectKind:
		return r.selected(e.AsSelect())
	case ast.CallKind:
		return r.call(e.AsCall())
	case ast.ComprehensionKind:
		return r.comprehension(e.AsComprehension())
	case ast.ListKind:
		out := new(part)
		for i, element := range e.AsList().Elements() {
			of := r.visit(element)
			if e.AsList().IsOptional(int32(i)) {
				of.there()
				of = of.instead(isError)
			}
			out.elements = join(out.elements, of)
		}
		return out
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			r.visit(entry.AsMapEntry().Key()).all()
			r.visit(entry.AsMapEntry().Value()).all()
		}
	case ast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			r.visit(field.AsStructField().Value()).all()
		}
	case ast.LiteralKind, ast.UnspecifiedExprKind:
	}
	return nil
}

func (r *reader) named(name string) *part {
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
		return r.variable(rest)
	}
	return nil
}

// variable is what a variable's value may be.
func (r *reader) variable(name string) *part {
	root := r.variables.root(name)
	if root == nil {
		return nil
	}
	inner := &reader{object: r.object, variables: r.variables, names: map[string]*part{}, left: r.left}
	return inner.visit(root)
}

func (r *reader) selected(s ast.SelectExpr) *part {
	if operand := s.Operand(); operand.Kind() == ast.IdentKind && r.isVariables(operand.AsIdent()) {
		return r.variable(s.FieldName())
	}
	out := r.visit(s.Operand()).member(s.FieldName(), s.IsTestOnly())
	if s.IsTestOnly() {
		out.there()
		return nil
	}
	return out
}

// isVariables tells whether a name is that of the policy's variables.
func (r *reader) isVariables(name string) bool {
	if name == plugincel.VariableVarName {
		_, hidden := r.names[name]
		return !hidden
	}
	return name == "."+plugincel.VariableVarName
}

func (r *reader) call(c ast.CallExpr) *part {
	args := c.Args()
	switch c.FunctionName() {
	case operators.OptSelect, operators.Index, operators.OptIndex:
		of, optional := r.visit(args[0]), c.FunctionName() != operators.Index
		if name, ok := constant(args[1]); ok {
			return of.member(name, optional)
		}
		r.visit(args[1]).all()
		of = of.element()
		if optional {
			return of.instead(isNone)
		}
		return of
	case operators.Conditional:
		r.visit(args[0]).all()
		return join(r.visit(args[1]), r.visit(args[2]))
	case operators.Equals, operators.NotEquals:
		if isNull(args[1]) {
			r.visit(args[0]).isNull()
			return nil
		}
		if isNull(args[0]) {
			r.visit(args[1]).isNull()
			return nil
		}
	case operators.In:
		// A member's name is looked for, or an element.
		of := r.visit(args[1])
		if name, ok := constant(args[0]); ok && !of.isNothing() {
			of.contains(name)
			return nil
		}
		r.visit(args[0]).all()
		of.all()
		return nil
	case operators.Add:
		a, b := r.visit(args[0]), r.visit(args[1])
		a.goInto()
		b.goInto()
		return join(a, b)
	case "size":
		// Of a list that is made of elements, what decides how many there are was
		// looked at when it was made.
		if c.IsMemberFunction() {
			r.visit(c.Target()).element()
		}
		for _, arg := range args {
			r.visit(arg).element()
		}
		return nil
	case "dyn":
		if !c.IsMemberFunction() && len(args) == 1 {
			return r.visit(args[0])
		}
	case "orValue", "or":
		if c.IsMemberFunction() && len(args) == 1 {
			return r.or(c)
		}
	case "value":
		if c.IsMemberFunction() && len(args) == 0 {
			of := r.visit(c.Target())
			of.there()
			return of.instead(isError)
		}
	case "hasValue":
		if c.IsMemberFunction() && len(args) == 0 {
			r.visit(c.Target()).there()
			return nil
		}
	}
	if c.IsMemberFunction() {
		r.visit(c.Target()).all()
	}
	for _, arg := range args {
		r.visit(arg).all()
	}
	return nil
}

// or is an optional's value, or what stands for it.
func (r *reader) or(c ast.CallExpr) *part {
	of, other := r.visit(c.Target()), c.Args()[0]
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
	return join(of, r.visit(other))
}

func (r *reader) comprehension(c ast.ComprehensionExpr) *part {
	over := r.visit(c.IterRange())
	outer := maps.Clone(r.names)
	defer func() { r.names = outer }()
	r.names[c.AccuVar()] = r.visit(c.AccuInit())
	element := over.element()
	r.names[c.IterVar()] = element
	if c.HasIterVar2() {
		// Index and element, or key and value.
		r.names[c.IterVar()] = nil
		r.names[c.IterVar2()] = element
	}
	// What is gathered in the first round may be gathered further in the second.
	for range 2 {
		r.visit(c.LoopCondition()).all()
		gathered := r.visit(c.LoopStep())
		if gathered.isNothing() {
			break
		}
		r.names[c.AccuVar()] = join(r.names[c.AccuVar()], gathered)
	}
	return r.visit(c.Result())
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
