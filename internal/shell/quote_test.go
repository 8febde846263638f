package shell_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/shell"
)

// TestQuote gives what it returns to shells, which must have the word as their only argument.
func TestQuote(t *testing.T) {
	t.Parallel()
	words := []string{
		"", "plain", "a b", "~root", "=ls", "it's", `"`, `\`, "$(echo pwned)", "`echo pwned`", "$HOME", "!!", "-n", "-e\x1b", "*", "%s%d\x01", "ünï", "\u202egnp.exe",
		"\x1b]0;$(echo pwned)\a", "`echo pwned`\x7f", "a\nb", "ends\n", "\n", "\n\n", "x\n\x1b\n", "\xff\xfe $(echo pwned)", "'\x1b'", `\` + "\x1b033", "\x1b7", "!x\x1b",
	}
	for b := 1; b < 256; b++ {
		words = append(words, string([]byte{byte(b)}), "a"+string([]byte{byte(b)})+"1'$(echo pwned)`\x01")
	}
	for _, name := range []string{"sh", "bash", "dash"} {
		path, err := exec.LookPath(name)
		if err != nil && name != "sh" {
			continue // sh is the one that must be there
		}
		var script strings.Builder
		for _, word := range words {
			script.WriteString("printf '%s\\000' " + shell.Quote(word) + "\n")
		}
		out, err := exec.CommandContext(t.Context(), path, "-c", script.String()).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		if len(got) != len(words) {
			t.Fatalf("%s has %d words, want %d", name, len(got), len(words))
		}
		for i, word := range words {
			if got[i] != word {
				t.Errorf("%s reads %s as %q, want %q", name, shell.Quote(word), got[i], word)
			}
		}
	}
	for _, word := range words {
		for _, r := range strings.TrimRight(shell.Quote(word), "\n'") {
			if r < ' ' || r == 0x7f || r == '\u202e' || r == '\ufffd' {
				t.Errorf("%q is quoted as %q, which a terminal obeys", word, shell.Quote(word))
			}
		}
	}
}
