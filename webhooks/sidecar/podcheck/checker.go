// Package podcheck checks a partial pod against the rules of the API server
// (k8s.io/kubernetes/pkg/apis/core/validation) that the author of a profile is most
// likely to break. The API server has the last word.
//
// A value that a placeholder gives is not known before there is a pod. It is checked as
// far as no pod could make it valid.
package podcheck

import (
	"fmt"
	"maps"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/rules"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
)

// Checker checks what a template says about one pod against the rules of the API
// server, as far as they do not depend on the pod.
type Checker struct {
	// report takes each diagnostic.
	report func(severity diagnostic.Severity, path, hint, message string)
	// placeholders are the paths of texts with a placeholder.
	placeholders sets.Set[string]
	grace        *int64
	// Volumes and containers have the paths of the template's elements by name.
	Volumes, Containers map[string]string
	// blocks has the names of the template's volumes, and whether each can be a block
	// device, and claims those of its resourceClaims.
	blocks, claims map[string]bool
	// ports are those of the containers that run at the same time.
	ports podtext.PortIndex
}

// New returns a checker of a template with these placeholders.
func New(placeholders sets.Set[string], report func(severity diagnostic.Severity, path, hint, message string)) *Checker {
	return &Checker{
		report: report, placeholders: placeholders,
		Volumes: make(map[string]string), Containers: make(map[string]string), blocks: make(map[string]bool), claims: make(map[string]bool),
	}
}

func (c *Checker) error(path, hint, format string, args ...any) {
	c.report(diagnostic.Error, path, hint, fmt.Sprintf(format, args...))
}

func (c *Checker) warn(path, hint, format string, args ...any) {
	c.report(diagnostic.Warning, path, hint, fmt.Sprintf(format, args...))
}

// OneOf checks a word. Nothing stands for the default.
func OneOf[T ~string](c *Checker, path string, word T, allowed ...T) {
	words := make([]string, len(allowed))
	for i, a := range allowed {
		words[i] = string(a)
	}
	if message, hint := rules.OneOf(string(word), words...); message != "" {
		c.error(path, hint, "%s", message)
	}
}

// Selector checks a label selector.
func (c *Checker) Selector(path string, s *metav1.LabelSelector) { c.fields(path, reflect.ValueOf(s)) }

// fields applies the API server's rules to a value and everything below it.
func (c *Checker) fields(path string, v reflect.Value) {
	rules.Check(path, v, c.placeholder, func(path, hint, message string) { c.report(diagnostic.Error, path, hint, message) })
}

// name checks the name of a container or volume and notes it in taken, where
// the path of the first that has it stands.
func (c *Checker) name(path, name string, taken map[string]string) {
	if name == "" {
		return
	}
	if first, dup := taken[name]; dup {
		c.error(path, "", "%q is already the name of %s", name, first)
		return
	}
	taken[name] = strings.TrimSuffix(path, ".name")
}

// invalid reports a value that no pod may have. One that a placeholder gives is
// not known before there is a pod, and is not judged by what stands for it here.
func (c *Checker) invalid(path, format string, args ...any) {
	if !c.placeholder(path) {
		c.error(path, "", format, args...)
	}
}

// FindPlaceholders adds the paths of all texts with a placeholder in a value to a set.
func FindPlaceholders(set sets.Set[string], path string, v rawjson.Value) {
	if strings.Contains(strings.ReplaceAll(v.Text(), "$${", ""), "${") {
		set.Insert(path)
	}
	for name, value := range v.Members() {
		FindPlaceholders(set, path+"."+name.Text(), value)
	}
	for i, element := range v.Elements() {
		FindPlaceholders(set, Indexed(path, i), element)
	}
}

// placeholder reports whether the profile has a placeholder at the path of a field.
func (c *Checker) placeholder(path string) bool { return c.placeholders.Has(path) }

// Indexed returns the path of an element of a list.
func Indexed(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// AdditionRules are containerRules without the lists of which checks of their
// own find what is in them twice.
//
//nolint:gochecknoglobals // a table that nobody changes
var AdditionRules = func() *merge.Rule {
	fields := maps.Clone(merge.ContainerRules.Fields)
	for _, name := range [...]string{"env", "volumeMounts", "volumeDevices"} {
		delete(fields, name)
	}
	return &merge.Rule{Fields: fields}
}()

// Repeated reports elements that a list has twice: whoever takes out one of the
// two does not know which, and the API server takes only the last of most.
func (c *Checker) Repeated(path string, v rawjson.Value, r *merge.Rule) {
	switch {
	case r == nil:
	case v.Kind() == rawjson.Object && !r.IsAtomic:
		for nameText, value := range v.Members() {
			name := nameText.Text()
			c.Repeated(path+"."+name, value, r.Field(name))
		}
	case v.Kind() == rawjson.Array && r.IsMergedList():
		first := make(map[string]string, v.Len())
		for i, element := range v.Elements() {
			at, key := Indexed(path, i), r.Identity(element)
			other, twice := first[key]
			switch {
			case !twice:
				first[key] = at
				c.Repeated(at, element, r)
			case r.IsSet:
				c.error(at, "remove one of the two", "is the same as %s", other)
			default:
				c.error(at, "remove one of the two", "has the same %s as %s", r.KeyNames(), other)
			}
		}
	}
}
