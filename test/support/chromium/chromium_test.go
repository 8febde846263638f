package chromium_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/chromium"
)

// bad breaks rules of axe, and its own content security policy.
const bad = `<!DOCTYPE html><html><head><title>bad</title></head><body><img src="/picture.png"><script>window.ran = true</script>
<form action="/next"><input name="q" value="before"><button>Go</button></form></body></html>`

const good = `<!DOCTYPE html><html lang="en"><head><title>good</title></head><body><main><h1>Good</h1><p id="text">you asked for %s</p></main></body></html>`

func TestPage(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'self'")
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		switch r.URL.Path {
		case "/":
			_, _ = fmt.Fprint(w, bad)
		case "/next":
			_, _ = fmt.Fprintf(w, good, r.URL.Query().Get("q"))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	port := server.URL[strings.LastIndex(server.URL, ":"):]
	p := chromium.Open(t, "http://elsewhere.example"+port, chromium.Options{Width: 360, Height: 700, Dark: true, Hosts: []string{"elsewhere.example"}})
	var shown struct {
		Ran, Dark bool
		Width     int
	}
	p.Evaluate(`({Ran: window.ran === true, Dark: matchMedia("(prefers-color-scheme: dark)").matches, Width: screen.width})`, &shown)
	if shown.Ran || !shown.Dark || shown.Width != 360 {
		t.Errorf("the page is %+v", shown)
	}
	if messages := strings.Join(p.Messages(), "\n"); !strings.Contains(messages, "Content Security Policy") || !strings.Contains(messages, "404") {
		t.Errorf("the browser reports %q, want the script and the picture", messages)
	}
	if requests := p.Requests(); !slices.Contains(requests, "http://elsewhere.example"+port+"/picture.png") {
		t.Errorf("the requests are %q", requests)
	}
	rules := []string{}
	for _, violation := range p.Axe() {
		rules = append(rules, violation.ID)
		if violation.ID == "image-alt" && !strings.Contains(violation.String(), "picture.png") {
			t.Errorf("the violation is %s", violation)
		}
	}
	for _, want := range []string{"html-has-lang", "image-alt", "label"} {
		if !slices.Contains(rules, want) {
			t.Errorf("axe finds %q, want %s", rules, want)
		}
	}

	p.Fill("input", "some text")
	if status := p.Follow("button"); status != http.StatusOK || !strings.HasSuffix(p.URL(), "/next?q=some+text") || p.Text("#text") != "you asked for some text" {
		t.Errorf("the form gives %d, %s", status, p.URL())
	}
	if violations := p.Axe(); len(violations) > 0 {
		t.Errorf("axe finds %s", violations)
	}
	if status := p.Navigate(server.URL + "/no-such-page"); status != http.StatusNotFound {
		t.Errorf("a page that does not exist gives %d", status)
	}
	p.Navigate(server.URL)
	p.Press(kb.Tab + kb.Tab + kb.Enter)
	support.Eventually(t, "the keyboard sends the form", func() error {
		if url := p.URL(); !strings.HasSuffix(url, "/next?q=before") {
			return fmt.Errorf("the page is %s", url)
		}
		return nil
	})
	if picture := p.Screenshot(0); !strings.HasPrefix(string(picture), "\x89PNG") {
		t.Errorf("the picture has %d bytes", len(picture))
	}
}
