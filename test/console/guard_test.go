package console

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support/chromium"
)

const quickstart = "../../manifests/examples/quickstart/config"

// attacker is a page of another site that tries to use the session of a browser that has one.
const attacker = `<!DOCTYPE html><html lang="en"><title>Another site</title>
<form method="post" action="%[1]s/try"><textarea name="config">kind: AdmissionPolicy</textarea><button id="post">Win a prize</button></form>
<form action="%[1]s/policies"><button id="get">Win another prize</button></form>
<iframe src="%[1]s/policies"></iframe>
<script>
window.script = new Promise(resolve => {
	const e = document.createElement("script")
	e.src = "%[1]s/assets/console.js"
	e.onload = () => resolve("loaded"), e.onerror = () => resolve("refused")
	document.head.append(e)
})
window.fetched = fetch("%[1]s/policies", {credentials: "include"}).then(r => "read " + r.status, () => "refused")
</script>`

// TestOthersAreRefused: nobody but the browser that has opened the first URL gets anything, whatever they know.
func TestOthersAreRefused(t *testing.T) {
	t.Parallel()
	c := start(t, "--config", quickstart)
	other := start(t, "--config", quickstart)
	p := c.open(t, "/policies", chromium.Options{Width: 1200, Height: 900, Hosts: []string{"rebound.example"}})
	c.checkBrowser(t, p)

	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintf(w, attacker, c.url("")) }))
	t.Cleanup(site.Close)
	port := site.URL[strings.LastIndex(site.URL, ":"):]
	// To a browser, other ports of 127.0.0.1 are the same site: it sends them the cookie of the session.
	for _, from := range []string{"http://127.0.0.1" + port, "http://localhost" + port, "http://rebound.example" + port} {
		for _, button := range []string{"#post", "#get"} {
			p.Navigate(from)
			if button == "#post" {
				var got struct{ Script, Fetched string }
				p.Evaluate(`(async () => ({Script: await script, Fetched: await fetched}))()`, &got)
				if got.Script != "refused" || got.Fetched != "refused" {
					t.Errorf("a page of %s gets %+v", from, got)
				}
			}
			if status := p.Follow(button); status != http.StatusForbidden || !strings.Contains(p.Text("body"), "another site") {
				t.Errorf("the form %s of %s gets %d, %s", button, from, status, p.Text("body"))
			}
		}
	}
	if frames := strings.Join(p.Messages(), "\n"); !strings.Contains(frames, "frame-ancestors") {
		t.Errorf("the browser does not say that it refuses the frame: %s", frames)
	}
	// A name of the attacker now stands for this machine, and knows the token even.
	rebound := "http://rebound.example" + c.address[strings.LastIndex(c.address, ":"):] + c.base
	for _, path := range []string{"/", "/?token=" + c.token, "/assets/style.css"} {
		if status := p.Navigate(rebound + path); status != http.StatusForbidden {
			t.Errorf("%s gets %d from another host", path, status)
		}
	}
	if c.visit(t, p, "/policies"); t.Failed() {
		t.Error("the session of the user has ended")
	}

	for name, of := range map[string]struct {
		path   string
		header http.Header
	}{
		"a guessed port":               {path: "/"},
		"a guessed page":               {path: "/decisions?namespace=shop"},
		"an asset":                     {path: "/assets/style.css"},
		"an unknown page":              {path: "/no-such-page"},
		"a wrong token":                {path: "/?token=ABCDEFGHIJKLMNOPQRSTUVWXYZ"},
		"a part of the token":          {path: "/?token=" + c.token[:len(c.token)-1]},
		"the token of another console": {path: "/?token=" + other.token},
		"a wrong cookie":               {path: "/", header: http.Header{"Cookie": {"gatehouse-console-" + c.address[strings.LastIndex(c.address, ":")+1:] + "=" + other.token}}},
		"another host":                 {path: "/?token=" + c.token, header: http.Header{"Host": {"rebound.example"}}},
		"another port of the host":     {path: "/?token=" + c.token, header: http.Header{"Host": {other.address}}},
	} {
		status, body := get(t, c.url(of.path), of.header)
		if status != http.StatusForbidden || strings.Contains(body, c.token) || strings.Contains(body, c.base) || strings.Contains(body, "<script") {
			t.Errorf("%s gets %d, %s", name, status, body)
		}
	}
}

// get sends a request as a program does that is no browser.
func get(t *testing.T, url string, header http.Header) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	must(t, err)
	if header != nil {
		request.Header, request.Host = header, header.Get("Host")
	}
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	text, err := io.ReadAll(response.Body)
	must(t, err)
	must(t, response.Body.Close())
	return response.StatusCode, string(text)
}
