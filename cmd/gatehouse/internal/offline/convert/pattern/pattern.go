// Package pattern translates Kyverno's patterns, which look like the objects that they describe, into CEL.
//
// A pattern has three results: it holds, it fails, or a condition in it does not apply to the object. The last one is that of a list if
// it is that of all its elements. Kyverno reports the first result that is not "holds", in an order that the translation keeps.
package pattern

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/celexpr"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/jmespath"
)

// Check are the conditions of a pattern on a value that is there.
type Check struct {
	// Allowed holds unless the pattern fails, and Skipped if it does not apply.
	Allowed, Skipped celexpr.Expr
	// global holds if it does not apply because of a global anchor that is in no list and no condition. It implies Skipped. None is never.
	global celexpr.Expr
}

// always returns a check that always applies.
func always(allowed celexpr.Expr) Check { return Check{Allowed: allowed, Skipped: celexpr.False} }

// Holds returns the condition that a check holds.
func (c Check) Holds() celexpr.Expr { return celexpr.And(celexpr.Not(c.Skipped), c.Allowed) }

// maxSize bounds an expression in bytes: a pattern is untrusted, and each level of conditions within conditions repeats those below.
const maxSize = 16 << 10

// Compiler translates patterns.
type Compiler struct {
	// Scope is what variables in the pattern see.
	Scope jmespath.Scope
	// Notes say in what the translation differs. Some may say the same.
	Notes []string

	// err is the first error. What is translated after it does not matter.
	err error
}

// Compile translates a pattern of a value that is there.
func (c *Compiler) Compile(v jmespath.Value, pattern any) (Check, error) {
	v = jmespath.Value{Expr: v.Expr, Type: v.Type, Name: v.Name}
	check := c.value(v, pattern, nil, c.Scope.Names)
	return check, c.err
}

// refuse records that there is no translation.
func (c *Compiler) refuse(path []string, construct, instead string) Check {
	if c.err == nil {
		c.err = &jmespath.UnsupportedError{Path: slices.Clone(path), Construct: construct, Instead: instead}
	}
	return Check{}
}

func (c *Compiler) note(format string, args ...any) {
	c.Notes = append(c.Notes, fmt.Sprintf(format, args...))
}

// value translates the pattern of a value that is there.
func (c *Compiler) value(v jmespath.Value, pattern any, path []string, names celexpr.Names) Check {
	switch p := pattern.(type) {
	case map[string]any:
		return c.object(v, p, path, names)
	case []any:
		return c.list(v, p, path, names)
	default:
		if v.Type.Kind() == celexpr.Sequence { // a scalar about a list is one about each element
			return c.list(v, []any{p}, path, names)
		}
		return c.scalar(v, p, path)
	}
}

// scalar translates the pattern of a value that is no list.
func (c *Compiler) scalar(v jmespath.Value, pattern any, path []string) Check {
	if text, ok := pattern.(string); ok && jmespath.HasVariables(text) {
		value, err := jmespath.Template(text, c.Scope)
		if err != nil {
			c.err = cmp.Or(c.err, err)
			return Check{}
		}
		if !value.Constant {
			c.note("the value of %q is compared as it is, without wildcards and operators in it", text)
			return always(celexpr.Eq(v.Expr, value.Expr))
		}
		pattern = value.Literal
	}
	e, err := Scalar(v.Expr, v.Type, pattern)
	if err != nil {
		return c.refuse(path, err.Error(), "write the comparison in CEL")
	}
	return always(e)
}

// list translates the pattern of a list. Kyverno reads its first element alone, which describes all elements of the object's list.
func (c *Compiler) list(v jmespath.Value, pattern []any, path []string, names celexpr.Names) Check {
	if k := v.Type.Kind(); k != celexpr.Sequence && k != celexpr.Unknown || len(pattern) == 0 {
		return always(celexpr.False)
	}
	at := append(slices.Clone(path), "0")
	name, inner := names.Element(v.Name)
	element := jmespath.Value{Expr: celexpr.Raw(name), Type: v.Type.Elem(), Name: v.Name}
	var of Check
	switch first := pattern[0].(type) {
	case []any:
		return c.refuse(at, "a list in a list", "write the comparison in CEL")
	case map[string]any:
		if of = c.value(element, first, at, inner); len(pattern) > 1 {
			c.note("%s has more than one element: Kyverno reads the first alone, and so does the policy", strings.Join(path, "."))
		}
	default:
		of = c.scalar(element, first, at)
	}
	check := always(celexpr.Macro(v.Expr, "all", name, of.Allowed))
	if !of.Skipped.IsFalse() {
		check.Skipped = celexpr.And(celexpr.Rel(celexpr.Func("size", v.Expr), ">", celexpr.Int(0)), celexpr.Macro(v.Expr, "all", name, of.Skipped))
	}
	return check
}

// anchored is a key of a pattern.
type anchored struct {
	// written is the key, kind its anchor, "" without one, and "(" for a condition.
	written, kind, key string
	pattern            any
}

var anchorForm = regexp.MustCompile(`^([+<=X^])?\((.+)\)$`)

// SplitAnchor returns the anchor of a key, "(" for a condition and "" for none, and the key.
func SplitAnchor(written string) (kind, key string) {
	m := anchorForm.FindStringSubmatch(strings.TrimSpace(written))
	if m == nil {
		return "", written
	}
	return cmp.Or(m[1], "("), m[2]
}

// HasAnchor reports whether there is an anchor somewhere in a pattern, of one of these kinds.
func HasAnchor(pattern any, kinds string) bool {
	return Some(pattern, func(key string, _ any) bool {
		kind, _ := SplitAnchor(key)
		return kind != "" && strings.Contains(kinds, kind)
	})
}

// Some reports whether something holds for a value or a part of it. Key is the name of the part in an object.
func Some(value any, is func(key string, part any) bool) bool {
	var walk func(key string, part any) bool
	walk = func(key string, part any) bool {
		if is(key, part) {
			return true
		}
		switch v := part.(type) {
		case map[string]any:
			for name, of := range v {
				if walk(name, of) {
					return true
				}
			}
		case []any:
			return slices.ContainsFunc(v, func(of any) bool { return walk("", of) })
		}
		return false
	}
	return walk("", value)
}

// keys returns the keys of a pattern in the order of Kyverno: anchors first, of these conditions, and then the others, of these the ones
// with anchors below, backwards.
func keys(pattern map[string]any) (anchors, others []anchored) {
	var front, back []anchored
	for _, name := range slices.Sorted(maps.Keys(pattern)) {
		a := anchored{written: name, pattern: pattern[name]}
		a.kind, a.key = SplitAnchor(name)
		switch {
		case slices.Contains([]string{"(", "=", "X", "^"}, a.kind):
			anchors = append(anchors, a)
		case a.kind == "<" || HasAnchor(a.pattern, "(<=X^"):
			front = append([]anchored{a}, front...)
		default:
			back = append(back, a)
		}
	}
	return anchors, append(front, back...)
}

// object translates the pattern of an object.
func (c *Compiler) object(v jmespath.Value, pattern map[string]any, path []string, names celexpr.Names) Check {
	switch v.Type.Kind() { //nolint:exhaustive // others may be objects
	case celexpr.String, celexpr.Quantity, celexpr.Number, celexpr.Truth, celexpr.Sequence:
		return always(celexpr.False)
	}
	anchors, others := keys(pattern)
	isIgnored := func(a anchored) bool {
		if _, isText := a.pattern.(string); isText || v.Name != "labels" && v.Name != "annotations" {
			return false
		}
		c.note("Kyverno ignores %q in %s, because its value is no text, and so does the policy", a.key, v.Name)
		return true
	}
	anchors, others = slices.DeleteFunc(anchors, isIgnored), slices.DeleteFunc(others, isIgnored)
	condition, fails, allSkipped := celexpr.True, celexpr.True, celexpr.Bool(len(anchors) > 0)
	skipped, global := celexpr.False, celexpr.False
	for _, a := range anchors {
		check := c.member(v, a, path, names)
		if a.kind == "(" {
			condition, allSkipped = celexpr.And(condition, check.Holds()), celexpr.False
			continue
		}
		fails, allSkipped = celexpr.And(fails, celexpr.Or(skipped, check.Allowed)), celexpr.And(allSkipped, check.Skipped)
		if !check.global.IsZero() { // it skips what follows
			skipped = celexpr.Or(skipped, celexpr.And(fails, check.global))
		}
	}
	skipped = celexpr.Or(skipped, allSkipped)
	allowed, size := []celexpr.Expr{fails}, 0
	for _, a := range others {
		check := c.member(v, a, path, names)
		if size += len(check.Allowed.String()); size > maxSize { // before the work for what follows
			return c.refuse(path, "a pattern that becomes too large", "split the rule")
		}
		// What comes behind something that does not apply is not looked at.
		allowed = append(allowed, celexpr.Or(skipped, check.Allowed))
		if !check.global.IsZero() {
			global = celexpr.Or(global, celexpr.And(condition, celexpr.Not(skipped), celexpr.And(allowed...), check.global))
		}
		skipped = celexpr.Or(skipped, celexpr.And(celexpr.And(allowed...), check.Skipped))
	}
	// A condition that does not hold skips the object, whatever else there is.
	out := Check{Allowed: celexpr.Or(celexpr.Not(condition), celexpr.And(allowed...)), Skipped: celexpr.Or(celexpr.Not(condition), skipped)}
	if !global.IsFalse() {
		out.global = global
	}
	if len(out.Allowed.String())+len(out.Skipped.String()) > maxSize {
		return c.refuse(path, "a pattern that becomes too large", "split the rule")
	}
	return out
}

// member translates a key of a pattern. A condition holds if it applies.
func (c *Compiler) member(v jmespath.Value, a anchored, path []string, names celexpr.Names) Check {
	path = append(slices.Clone(path), a.written)
	if (v.Name == "labels" || v.Name == "annotations") && strings.ContainsAny(a.key, "*?") {
		return c.wildcardKey(v, a, path)
	}
	inner := v.Member(a.key)
	has := celexpr.And(inner.Present)
	inner.Opt, inner.Present = celexpr.Expr{}, celexpr.Expr{}
	hasNot := celexpr.Not(has)
	switch a.kind {
	case "X":
		return always(hasNot)
	case "^":
		return always(celexpr.Or(hasNot, c.exists(inner, a.pattern, path, names)))
	case "+":
		return c.refuse(path, "the anchor +( ) in a rule that validates", "remove the anchor")
	case "":
		if a.pattern == "*" {
			return always(has)
		}
	}
	check := c.value(inner, a.pattern, path, names)
	out := Check{Allowed: celexpr.And(has, check.Allowed), Skipped: celexpr.And(has, check.Skipped)}
	if !check.global.IsZero() && a.kind != "(" {
		out.global = celexpr.And(has, check.global)
	}
	switch {
	case a.kind == "<": // what is not there is no reason to skip
		skipped := celexpr.And(has, celexpr.Not(check.Holds()))
		return Check{Allowed: celexpr.True, Skipped: skipped, global: skipped}
	case a.kind == "=" || a.kind == "" && absentMatches(a.pattern):
		out.Allowed = celexpr.Or(hasNot, check.Allowed)
	}
	return out
}

// exists translates the pattern of ^( ): each of its elements describes an element of the list.
func (c *Compiler) exists(v jmespath.Value, pattern any, path []string, names celexpr.Names) celexpr.Expr {
	items, ok := pattern.([]any)
	all := celexpr.Bool(ok)
	name, inner := names.Element(v.Name)
	for i, item := range items {
		fields, ok := item.(map[string]any)
		if !ok {
			return celexpr.False
		}
		element := jmespath.Value{Expr: celexpr.Raw(name), Type: v.Type.Elem(), Name: v.Name}
		check := c.value(element, fields, append(slices.Clone(path), strconv.Itoa(i)), inner)
		all = celexpr.And(all, celexpr.Macro(v.Expr, "exists", name, check.Holds()))
	}
	return all
}

// wildcardKey translates a label or annotation whose name has wildcards.
func (c *Compiler) wildcardKey(v jmespath.Value, a anchored, path []string) Check {
	key := celexpr.Raw("key")
	matches := Wildcard(key, a.key)
	none := celexpr.Not(celexpr.Macro(v.Expr, "exists", "key", matches))
	if a.kind == "X" {
		return always(none)
	}
	if a.kind != "" && a.kind != "=" && a.kind != "(" {
		return c.refuse(path, "wildcards in a key with the anchor "+a.kind+"( )", "name the keys")
	}
	c.note("of several keys that match %q, Kyverno picks one at random, and the policy wants one with such a value", a.key)
	of := c.scalar(v.At(key), a.pattern, path)
	found := celexpr.Macro(v.Expr, "exists", "key", celexpr.And(matches, of.Allowed))
	if a.kind == "=" {
		found = celexpr.Or(none, found)
	}
	return always(found)
}
