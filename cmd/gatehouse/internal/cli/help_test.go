package cli

import "testing"

func TestFillParagraphs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text  string
		width int
		want  string
	}{
		"nothing":               {"", 10, ""},
		"joined":                {"a bb\nccc", 10, "a bb ccc"},
		"as wide as allowed":    {"aaaa bbbb\ncccc", 9, "aaaa bbbb\ncccc"},
		"characters, not bytes": {"ää öö", 5, "ää öö"},
		"a long word":           {"a --registration=gatehouse b", 10, "a\n--registration=gatehouse\nb"},
		"paragraphs":            {"a\nb\n\nc\nd", 10, "a b\n\nc d"},
		"an example":            {"run\nit:\n\n  a  b\n  c\n\nand\nwait", 10, "run it:\n\n  a  b\n  c\n\nand wait"},
		"an example at once":    {"run it:\n  a  b\nthen\nwait", 10, "run it:\n  a  b\nthen wait"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := FillParagraphs(c.text, c.width); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if again := FillParagraphs(c.want, c.width); again != c.want {
				t.Errorf("again it is %q", again)
			}
		})
	}
}
