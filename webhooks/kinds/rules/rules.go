// Package rules knows which values API servers accept in the fields of Kubernetes' own kinds: words of enumerations, names, ports,
// paths, quantities, addresses and the like, and what the fields of one struct must have in common. What the markers of k8s.io/api state
// is generated; pods.go and objects.go have what no marker states (k8s.io/kubernetes/pkg/apis/*/validation).
//
// It refuses nothing that an API server accepts: a test compares it with a real one. It does not look at what other objects, or a change
// of an object, would make invalid. The API server has the last word.
package rules

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/builtin"
)

// Validate returns what an API server refuses of the values of an object, in the order of its fields. Of a kind that is not Kubernetes'
// own, it knows the metadata alone. It has nothing to say about unknown fields, and about an object that does not decode.
func Validate(gvk schema.GroupVersionKind, object map[string]any) diagnostic.List {
	if len(object) == 0 {
		return nil
	}
	var typed any = new(metav1.PartialObjectMetadata)
	if known, err := builtin.Scheme().New(gvk); err == nil {
		typed = known
	}
	content := maps.Clone(object)
	delete(content, "status") // the API server resets it
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, typed); err != nil {
		return nil //nolint:nilerr // as said above
	}
	var found diagnostic.List
	Check("", reflect.ValueOf(typed), nil, func(path, hint, message string) {
		found = append(found, diagnostic.Diagnostic{Severity: diagnostic.Error, Field: path, Message: message, Hint: hint})
	})
	found.Sort()
	return found
}

// Check reports what an API server refuses of a value of a type of Kubernetes' API, and of everything below it. Path is the value's own.
// Placeholder reports whether the value at a path stands for one that is not known yet, which is not judged then. It may be nil.
func Check(path string, v reflect.Value, placeholder func(path string) bool, report func(path, hint, message string)) {
	c := &checker{isPlaceholder: placeholder, report: report}
	c.value(path, v)
}

type checker struct {
	isPlaceholder func(path string) bool
	report        func(path, hint, message string)
	// ignored are paths of values that the API server does not look into in this place.
	ignored []string
}

// rule checks one value. One of a field that no marker states gets neither a pointer nor a list.
type rule func(c *checker, path string, v reflect.Value)

// plan has the rules of a struct, and of its fields in the order of the type.
type plan struct {
	own     []rule
	members []member
}

type member struct {
	name  string
	index []int
	rules []rule
}

//nolint:gochecknoglobals // a cache by type
var plans sync.Map

func planOf(t reflect.Type) *plan {
	if known, ok := plans.Load(t); ok {
		return known.(*plan)
	}
	p := &plan{}
	if r := byHand()[typeName(t)]; r != nil {
		p.own = append(p.own, r)
	}
	p.add(t, []string{typeName(t)}, nil)
	known, _ := plans.LoadOrStore(t, p)
	return known.(*plan)
}

// add adds the fields of a struct, which belong to the types of these names: the struct, and those that it is embedded in.
func (p *plan) add(t reflect.Type, owners []string, index []int) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		at := append(slices.Clone(index), i)
		switch {
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			p.add(f.Type, append(slices.Clone(owners), typeName(f.Type)), at)
		case name == "" || name == "-" || unchecked[owners[0]+"."+name]:
		default:
			m := member{name: name, index: at}
			for _, owner := range owners {
				m.rules = append(m.rules, generated()[owner+"."+name]...)
				if r := byHand()[owner+"."+name]; r != nil {
					m.rules = append(m.rules, elements(r))
				}
			}
			for _, r := range generated()[typeName(leaf(f.Type))] {
				m.rules = append(m.rules, elements(r))
			}
			p.members = append(p.members, m)
		}
	}
}

// leaf returns the type of what a field points to, or of its elements.
func leaf(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t
}

// typeName returns the name of a type as tables have it: "Container", "apps/v1.DeploymentSpec".
func typeName(t reflect.Type) string {
	name := strings.TrimPrefix(strings.TrimPrefix(t.PkgPath(), "k8s.io/api/"), "k8s.io/apimachinery/pkg/apis/") + "." + t.Name()
	return strings.TrimPrefix(strings.Replace(name, "core/v1.EphemeralContainerCommon", "core/v1.Container", 1), "core/v1.")
}

func (c *checker) value(path string, v reflect.Value) {
	switch v.Kind() { //nolint:exhaustive // nothing else has fields below it
	case reflect.Pointer:
		if !v.IsNil() {
			c.value(path, v.Elem())
		}
	case reflect.Slice:
		if k := leaf(v.Type()).Kind(); k == reflect.Struct {
			for i := range v.Len() {
				c.value(strict.Element(path, i), v.Index(i))
			}
		}
	case reflect.Struct:
		p := planOf(v.Type())
		for _, r := range p.own {
			r(c, path, v)
		}
		for _, m := range p.members {
			field := v.FieldByIndex(m.index)
			if len(m.rules) == 0 && field.IsZero() {
				continue
			}
			at := strict.Member(path, m.name)
			for _, r := range m.rules {
				r(c, at, field)
			}
			c.value(at, field)
		}
	}
}

// elements applies a rule to what a value points to, and to each element of a list.
func elements(r rule) rule {
	var apply rule
	apply = func(c *checker, path string, v reflect.Value) {
		switch v.Kind() { //nolint:exhaustive // all others are values
		case reflect.Slice:
			for i := range v.Len() {
				apply(c, strict.Element(path, i), v.Index(i))
			}
		case reflect.Pointer:
			if !v.IsNil() {
				apply(c, path, v.Elem())
			}
		default:
			r(c, path, v)
		}
	}
	return apply
}

//go:embed zz_generated.rules.txt
var table string

// generated returns the rules of the table, by the names of fields and of types.
//
//nolint:gochecknoglobals // a table that nobody changes
var generated = sync.OnceValue(func() map[string][]rule {
	all := map[string][]rule{}
	for line := range strings.Lines(table) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if values, isEnum := strings.CutPrefix(rest, "enum="); isEnum {
			all[name] = []rule{oneOf(strings.Split(values, ",")...)}
			continue
		}
		for marker := range strings.FieldsSeq(rest) {
			if r := ofMarker(marker); r != nil && !strings.HasPrefix(line, "#") {
				all[name] = append(all[name], r)
			}
		}
	}
	return all
})

// ofMarker returns the rule that a marker states, and nil for one that says nothing about a value.
func ofMarker(marker string) rule {
	kind, argument, _ := strings.Cut(marker, "=")
	n, _ := strconv.ParseInt(argument, 10, 64)
	switch kind {
	case "required":
		return func(c *checker, path string, v reflect.Value) {
			if v.IsZero() || (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0 {
				c.invalid(path, "a value is required")
			}
		}
	case "minimum":
		return elements(atLeast(n))
	case "maximum":
		return elements(atMost(n))
	case "differ":
		return differ(strings.FieldsFunc(argument, func(r rune) bool { return r == ',' }))
	case "one":
		return one(strings.Split(argument, ","))
	case "maxItems":
		return func(c *checker, path string, v reflect.Value) { c.fewer(path, v.Len(), int(n)) }
	case "maxLength", "maxBytes":
		return elements(func(c *checker, path string, v reflect.Value) {
			if int64(len([]rune(v.String()))) > n {
				c.invalid(path, "is too long: at most %d characters are allowed", n)
			}
		})
	case "format":
		return elements(optional(format(argument)))
	case "eachVal":
		return ofMarker(argument)
	case "eachKey":
		_, name, _ := strings.Cut(argument, "=")
		return keyed(formats[name], nil)
	default:
		return nil
	}
}

// memberOf returns the field of a struct that has a name in JSON.
func memberOf(v reflect.Value, name string) reflect.Value {
	for _, f := range reflect.VisibleFields(v.Type()) {
		if of, _, _ := strings.Cut(f.Tag.Get("json"), ","); of == name {
			return v.FieldByIndex(f.Index)
		}
	}
	return reflect.Value{}
}

// differ returns a rule for a list: no two elements have the same values in all of these fields, and without fields none are the same.
func differ(keys []string) rule {
	return func(c *checker, path string, v reflect.Value) {
		first := map[string]int{}
		for i := range v.Len() {
			element, at := v.Index(i), strict.Element(path, i)
			var values []string
			for _, key := range keys {
				value := reflect.Indirect(memberOf(element, key))
				if value.IsValid() && !c.placeholder(strict.Member(at, key)) {
					values = append(values, fmt.Sprint(value))
				}
			}
			switch {
			case len(keys) == 0:
				values = append(values, fmt.Sprint(element))
			case len(values) < len(keys):
				continue
			default:
				at = strict.Member(at, keys[0])
			}
			text := strings.Join(values, ", ")
			if k, twice := first[text]; twice {
				shown := slices.DeleteFunc(values, func(v string) bool { return v == "" }) // which is the default
				c.invalid(at, "%s is given twice, first in %s", quoted(strings.Join(shown, ", ")), strict.Element(path, k))
				continue
			}
			first[text] = i
		}
	}
}

// one returns a rule for a struct: exactly one of these fields is set.
func one(fields []string) rule {
	return func(c *checker, path string, v reflect.Value) {
		n := 0
		for _, name := range fields {
			if field := memberOf(v, name); field.IsValid() && !field.IsZero() {
				n++
			}
		}
		if n != 1 {
			c.error(path, "exactly one of %s is required, found %d", strings.Join(fields, ", "), n)
		}
	}
}

// invalid reports a value, unless it stands for one that is not known yet.
func (c *checker) invalid(path, format string, args ...any) {
	if !c.placeholder(path) {
		c.error(path, format, args...)
	}
}

func (c *checker) error(path, format string, args ...any) {
	c.report(path, "", fmt.Sprintf(format, args...))
}

func (c *checker) placeholder(path string) bool {
	return c.isPlaceholder != nil && c.isPlaceholder(path) || slices.Contains(c.ignored, path)
}

// messages reports what is wrong with a text, in the words of the API server's library.
func (c *checker) messages(path, text string, messages []string) {
	for _, message := range messages {
		c.invalid(path, "%s: %s", quoted(text), message)
	}
}

func (c *checker) fewer(path string, n, most int) {
	if n > most {
		c.error(path, "has %d entries: at most %d are allowed", n, most)
	}
}

func quoted(text string) string {
	const most = 60
	return strconv.Quote(truncate.Runes(text, most))
}

// OneOf returns what is wrong with a word that must be one of these, and the hint. Nothing stands for the default.
func OneOf(word string, allowed ...string) (message, hint string) {
	if word == "" || slices.Contains(allowed, word) {
		return "", ""
	}
	list := make([]string, len(allowed))
	for i, a := range allowed {
		list[i] = strconv.Quote(a)
	}
	last := len(list) - 1
	choice := strings.Join(list[:last], ", ") + " or " + list[last]
	if last == 0 {
		choice = list[0]
	}
	return quoted(word) + " is invalid: must be " + choice, diagnostic.DidYouMean(word, allowed...)
}

// keyOrder walks a map in the order of its keys.
func keyOrder(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) }
