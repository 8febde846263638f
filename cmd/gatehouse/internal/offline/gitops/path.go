// Package gitops finds the fields of an object that admission has changed, and writes the rules by which Argo CD and Flux ignore these
// fields when they compare the object with its manifest.
package gitops

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-openapi/jsonpointer"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// Path is the path of a field or of an element of a list.
type Path []step

// step is a member of an object, or an element of a list.
type step struct {
	// member is the name of the member, for an element "".
	member string
	// isElement reports whether this is the element whose member key has a value, or which is this value itself, without a key.
	isElement  bool
	key, value string
	// index is the place of the element in the list on both sides, -1 if it has no such place.
	index int
}

// JQ returns the path as an expression of jq, which selects elements by their names.
func (p Path) JQ() string {
	var out strings.Builder
	for i := range p {
		switch s := &p[i]; {
		case s.isElement:
			operand := "."
			if s.key != "" {
				operand = "." + s.key
			}
			out.WriteString("[]? | select(" + operand + " == " + quote(s.value) + ")")
		default:
			isFirst := i == 0 || p[i-1].isElement
			if i > 0 && isFirst {
				out.WriteString(" | ")
			}
			if isPlain := plainName.MatchString(s.member); isPlain || isFirst {
				out.WriteByte('.')
				if isPlain {
					out.WriteString(s.member)
					continue
				}
			}
			out.WriteString("[" + quote(s.member) + "]")
		}
	}
	return out.String()
}

// plainName matches the names that jq takes without quotes.
var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// quote returns a string of jq. Those of JSON have no interpolation, whose backslash JSON doubles.
func quote(text string) string { return string(rawjson.AppendString(nil, text)) }

// Pointer returns the path as a JSON pointer, and false if an element has no place that is the same on both sides.
func (p Path) Pointer() (string, bool) {
	var out strings.Builder
	for i := range p {
		switch s := &p[i]; {
		case !s.isElement:
			out.WriteString("/" + jsonpointer.Escape(s.member))
		case s.index < 0:
			return "", false
		default:
			out.WriteString("/" + strconv.Itoa(s.index))
		}
	}
	return out.String(), true
}

// hasElement reports whether the path passes an element of a list.
func (p Path) hasElement() bool {
	return slices.ContainsFunc(p, func(s step) bool { return s.isElement })
}

// Differences returns the fields in which two forms of an object differ, given as JSON: without them, both are equal. A field that only one
// side has is one path, but for labels and annotations, of which others add some too. The elements of a list are told apart by their names.
// A list whose elements have no names, or another order, is one path. Paths are sorted so that pointers can be removed one after the other.
func Differences(before, after []byte) ([]Path, error) {
	var forms [2]map[string]any
	for i, text := range [][]byte{before, after} {
		if err := utiljson.Unmarshal(text, &forms[i]); err != nil {
			return nil, fmt.Errorf("object: %w", err)
		}
	}
	var out []Path
	members(&out, nil, forms[0], forms[1])
	return out, nil
}

// with returns a path with another step, which shares nothing with others.
func (p Path) with(s step) Path { return append(slices.Clip(p), s) }

// members appends the paths of the members in which two objects differ.
func members(out *[]Path, at Path, before, after map[string]any) {
	names := maps.Clone(before)
	if names == nil {
		names = map[string]any{}
	}
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		old, was := before[name]
		value, is := after[name]
		path := at.with(step{member: name})
		oldMap, oldIsMap := old.(map[string]any)
		valueMap, valueIsMap := value.(map[string]any)
		oldList, oldIsList := old.([]any)
		valueList, valueIsList := value.([]any)
		switch {
		case was && is && reflect.DeepEqual(old, value):
		case oldIsMap && valueIsMap, isShared(path) && (!was || oldIsMap) && (!is || valueIsMap):
			members(out, path, oldMap, valueMap)
		case oldIsList && valueIsList:
			elements(out, path, oldList, valueList)
		default:
			*out = append(*out, path)
		}
	}
}

// isShared reports whether a path is that of the labels or annotations of an object.
func isShared(p Path) bool {
	const depth = 2
	return len(p) == depth && p[0].member == "metadata" && (p[1].member == "labels" || p[1].member == "annotations")
}

// elements appends the paths of the elements in which two lists differ, or that of the list.
func elements(out *[]Path, at Path, before, after []any) {
	key, known := identity(before, after)
	lists := [2][]any{before, after}
	var names, common [2][]string
	var places [2]map[string]int
	for side := range lists {
		names[side], places[side] = namesOf(lists[side], key), map[string]int{}
		for i, name := range names[side] {
			places[side][name] = i
		}
	}
	for side := range lists {
		for _, name := range names[side] {
			if _, ok := places[1-side][name]; ok {
				common[side] = append(common[side], name)
			}
		}
	}
	if !known || !slices.Equal(common[0], common[1]) {
		*out = append(*out, at)
		return
	}
	// Elements have the same index on both sides if those of both are the first ones.
	n := len(common[0])
	isPrefix := slices.Equal(common[0], names[0][:n]) && slices.Equal(common[0], names[1][:n])
	path := func(name string, index int) Path {
		if !isPrefix {
			index = -1
		}
		return at.with(step{isElement: true, key: key, value: name, index: index})
	}
	for i, name := range common[0] {
		old, _ := before[places[0][name]].(map[string]any)
		next, _ := after[places[1][name]].(map[string]any)
		members(out, path(name, i), old, next)
	}
	for i := max(len(before), len(after)) - 1; i >= 0; i-- { // the last one first, because a removal moves those behind it
		for side, list := range names {
			if i >= len(list) {
				continue
			}
			if _, ok := places[1-side][list[i]]; !ok {
				*out = append(*out, path(list[i], i))
			}
		}
	}
}

// identity returns the member by whose values the elements of two lists can be told apart, "" for strings, which are their own names, and
// false if there is none.
func identity(lists ...[]any) (key string, known bool) {
	for _, key = range []string{"", "name", "mountPath", "devicePath", "ip", "key", "topologyKey"} {
		if !slices.ContainsFunc(lists, func(list []any) bool { return !isUnique(namesOf(list, key), len(list)) }) {
			return key, true
		}
	}
	return "", false
}

// isUnique reports whether so many names are there, each once.
func isUnique(names []string, size int) bool {
	sorted := slices.Sorted(slices.Values(names))
	return len(names) == size && len(slices.Compact(sorted)) == size
}

// namesOf returns the values of a member of the elements of a list, or the elements that are strings for "".
func namesOf(list []any, key string) (names []string) {
	for _, element := range list {
		if object, ok := element.(map[string]any); ok && key != "" {
			element = object[key]
		} else if ok || key != "" {
			continue
		}
		if name, ok := element.(string); ok {
			names = append(names, name)
		}
	}
	return names
}
