package expression

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// Reads is what of the object an expression looks at, through variables too: all
// of a value, whether it is there, some of its members, or some of each of its
// elements. The zero value looks at nothing. It is immutable, and safe for
// concurrent use, once it is made.
type Reads struct {
	whole, presence bool
	members         map[string]*Reads
	each            *Reads
	// contained are names of members, or texts among the elements, of which it is
	// asked whether they are there.
	contained []string
}

// SameIn tells whether the expression can see no more in the object than it
// could see in an older version of it: everything that it looks at is in both
// and equal, but that elements of lists and members of maps that it goes through
// may be gone, and may stand in another order.
func (r *Reads) SameIn(object, old rawjson.Value) bool {
	if r == nil {
		return true
	}
	if r.whole {
		return sameValue(object, old)
	}
	if r.presence && (len(object) == 0) != (len(old) == 0) {
		return false
	}
	for _, text := range r.contained {
		if contains(object, text) != contains(old, text) {
			return false
		}
	}
	for name, member := range r.members {
		if !member.SameIn(object.Get(name), old.Get(name)) {
			return false
		}
	}
	return r.each == nil || r.each.sameEach(object, old)
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

// contains tells whether the text is the name of a member, or an element.
func contains(v rawjson.Value, text string) bool {
	if v.Kind() == rawjson.Object {
		return len(v.Get(text)) > 0
	}
	if v.Kind() == rawjson.Array {
		for _, element := range v.Elements() {
			if element.Is(text) {
				return true
			}
		}
	}
	return false
}

// mostPairs is how many pairs of elements are compared. It is far above what is
// in real objects; beyond it, elements are taken to differ.
const mostPairs = 1 << 16

// sameEach tells whether each element has one of its own among the old ones in
// which the same is seen.
func (r *Reads) sameEach(object, old rawjson.Value) bool {
	if object.Kind() == rawjson.Object {
		if old.Kind() != rawjson.Object {
			return false
		}
		for name, member := range object.Members() {
			before := old.Get(name.Text())
			if len(before) == 0 || !r.SameIn(member, before) {
				return false
			}
		}
		return true
	}
	if object.Kind() != rawjson.Array {
		return sameValue(object, old)
	}
	if old.Kind() != rawjson.Array || object.Len()*old.Len() > mostPairs {
		return false
	}
	before := make([]rawjson.Value, 0, old.Len())
	for _, element := range old.Elements() {
		before = append(before, element)
	}
	for _, element := range object.Elements() {
		i := slices.IndexFunc(before, func(b rawjson.Value) bool { return r.SameIn(element, b) })
		if i < 0 {
			return false
		}
		before = slices.Delete(before, i, i+1)
	}
	return true
}

// sameValue tells whether two values are written alike, but for space and the
// order of members.
func sameValue(a, b rawjson.Value) bool {
	if string(a) == string(b) {
		return true
	}
	kind := a.Kind()
	if kind != b.Kind() {
		return false
	}
	switch kind {
	case rawjson.Object:
		n := 0
		for name, member := range a.Members() {
			n++
			other := b.Get(name.Text())
			if len(other) == 0 || !sameValue(member, other) {
				return false
			}
		}
		return n == b.Len()
	case rawjson.Array:
		if a.Len() != b.Len() {
			return false
		}
		others := make([]rawjson.Value, 0, b.Len())
		for _, element := range b.Elements() {
			others = append(others, element)
		}
		for i, element := range a.Elements() {
			if !sameValue(element, others[i]) {
				return false
			}
		}
		return true
	case rawjson.String:
		return a.Text() == b.Text()
	case rawjson.Invalid, rawjson.Null, rawjson.Bool, rawjson.Number:
		return false // they are the same only if they are written alike
	default:
		return false
	}
}

// part is what an expression's value may be of the object: the value at each of
// the places, or a list made of elements.
type part struct {
	places   []*Reads
	elements *part
}

func (p *part) isNothing() bool { return p == nil || len(p.places) == 0 && p.elements == nil }

func join(a, b *part) *part {
	switch {
	case a.isNothing():
		return b
	case b.isNothing():
		return a
	}
	out := &part{places: slices.Concat(a.places, b.places)}
	switch {
	case a.elements == nil:
		out.elements = b.elements
	case b.elements == nil:
		out.elements = a.elements
	default:
		out.elements = join(a.elements, b.elements)
	}
	return out
}

// member is what is under a name.
func (p *part) member(name string) *part {
	if p.isNothing() {
		return nil
	}
	out := new(part)
	for _, place := range p.places {
		if place.members == nil {
			place.members = map[string]*Reads{}
		}
		if place.members[name] == nil {
			place.members[name] = new(Reads)
		}
		out.places = append(out.places, place.members[name])
	}
	return out
}

// element is what an element may be.
func (p *part) element() *part {
	if p.isNothing() {
		return nil
	}
	out := new(part)
	for _, place := range p.places {
		if place.each == nil {
			place.each = new(Reads)
		}
		out.places = append(out.places, place.each)
	}
	return join(out, p.elements)
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

// contains notes that it is looked at whether a text is in it.
func (p *part) contains(text string) {
	for _, place := range p.places {
		if !slices.Contains(place.contained, text) {
			place.contained = append(place.contained, text)
		}
	}
	// A list that is made of elements is made anew each time.
	p.elements.all()
}

// count notes that it is looked at how many elements there are. Of a list that
// is made of elements, what decides that was looked at when it was made.
func (p *part) count() {
	if p == nil {
		return
	}
	for _, place := range p.places {
		if place.each == nil {
			place.each = new(Reads)
		}
	}
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
		for _, element := range e.AsList().Elements() {
			out.elements = join(out.elements, r.visit(element))
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
	name = strings.TrimPrefix(name, ".")
	if declared, ok := r.names[name]; ok {
		return declared
	}
	if name == plugincel.ObjectVarName {
		return &part{places: []*Reads{r.object}}
	}
	if rest, ok := strings.CutPrefix(name, plugincel.ObjectVarName+"."); ok {
		// A checked expression may have a path in one name.
		out := &part{places: []*Reads{r.object}}
		for step := range strings.SplitSeq(rest, ".") {
			out = out.member(step)
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
	operand := s.Operand()
	if operand.Kind() == ast.IdentKind && strings.TrimPrefix(operand.AsIdent(), ".") == plugincel.VariableVarName {
		if _, hidden := r.names[plugincel.VariableVarName]; !hidden {
			return r.variable(s.FieldName())
		}
	}
	out := r.visit(operand).member(s.FieldName())
	if s.IsTestOnly() {
		out.there()
		return nil
	}
	return out
}

func (r *reader) call(c ast.CallExpr) *part {
	args := c.Args()
	switch c.FunctionName() {
	case operators.OptSelect, operators.Index, operators.OptIndex:
		of := r.visit(args[0])
		if name, ok := constant(args[1]); ok {
			return of.member(name)
		}
		r.visit(args[1]).all()
		return of.element()
	case operators.Conditional:
		r.visit(args[0]).all()
		return join(r.visit(args[1]), r.visit(args[2]))
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
	case "size":
		if c.IsMemberFunction() {
			r.visit(c.Target()).count()
		}
		for _, arg := range args {
			r.visit(arg).count()
		}
		return nil
	case operators.Add:
		return join(r.visit(args[0]), r.visit(args[1]))
	case "orValue", "or":
		if c.IsMemberFunction() && len(args) == 1 {
			return join(r.visit(c.Target()), r.visit(args[0]))
		}
	case "value":
		if c.IsMemberFunction() && len(args) == 0 {
			return r.visit(c.Target())
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
