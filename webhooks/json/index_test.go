package json_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// indexed compares an Index of a text with what Decode makes of it, and its errors with Decode's.
func indexed(t *testing.T, v rawjson.Value) {
	t.Helper()
	want, wantErr := v.Decode()
	var x rawjson.Index
	err := x.Read(v)
	if (err != nil) != (wantErr != nil) { // of several errors, another one may be the first to be found
		t.Fatalf("Read(%q) = %v, Decode %v", v, err, wantErr)
	}
	if err != nil {
		return
	}
	got, next := tree(&x, 0)
	if !reflect.DeepEqual(got, want) || next != int32(len(x.Nodes)) {
		t.Fatalf("the nodes of %q are %#v, want %#v", v, got, want)
	}
}

// tree builds a value of its nodes, and returns the number of the node behind it.
func tree(x *rawjson.Index, number int32) (value any, next int32) {
	n := &x.Nodes[number]
	text := x.Part(n.Span)
	kind := text.Kind()
	next = number + 1
	switch kind {
	case rawjson.Object:
		object := map[string]any{}
		escaped := false
		for range n.Size {
			name := x.Part(x.Nodes[next].Name)
			escaped = escaped || strings.Contains(string(name), `\`)
			object[name.Text()], next = tree(x, next)
		}
		if escaped != n.Escaped || next != n.Next {
			return fmt.Sprintf("object with escapes: %t, %t; next: %d, %d", escaped, n.Escaped, next, n.Next), next
		}
		return object, next
	case rawjson.Array:
		array := make([]any, n.Size)
		for i := range array {
			array[i], next = tree(x, next)
		}
		return array, next
	default:
		value, _ = text.Decode()
		return value, n.Next
	}
}

// walkIndexed compares what a Cursor of an Index reads of a text, in another one around it, with what Decode makes of it.
func walkIndexed(t *testing.T, v rawjson.Value, want any) {
	t.Helper()
	around := slices.Concat([]byte(`{"other":["x"],"in":{"that":0,"this":`), v, []byte(`},"end":[1]}`))
	var x rawjson.Index
	if err := x.Read(around); err != nil {
		return // nested too deeply
	}
	this := around.Get("in", "this")
	node, ok := x.Find(this, "in")
	if !ok {
		t.Fatalf("%q is not found", v)
	}
	c := x.Cursor(node)
	walkOnce(t, &c, want)
	if c.At() != len(v) {
		t.Fatalf("the Cursor of the Index ends at byte %d of %q", c.At(), v)
	}
	for _, other := range []rawjson.Value{nil, v, around.Get("end")} {
		if _, ok := x.Find(other, "in"); ok {
			t.Fatalf("%q is found, which is no member", other)
		}
	}
}

func TestIndexMember(t *testing.T) {
	t.Parallel()
	var x rawjson.Index
	for range 2 { // its memory is used again
		if err := x.Read([]byte(`{"a":[{"b":0}],"b":{"a":{"c":"first"}},"c":"second","":1}`)); err != nil {
			t.Fatal(err)
		}
		root, ok := x.Root()
		if !ok {
			t.Fatal("it is empty")
		}
		b, _ := x.Member(root, "b")
		a, _ := x.Member(b, "a")
		for _, tc := range []struct {
			of         int32
			name, want string
		}{
			{root, "c", `"second"`},
			{a, "c", `"first"`},
			{root, "", "1"},
			{b, "b", "none"},
			{root, "d", "none"},
			{root + 1, "b", "none"}, // an array
		} {
			got := "none"
			if node, found := x.Member(tc.of, tc.name); found {
				got = string(x.Part(x.Nodes[node].Span))
			}
			if got != tc.want {
				t.Errorf("member %q of %d is %s, want %s", tc.name, tc.of, got, tc.want)
			}
		}
		x.Forget()
		if _, ok := x.Root(); ok {
			t.Error("it is not empty after Forget")
		}
	}
}

// TestOutlineIndex holds that an Index of Outline takes no more memory than was announced, whatever the text is, and
// is empty if it cannot have all of it, whatever it had before.
func TestOutlineIndex(t *testing.T) {
	t.Parallel()
	names := &strings.Builder{}
	for i := range 8000 {
		fmt.Fprintf(names, `"name-%d":%d,`, i, i)
	}
	var used rawjson.Index
	for _, tc := range []struct {
		name, text string
		want       bool
	}{
		{"an object", `{"a":[1,2,{"b":"c"}]}`, true},
		{"many values", `[` + strings.Repeat(`"a long enough text",`, 32_000) + `1]`, true},
		{"too many values", `[` + strings.Repeat(`"a long enough text",`, 33_000) + `1]`, false},
		{"many names", `{` + names.String() + `"a":1}`, true},
		{"short values", `[` + strings.Repeat(`1,`, 100_000) + `1]`, false},
		{"deep", strings.Repeat("[", 64) + strings.Repeat("]", 64), true},
		{"too deep", strings.Repeat(`[`, 5000) + strings.Repeat("]", 5000), false},
		{"a member twice", `{"a":1,"b":{"c":1,"c":2}}`, false},
		{"a member twice, once with an escape", `{"a":1,"\u0061":2}`, false},
		{"a member twice, with an escape", `{"a\"b":1,"c":{},"a\"b":2}`, false},
		{"a member twice, not in ASCII", `{"é":1,"c":{},"é":2}`, false},
		{"a member twice, behind an escape", `{"a":1,"\u0062":{},"a":2}`, false},
		{"a member twice among many", `{` + names.String() + `"name-7000":1}`, false},
		{"a member of each of two objects", `{"a":{"b":1},"b":{"a":1,"c":[{"b":1},{"b":1}]}}`, true},
		{"a number out of range", `[1e999]`, false},
		{"a number with an exponent", `[1e99]`, true},
		{"a long number", `[` + strings.Repeat("1", 300) + `]`, true},
		{"a number that takes memory to decode", `[0.` + strings.Repeat("1", 1_000_000) + `]`, false},
		{"names that take memory to decode", `{"\u0061` + strings.Repeat("b", 1_000_000) + `":1,"c":{}}`, false},
		{"no JSON", `{"a":[1,2,}`, false},
		{"many names with escapes", `{` + strings.ReplaceAll(names.String(), "name", `\u006eame`) + `"a":1}`, false},
		{"many names with escapes, and others", `{"a":{` + strings.ReplaceAll(names.String(), "name", `\u006eame`) + `"a":1},"b":[{"c":[]}]}`, false},
		{"some names with escapes", `{` + strings.ReplaceAll(strings.Join(strings.SplitAfter(names.String(), ",")[:100], ""), "name", `\u006eame`) + `"a":1}`, true},
	} {
		for which, x := range map[string]*rawjson.Index{"a new": {}, "a used": &used} {
			_, _, err := rawjson.Outline(make([]rawjson.Member, 0, 10_000), []byte(tc.text), 1, x)
			if (err != nil) != (tc.name == "no JSON") {
				t.Errorf("%s: %v", tc.name, err)
			}
			if _, ok := x.Root(); ok != tc.want {
				t.Errorf("%s: %s Index is filled: %t, want %t", tc.name, which, ok, tc.want)
			}
			if nodes := int64(cap(x.Nodes)) * int64(unsafe.Sizeof(rawjson.Node{})); x.Bytes() < nodes {
				t.Errorf("%s: Bytes is %d, and the nodes alone have %d", tc.name, x.Bytes(), nodes)
			}
			if announced := rawjson.OutlineBytes(len(tc.text)); x != &used && x.Bytes() > announced {
				t.Errorf("%s: it has %d bytes, announced %d", tc.name, x.Bytes(), announced)
			}
		}
	}
}
