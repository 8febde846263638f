package json_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	kjson "sigs.k8s.io/json"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, text string
		offset     int
	}{
		{"nothing", "", 0},
		{"only space", " \n", 2},
		{"cut in an object", `{"a":1`, 6},
		{"cut in a key", `{"a`, 3},
		{"cut before a colon", `{"a"`, 4},
		{"cut before a value", `{"a":`, 5},
		{"cut in an array", `[1,`, 3},
		{"cut in a word", `tru`, 0},
		{"cut in an escape", `"\`, 2},
		{"cut in a hexadecimal escape", `"\u00`, 5},
		{"two values", `{} {}`, 3},
		{"trailing comma in an object", `{"a":1,}`, 7},
		{"trailing comma in an array", `[1,]`, 3},
		{"leading comma", `[,1]`, 1},
		{"bare name", `{a:1}`, 1},
		{"wrong closer", `{"a":[1}`, 7},
		{"closer alone", `]`, 0},
		{"single quotes", `'a'`, 0},
		{"comment", `{} // no`, 3},
		{"leading zero", `01`, 1},
		{"plus", `+1`, 0},
		{"minus alone", `-`, 1},
		{"point without digits", `1.`, 2},
		{"exponent without digits", `1e+`, 3},
		{"not a number", `NaN`, 0},
		{"line feed in a string", "\"a\nb\"", 2},
		{"NUL in a long string", "\"abcdefghijklmnop\x00\"", 17},
		{"unknown escape", `"\x41"`, 2},
		{"bad hexadecimal escape", `"\u00g0"`, 5},
		{"invalid UTF-8", "\"ab\xff\"", 3},
		{"overlong UTF-8", "\"\xc0\x80\"", 1},
		{"surrogate in UTF-8", "\"\xed\xa0\x80\"", 1},
		{"byte order mark", "\xef\xbb\xbf{}", 0},
		{"nested one too deep", strings.Repeat("[", rawjson.MaxDepth+1), rawjson.MaxDepth},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := rawjson.Parse([]byte(tc.text))
			var syntax *rawjson.SyntaxError
			if !errors.As(err, &syntax) {
				t.Fatalf("Parse(%q) = %v, want a SyntaxError", tc.text, err)
			}
			if syntax.Offset != tc.offset {
				t.Errorf("Parse(%q) = %v, want byte %d", tc.text, err, tc.offset)
			}
		})
	}
}

func TestParseAcceptsTheDeepestNesting(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		strings.Repeat("[", rawjson.MaxDepth) + strings.Repeat("]", rawjson.MaxDepth),
		strings.Repeat(`{"":`, rawjson.MaxDepth) + "1" + strings.Repeat("}", rawjson.MaxDepth),
	} {
		v, err := rawjson.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v.Decode(); err != nil {
			t.Error(err)
		}
	}
}

// TestEveryByteInAString puts every byte at every place of the words in which
// strings are read.
func TestEveryByteInAString(t *testing.T) {
	t.Parallel()
	for length := 1; length <= 17; length++ {
		for at := range length {
			for b := range 256 {
				inner := bytes.Repeat([]byte{'x'}, length)
				inner[at] = byte(b)
				text := slices.Concat([]byte(`["`), inner, []byte(`",0]`))
				v, err := rawjson.Parse(text)
				plain := b >= 0x20 && b < utf8.RuneSelf && b != '"' && b != '\\'
				if (err == nil) != plain {
					t.Fatalf("%q: %v", text, err)
				}
				if !plain {
					continue
				}
				c := v.Cursor()
				c.Enter()
				if c.Next(); string(c.Skip()) != `"`+string(inner)+`"` || !c.Next() || string(c.Skip()) != "0" {
					t.Fatalf("%q is skipped wrongly", text)
				}
			}
		}
	}
}

// TestParseKeepsTrackOfLevels nests arrays and objects in turn, across the words
// in which the checker keeps them, and closes one of them wrongly.
func TestParseKeepsTrackOfLevels(t *testing.T) {
	t.Parallel()
	const depth = 200
	for _, first := range []int{0, 1} {
		var open, closed strings.Builder
		for level := range depth {
			if (level+first)%3 == 0 {
				open.WriteString(`[0,`)
			} else {
				open.WriteString(`{"a":`)
			}
			if (depth-1-level+first)%3 == 0 {
				closed.WriteString(`,[]]`)
			} else {
				closed.WriteString(`,"b":{}}`)
			}
		}
		text := open.String() + "1" + closed.String()
		if !json.Valid([]byte(text)) {
			t.Fatal("the test's own text is wrong")
		}
		if _, err := rawjson.Parse([]byte(text)); err != nil {
			t.Error(err)
		}
		for i := len(open.String()); i < len(text); i++ {
			wrong := []byte(text)
			switch wrong[i] {
			case ']':
				wrong[i] = '}'
			case '}':
				wrong[i] = ']'
			default:
				continue
			}
			_, err := rawjson.Parse(wrong)
			if syntax, ok := errors.AsType[*rawjson.SyntaxError](err); !ok || syntax.Offset != i {
				t.Errorf("with %q for %q at byte %d: %v", wrong[i], text[i], i, err)
			}
		}
	}
}

const sample = ` {"metadata" : {"name":"a\"b","labels":{"a":"1","b\u0041":"2"},"x":null},
	"list":[ {"n":1}, [], "}]\\", -0.5e3, true ] , "empty":{ } } `

func parse(t testing.TB, text string) rawjson.Value {
	t.Helper()
	v, err := rawjson.Parse([]byte(text))
	if err != nil {
		t.Fatalf("Parse(%q): %v", text, err)
	}
	return v
}

func TestIs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text, s string
		want    bool
	}{
		{`"true"`, "true", true},
		{`"tru\u0065"`, "true", true},
		{`"true "`, "true", false},
		{`"tru"`, "true", false},
		{`true`, "true", false},
		{`"a\\b"`, `a\b`, true},
		{`"a\\b"`, `a\\b`, false},
		{`""`, "", true},
		{`"\ud83d\ude00"`, "\U0001F600", true},
	} {
		if got := parse(t, tc.text).Is(tc.s); got != tc.want {
			t.Errorf("%s Is(%q) = %v, want %v", tc.text, tc.s, got, tc.want)
		}
	}
}

func TestOutlineRefusesMoreMembersThanThereIsRoomFor(t *testing.T) {
	t.Parallel()
	room := make([]rawjson.Member, 0, 3)
	if _, _, err := rawjson.Outline(room, []byte(`{"a":{"b":1},"c":[{"d":2,"e":3,"f":4}]}`), 2, nil); err != nil {
		t.Errorf("three members do not fit: %v", err)
	}
	if _, _, err := rawjson.Outline(room, []byte(`{"a":{"b":1},"c":{"d":2}}`), 2, nil); err == nil {
		t.Error("four members fit into room for three")
	}
}

func TestDuplicateKey(t *testing.T) {
	t.Parallel()
	many := make([]string, 40)
	for i := range many {
		many[i] = fmt.Sprintf(`"k%d":%d`, i, i)
	}
	for _, tc := range []struct{ name, text, want string }{
		{"none", `{"a":1,"b":{"a":1}}`, ""},
		{"plain", `{"a":1,"b":2,"a":3}`, "a"},
		{"escaped", `{"a":1,"\u0061":3}`, "a"},
		{"case differs", `{"a":1,"A":3}`, ""},
		{"many without", "{" + strings.Join(many, ",") + "}", ""},
		{"many with one of the first", "{" + strings.Join(many, ",") + `,"k3":0}`, "k3"},
		{"many with one of the last", "{" + strings.Join(many, ",") + `,"k39":0}`, "k39"},
		{"no object", `[1,1]`, ""},
	} {
		got, dup := parse(t, tc.text).DuplicateKey()
		if got != tc.want || dup != (tc.want != "") {
			t.Errorf("%s: DuplicateKey() = %q, %v; want %q", tc.name, got, dup, tc.want)
		}
	}
	_, err := parse(t, `{"a":[{"b":1,"b":2}]}`).Decode()
	var dup *rawjson.DuplicateKeyError
	if !errors.As(err, &dup) || dup.Key != "b" {
		t.Errorf("Decode of a nested duplicate = %v, want a DuplicateKeyError for b", err)
	}
}

// FuzzAgainstUpstream holds Parse, Decode and Text against encoding/json and
// the decoder that apimachinery uses: what is accepted here is accepted there,
// what is refused here and accepted there is invalid UTF-8 or a duplicate, and
// the trees are equal.
func FuzzAgainstUpstream(f *testing.F) {
	for _, seed := range []string{
		sample, ` { "a" : [ 1 , {"b\u002fc":null} ] , "d\n":{ "e" : "f" }, "g":2 } `, `{"a-name-of-more-than-eight-bytes\/":1,"quote\"":2,"\\":3,"\u00e9":4,"":5}`, `{"a":1,"a":2}`, `"\ud800x"`, `"\ud83d\ude00\ud83d"`, `[1e400]`, `{"n":1e999,"a":1,"a":2}`, `{"\\":3,"b":4,"\\":2,"c":40e339}`, `123456789012345678901`, `-0`, `1.0`,
		"\"\xff\"", `{"":{"":[]}}`, `{"a":[{"b":{"c":1}}],"d":{"e":{"f":2},"g":[{}]} }`, `[{"a":{"b":1}}]`, ` 0 `, `"` + strings.Repeat("abcdefg\\n", 9) + `"`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := rawjson.Parse(data)
		if valid := json.Valid(data); err == nil && !valid {
			t.Fatalf("accepted %q, which encoding/json refuses", data)
		} else if err != nil {
			if valid && utf8.Valid(data) {
				t.Fatalf("refused %q, which encoding/json accepts: %v", data, err)
			}
			return
		}
		indexed(t, v)
		got, err := v.Decode()
		if _, dup := errors.AsType[*rawjson.DuplicateKeyError](err); dup {
			return
		}
		var want any
		wantErr := kjson.UnmarshalCaseSensitivePreserveInts(data, &want)
		if (err != nil) != (wantErr != nil) {
			t.Fatalf("Decode(%q) = %v, upstream %v", data, err, wantErr)
		}
		if err != nil {
			return // of a number, behind which there may be a member twice
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("Decode(%q) = %#v, upstream %#v", data, got, want)
		}
		walk(t, v, want)
		c := v.Cursor()
		walkOnce(t, &c, want)
		if c.At() != len(v) {
			t.Fatalf("the Cursor ends at byte %d of %q", c.At(), v)
		}
		walkIndexed(t, v, want)
		outline(t, data, v)
	})
}

// count returns the number of values in a value, itself included.
func count(v rawjson.Value) int {
	n := 1
	for _, member := range v.Members() {
		n += count(member)
	}
	for _, element := range v.Elements() {
		n += count(element)
	}
	return n
}

// outline compares the members that Outline notes with those that Members
// yields.
func outline(t *testing.T, data []byte, v rawjson.Value) {
	t.Helper()
	var want []rawjson.Member
	for name, value := range v.Members() {
		want = append(want, rawjson.Member{Depth: 1, Name: name, Value: value})
		for name, value := range value.Members() {
			want = append(want, rawjson.Member{Depth: 2, Name: name, Value: value})
		}
	}
	got, values, err := rawjson.Outline(make([]rawjson.Member, 0, len(want)), data, 2, nil)
	if err != nil || len(got) != len(want) {
		t.Fatalf("Outline(%q) = %v, %v; want %v", data, got, err, want)
	}
	if n := count(v); values != n {
		t.Fatalf("Outline(%q) counts %d values, want %d", data, values, n)
	}
	for i := range want {
		if got[i].Depth != want[i].Depth || string(got[i].Name) != string(want[i].Name) || string(got[i].Value) != string(want[i].Value) {
			t.Fatalf("Outline(%q)[%d] = %d %s:%s, want %d %s:%s", data, i,
				got[i].Depth, got[i].Name, got[i].Value, want[i].Depth, want[i].Name, want[i].Value)
		}
	}
}

// walk compares looking with the tree that upstream built.
func walk(t *testing.T, v rawjson.Value, want any) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		n := 0
		for key, member := range v.Members() {
			value, ok := want[key.Text()]
			if !ok || !key.Is(key.Text()) {
				t.Fatalf("member %s is not in %v", key, want)
			}
			if got := v.Get(key.Text()); string(got) != string(member) {
				t.Fatalf("Get(%s) is %q, want %q", key, got, member)
			}
			walk(t, member, value)
			n++
		}
		if n != len(want) {
			t.Fatalf("%d members, want %d", n, len(want))
		}
	case []any:
		if v.Len() != len(want) {
			t.Fatalf("%d elements, want %d", v.Len(), len(want))
		}
		for i, element := range v.Elements() {
			walk(t, element, want[i])
		}
	case string:
		if v.Text() != want || !v.Is(want) || v.Is(want+" ") || len(v.Get("deeper")) > 0 {
			t.Fatalf("text of %s is %q, want %q", v, v.Text(), want)
		}
	}
}

// walkOnce is walk in one pass.
func walkOnce(t *testing.T, c *rawjson.Cursor, want any) {
	t.Helper()
	n, start, kind := 0, c.At(), c.Kind()
	switch want := want.(type) {
	case map[string]any:
		for c.Enter(); c.Next(); n++ {
			name := c.PlainName()
			value, ok := want[name.Text()]
			if plain := rawjson.AppendString(nil, name.Text()); !ok || string(plain) != string(name) {
				t.Fatalf("member %s, or %s, is not in %v", name, plain, want)
			}
			walkOnce(t, c, value)
		}
		if n != len(want) {
			t.Fatalf("%d members, want %d", n, len(want))
		}
	case []any:
		for c.Enter(); c.Next(); n++ {
			if n >= len(want) {
				t.Fatalf("more elements than %v", want)
			}
			walkOnce(t, c, want[n])
		}
		if n != len(want) {
			t.Fatalf("%d elements, want %d", n, len(want))
		}
	case string:
		if text := c.Skip().Text(); text != want {
			t.Fatalf("text is %q, want %q", text, want)
		}
	default:
		c.Skip()
	}
	if v := c.Since(start); v.Kind() != kind || !json.Valid(v) {
		t.Fatalf("%s was %q", kind, v)
	}
}

func FuzzAppendString(f *testing.F) {
	f.Add("a\"b\\c\n\t\r\x00\x7f<>&\u2028\U0001F600\xff")
	f.Fuzz(func(t *testing.T, s string) {
		var got string
		text := rawjson.AppendString(nil, s)
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("AppendString(%q) = %s: %v", s, text, err)
		}
		if want := strings.ToValidUTF8(s, "\uFFFD"); utf8.ValidString(s) && got != s || !utf8.ValidString(s) && len(got) < len(want) {
			t.Fatalf("AppendString(%q) reads back as %q", s, got)
		}
		if _, err := rawjson.Parse(text); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	pod := []byte(`{"spec":{"containers":[` + strings.Repeat(`{"name":"app","image":"registry.example/app:1","env":[{"name":"A","value":"some text here"}],"ports":[{"containerPort":8080,"protocol":"TCP"}]},`, 34) + `{}]}}`)
	b.SetBytes(int64(len(pod)))
	b.Run("parse", func(b *testing.B) {
		b.SetBytes(int64(len(pod)))
		for b.Loop() {
			if _, err := rawjson.Parse(pod); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("index", func(b *testing.B) {
		b.SetBytes(int64(len(pod)))
		var x rawjson.Index
		for b.Loop() {
			if err := x.Read(pod); err != nil {
				b.Fatal(err)
			}
		}
	})
	v, _ := rawjson.Parse(pod)
	b.Run("look", func(b *testing.B) {
		b.SetBytes(int64(len(pod)))
		for b.Loop() {
			if v.Get("spec", "containers").Len() != 35 {
				b.Fatal("wrong")
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(int64(len(pod)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := v.Decode(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
