package value_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/cel/common"

	celvalue "github.com/gatehouse-dev/gatehouse/webhooks/cel/value"
)

var podType = celvalue.TypeOf(reflect.TypeFor[corev1.Pod]())

// typedPod returns a pod as the API server gives it to expressions, and its text.
func typedPod(t testing.TB, text string) (*corev1.Pod, string) {
	t.Helper()
	pod := new(corev1.Pod)
	must(t, json.Unmarshal([]byte(text), pod))
	written, err := json.Marshal(pod)
	must(t, err)
	return pod, string(written)
}

// TestTypedExpressions holds all expressions against the API server's values of
// typed objects.
func TestTypedExpressions(t *testing.T) {
	t.Parallel()
	pods := map[string]string{
		"small": `{"metadata":{"name":"web","labels":{"app":"web"}},"spec":{"containers":[{"name":"a","image":"i"}]}}`,
		"large": pod(3),
	}
	// The API server goes through a Go map at random.
	unordered := func(expression string) bool {
		return strings.Contains(expression, "exists") || strings.Contains(expression, ".all(k") || strings.Contains(expression, ".map(") || strings.Contains(expression, "transform") ||
			strings.Contains(expression, "filter")
	}
	compared := 0
	for _, group := range expressions {
		for _, expression := range group {
			if unordered(expression) {
				continue
			}
			p := programOf(t, expression)
			for _, a := range slices.Sorted(maps.Keys(pods)) {
				for _, b := range slices.Sorted(maps.Keys(pods)) {
					object, text := typedPod(t, pods[a])
					other, otherText := typedPod(t, pods[b])
					want := outcome(p, common.SchemalessTypedToVal(object), common.SchemalessTypedToVal(other))
					got := outcome(p, celvalue.Typed(parse(t, text), podType), celvalue.Typed(parse(t, otherText), podType))
					if named(got) != named(want) {
						t.Errorf("%s, of %s, other is %s:\n got %s\nwant %s", expression, a, b, got, want)
					}
					compared++
				}
			}
		}
	}
	if compared < 400 {
		t.Errorf("only %d were compared", compared)
	}
}

// named returns an outcome with the names of the API server's types in place of ours.
func named(outcome string) string {
	return strings.NewReplacer("*value.typedObject", "T", "*value.typedList", "T", "*common.reflectSchemalessTypedStruct", "T",
		"*common.reflectSchemalessTypedMap", "T", "*common.reflectSchemalessTypedList", "T").Replace(outcome)
}

// TestTypedEquality holds equality of structs, in each direction.
func TestTypedEquality(t *testing.T) {
	t.Parallel()
	const resources = `{"spec":{"containers":[{"name":"a","resources":{"limits":{"memory":LIMIT}}}]}}`
	with := func(limit string) string { return strings.Replace(resources, "LIMIT", limit, 1) }
	same, different := ref.Val(types.True), ref.Val(types.False)
	for name, c := range map[string]struct {
		a, b string
		want ref.Val // nil is an error
	}{
		"same text":                  {with(`"1Gi"`), with(`"1Gi"`), same},
		"other units":                {with(`"1Gi"`), with(`"1073741824"`), same},
		"other amount":               {with(`"1Gi"`), with(`"1G"`), different},
		"null for a list":            {`{"spec":{"containers":null}}`, `{"spec":{"containers":[]}}`, same},
		"what is empty":              {`{"metadata":{"labels":{}}}`, `{"metadata":{}}`, same},
		"a field of a later version": {`{"spec":{"later":1,"x":2}}`, `{"spec":{"later":2,"x":2}}`, different},
		"such a field in one":        {`{"spec":{"later":1}}`, `{"spec":{}}`, different},
		"such fields that are the same, in another order": {`{"spec":{"later":1,"x":2}}`, `{"spec":{"x":2,"later":1}}`, same},
		"text that does not fit":                          {`{"spec":{"containers":"x"}}`, `{"spec":{"containers":"y"}}`, different},
		"a huge exponent":                                 {with(`"1e999999999"`), with(`"1"`), nil},
		"as many digits":                                  {with(`"1"`), with(`"` + strings.Repeat("1", 1_000_000) + `"`), nil},
		"as a number":                                     {with(`1` + strings.Repeat("0", 200)), with(`"1"`), nil},
	} {
		a, b := celvalue.Typed(parse(t, c.a), podType), celvalue.Typed(parse(t, c.b), podType)
		for _, got := range []ref.Val{a.Equal(b), b.Equal(a)} {
			if c.want == nil && !types.IsError(got) || c.want != nil && got != c.want {
				t.Errorf("%s: got %v, want %v", name, got, c.want)
			}
		}
	}
}

// TestTypedNative holds what library functions get that ask for a Go value.
func TestTypedNative(t *testing.T) {
	t.Parallel()
	object, text := typedPod(t, `{"metadata":{"finalizers":["a","b"]},"spec":{"containers":[{"name":"a"}]}}`)
	mine, theirs := celvalue.Typed(parse(t, text), podType), common.SchemalessTypedToVal(object)
	at := func(v ref.Val, path ...string) ref.Val {
		for _, name := range path {
			v = v.(traits.Mapper).Get(types.String(name))
		}
		return v
	}
	for _, path := range [][]string{{"metadata", "finalizers"}, {"spec", "containers"}} {
		for _, to := range []reflect.Type{reflect.TypeFor[[]string](), reflect.TypeFor[[]any]()} {
			got, err := at(mine, path...).ConvertToNative(to)
			want, wantErr := at(theirs, path...).ConvertToNative(to)
			if err != nil || wantErr != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%v as %v: got %#v, %v, want %#v, %v", path, to, got, err, want, wantErr)
			}
		}
	}
	for _, v := range []ref.Val{mine, at(mine, "spec", "containers")} {
		if v.ConvertToType(v.Type()) != v || v.ConvertToType(types.TypeType).Equal(v.Type().(ref.Val)) != types.True || !types.IsError(v.ConvertToType(types.IntType)) {
			t.Errorf("%v converts to other types than map and list do", v.Type())
		}
	}
}

// TestTypedFields holds values whose Go type decides what they are.
func TestTypedFields(t *testing.T) {
	t.Parallel()
	type recursive struct {
		Float    float64              `json:"float"`
		Pointer  *float64             `json:"pointer,omitempty"`
		Integer  int64                `json:"integer"`
		Bytes    []byte               `json:"bytes"`
		Children map[string]recursive `json:"children,omitempty"`
		Any      *corev1.NodeSelector `json:"any,omitempty"`
		Lists    [][]float32          `json:"lists,omitempty"`
	}
	of := celvalue.TypeOf(reflect.TypeFor[recursive]())
	value := recursive{
		Float: 1, Pointer: new(2.0), Integer: 3, Bytes: []byte{1}, Lists: [][]float32{{1}, {2.5}},
		Children: map[string]recursive{"a \"quoted\" name": {Float: 4, Pointer: new(5.0)}, "b": {}},
	}
	text, err := json.Marshal(value)
	must(t, err)
	if got, want := show(celvalue.Typed(parse(t, string(text)), of)), show(common.SchemalessTypedToVal(&value)); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if celvalue.TypeOf(reflect.TypeFor[string]()) != nil || celvalue.TypeOf(reflect.TypeFor[[]byte]()) != nil {
		t.Error("a text has a type of its own")
	}
}
