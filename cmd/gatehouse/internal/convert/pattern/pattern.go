// Package pattern translates Kyverno's patterns, which look like the objects that they describe, into CEL.
//
// A pattern has three results: it holds, it fails, or a condition in it does not apply to the object. The last one is that of a list if
// it is that of all its elements. Kyverno reports the first result that is not "holds", in an order that the translation keeps.
package pattern

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/convert/celexpr"
)

// Value is the part of an object that a pattern is about.
type Value struct {
	Expr celexpr.Expr
	Type celexpr.Type
	// Name is what the value is called, for the variables of loops.
	Name string
}

// Check are the conditions of a pattern on a value that is there.
type Check struct {
	// Allowed holds unless the pattern fails, and Skipped if it does not apply.
	Allowed, Skipped celexpr.Expr
	// global holds if it does not apply because of a global anchor that is in no list and no condition. It implies Skipped. None is never.
	global celexpr.Expr
}

// holds returns the condition that a check holds.
func (c Check) holds() celexpr.Expr { return celexpr.And(celexpr.Not(c.Skipped), c.Allowed) }

// UnsupportedError is a construct that has no translation.
type UnsupportedError struct {
	// Path is that of the construct in the pattern.
	Path []string
	// Construct is what it is, and Instead what to write in its place.
	Construct, Instead string
}

// Error implements error.
func (e *UnsupportedError) Error() string { return e.Construct }

// Limits of a pattern, which is untrusted.
const (
	maxDepth = 40
	maxNodes = 5000
	// maxSize bounds an expression in bytes: each level of conditions within conditions repeats those below.
	maxSize = 16 << 10
)

// Compiler translates patterns.
type Compiler struct {
	// Names are taken by variables.
	Names celexpr.Names
	// Resolve returns the value of a scalar with variables, as a literal or as an expression. Without it there are none.
	Resolve func(text string) (any, error)

	// Notes say in what the translation differs.
	Notes []string

	nodes int
}

// Compile translates a pattern.
func (c *Compiler) Compile(v Value, pattern any) (Check, error) {
	return c.value(v, pattern, nil, c.Names)
}

// ignored reports whether Kyverno ignores a key of a pattern: one of labels or annotations whose value is no text.
func (c *Compiler) ignored(v Value, a anchored) bool {
	if _, isText := a.pattern.(string); isText || v.Name != "labels" && v.Name != "annotations" {
		return false
	}
	c.note("Kyverno ignores %q in %s, because its value is no text, and so does the policy", a.key, v.Name)
	return true
}

func (c *Compiler) unsupported(path []string, construct, instead string) error {
	return &UnsupportedError{Path: slices.Clone(path), Construct: construct, Instead: instead}
}

func (c *Compiler) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(c.Notes, text) {
		c.Notes = append(c.Notes, text)
	}
}

// value translates the pattern of a value that is there.
func (c *Compiler) value(v Value, pattern any, path []string, names celexpr.Names) (Check, error) {
	if c.nodes++; len(path) > maxDepth || c.nodes > maxNodes {
		return Check{}, c.unsupported(path, "a pattern that is too large", "split the rule")
	}
	switch p := pattern.(type) {
	case map[string]any:
		return c.object(v, p, path, names)
	case []any:
		return c.list(v, p, path, names)
	default:
		allowed, err := c.scalar(v, p, path, names)
		return Check{Allowed: allowed, Skipped: celexpr.False}, err
	}
}

// scalar translates the pattern of a scalar. About a list it is one about each element.
func (c *Compiler) scalar(v Value, pattern any, path []string, names celexpr.Names) (celexpr.Expr, error) {
	if v.Type.Kind() != celexpr.Sequence {
		return c.one(v, pattern, path)
	}
	name, _ := names.Element(v.Name)
	of, err := c.one(Value{Expr: celexpr.Raw(name), Type: v.Type.Elem()}, pattern, path)
	return celexpr.Macro(v.Expr, "all", name, of), err
}

// one translates the pattern of a value that is no list.
func (c *Compiler) one(v Value, pattern any, path []string) (celexpr.Expr, error) {
	if text, ok := pattern.(string); ok && strings.Contains(text, "{{") && c.Resolve != nil {
		value, err := c.Resolve(text)
		if err != nil {
			return celexpr.Expr{}, err
		}
		if dynamic, ok := value.(celexpr.Expr); ok {
			c.note("the value of %q is compared as it is, without wildcards and operators in it", text)
			return celexpr.Eq(v.Expr, dynamic), nil
		}
		pattern = value
	}
	e, err := Scalar(v.Expr, v.Type, pattern)
	if err != nil {
		return e, c.unsupported(path, err.Error(), "write the comparison in CEL")
	}
	return e, nil
}

// list translates the pattern of a list. Kyverno reads its first element alone, which describes all elements of the object's list.
func (c *Compiler) list(v Value, pattern []any, path []string, names celexpr.Names) (Check, error) {
	if k := v.Type.Kind(); k != celexpr.Sequence && k != celexpr.Unknown || len(pattern) == 0 {
		return Check{Allowed: celexpr.False, Skipped: celexpr.False}, nil
	}
	at := append(slices.Clone(path), "0")
	name, inner := names.Element(v.Name)
	element := Value{Expr: celexpr.Raw(name), Type: v.Type.Elem(), Name: v.Name}
	switch first := pattern[0].(type) {
	case []any:
		return Check{}, c.unsupported(at, "a list in a list", "write the comparison in CEL")
	case map[string]any:
		of, err := c.value(element, first, at, inner)
		if err != nil {
			return Check{}, err
		}
		if len(pattern) > 1 {
			c.note("%s has more than one element: Kyverno reads the first alone, and so does the policy", strings.Join(path, "."))
		}
		check := Check{Allowed: celexpr.Macro(v.Expr, "all", name, of.Allowed), Skipped: celexpr.False}
		if !of.Skipped.IsFalse() {
			check.Skipped = celexpr.And(celexpr.Rel(celexpr.Func("size", v.Expr), ">", celexpr.Int(0)), celexpr.Macro(v.Expr, "all", name, of.Skipped))
		}
		return check, nil
	default:
		of, err := c.one(element, first, at)
		return Check{Allowed: celexpr.Macro(v.Expr, "all", name, of), Skipped: celexpr.False}, err
	}
}

// anchored is a key of a pattern.
type anchored struct {
	// written is the key, kind its anchor, "" without one, and "(" for a condition.
	written, kind, key string
	pattern            any
}

var anchorForm = regexp.MustCompile(`^([+<=X^])?\((.+)\)$`)

// keys returns the keys of a pattern in the order of Kyverno: anchors first, of these conditions, and then the others, of these the ones
// with anchors below, backwards.
func keys(pattern map[string]any) (anchors, others []anchored) {
	var names, plain []string
	for key := range pattern {
		names = append(names, key)
	}
	slices.Sort(names)
	byName := map[string]anchored{}
	for _, name := range names {
		a := anchored{written: name, key: name, pattern: pattern[name]}
		if m := anchorForm.FindStringSubmatch(strings.TrimSpace(name)); m != nil {
			a.kind, a.key = m[1], m[2]
			if a.kind == "" {
				a.kind = "("
			}
		}
		if slices.Contains([]string{"(", "=", "X", "^"}, a.kind) {
			anchors = append(anchors, a)
		} else {
			byName[name] = a
			plain = append(plain, name)
		}
	}
	var front, back []anchored
	for _, name := range plain {
		if a := byName[name]; a.kind == "<" || HasAnchors(a.pattern) {
			front = append([]anchored{a}, front...)
		} else {
			back = append(back, a)
		}
	}
	return anchors, append(front, back...)
}

// HasAnchors reports whether there is an anchor somewhere in a pattern.
func HasAnchors(pattern any) bool {
	switch p := pattern.(type) {
	case map[string]any:
		for key, value := range p {
			if m := anchorForm.FindStringSubmatch(strings.TrimSpace(key)); m != nil && m[1] != "+" || HasAnchors(value) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(p, HasAnchors)
	}
	return false
}

// object translates the pattern of an object.
func (c *Compiler) object(v Value, pattern map[string]any, path []string, names celexpr.Names) (Check, error) {
	switch v.Type.Kind() { //nolint:exhaustive // others may be objects
	case celexpr.String, celexpr.Quantity, celexpr.Number, celexpr.Truth, celexpr.Sequence:
		return Check{Allowed: celexpr.False, Skipped: celexpr.False}, nil
	}
	anchors, others := keys(pattern)
	isIgnored := func(a anchored) bool { return c.ignored(v, a) }
	anchors, others = slices.DeleteFunc(anchors, isIgnored), slices.DeleteFunc(others, isIgnored)
	var applies, fails, allSkipped []celexpr.Expr
	skipped, global := celexpr.False, celexpr.False
	skippable := len(anchors) > 0
	for _, a := range anchors {
		check, err := c.anchor(v, a, path, names)
		if err != nil {
			return Check{}, err
		}
		if a.kind == "(" {
			applies = append(applies, check.holds())
			skippable = false
			continue
		}
		fails = append(fails, celexpr.Or(skipped, check.Allowed))
		if !check.global.IsZero() {
			skipped = celexpr.Or(skipped, celexpr.And(celexpr.And(fails...), check.global))
		}
		allSkipped = append(allSkipped, check.Skipped)
		skippable = skippable && !check.Skipped.IsFalse()
	}
	// A condition that does not hold skips the object, whatever else there is, and a global anchor what follows it.
	condition := celexpr.And(applies...)
	allowed := []celexpr.Expr{celexpr.And(fails...)}
	if skippable {
		skipped = celexpr.Or(skipped, celexpr.And(allSkipped...))
	}
	for _, a := range others {
		check, err := c.anchor(v, a, path, names)
		if err != nil {
			return Check{}, err
		}
		// What comes behind something that does not apply is not looked at.
		allowed = append(allowed, celexpr.Or(skipped, check.Allowed))
		if !check.global.IsZero() {
			global = celexpr.Or(global, celexpr.And(condition, celexpr.Not(skipped), celexpr.And(allowed...), check.global))
		}
		if !check.Skipped.IsFalse() {
			skipped = celexpr.Or(skipped, celexpr.And(celexpr.And(allowed...), check.Skipped))
		}
	}
	out := Check{
		Allowed: celexpr.Or(celexpr.Not(condition), celexpr.And(allowed...)),
		Skipped: celexpr.Or(celexpr.Not(condition), skipped),
	}
	if !global.IsFalse() {
		out.global = global
	}
	if len(out.Allowed.String())+len(out.Skipped.String()) > maxSize {
		return Check{}, c.unsupported(path, "a pattern that becomes too large", "split the rule")
	}
	return out, nil
}

// anchor translates a key of a pattern. A condition holds if it applies.
func (c *Compiler) anchor(v Value, a anchored, path []string, names celexpr.Names) (Check, error) {
	at := append(slices.Clone(path), a.written)
	if (v.Name == "labels" || v.Name == "annotations") && strings.ContainsAny(a.key, "*?") {
		return c.wildcardKey(v, a, at, names)
	}
	member, known := v.Type.Member(a.key)
	if !known {
		member = celexpr.Type{}
	}
	has := celexpr.Has(v.Expr, a.key)
	switch {
	case v.Type.IsAlways(a.key):
		has = celexpr.True
	case v.Type.IsNullable(a.key):
		has = celexpr.And(has, celexpr.Rel(celexpr.Field(v.Expr, a.key), "!=", celexpr.Raw("null")))
	}
	inner := Value{Expr: celexpr.Field(v.Expr, a.key), Type: member, Name: a.key}
	never := celexpr.False
	switch a.kind {
	case "X":
		return Check{Allowed: celexpr.Not(has), Skipped: never}, nil
	case "^":
		allowed, err := c.exists(inner, a.pattern, at, names)
		return Check{Allowed: celexpr.Or(celexpr.Not(has), allowed), Skipped: never}, err
	case "+":
		return Check{}, c.unsupported(at, "the anchor +( ) in a rule that validates", "remove the anchor")
	case "":
		if e, ok := c.chain(v, a, at); ok {
			return Check{Allowed: e, Skipped: never}, nil
		}
		if a.pattern == "*" {
			return Check{Allowed: has, Skipped: never}, nil
		}
	}
	check, err := c.value(inner, a.pattern, at, names)
	if err != nil {
		return Check{}, err
	}
	var global celexpr.Expr
	if !check.global.IsZero() {
		global = celexpr.And(has, check.global)
	}
	switch a.kind {
	case "(":
		return Check{Allowed: celexpr.And(has, check.Allowed), Skipped: celexpr.And(has, check.Skipped)}, nil
	case "=":
		return Check{Allowed: celexpr.Or(celexpr.Not(has), check.Allowed), Skipped: celexpr.And(has, check.Skipped), global: global}, nil
	case "<": // what is not there is no reason to skip
		skipped := celexpr.And(has, celexpr.Not(check.holds()))
		return Check{Allowed: celexpr.True, Skipped: skipped, global: skipped}, nil
	default:
		allowed := celexpr.And(has, check.Allowed)
		if matchesAbsent(a.pattern) {
			allowed = celexpr.Or(celexpr.Not(has), check.Allowed)
		}
		return Check{Allowed: allowed, Skipped: celexpr.And(has, check.Skipped), global: global}, nil
	}
}

// exists translates the pattern of ^( ): each of its elements describes an element of the list.
func (c *Compiler) exists(v Value, pattern any, path []string, names celexpr.Names) (celexpr.Expr, error) {
	items, ok := pattern.([]any)
	if !ok {
		return celexpr.False, nil
	}
	var all []celexpr.Expr
	for i, item := range items {
		at := append(slices.Clone(path), fmt.Sprint(i))
		fields, ok := item.(map[string]any)
		if !ok {
			return celexpr.False, nil
		}
		name, inner := names.Element(v.Name)
		check, err := c.value(Value{Expr: celexpr.Raw(name), Type: v.Type.Elem(), Name: v.Name}, fields, at, inner)
		if err != nil {
			return celexpr.Expr{}, err
		}
		all = append(all, celexpr.Macro(v.Expr, "exists", name, check.holds()))
	}
	return celexpr.And(all...), nil
}

// wildcardKey translates a label or annotation whose name has wildcards.
func (c *Compiler) wildcardKey(v Value, a anchored, path []string, names celexpr.Names) (Check, error) {
	key := celexpr.Raw("key")
	matches := Wildcard(key, a.key)
	never := celexpr.False
	if a.kind == "X" {
		return Check{Allowed: celexpr.Not(celexpr.Macro(v.Expr, "exists", "key", matches)), Skipped: never}, nil
	}
	if a.kind != "" && a.kind != "=" && a.kind != "(" {
		return Check{}, c.unsupported(path, "wildcards in a key with the anchor "+a.kind+"( )", "name the keys")
	}
	c.note("of several keys that match %q, Kyverno picks one at random, and the policy wants one with such a value", a.key)
	of, err := c.one(Value{Expr: celexpr.At(v.Expr, key), Type: v.Type.Elem()}, a.pattern, path)
	if err != nil {
		return Check{}, err
	}
	found := celexpr.Macro(v.Expr, "exists", "key", celexpr.And(matches, of))
	if a.kind == "=" {
		return Check{Allowed: celexpr.Or(celexpr.Not(celexpr.Macro(v.Expr, "exists", "key", matches)), found), Skipped: never}, nil
	}
	return Check{Allowed: found, Skipped: never}, nil
}

// chain translates members within each other that end in a scalar: it reads better with optional fields than with has() for each of them.
func (c *Compiler) chain(v Value, a anchored, path []string) (celexpr.Expr, bool) {
	expr, of, pattern, key, optional, length := v.Expr, v.Type, a.pattern, a.key, false, 0
	name := v.Name
	for {
		if (name == "labels" || name == "annotations") && strings.ContainsAny(key, "*?") {
			return celexpr.Expr{}, false
		}
		member, known := of.Member(key)
		if !known || of.IsNullable(key) {
			return celexpr.Expr{}, false
		}
		if optional || !of.IsAlways(key) {
			expr, optional = celexpr.OptField(expr, key), true
			length++
		} else {
			expr = celexpr.Field(expr, key)
		}
		of, name = member, key
		fields, ok := pattern.(map[string]any)
		if !ok {
			break
		}
		if len(fields) != 1 {
			return celexpr.Expr{}, false
		}
		for next, below := range fields {
			if anchorForm.MatchString(strings.TrimSpace(next)) {
				return celexpr.Expr{}, false
			}
			key, pattern = next, below
			path = append(slices.Clone(path), next)
		}
	}
	if _, isList := pattern.([]any); isList || !optional {
		return celexpr.Expr{}, false
	}
	if text, ok := pattern.(string); ok && strings.Contains(text, "{{") {
		return celexpr.Expr{}, false
	}
	if pattern == "*" {
		return celexpr.Call(expr, "hasValue"), true
	}
	absent := matchesAbsent(pattern)
	if absent && length > 1 { // only the last one may be absent
		return celexpr.Expr{}, false
	}
	for _, fallback := range fallbacks(of.Kind()) {
		value := celexpr.Call(expr, "orValue", celexpr.Literal(fallback))
		if matches, err := scalarMatches(of, fallback, pattern); err != nil || matches != absent {
			continue
		}
		if pattern == true {
			return value, true
		}
		if pattern == false {
			return celexpr.Not(value), true
		}
		if e, err := Scalar(value, of, pattern); err == nil && strings.Count(e.String(), ".orValue(") == 1 {
			return e, true
		}
	}
	return celexpr.Expr{}, false
}

// fallbacks returns values of a kind, of which a pattern may match one and not the other.
func fallbacks(of celexpr.Kind) []any {
	switch of { //nolint:exhaustive // for others there is no such form
	case celexpr.String:
		return []any{""}
	case celexpr.Number:
		return []any{int64(0)}
	case celexpr.Truth:
		return []any{false, true}
	default:
		return nil
	}
}
