package cli_test

import (
	"io"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

// TestColorFlag covers what is no terminal: there only "always" colors.
func TestColorFlag(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{"": "text", "auto": "text", "never": "text", "always": "\x1b[31mtext\x1b[0m"} {
		var f cli.ColorFlag
		if value != "" {
			if err := f.Set(value); err != nil {
				t.Fatal(err)
			}
		}
		if got := f.Painter(io.Discard).Paint(cli.Red, "text"); got != want {
			t.Errorf("%q: got %q, want %q", value, got, want)
		}
		if got := f.Painter(io.Discard).Paint("", "text"); got != "text" {
			t.Errorf("%q, without a color: got %q", value, got)
		}
	}
	var f cli.ColorFlag
	if err := f.Set("often"); err == nil || f.String() != "auto" {
		t.Errorf("got %v, %s", err, &f)
	}
}
