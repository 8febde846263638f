package diagnostic_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

func TestOneLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "plain 'ö' \"日\"": "plain 'ö' \"日\"", "a\n::error::b": `a\n::error::b`, "\x1b[31m": `\x1b[31m`, "\u009b31m": `\u009b31m`,
		"\x9b": `\x9b`, "a\u202eb": `a\u202eb`, "\r\t\x00": `\r\t\x00`, "\ufffd": "\ufffd",
	} {
		if got := diagnostic.OneLine(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
	d := diagnostic.Diagnostic{Source: "a\n", Object: "b\n", Field: "c\n", Message: "d\n", Hint: "e\n"}
	if got, want := d.String(), `a\n: b\n: c\n: d\n (hint: e\n)`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
