package bound

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/containers"
	"github.com/google/cel-go/common/operators"
)

// maxField is the largest type of a field of what is not dyn, that of
// request.userInfo.extra, a map of lists.
const maxField = 4

// maxName is the largest type that can be named without a declaration, that of map.
const maxName = 4

// estimate is the estimate for one expression, whose parts it visits as the checker will.
//
// If a type is not known yet, any use of its name can make it any other type:
// [].all(a, [].all(b, a == {b: b} && …)). Then every map of such types doubles the size of
// a type, and every list adds one, whatever its own part says.
type estimate struct {
	*Bounds
	fields Fields
	scope  []local

	parts int
	// calls is the number of calls, and generic of those with type parameters. The checker
	// copies what it knows of these for each call.
	calls, generic int
	// patterns is the size of its regular expressions.
	patterns int
	// work is the sum of the squares of the sizes of all types but those of one,
	// because a nested type is written out for each of its parts.
	work int
	// named is true if an element or an optional value of an unknown type has a name.
	// Then unknown is the number of parts with such types, made of those that make one,
	// and maps of those that are maps.
	named               bool
	unknown, made, maps int
}

// local is a name that a comprehension declares.
type local struct {
	name string
	kind
}

// total returns the work for all types.
func (r *estimate) total() int {
	if !r.named {
		return r.work
	}
	work := min(largest, r.work) + min(largest, r.unknown*r.made/4)
	if r.maps > 20 {
		return largest * largest
	}
	return work << r.maps
}

// visit adds a part and what is in it, and returns what is known of its type.
func (r *estimate) visit(e ast.Expr) kind {
	k := r.kindOf(e)
	k.free = k.free || k.bare
	k.size = min(max(k.size, 1), largest)
	r.parts++
	r.work = min(largest*largest, r.work+k.size*k.size-1)
	if k.free && !k.bare {
		r.unknown++
		switch e.Kind() {
		case ast.MapKind:
			r.maps++
			r.made++
		case ast.ListKind, ast.CallKind:
			r.made++
		case ast.IdentKind, ast.LiteralKind, ast.SelectKind, ast.StructKind, ast.ComprehensionKind, ast.UnspecifiedExprKind:
		}
	}
	return k
}

func (r *estimate) kindOf(e ast.Expr) kind {
	switch e.Kind() {
	case ast.IdentKind:
		return r.name(e.AsIdent())
	case ast.SelectKind:
		return r.selected(e.AsSelect())
	case ast.CallKind:
		return r.call(e.AsCall())
	case ast.ListKind:
		k := r.joined(e.AsList().Elements())
		return kind{size: k.size + 1, free: k.free || k.bare, sure: true}
	case ast.MapKind:
		var keys, values []ast.Expr
		for _, entry := range e.AsMap().Entries() {
			keys, values = append(keys, entry.AsMapEntry().Key()), append(values, entry.AsMapEntry().Value())
		}
		k, v := r.joined(keys), r.joined(values)
		return kind{size: k.size + v.size + 1, free: k.free || k.bare || v.free || v.bare, sure: true}
	case ast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			r.visit(field.AsStructField().Value())
		}
		return kind{size: 1}
	case ast.ComprehensionKind:
		return r.comprehension(e.AsComprehension())
	case ast.LiteralKind, ast.UnspecifiedExprKind:
	}
	return kind{size: 1, sure: true}
}

// name returns the type of a variable, or of the name of a type.
func (r *estimate) name(name string) kind {
	for _, l := range slices.Backward(r.scope) {
		if l.name == name {
			return l.kind
		}
	}
	if k, ok := r.names[strings.TrimPrefix(name, ".")]; ok {
		return k
	}
	return kind{size: maxName}
}

func (r *estimate) selected(e ast.SelectExpr) kind {
	of := r.visit(e.Operand())
	switch {
	case e.IsTestOnly():
		return kind{size: 1, sure: true}
	case of.optional:
		return optional(field(content(of)))
	}
	if o := e.Operand(); r.fields != nil && o.Kind() == ast.IdentKind && !r.isLocal(o.AsIdent()) {
		if t := r.fields(strings.TrimPrefix(o.AsIdent(), "."), e.FieldName()); t != nil {
			return kindOf(t)
		}
	}
	return field(of)
}

func (r *estimate) isLocal(name string) bool {
	return slices.ContainsFunc(r.scope, func(l local) bool { return l.name == name })
}

// field returns what a field of the type may be. A type that is not known becomes dyn
// when a field of it is asked for.
func field(of kind) kind {
	if of.dyn || of.bare {
		return kind{size: 1, dyn: true}
	}
	return kind{size: max(of.size, maxField), free: of.free}
}

// optional returns the optional type of what is in it, and content the reverse.
func optional(of kind) kind {
	return kind{size: of.size + 1, free: of.free, optional: true, dyn: of.dyn && !of.optional, sure: true}
}

func content(of kind) kind {
	if !of.optional {
		return of
	}
	return kind{size: max(1, of.size-1), free: of.free, dyn: of.dyn}
}

// joined returns the type of several values of one type, such as the elements of a list.
func (r *estimate) joined(list []ast.Expr) kind {
	out := kind{size: 1, free: true}
	for i, e := range list {
		if k := r.visit(e); i == 0 {
			out = k
		} else {
			out = join(out, k)
		}
	}
	return out
}

// join returns the type of what is one of two values. Two types that are not known
// whole may be parts of one.
func join(a, b kind) kind {
	switch {
	case a.isDyn() || b.isDyn():
		return kind{size: 1, dyn: true}
	case a.bare && b.bare:
		return kind{size: 1, bare: true}
	}
	out := kind{size: max(a.size, b.size), free: a.free && b.free, sure: a.sure && b.sure, optional: a.optional && b.optional}
	out.dyn = out.optional && (a.dyn || b.dyn)
	if out.free {
		out.size = min(largest, a.size+b.size)
	}
	return out
}

func (k kind) isDyn() bool { return k.dyn && !k.optional }

// comprehension names elements for its loop.
func (r *estimate) comprehension(e ast.ComprehensionExpr) kind {
	iterated := r.visit(e.IterRange())
	sum := r.visit(e.AccuInit())
	element := kind{size: max(1, iterated.size-1), free: iterated.free}
	if iterated.isDyn() || iterated.bare {
		element = kind{size: 1, dyn: true}
	}
	outer := len(r.scope)
	defer func() { r.scope = r.scope[:outer] }()
	sum.bare = false // it has a name
	r.named = r.named || element.free && e.IterVar() != unused || sum.free && e.AccuVar() != hiddenAccumulator
	r.scope = append(r.scope, local{e.AccuVar(), sum}, local{e.IterVar(), element})
	if e.HasIterVar2() {
		r.scope = append(r.scope, local{e.IterVar2(), element})
	}
	r.visit(e.LoopCondition())
	step := r.visit(e.LoopStep())
	r.scope = r.scope[:outer+1]
	sum.size = max(sum.size, step.size)
	sum.free = sum.free && step.free
	r.scope[outer].kind = sum
	return r.visit(e.Result())
}

// The names that the macros of CEL give to what expressions do not name.
const (
	hiddenAccumulator = "@result"
	unused            = "#unused"
)

// call adds a call of a function or of a method.
func (r *estimate) call(e ast.CallExpr) kind {
	name := e.FunctionName()
	var args []kind
	if e.IsMemberFunction() {
		qualified := false
		if prefix, ok := containers.ToQualifiedName(e.Target()); ok {
			if _, qualified = r.functions[prefix+"."+name]; qualified {
				name = prefix + "." + name
			}
		}
		if !qualified {
			args = append(args, r.visit(e.Target()))
		}
	}
	if IsPattern(name) {
		for _, arg := range e.Args() {
			r.patterns = min(largest, r.patterns+patternSize(arg))
		}
	}
	size, free := 0, len(e.Args()) == 0 && len(args) == 0
	for _, arg := range e.Args() {
		args = append(args, r.visit(arg))
	}
	f := r.functions[name]
	r.calls++
	if f.generic {
		r.generic++
	}
	for i, arg := range args {
		size, free = max(size, arg.size), free || arg.free
		if arg.free && !arg.bare && !arg.sure && f.maps&(1<<i) != 0 {
			r.maps++
		}
	}
	if k, ok := operator(name, args); ok {
		return k
	}
	if f.often == 0 {
		return kind{size: f.fixed, sure: f.sure}
	}
	// An argument that may be dyn does not determine the type parameter.
	return kind{size: f.fixed + f.often*size, free: true}
}

// operator returns the type of a call of which more is known than its declaration says.
func operator(name string, args []kind) (kind, bool) {
	switch len(args) {
	case 0:
		if name == "optional.none" {
			return kind{size: 2, free: true, optional: true, sure: true}, true
		}
	case 1:
		switch name {
		case "optional.of", "optional.ofNonZeroValue":
			return optional(args[0]), true
		case "value":
			if args[0].optional {
				return content(args[0]), true
			}
		}
	case 2:
		return binary(name, args[0], args[1])
	case 3:
		switch name {
		case operators.Conditional:
			return join(args[1], args[2]), true
		case mapInsert:
			return kind{size: max(args[0].size, 1+args[1].size+args[2].size), free: args[0].free && (args[1].free || args[2].free), sure: true}, true
		}
	}
	return kind{}, false
}

const mapInsert = "cel.@mapInsert"

func binary(name string, a, b kind) (kind, bool) {
	switch name {
	case operators.Add:
		if a.isDyn() && b.isDyn() {
			return kind{size: 1, dyn: true}, true
		}
		// With a list of what is not known, something that may be dyn stays one.
		return kind{size: max(a.size, b.size), free: a.free && (b.free || !b.sure) || b.free && !a.sure, sure: a.sure || b.sure}, true
	case operators.Index:
		if a.isDyn() || a.bare {
			return kind{size: 1, bare: true}, true
		}
		return kind{size: max(1, a.size-1), free: a.free}, true
	case operators.OptIndex:
		return kind{size: max(2, a.size), free: a.free || a.dyn}, true
	case operators.OptSelect:
		return optional(field(content(a))), true
	case "orValue":
		if a.optional {
			return join(content(a), b), true
		}
		return kind{size: max(a.size, b.size), free: b.free}, true
	case "or":
		return kind{size: max(a.size, b.size), free: (a.free || !a.optional) && (b.free || !b.optional), optional: true, sure: true}, true
	case mapInsert:
		return kind{size: a.size + b.size, free: a.free && (b.free || !b.sure), sure: true}, true
	}
	return kind{}, false
}
