package jsonout_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/jsonout"
)

func TestEncode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		value any
		want  string
	}{
		"plain":             {"a <b> & ü 世 😀", `"a <b> & ü 世 😀"`},
		"C0":                {"\x1b[31m\x00\n\t", `"\u001b[31m\u0000\n\t"`},
		"delete":            {"a\x7f", `"a\u007f"`},
		"C1":                {"\u0080\u009b31m\u009f", `"\u0080\u009b31m\u009f"`},
		"direction":         {"\u200e\u200f\u061c\u202a\u202e\u2066\u2069", `"\u200e\u200f\u061c\u202a\u202e\u2066\u2069"`},
		"without a width":   {"a\u200bb\u2060\ufeff\u00ad", `"a\u200bb\u2060\ufeff\u00ad"`},
		"lines":             {"\u0085\u2028\u2029", `"\u0085\u2028\u2029"`},
		"beyond 16 bits":    {"\U000e0041", `"\udb40\udc41"`},
		"no UTF-8":          {"a\xffb", `"a` + `\ufffd` + `b"`},
		"a raw value":       {json.RawMessage("\"a\u009b\xff\""), `"a\u009b` + `\ufffd` + `"`},
		"a name":            {map[string]int{"a\u202e": 1}, `{"a\u202e":1}`},
		"a backslash first": {`\` + "\u009b", `"\\\u009b"`},
	} {
		var out bytes.Buffer
		if err := jsonout.Encode(&out, "", c.value); err != nil || out.String() != c.want+"\n" {
			t.Errorf("%s: %s, %v, want %s", name, out.Bytes(), err, c.want)
		}
	}
	var out bytes.Buffer
	if err := jsonout.Encode(&out, "  ", []string{"\u009b"}); err != nil || out.String() != "[\n  \"\\u009b\"\n]\n" {
		t.Errorf("indented: %q, %v", out.Bytes(), err)
	}
}

type fails struct{}

var errFull = errors.New("full")

func (fails) Write([]byte) (int, error) { return 0, errFull }

func TestWriterReportsErrors(t *testing.T) {
	t.Parallel()
	if _, err := jsonout.NewWriter(fails{}).Write([]byte("1")); !errors.Is(err, errFull) {
		t.Errorf("got %v", err)
	}
}

// FuzzEscape: what is escaped is printable, and the same value.
func FuzzEscape(f *testing.F) {
	for _, seed := range []string{"plain", "a\u009b\u202e", "\xff\xc2\x9b", "\U000e0041\\u0000\\"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		plain, err := json.Marshal(map[string]any{text: []string{text}})
		if err != nil {
			t.Fatal(err)
		}
		escaped := jsonout.Escape(plain)
		if bytes.ContainsFunc(escaped, func(r rune) bool { return !strconv.IsPrint(r) }) {
			t.Errorf("%q", escaped)
		}
		var want, got any
		if err := errors.Join(json.Unmarshal(plain, &want), json.Unmarshal(escaped, &got)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v is %v: %v", want, got, err)
		}
	})
}
