package registration

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// A match condition moves to the API server only if it cannot fail there and
// cannot cost too much, for whatever request and object. Then it is true there
// exactly if it is true here, and no question arises of who decides about an
// error: a failed condition of a webhook refuses the request, or lets it pass,
// for all policies at once, while here it is a matter of one policy, its
// bindings, the exceptions from it and what was violated before.
//
// That an expression cannot fail is proved by rules for what people write in
// match conditions: comparisons of what every request has, and of names, labels
// and annotations behind a question whether they are there. What the rules do
// not know stays in Gatehouse.

// kind is the kind of the value of an expression, as far as it is proved.
type kind int

const (
	unproved kind = iota // the expression may fail
	boolean
	text
	// literal is a text that is written in the expression, so that its length is
	// bounded.
	literal
	// texts is a list of texts, and attributes a map from texts to texts.
	texts
	attributes
	// entity is an object of the API, and metadata what is called so in it.
	entity
	metadata
	// Perhaps a text or attributes.
	optionalText
	optionalAttributes
	// What is built on the way to the answer of the authorizer.
	authorization
	authorizationGroup
	authorizationResource
	authorizationDecision
)

// accepts reports whether a value of another kind can be used as one of this kind.
func (k kind) accepts(other kind) bool { return k == other || k == text && other == literal }

// proof proves that expressions cannot fail.
type proof struct {
	// object and oldObject are true if these are objects and not null.
	object, oldObject bool
	// checks and searches count what is expensive: checks of the authorizer, and searches in
	// the groups of the user.
	checks, searches int
	// local are the variables of exists() and all(), by their names.
	local map[string]kind
}

// facts are known at a place in an expression from what is evaluated before it: fields that
// are present, and keys that are in attributes.
type facts []string

func presenceOf(path string) string             { return "has " + path }
func membershipOf(path string, k string) string { return "in " + path + " " + k }

// kind is what is known of an expression under some facts.
func (p *proof) kind(e ast.Expr, known facts) kind {
	switch e.Kind() {
	case ast.LiteralKind:
		switch e.AsLiteral().(type) {
		case types.Bool:
			return boolean
		case types.String:
			return literal
		}
	case ast.IdentKind:
		return p.name(e.AsIdent())
	case ast.SelectKind:
		return p.member(e, known)
	case ast.ListKind:
		elements := e.AsList().Elements()
		if len(e.AsList().OptionalIndices()) == 0 && !slices.ContainsFunc(elements, func(e ast.Expr) bool { return p.kind(e, known) != literal }) {
			return texts
		}
	case ast.CallKind:
		return p.call(e.AsCall(), known)
	case ast.ComprehensionKind:
		return p.quantifier(e.AsComprehension(), known)
	case ast.UnspecifiedExprKind, ast.MapKind, ast.StructKind:
	}
	return unproved
}

// quantifier is exists() or all() over texts: what they are made of is a boolean
// that each text may change. Others are not, such as map() and filter().
func (p *proof) quantifier(c ast.ComprehensionExpr, known facts) kind {
	isRoot := slices.Contains([]string{"request", "object", "oldObject", "authorizer"}, c.IterVar())
	if p.kind(c.IterRange(), known) != texts || p.kind(c.AccuInit(), known) != boolean || c.HasIterVar2() || isRoot || p.local != nil {
		return unproved
	}
	p.local = map[string]kind{c.IterVar(): text, c.AccuVar(): boolean}
	defer func() { p.local = nil }()
	p.searches += 4
	for _, part := range []ast.Expr{c.LoopCondition(), c.LoopStep(), c.Result()} {
		if p.kind(part, known) != boolean {
			return unproved
		}
	}
	return boolean
}

func (p *proof) name(name string) kind {
	if of, ok := p.local[name]; ok {
		return of
	}
	switch {
	case name == "object" && p.object, name == "oldObject" && p.oldObject:
		return entity
	case name == "authorizer":
		return authorization
	default:
		return unproved
	}
}

// requestFields are the fields of request that are the same in the API server's
// conditions and in the review that it sends, and whether every request has
// them: name, namespace and subresource are left out where they are empty. Not
// among them is uid, which a condition does not see, and request.resource.version,
// which in a condition is that of the original request. The group there is that of
// the original request too, but the one resource that is in two groups is events,
// which are never sent. Every request has a user with a name, in a group: whoever
// is authenticated or anonymous is in that group.
func requestFields() map[string]struct {
	kind   kind
	always bool
} {
	type field = struct {
		kind   kind
		always bool
	}
	return map[string]field{
		"operation": {text, true}, "dryRun": {boolean, true},
		"resource.group": {text, true}, "resource.resource": {text, true},
		"kind.group": {text, true}, "kind.version": {text, true}, "kind.kind": {text, true},
		"requestResource.group": {text, true}, "requestResource.version": {text, true}, "requestResource.resource": {text, true},
		"requestKind.group": {text, true}, "requestKind.version": {text, true}, "requestKind.kind": {text, true},
		"userInfo.username": {text, true}, "userInfo.groups": {texts, true},
		"name": {text, false}, "namespace": {text, false}, "subResource": {text, false}, "requestSubResource": {text, false},
	}
}

// metadataFields are the members of an object's metadata that may be asked for,
// and what they are if they are there. Of the others only that is known.
func metadataFields() map[string]kind {
	return map[string]kind{
		"name": text, "generateName": text, "namespace": text, "labels": attributes, "annotations": attributes,
		"deletionTimestamp": unproved, "finalizers": unproved, "ownerReferences": unproved,
	}
}

// member is a member of something, or with has() the question for it.
func (p *proof) member(e ast.Expr, known facts) kind {
	s := e.AsSelect()
	path, ok := pathOf(e)
	if !ok {
		return unproved
	}
	if field, ok := strings.CutPrefix(path, "request."); ok {
		f, ok := requestFields()[field]
		switch {
		case !ok:
			return unproved
		case s.IsTestOnly():
			return boolean
		case f.always, slices.Contains(known, presenceOf(path)):
			return f.kind
		default:
			return unproved
		}
	}
	switch of := p.kind(s.Operand(), known); {
	case of == entity && s.FieldName() == "metadata" && !s.IsTestOnly():
		return metadata
	case of == metadata:
		value, ok := metadataFields()[s.FieldName()]
		switch {
		case ok && s.IsTestOnly():
			return boolean
		case ok && slices.Contains(known, presenceOf(path)):
			return value
		}
	}
	return unproved
}

// pathOf is the path of a chain of members, such as object.metadata.labels.
func pathOf(e ast.Expr) (string, bool) {
	switch e.Kind() { //nolint:exhaustive // nothing else is a path
	case ast.IdentKind:
		return e.AsIdent(), true
	case ast.SelectKind:
		path, ok := pathOf(e.AsSelect().Operand())
		return path + "." + e.AsSelect().FieldName(), ok && !e.AsSelect().Operand().AsSelect().IsTestOnly()
	default:
		return "", false
	}
}

// signature is a function, or an operator, that cannot fail for operands of these kinds. The target of a method is its
// first operand.
type signature struct {
	function string
	operands []kind
	result   kind
}

// signatures are all of them, but for those of which more than the kinds of the operands must be known. The
// authorizer keeps an error in its decision, which is then that nothing is allowed. One side of a comparison is
// literal, because it costs as much as the shorter text.
func signatures() []signature {
	return []signature{
		{operators.LogicalNot, []kind{boolean}, boolean},
		{operators.NotStrictlyFalse, []kind{boolean}, boolean},
		{operators.Equals, []kind{boolean, boolean}, boolean},
		{operators.Equals, []kind{text, literal}, boolean},
		{operators.Equals, []kind{literal, text}, boolean},
		{operators.NotEquals, []kind{boolean, boolean}, boolean},
		{operators.NotEquals, []kind{text, literal}, boolean},
		{operators.NotEquals, []kind{literal, text}, boolean},
		{operators.In, []kind{text, texts}, boolean},
		{operators.In, []kind{text, attributes}, boolean},
		{operators.OptIndex, []kind{attributes, text}, optionalText},
		{operators.OptIndex, []kind{optionalAttributes, text}, optionalText},
		{"startsWith", []kind{text, literal}, boolean},
		{"endsWith", []kind{text, literal}, boolean},
		{"orValue", []kind{optionalText, literal}, text},
		{"hasValue", []kind{optionalText}, boolean},
		{"hasValue", []kind{optionalAttributes}, boolean},
		{"group", []kind{authorization, text}, authorizationGroup},
		{"resource", []kind{authorizationGroup, text}, authorizationResource},
		{"subresource", []kind{authorizationResource, text}, authorizationResource},
		{"namespace", []kind{authorizationResource, text}, authorizationResource},
		{"name", []kind{authorizationResource, text}, authorizationResource},
		{"check", []kind{authorizationResource, text}, authorizationDecision},
		{"allowed", []kind{authorizationDecision}, boolean},
	}
}

func (p *proof) call(c ast.CallExpr, known facts) kind {
	args, name := c.Args(), c.FunctionName()
	if c.IsMemberFunction() {
		args = append([]ast.Expr{c.Target()}, args...)
	}
	if p.local != nil {
		p.searches += 2
	}
	switch name {
	case operators.LogicalAnd:
		// Where the left side is false the right side does not matter, not even
		// its error. The same goes for a left side of || that is true.
		return p.logical(args, known, true)
	case operators.LogicalOr:
		return p.logical(args, known, false)
	case operators.Index:
		return p.index(args[0], args[1], known)
	case operators.OptSelect:
		return p.optionalMember(args[0], args[1], known)
	}
	var operands []kind
	for _, arg := range args {
		operands = append(operands, p.kind(arg, known))
	}
	for _, s := range signatures() {
		if s.function != name || !slices.EqualFunc(s.operands, operands, kind.accepts) {
			continue
		}
		switch {
		case name == "check":
			p.checks++
		case name == operators.In && operands[1] == texts && args[1].Kind() != ast.ListKind:
			p.searches++
		}
		return s.result
	}
	return unproved
}

// optionalMember is what object.?field is.
func (p *proof) optionalMember(object, field ast.Expr, known facts) kind {
	if p.kind(object, known) != metadata || field.Kind() != ast.LiteralKind {
		return unproved
	}
	name, _ := field.AsLiteral().Value().(string)
	switch metadataFields()[name] { //nolint:exhaustive // nothing else is in the metadata
	case text:
		return optionalText
	case attributes:
		return optionalAttributes
	default:
		return unproved
	}
}

// logical is a conjunction or a disjunction: the right side matters only if the left side
// has the given value.
func (p *proof) logical(args []ast.Expr, known facts, left bool) kind {
	for _, arg := range args {
		if p.kind(arg, known) != boolean {
			return unproved
		}
		known = append(slices.Clip(known), consequences(arg, left)...)
	}
	return boolean
}

func (p *proof) index(of, key ast.Expr, known facts) kind {
	path, ok := pathOf(of)
	if ok && p.kind(of, known) == attributes && p.kind(key, known) == literal {
		if name, ok := key.AsLiteral().Value().(string); ok && slices.Contains(known, membershipOf(path, name)) {
			return text
		}
	}
	return unproved
}

// consequences are the facts that follow from an expression being true, or
// false.
func consequences(e ast.Expr, value bool) facts {
	if e.Kind() == ast.SelectKind {
		if path, ok := pathOf(e); ok && value && e.AsSelect().IsTestOnly() {
			return facts{presenceOf(path)}
		}
		return nil
	}
	if e.Kind() != ast.CallKind {
		return nil
	}
	args := e.AsCall().Args()
	switch name := e.AsCall().FunctionName(); {
	case name == operators.LogicalNot:
		return consequences(args[0], !value)
	case name == operators.LogicalAnd && value, name == operators.LogicalOr && !value:
		var all facts
		for _, arg := range args {
			all = append(all, consequences(arg, value)...)
		}
		return all
	case name == operators.In && value && args[0].Kind() == ast.LiteralKind:
		path, isPath := pathOf(args[1])
		key, isText := args[0].AsLiteral().Value().(string)
		if isPath && isText {
			return facts{membershipOf(path, key)}
		}
	}
	return nil
}
