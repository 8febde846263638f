package template

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/cel-go/common/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

const maxPlaceholders = 1000

// Tree is a compiled JSON value with placeholders. It is immutable and safe for
// concurrent use.
type Tree struct {
	scope *Scope
	root  node
}

// Tree compiles a JSON value whose texts may hold placeholders. The path is that
// of the value in the profile. What the tree results in must be decodable into a
// value of the type: fields that it does not have, values of another kind and
// expressions that cannot give what a place takes are findings, each with its
// path. With diagnostics there is no tree. Absent and null values are trees too.
func (s *Scope) Tree(path string, raw []byte, into reflect.Type) (*Tree, diagnostic.List) {
	c := treeCompiler{scope: s}
	t := &Tree{scope: s, root: node{kind: literalNode, literal: []byte("null")}}
	if len(raw) == 0 {
		return t, nil
	}
	value, err := rawjson.Parse(raw)
	if err != nil {
		c.errorf(path, "", "%v", err)
		return nil, c.found
	}
	decoded, err := value.Decode()
	if err != nil {
		if duplicate, ok := errors.AsType[*rawjson.DuplicateKeyError](err); ok {
			c.errorf(path, "remove one of the two", "%q occurs twice in one mapping", strict.Printable(duplicate.Key))
		} else {
			c.errorf(path, "", "%v", err)
		}
		return nil, c.found
	}
	c.found = s.environment.checker.Compare(into, decoded, path, strict.Options{Placeholder: hasPlaceholder})
	t.root = c.value(path, value, into)
	if c.placeholders > maxPlaceholders {
		c.errorf(path, "", "has %d placeholders: at most %d are allowed", c.placeholders, maxPlaceholders)
	}
	if len(c.found) > 0 {
		c.found.Sort()
		return nil, c.found
	}
	return t, nil
}

// Static returns the rendered JSON of a tree that is the same for every pod, and false
// for any other tree. The caller must not change it.
func (t *Tree) Static() ([]byte, bool) {
	return t.root.literal, t.root.kind == literalNode
}

type treeCompiler struct {
	report

	scope        *Scope
	placeholders int
}

// value compiles a value that is decoded into the type, which is nil where
// anything may stand.
func (c *treeCompiler) value(path string, v rawjson.Value, t reflect.Type) node {
	switch v.Kind() {
	case rawjson.Object:
		return c.object(path, v, t)
	case rawjson.Array:
		element := c.scope.environment.checker.ElementType(t)
		n := node{kind: listNode}
		for i, below := range v.Elements() {
			n.children = append(n.children, child{node: c.value(strict.Element(path, i), below, element)})
		}
		return n.fold('[', ']')
	case rawjson.String:
		return c.text(path, v, t)
	default:
		return node{kind: literalNode, literal: bytes.Clone(v)}
	}
}

func (c *treeCompiler) object(path string, v rawjson.Value, t reflect.Type) node {
	n := node{kind: objectNode}
	for name, below := range v.Members() {
		text := name.Text()
		at := strict.Member(path, text)
		if hasPlaceholder(text) {
			c.errorf(at, "write the name literally", "%q: a field name cannot have a placeholder", strict.Cut(text, mostQuoted))
			continue
		}
		if below.Kind() == rawjson.String && isLiteral(t, text) && hasPlaceholder(below.Text()) {
			c.errorf(at, "write the name literally: it identifies what is added", "%q: this name cannot have a placeholder", strict.Cut(below.Text(), mostQuoted))
			continue
		}
		key := append(rawjson.AppendString(nil, unescaped(text)), ':')
		n.children = append(n.children, child{key: key, node: c.value(at, below, c.scope.environment.checker.MemberType(t, text))})
	}
	return n.fold('{', '}')
}

func unescaped(text string) string { return strings.ReplaceAll(text, "$${", "${") }

// isLiteral reports whether the field is a name by which objects find each other,
// or by which what is added is merged with what a pod has.
func isLiteral(t reflect.Type, field string) bool {
	if t == nil || field != "name" {
		return false
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[corev1.Container](), reflect.TypeFor[corev1.EphemeralContainer](), reflect.TypeFor[corev1.Volume](),
		reflect.TypeFor[corev1.ContainerPort](), reflect.TypeFor[corev1.VolumeMount](), reflect.TypeFor[corev1.VolumeDevice](), reflect.TypeFor[corev1.EnvVar]():
		return true
	default:
		return false
	}
}

func (c *treeCompiler) text(path string, v rawjson.Value, t reflect.Type) node {
	text := v.Text()
	parts, err := split(text)
	if err != nil {
		hint := ""
		if _, ok := errors.AsType[*unterminatedError](err); ok {
			hint = "write $${ for a literal ${"
		}
		c.errorf(path, hint, "%q %v", strict.Cut(text, mostQuoted), err)
		return node{}
	}
	n := node{kind: textNode, path: path, place: placeOf(t)}
	good, constant := true, true
	for _, p := range parts {
		if !p.placeholder {
			n.parts = append(n.parts, piece{literal: p.text})
			continue
		}
		constant = false
		c.placeholders++
		if c.placeholders > maxPlaceholders {
			good = false
			continue // reported once, when they have been counted
		}
		if strings.TrimSpace(p.text) == "" {
			c.errorf(path, "write $${} for a literal ${}", "%q has an empty placeholder", strict.Cut(text, mostQuoted))
			good = false
			continue
		}
		e, found := c.scope.compile(path, p.text, forPlaceholder)
		c.found = append(c.found, found...)
		if len(found) > 0 || !c.checkPlace(path, text, e, n.place, len(parts) > 1) {
			good = false
			continue
		}
		n.parts = append(n.parts, piece{expression: e})
	}
	if !good {
		return node{}
	}
	if constant {
		return node{kind: literalNode, literal: rawjson.AppendString(nil, unescaped(text))}
	}
	return n
}

// checkPlace reports an expression that cannot give what its place takes.
func (c *treeCompiler) checkPlace(path, text string, e *expression, p place, within bool) bool {
	if p.isStructure() {
		// The comparison with the type has reported it.
		for i := range c.found {
			if c.found[i].Field == path {
				c.found[i].Hint = "a placeholder can replace a string, a number or a boolean"
			}
		}
		return false
	}
	kind, known, ok := staticKind(e.output)
	quoted := strict.Cut(text, mostQuoted)
	if !ok {
		subject, hint := structure(e)
		c.errorf(path, hint, "%q: %s cannot be the result of a placeholder", quoted, subject)
		return false
	}
	if !within {
		if known && !p.fits(kind) {
			c.errorf(path, conversion(kind, p), "%q is %s, expected %s", quoted, describeKind(kind), p.expected())
			return false
		}
		return c.checkDefault(path, quoted, e, p)
	}
	switch {
	case known && kind == types.NullTypeKind:
		c.errorf(path, "remove the placeholder", "%q: null cannot be part of a string", quoted)
		return false
	case isOptional(e.output):
		c.errorf(path, `append .orValue("")`, "%q: an optional cannot be part of a string", quoted)
		return false
	case !p.fits(types.StringKind):
		c.errorf(path, "remove the characters around the placeholder", "%q is a string, expected %s", quoted, p.expected())
		return false
	}
	return true
}

// structure returns what an expression gives that is no text, number or boolean, with
// a hint.
func structure(e *expression) (subject, hint string) {
	name := e.output.String()
	subject, hint = "a "+typeName(name), "a placeholder must result in a string, a number or a boolean"
	if isOptional(e.output) {
		subject = "an optional value"
	}
	switch name {
	case paramsType, presetsType:
		subject = "a map"
	case "list(string)":
		hint = fmt.Sprintf("write ${(%s).join(\",\")} to join its strings with commas", strings.TrimSpace(strict.Cut(e.text, mostQuoted)))
	case "google.protobuf.Duration", "google.protobuf.Timestamp", "bytes":
		hint = "write string(…) around it"
	}
	return subject, hint
}

// checkDefault reports a parameter whose default is not what its place takes.
func (c *treeCompiler) checkDefault(path, quoted string, e *expression, p place) bool {
	if e.program != nil {
		return true
	}
	fallback := c.scope.parameters[e.parameter].fallback
	if fallback == nil || p.accepts(fallback.cel) {
		return true
	}
	c.errorf(path, "", "%q is %s by default, expected %s", quoted, quote(fallback.cel), p.expected())
	return false
}

// conversion returns a hint for a result of a kind that the place does not take.
func conversion(kind types.Kind, p place) string {
	switch {
	case kind != types.StringKind && p.isString():
		return "write ${string(…)}"
	case p.fits(types.IntKind) && kind != types.BoolKind:
		return "write ${int(…)}"
	case p.fits(types.BoolKind) && kind == types.StringKind:
		return `write ${… == "true"}`
	default:
		return ""
	}
}
