package expression

import (
	"maps"
	"math"
	"slices"
	"strconv"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// ReadsOf returns what reads the values at the paths, each wholly.
func ReadsOf(paths ...[]string) *Reads {
	root := new(Reads)
	for _, path := range paths {
		at := part{{Reads: root, absent: isNone}}
		for _, step := range path {
			if step == EachElement {
				at = at.with(isEmptyList).element(exactly).with(isNone)
			} else {
				at = at.with(isEmptyObject).member(step, true)
			}
		}
		at.readWhole()
	}
	root.seal()
	return root
}

// Names reports whether the value at the path is read by its name, and not only as a part of a value that is read wholly.
func (r *Reads) Names(path ...string) bool {
	for _, step := range path {
		if r == nil || r.whole || r.each != nil {
			return false
		}
		r = r.members[step]
	}
	return r != nil
}

// IsWhole reports whether all of the object at the path is read.
func (r *Reads) IsWhole(path ...string) bool {
	for _, step := range path {
		if r == nil || r.whole || r.each != nil {
			break
		}
		r = r.members[step]
	}
	return r != nil && (r.whole || r.each != nil)
}

// AppendRead appends a text of what is read of an object, which is as rawjson.Value.Decode returns it: for two objects with the same
// text, the expression has the same result. What is not read has no influence on the text, nor has the order of members, the
// notation of numbers, or, where the expression does not see the difference, that an empty value is absent.
func (r *Reads) AppendRead(dst []byte, object any) []byte {
	if r == nil || r.isEmpty() {
		return append(dst, `{}`...)
	}
	return r.append(dst, object, true)
}

func (r *Reads) append(dst []byte, value any, present bool) []byte {
	members, isObject := value.(map[string]any)
	elements, isList := value.([]any)
	isEmpty := !present && !r.strict
	switch {
	case !r.whole && r.each == nil && (isObject || isEmpty):
		dst = append(dst, '{')
		for i, name := range r.names {
			if i > 0 {
				dst = append(dst, ',')
			}
			member, is := members[name]
			dst = r.members[name].append(append(rawjson.AppendString(dst, name), ':'), member, is)
		}
		return append(dst, '}')
	case !r.whole && len(r.members) == 0 && (isList || isEmpty):
		dst = append(dst, '[')
		for i, element := range elements {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = r.each.append(dst, element, true)
		}
		return append(dst, ']')
	case !present:
		return append(dst, '-')
	default:
		return appendCanonical(dst, value)
	}
}

// appendCanonical appends the JSON of a value with its members sorted.
func appendCanonical(dst []byte, value any) []byte {
	switch v := value.(type) {
	case map[string]any:
		dst = append(dst, '{')
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendCanonical(append(rawjson.AppendString(dst, name), ':'), v[name])
		}
		return append(dst, '}')
	case []any:
		dst = append(dst, '[')
		for i := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendCanonical(dst, v[i])
		}
		return append(dst, ']')
	case string:
		return rawjson.AppendString(dst, v)
	case bool:
		return strconv.AppendBool(dst, v)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case float64:
		// The API server writes 1.0 in a custom resource as 1.
		const exact = 1 << 53
		if v == math.Trunc(v) && math.Abs(v) <= exact {
			return strconv.AppendInt(dst, int64(v), 10)
		}
		return strconv.AppendFloat(dst, v, 'g', -1, 64)
	default:
		return append(dst, "null"...)
	}
}
