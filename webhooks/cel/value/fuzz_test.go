package value_test

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"testing"

	"github.com/google/cel-go/common/types"

	celvalue "github.com/gatehouse-dev/gatehouse/webhooks/cel/value"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// FuzzValue holds that a text is an error if and only if it cannot be decoded,
// and that otherwise nothing tells the raw value from the decoded one.
func FuzzValue(f *testing.F) {
	for _, text := range slices.Sorted(maps.Values(documents)) {
		f.Add([]byte(text))
	}
	for _, text := range []string{
		`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `[1e999]`, `[{"a":[{"b":1,"b":2}]}]`, `[[],[[]],{"":{}}]`, ` [ ] `, `{ "a" : [ { } , 1 ] }`, `["\\",{"\\\"":"]"}]`,
	} {
		f.Add([]byte(text))
	}
	list := slices.Sorted(func(yield func(string) bool) {
		for _, group := range expressions {
			for _, expression := range group {
				if !yield(expression) {
					return
				}
			}
		}
	})
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := rawjson.Parse(data)
		if err != nil {
			return
		}
		value := celvalue.Value(v)
		decoded, err := v.Decode()
		if failed := types.IsError(value); failed != (err != nil) {
			t.Fatalf("%s: got %s, Decode says %v", data, show(value), err)
		} else if failed {
			return
		}
		measure := types.DefaultTypeAdapter.NativeToValue(decoded)
		if got, want := show(value), show(measure); got != want {
			t.Fatalf("%s:\n got %s\nwant %s", data, got, want)
		}
		if !reflect.DeepEqual(value.Value(), measure.Value()) {
			t.Fatalf("%s: the native value is %#v", data, value.Value())
		}
		if types.Equal(value, measure) != types.True || types.Equal(measure, value) != types.True || types.Equal(value, celvalue.Value(v)) != types.True {
			t.Fatalf("%s: not equal", data)
		}
		ordered := !anyOrder(decoded)
		for _, expression := range list {
			if !ordered && walksThrough.MatchString(expression) {
				continue
			}
			p := programOf(t, expression)
			want := outcome(p, measure, measure)
			for _, objects := range [][2]any{{value, value}, {value, measure}, {measure, value}} {
				got := outcome(p, objects[0], objects[1])
				if got = goTypeName.ReplaceAllString(got, "*type"); got != goTypeName.ReplaceAllString(want, "*type") {
					t.Fatalf("%s of %s:\n got %s\nwant %s", expression, data, got, want)
				}
			}
		}
	})
}

// walksThrough matches expressions that show the order of members: if they walk
// through an object of several, what comes out of the decoded one differs from
// run to run.
var walksThrough = regexp.MustCompile(`\.(all|exists|exists_one|existsOne|map|filter|sortBy|transform\w+)\(|sum\(|min\(|max\(|isSorted\(`)

// goTypeName is how a message names the Go type of a value, which differs.
var goTypeName = regexp.MustCompile(`\*(value|types)\.[A-Za-z]+`)

// anyOrder reports whether there is an object of several members.
func anyOrder(tree any) bool {
	switch v := tree.(type) {
	case map[string]any:
		if len(v) > 1 {
			return true
		}
		for _, member := range v {
			if anyOrder(member) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, anyOrder)
	}
	return false
}
