package value_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/gatehouse-dev/gatehouse/internal/race"
	celvalue "github.com/gatehouse-dev/gatehouse/webhooks/cel/value"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

func TestScalars(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, text string
		want       ref.Val
	}{
		{"text", `"a\u0062c"`, types.String("abc")},
		{"lone surrogate", `"\ud800"`, types.String("\uFFFD")},
		{"true", `true`, types.True},
		{"false", `false`, types.False},
		{"null", `null`, types.NullValue},
		{"absent", ``, types.NullValue},
		{"integer", `-7`, types.Int(-7)},
		{"largest integer", `9223372036854775807`, types.Int(9223372036854775807)},
		{"integer that does not fit", `9223372036854775808`, types.Double(9223372036854775808)},
		{"integer written as a fraction", `1.0`, types.Double(1)},
		{"integer written with an exponent", `1e2`, types.Double(100)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var v rawjson.Value
			if tc.text != "" {
				v = parse(t, tc.text)
			}
			if got := celvalue.Value(v); got != tc.want {
				t.Errorf("got %s, want %s", show(got), show(tc.want))
			}
		})
	}
}

// What cannot be read is an error as a whole, whatever an expression looks at.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	many := strings.Repeat(`"%d":0,`, 40)
	numbers := make([]any, 40)
	for i := range numbers {
		numbers[i] = i
	}
	many = fmt.Sprintf(many, numbers...)
	for _, tc := range []struct{ name, text, want string }{
		{"member twice", `{"a":1,"b":2,"a":1}`, `member "a" occurs twice in one object`},
		{"member twice, the second with an escape", `{"a":1,"b":2,"\u0061":1}`, `member "a" occurs twice in one object`},
		{"member twice, both with escapes", `{"\u0061":1,"\u00e9":2,"\u00E9":1}`, `member "é" occurs twice in one object`},
		{"member with a quote twice", `{"\"":1,"\u0022":2}`, `member "\"" occurs twice in one object`},
		{"empty name twice", `{"":1,"":2}`, `member "" occurs twice in one object`},
		{"member of many twice", `{` + many + `"17":1}`, `member "17" occurs twice in one object`},
		{"member of many twice, with an escape", `{` + many + `"\u0031\u0037":1}`, `member "17" occurs twice in one object`},
		{"inside", `{"ok":1,"deep":[{"x":{"a":1,"a":2}}]}`, `member "a" occurs twice in one object`},
		{"in an array", `[1,{"a":1,"a":2}]`, `member "a" occurs twice in one object`},
		{"behind an object with the name", `{"x":{"a":1},"a":1,"a":2}`, `member "a" occurs twice in one object`},
		{"number out of range", `{"ok":1,"n":[1e999]}`, `number "1e999" is out of range`},
		{"capital exponent", `[-1E999]`, `number "-1E999" is out of range`},
		{"long number out of range", `[` + strings.Repeat("9", 310) + `]`, `number "` + strings.Repeat("9", 40) + `" is out of range`},
		{"number out of range alone", `1e999`, `number "1e999" is out of range`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			v := parse(t, tc.text)
			value := celvalue.Value(v)
			err, ok := value.(*types.Err)
			if !ok {
				t.Fatalf("got %s, want an error", show(value))
			}
			if err.Error() != tc.want {
				t.Errorf("got %q, want %q", err, tc.want)
			}
			if _, decodeErr := v.Decode(); decodeErr == nil || decodeErr.Error() != tc.want {
				t.Errorf("Decode says %v, want %q", decodeErr, tc.want)
			}
			if _, ok := errors.AsType[*rawjson.DuplicateKeyError](err); ok != strings.HasPrefix(tc.want, "member") {
				t.Errorf("wraps a DuplicateKeyError: %t", ok)
			}
			for _, expression := range []string{`object`, `object.ok == 1`, `has(object.ok)`, `object == {}`, `{} == object`, `object.?ok.hasValue()`, `[object] == []`} {
				if got := outcome(programOf(t, expression), value, nil); !strings.HasPrefix(got, fmt.Sprintf("error %q", tc.want)) {
					t.Errorf("%s: got %s, want the error", expression, got)
				}
			}
		})
	}
}

// A name is no duplicate for being that of a member of another object.
func TestReadable(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"a":{"a":{"a":1}},"b":{"a":1}}`,
		`[{"a":1},{"a":1}]`,
		`{"a":"b","b":"a","ab":1,"A":1}`,
		`{"a":"a\":1,\"a","b":["a","a"]}`,
		`{"\u0061":1,"\\u0061":2}`,
		`[` + strings.Repeat("9", 308) + `,1e-999]`,
	} {
		if got, want := show(celvalue.Value(parse(t, text))), show(native(t, parse(t, text))); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

// natives are types to convert to, of which some fit some documents.
var natives = map[string]reflect.Type{
	"any":                reflect.TypeFor[any](),
	"an empty interface": reflect.TypeFor[empty](),
	"map":                reflect.TypeFor[map[string]any](),
	"map of any keys":    reflect.TypeFor[map[any]any](),
	"map of texts":       reflect.TypeFor[map[string]string](),
	"map of integers":    reflect.TypeFor[map[string]int64](),
	"slice":              reflect.TypeFor[[]any](),
	"slice of texts":     reflect.TypeFor[[]string](),
	"slice of integers":  reflect.TypeFor[[]int](),
	"slice of values":    reflect.TypeFor[[]ref.Val](),
	"struct":             reflect.TypeFor[struct{ Metadata map[string]any }](),
	"pointer to struct":  reflect.TypeFor[*struct{ Metadata map[string]any }](),
	"pointer to pointer": reflect.TypeFor[**struct{}](),
	"text":               reflect.TypeFor[string](),
	"integer":            reflect.TypeFor[int64](),
	"JSON value":         types.JSONValueType,
	"JSON struct":        types.JSONStructType,
	"JSON list":          types.JSONListType,
}

type empty any

func TestConvertToNative(t *testing.T) {
	t.Parallel()
	for name, text := range documents {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := parse(t, text)
			for to, kind := range natives {
				got, gotErr := celvalue.Value(v).ConvertToNative(kind)
				want, wantErr := native(t, v).ConvertToNative(kind)
				// Which of several members is complained about, is chance.
				if (gotErr != nil) != (wantErr != nil) || !anyOrder(decode(t, v)) && fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
					t.Errorf("to %s: got error %v, want %v", to, gotErr, wantErr)
				}
				if got, want := plain(got), plain(want); !reflect.DeepEqual(got, want) {
					t.Errorf("to %s: got %#v, want %#v", to, got, want)
				}
			}
			if got, want := celvalue.Value(v).Value(), native(t, v).Value(); !reflect.DeepEqual(got, want) {
				t.Errorf("Value: got %#v, want %#v", got, want)
			}
		})
	}
}

// plain makes protocol messages and CEL values comparable.
func plain(v any) any {
	switch v := v.(type) {
	case interface{ AsMap() map[string]any }:
		return fmt.Sprintf("%T", v) + fmt.Sprint(v.AsMap())
	case interface{ AsSlice() []any }:
		return fmt.Sprintf("%T", v) + fmt.Sprint(v.AsSlice()...)
	case interface{ AsInterface() any }:
		return fmt.Sprintf("%T", v) + fmt.Sprint(v.AsInterface())
	case []ref.Val:
		var shown []string
		for _, e := range v {
			shown = append(shown, show(e))
		}
		return shown
	default:
		return v
	}
}

// Who asks for an interface of cel-go gets the raw value itself.
func TestConvertToInterface(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, text string
		to         reflect.Type
	}{
		{"map to value", `{"a":1}`, reflect.TypeFor[ref.Val]()},
		{"map to map", `{"a":1}`, reflect.TypeFor[traits.Mapper]()},
		{"list to value", `[1]`, reflect.TypeFor[ref.Val]()},
		{"list to list", `[1]`, reflect.TypeFor[traits.Lister]()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			v := celvalue.Value(parse(t, tc.text))
			if got, err := v.ConvertToNative(tc.to); err != nil || got != any(v) {
				t.Errorf("got %v, %v; want the value itself", got, err)
			}
		})
	}
}

// What expressions have no way to ask for is the same too.
func TestTraits(t *testing.T) {
	t.Parallel()
	for name, text := range documents {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := parse(t, text)
			got, want := celvalue.Value(v), native(t, v)
			for _, to := range []ref.Type{types.MapType, types.ListType, types.TypeType, types.StringType, types.IntType, types.NullType} {
				if got, want := show(got.ConvertToType(to)), show(want.ConvertToType(to)); got != want {
					t.Errorf("to %s: got %s, want %s", to, got, want)
				}
			}
			if got.Type() != want.Type() {
				t.Errorf("type is %s, want %s", got.Type(), want.Type())
			}
			zero, ok := want.(traits.Zeroer)
			if raw, rawOK := got.(traits.Zeroer); ok != rawOK || ok && zero.IsZeroValue() != raw.IsZeroValue() {
				t.Errorf("zero value: got %v, want %v", raw, zero)
			}
			if indexer, ok := want.(traits.Indexer); ok {
				for _, key := range []ref.Val{types.String("nothing"), types.String("s"), types.Int(0), types.Int(-1), types.Int(1000), types.Uint(1 << 63), types.Double(0.5), types.NullValue, types.NewErr("broken")} {
					if got, want := show(got.(traits.Indexer).Get(key)), show(indexer.Get(key)); got != want {
						t.Errorf("[%v]: got %s, want %s", key, got, want)
					}
				}
			}
			if adder, ok := want.(traits.Adder); ok && want.Type() == types.ListType {
				for _, other := range []ref.Val{types.String("x"), types.NewErr("broken"), types.NewRefValList(types.DefaultTypeAdapter, nil)} {
					sum := got.(traits.Adder).Add(other)
					if got, want := show(sum), show(adder.Add(other)); got != want {
						t.Errorf("+ %v: got %s, want %s", other, got, want)
					}
					if got, want := fmt.Sprintf("%T", sum.Value()), fmt.Sprintf("%T", adder.Add(other).Value()); got != want {
						t.Errorf("+ %v: the native value is %s, want %s", other, got, want)
					}
				}
			}
		})
	}
}

func TestEqual(t *testing.T) {
	t.Parallel()
	texts := []string{
		`{}`, `[]`, `null`, `{"a":null}`, `{"b":null}`, `{"a":1}`, `{"a":2}`, `{"a":1.0}`, `{ "a" : 1 }`, `{"\u0061":1}`, `{"a":1,"b":2}`, `{"b":2,"a":1}`, `{"a":{"b":[1,2]}}`, `{"a":{"b":[1,3]}}`,
		`[1]`, `[2]`, `[1.0]`, `[ 1 ]`, `[null]`, `[{}]`, `[[]]`, `[1,2]`, `[2,1]`, `["1"]`, `[{"a":[1]}]`, `[{"a":[2]}]`, `[{"a":[1.0]}]`, `["é"]`, `["\u00e9"]`,
	}
	for _, a := range texts {
		for _, b := range texts {
			a, b := parse(t, a), parse(t, b)
			want := types.Equal(native(t, a), native(t, b))
			for name, got := range map[string]ref.Val{
				"raw and raw":     types.Equal(celvalue.Value(a), celvalue.Value(b)),
				"raw and decoded": types.Equal(celvalue.Value(a), native(t, b)),
				"decoded and raw": types.Equal(native(t, a), celvalue.Value(b)),
			} {
				if got != want {
					t.Errorf("%s: %s == %s is %v, want %v", name, a, b, got, want)
				}
			}
		}
	}
}

// For people, a value looks as cel-go's own. A Go map has no order, so there is
// one member.
func TestString(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{}`, `{"a":{"b":[1,"x",null,{"c":1.5}]}}`, `[]`, `[1,"x",null,{"c":[true]}]`} {
		v := parse(t, text)
		if got, want := fmt.Sprint(celvalue.Value(v)), fmt.Sprint(native(t, v)); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
		if got, want := types.Format(celvalue.Value(v)), types.Format(native(t, v)); got != want {
			t.Errorf("%s: formatted as %s, want %s", text, got, want)
		}
	}
}

// Members come in the order written, each time.
func TestOrder(t *testing.T) {
	t.Parallel()
	v := celvalue.Value(parse(t, `{"z":1,"a":2,"m":{"y":1,"b":2},"\u0062":3}`))
	for range 2 {
		if got, want := outcome(programOf(t, `object.map(k, k)`), v, nil), `list[string "z", string "a", string "m", string "b"], cost 54`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got, want := outcome(programOf(t, `object.transformList(k, v, k)`), v, nil), `list[string "z", string "a", string "m", string "b"], cost 54`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// An iterator is a value in form only.
func TestIterator(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"a":1}`, `[1]`} {
		it := celvalue.Value(parse(t, text)).(traits.Iterable).Iterator()
		if it.Next() == nil || it.HasNext() != types.False || it.Next() != nil {
			t.Errorf("%s: does not end behind the only element", text)
		}
		if _, err := it.ConvertToNative(reflect.TypeFor[any]()); err == nil {
			t.Errorf("%s: the iterator has a native form", text)
		}
		if !types.IsError(it.ConvertToType(types.StringType)) || !types.IsError(it.Equal(types.True)) || it.Type() != types.IteratorType || it.Value() != nil {
			t.Errorf("%s: the iterator is a value", text)
		}
	}
}

// What a reader does to its own form of a value, nobody else sees.
func TestValueIsOwn(t *testing.T) {
	t.Parallel()
	v := celvalue.Value(parse(t, `{"a":{"b":1}}`))
	tree, ok := v.Value().(map[string]any)
	if !ok {
		t.Fatalf("got %T", v.Value())
	}
	tree["a"] = nil
	if got, want := outcome(programOf(t, `object.a.b`), v, nil), "int 1, cost 3"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// What was read of a released value stays, and nothing more can be read: the memory may be that of another text by then.
func TestRelease(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"a":"x","b":["y"]}`, `[{"a":"x"},"y"]`} {
		for name, make := range map[string]func(rawjson.Value) ref.Val{
			"untyped": celvalue.Value,
			"typed": func(v rawjson.Value) ref.Val {
				return celvalue.Typed(v, celvalue.TypeOf(reflect.TypeFor[map[string]any]()))
			},
		} {
			value := make(parse(t, text))
			var first ref.Val = types.String("a")
			if _, isList := value.(traits.Lister); isList {
				first = types.Int(0)
			}
			inner := value.(traits.Indexer).Get(first)
			celvalue.Release(value)
			celvalue.Release(value)
			celvalue.Value(parse(t, `{"other":{"text":"of another request"}}`))
			if inner.Type() == types.StringType && inner != types.String("x") {
				t.Errorf("%s %s: what was read is %v", name, text, inner)
			}
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s %s: it can be read", name, text)
					}
				}()
				if got := value.(traits.Container).Contains(types.String("text")); got != types.False {
					t.Errorf("%s %s: %v", name, text, got)
				}
			}()
		}
	}
}

// An evaluation notes its place in an error that has none: those that are shared
// have one.
func TestErrorIsNotWrittenTo(t *testing.T) {
	t.Parallel()
	err, ok := celvalue.Value(parse(t, `{"a":1,"a":2}`)).(*types.Err)
	if !ok {
		t.Fatal("no error")
	}
	before := err.NodeID()
	if got := outcome(programOf(t, `object.a`), err, nil); !strings.HasPrefix(got, "error") {
		t.Errorf("got %s", got)
	}
	if after := err.NodeID(); after != before {
		t.Errorf("place was %d, is %d", before, after)
	}
}

// Each text is decoded once: a long one, read again and again in a comprehension,
// would otherwise take the product of both.
func TestReadOnce(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		key        ref.Val
	}{
		{"member", `{"a":"a text","b":[]}`, types.String("a")},
		{"object in a list", `[0,{"a":1}]`, types.Int(1)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			value := celvalue.Value(parse(t, tc.text)).(traits.Indexer)
			if got := testing.AllocsPerRun(10, func() { value.Get(tc.key) }); got != 0 {
				t.Errorf("reading again allocates %v times", got)
			}
		})
	}
}

// Walking through members again, or adding to a list again, allocates no more
// than it does with the decoded value.
func TestAllocations(t *testing.T) {
	walk := func(v ref.Val) {
		for it := v.(traits.Iterable).Iterator(); it.HasNext() == types.True; {
			it.Next()
		}
	}
	add := func(v ref.Val) { v.(traits.Adder).Add(v) }
	for _, tc := range []struct {
		name, text string
		do         func(ref.Val)
	}{
		{"names", `{"a":"a text","b":[]}`, walk},
		{"elements", `["a text",[],{"a":1}]`, walk},
		{"sum", `["a text",[],{"a":1}]`, add},
	} {
		t.Run(tc.name, func(t *testing.T) {
			raw, decoded := celvalue.Value(parse(t, tc.text)), native(t, parse(t, tc.text))
			got := testing.AllocsPerRun(100, func() { tc.do(raw) })
			if most := testing.AllocsPerRun(100, func() { tc.do(decoded) }); got > most {
				t.Errorf("%v allocations, %v with the decoded value", got, most)
			}
		})
	}
}

// A selection leaves alone what it passes by: the number of allocations does not
// grow with the document, but for the list of what has been seen of it.
func TestSelectionDecodesNothingElse(t *testing.T) {
	allocations := func(containers int) float64 {
		text := parse(t, pod(containers))
		return testing.AllocsPerRun(20, func() {
			value := celvalue.Value(text)
			for _, name := range []string{"metadata", "labels", "team"} {
				value = value.(traits.Indexer).Get(types.String(name))
			}
			if value != types.String("checkout") {
				t.Error(show(value))
			}
		})
	}
	if small, large := allocations(1), allocations(100); large > small+2 {
		t.Errorf("%v allocations for one container, %v for 100", small, large)
	}
}

// Nesting costs nothing but its text: if each level were read anew on the way to
// the innermost, this would take minutes.
func TestDeepNesting(t *testing.T) {
	t.Parallel()
	nested := func(open, last string) rawjson.Value {
		const depth = rawjson.MaxDepth - 2
		return parse(t, strings.Repeat(open, depth)+`[`+strings.Repeat(`{"x":1},`, race.Cases(200_000))+last+`]`+strings.Repeat(`}`, depth))
	}
	text := nested(`{"a":`, `1`)
	for _, tc := range []struct {
		name  string
		other ref.Val
		want  types.Bool
	}{
		{"the same", celvalue.Value(text), true},
		{"one with spaces", celvalue.Value(nested(`{"a": `, `1`)), true},
		{"the decoded", native(t, text), true},
		{"one that ends differently", celvalue.Value(nested(`{"a":`, `2`)), false},
	} {
		if got := celvalue.Value(text).Equal(tc.other); got != tc.want {
			t.Errorf("%s: equal is %v, want %v", tc.name, got, tc.want)
		}
	}
}

// Nor does it matter how many members there are: if names were looked for one
// after the other, this would take minutes.
func TestManyMembers(t *testing.T) {
	t.Parallel()
	object := func(space string) rawjson.Value {
		var b strings.Builder
		for i := range race.Cases(100_000) {
			fmt.Fprintf(&b, `,"name-%06d":%s%d`, i, space, i)
		}
		return parse(t, "{"+b.String()[1:]+"}")
	}
	if a, b := celvalue.Value(object("")), celvalue.Value(object(" ")); a.Equal(b) != types.True {
		t.Error("not equal")
	}
}

// TestDuplicateNames has names that occur twice, in whatever way they are written, among few and among many.
func TestDuplicateNames(t *testing.T) {
	t.Parallel()
	many := make([]string, 100)
	for i := range many {
		many[i] = fmt.Sprintf(`"n%d":%d`, i, i)
	}
	for _, tc := range []struct {
		name, members string
		want          bool
	}{
		{"different", `"a":1,"b":2`, false},
		{"same", `"a":1,"b":2,"a":3`, true},
		{"quotes", `"k:{\"a\"}":1,"k:{\"b\"}":2`, false},
		{"same quotes", `"k:{\"a\"}":1,"b":2,"k:{\"a\"}":2`, true},
		{"quote in another way", `"k\"":1,"k\u0022":2`, true},
		{"letter in another way", `"a":1,"\u0061":2`, true},
		{"slash in another way", `"a\/b":1,"a/b":2`, true},
		{"backslash and u", `"\\u0061":1,"a":2`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, text := range []string{"{" + tc.members + "}", "{" + tc.members + "," + strings.Join(many, ",") + "}", "{" + strings.Join(many, ",") + "," + tc.members + "}"} {
				value, err := rawjson.Parse([]byte(text))
				if err != nil {
					t.Fatal(err)
				}
				got := celvalue.Value(value)
				if _, failed := got.(*types.Err); failed != tc.want {
					t.Errorf("%.60s: got %v", text, got)
				}
			}
		})
	}
}
