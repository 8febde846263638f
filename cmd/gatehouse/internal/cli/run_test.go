package cli

import (
	"errors"
	"testing"
)

// TestErrorText names the program on each line, unless the first one introduces the others.
func TestErrorText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"one":                  "gatehouse: one\n",
		"one\ntwo":             "gatehouse: one\ngatehouse: two\n",
		"refused:\none\ntwo":   "gatehouse: refused:\none\ntwo\n",
		"one\n  more of it\nb": "gatehouse: one\n  more of it\ngatehouse: b\n",
	} {
		if got := ErrorText(errors.New(text)); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
