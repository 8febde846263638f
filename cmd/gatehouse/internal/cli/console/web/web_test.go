package web_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestHostileText shows names that strangers have chosen.
func TestHostileText(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ hostile, never string }{
		"a script":           {"<script>alert(1)</script>", "<script>alert"},
		"an attribute":       {`" onmouseover="alert(1)`, `" onmouseover="`},
		"a terminal escape":  {"\x1b[31mred", "\x1b"},
		"right to left":      {"gpj\u202eexe", "\u202e"},
		"the end of an href": {"'><img src=x>", "<img"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := request(http.MethodGet, "/shop", "", nil)
			query := r.URL.Query()
			query.Set("name", c.hostile)
			r.URL.RawQuery = query.Encode()
			_, text := answer(newServer(t), r)
			if strings.Contains(text, c.never) {
				t.Errorf("the page has %q:\n%s", c.never, text)
			}
		})
	}
}

func TestPage(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	_, text := answer(s, request(http.MethodGet, "/shop?name=x", "", nil))
	for _, want := range []string{`<html lang="en">`, `<a href="/shop" aria-current="page">`, `<a href="/">Overview</a>`, "<code>gatehouse check -f x</code>", "<main id=\"main\""} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	response, text := answer(s, request(http.MethodPost, "/shop", "name="+strings.Repeat("x", 5<<20), nil))
	if response.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(text, "the form has more than 4194304 bytes") {
		t.Errorf("a large form: status %d, %.300s", response.StatusCode, text)
	}
}
