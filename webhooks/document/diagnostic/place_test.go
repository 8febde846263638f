package diagnostic_test

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

func TestPlace(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 100) + " == b"
	for name, c := range map[string]struct {
		in   diagnostic.Place
		want string
	}{
		"a place":       {diagnostic.Place{Text: "a == b", Line: 1, Column: 6}, `1:6 in "a == b": is wrong`},
		"another line":  {diagnostic.Place{Text: "a &&\n  b", Line: 2, Column: 3}, `2:3 in "b": is wrong`},
		"far behind":    {diagnostic.Place{Text: long, Line: 1, Column: 105}, `1:105 in "…` + strings.Repeat("a", 46) + ` == b": is wrong`},
		"a long line":   {diagnostic.Place{Text: long, Line: 1, Column: 1}, `1:1 in "` + strings.Repeat("a", 80) + `…": is wrong`},
		"no such place": {diagnostic.Place{Text: "a", Line: 7, Column: 9}, `7:9 in "a": is wrong`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := diagnostic.Diagnostic{Message: c.in.Message("is %s", "wrong"), In: c.in}
			if d.Message != c.want {
				t.Errorf("got %s, want %s", d.Message, c.want)
			}
			if got := d.Text(); got != "is wrong" {
				t.Errorf("without its place: %s", got)
			}
		})
	}
	if got := (diagnostic.Diagnostic{Message: "1:2 in \"x\": y"}).Text(); got != "1:2 in \"x\": y" {
		t.Errorf("a message without a place: %s", got)
	}
	token := diagnostic.Place{Text: "gatehouse_ci_unq3zlo745dva5breddgfhhzitomcrrz == x", Line: 1, Column: 1}
	if got := (diagnostic.Diagnostic{Message: token.Message("is wrong"), In: token}).Text(); got != "is wrong" {
		t.Errorf("an expression with a token: %s", got)
	}
}
