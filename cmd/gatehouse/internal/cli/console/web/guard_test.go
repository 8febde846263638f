package web_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
)

const (
	address = "127.0.0.1:8642"
	token   = "THE-TOKEN"
	base    = "/BASE"
	session = "gatehouse-console-8642=SESSION"
)

// newServer returns a server with the page "/shop", which shows a name and has a form.
func newServer(t *testing.T) *web.Server {
	t.Helper()
	s, err := web.New(web.Options{
		Address: address, Secrets: web.Secrets{Token: token, Session: "SESSION", Base: base}, Program: "gatehouse", Sections: []web.Section{{Path: "/", Title: "Overview"}, {Path: "/shop", Title: "Shop"}},
		Templates: fstest.MapFS{"shop.html": {Data: []byte(`{{define "shop"}}<p>{{inert .}}</p>{{end}}{{define "broken"}}{{.Missing.Field}}{{end}}`)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	page := func(r *http.Request) (*web.View, error) {
		return &web.View{Title: "Shop", Template: "shop", Data: r.FormValue("name"), Command: []string{"check", "-f", r.FormValue("name")}}, nil
	}
	s.Page("GET /shop", page)
	s.Page("POST /shop", func(r *http.Request) (*web.View, error) {
		if err := r.ParseForm(); err != nil {
			return nil, err //nolint:wrapcheck // it is shown as it is
		}
		return page(r)
	})
	s.Page("GET /broken", func(*http.Request) (*web.View, error) {
		return &web.View{Title: "Broken", Template: "broken", Data: 1}, nil
	})
	return s
}

// request returns a request of the user's browser, changed by a function.
func request(method, target, body string, change func(*http.Request)) *http.Request {
	if strings.HasPrefix(target, "/") && !strings.HasPrefix(target, base) {
		target = base + target
	}
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = address
	r.Header.Set("Cookie", session)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", "http://"+address)
	}
	if change != nil {
		change(r)
	}
	return r
}

func answer(s http.Handler, r *http.Request) (*http.Response, string) {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	text, _ := io.ReadAll(w.Result().Body) // it is in memory
	return w.Result(), strings.ReplaceAll(string(text), base, "")
}

func TestGuard(t *testing.T) {
	t.Parallel()
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for name, c := range map[string]struct {
		method, target string
		change         func(*http.Request)
		status         int
		text           string
	}{
		"the user's browser":                      {"GET", "/shop", nil, 200, "<h1>"},
		"a form of a page":                        {"POST", "/shop", nil, 200, "<h1>"},
		"localhost":                               {"GET", "/shop", func(r *http.Request) { r.Host = "localhost:8642" }, 200, "<h1>"},
		"a bookmark":                              {"GET", "/shop", header("Sec-Fetch-Site", "none"), 200, "<h1>"},
		"a program with the cookie":               {"GET", "/shop", func(r *http.Request) { r.Header.Del("Sec-Fetch-Site") }, 200, "<h1>"},
		"DNS rebinding":                           {"GET", "/shop", func(r *http.Request) { r.Host = "evil.example:8642" }, 403, "another host"},
		"DNS rebinding without a port":            {"GET", "/shop", func(r *http.Request) { r.Host = "127.0.0.1" }, 403, "another host"},
		"DNS rebinding with the token":            {"GET", "/shop?token=" + token, func(r *http.Request) { r.Host = "evil.example:8642" }, 403, "another host"},
		"a guessed port":                          {"GET", "/shop", func(r *http.Request) { r.Header.Del("Cookie") }, 403, "has no session"},
		"an asset on a guessed port":              {"GET", "/assets/style.css", func(r *http.Request) { r.Header.Del("Cookie") }, 403, "has no session"},
		"the cookie of another console":           {"GET", "/shop", header("Cookie", "gatehouse-console-9999="+token), 403, "has no session"},
		"a wrong cookie":                          {"GET", "/shop", header("Cookie", "gatehouse-console-8642=OTHER"), 403, "has no session"},
		"the first URL, loaded again":             {"GET", "/shop?token=OTHER", nil, 200, "Continue to the console"},
		"a wrong token without a session":         {"GET", "/shop?token=OTHER", func(r *http.Request) { r.Header.Del("Cookie") }, 403, "of another console"},
		"another path":                            {"GET", "/shop", func(r *http.Request) { r.URL.Path = "/shop" }, 403, "no session here"},
		"another path with the token":             {"GET", "/shop?token=" + token, func(r *http.Request) { r.URL.Path = "/OTHER/shop" }, 403, "no session here"},
		"the first request from another port":     {"GET", "/?token=" + token, func(r *http.Request) { r.Header.Del("Cookie"); r.Header.Set("Sec-Fetch-Site", "same-site") }, 403, "another site"},
		"the first request from another site":     {"GET", "/?token=" + token, func(r *http.Request) { r.Header.Del("Cookie"); r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403, "another site"},
		"the first form of another site":          {"POST", "/enter?token=" + token, func(r *http.Request) { r.Header.Del("Cookie"); r.Header.Set("Origin", "http://evil.example") }, 403, "another site"},
		"the token as the cookie":                 {"GET", "/shop", header("Cookie", "gatehouse-console-8642="+token), 403, "has no session"},
		"the token in a form":                     {"POST", "/shop?token=" + token, func(r *http.Request) { r.Header.Del("Cookie") }, 403, "has no session"},
		"the form of another site":                {"POST", "/shop", header("Sec-Fetch-Site", "cross-site"), 403, "another site"},
		"the form of another port":                {"POST", "/shop", header("Sec-Fetch-Site", "same-site"), 403, "another site"},
		"the form of another site, old browser":   {"POST", "/shop", func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "http://evil.example") }, 403, "another site"},
		"a sandboxed form":                        {"POST", "/shop", func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "null") }, 403, "another site"},
		"a picture of another site":               {"GET", "/shop", header("Sec-Fetch-Site", "cross-site"), 403, "another site"},
		"an unknown method":                       {"DELETE", "/shop", nil, 405, ""},
		"a page that is not there":                {"GET", "/nope", nil, 404, "there is no page /nope"},
		"a page whose template fails":             {"GET", "/broken", nil, 500, "cannot be shown"},
		"an asset":                                {"GET", "/assets/style.css", nil, 200, "color-scheme"},
		"a file beside the assets":                {"GET", "/assets/../templates/layout.html", nil, 307, ""},
		"a request with a path of another host":   {"GET", "//evil.example/shop", nil, 307, ""},
		"an absolute target of another host":      {"GET", "http://evil.example/shop", func(r *http.Request) { r.Host = "evil.example" }, 403, "another host"},
		"a preflight request of another site":     {"OPTIONS", "/shop", header("Sec-Fetch-Site", "cross-site"), 403, "another site"},
		"a HEAD request of the user's browser":    {"HEAD", "/shop", nil, 200, ""},
		"a token parameter that is empty":         {"GET", "/shop?token=", nil, 200, "<h1>"},
		"several token parameters, the 1st wrong": {"GET", "/shop?token=OTHER&token=" + token, func(r *http.Request) { r.Header.Del("Cookie") }, 403, "of another console"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response, text := answer(newServer(t), request(c.method, c.target, "", c.change))
			if response.StatusCode != c.status || !strings.Contains(text, c.text) {
				t.Errorf("status %d, %q, want %d, %q", response.StatusCode, text, c.status, c.text)
			}
			if policy := response.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'self';") && (c.status != 403 || !strings.HasPrefix(policy, "default-src 'none';")) || strings.Contains(policy, "unsafe") {
				t.Errorf("Content-Security-Policy %q", policy)
			}
			if response.Header.Get("Access-Control-Allow-Origin") != "" || response.Header.Get("Set-Cookie") != "" {
				t.Errorf("header %v", response.Header)
			}
		})
	}
}

// TestFirstURL follows the URL that the console prints, and the file that opens a browser. Each works once.
func TestFirstURL(t *testing.T) {
	t.Parallel()
	secrets := web.Secrets{Token: token, Base: base}
	stranger := func(method, target, body, site string) *http.Request {
		return request(method, target, body, func(r *http.Request) {
			r.Header.Del("Cookie")
			r.Header.Set("Sec-Fetch-Site", site)
			if method == http.MethodPost {
				r.Header.Set("Origin", "null")
			}
		})
	}
	for name, c := range map[string]struct {
		method, target, body, site, next string
	}{
		"the first page":         {"GET", strings.TrimPrefix(secrets.FirstURL(address), "http://"+address), "", "none", "/"},
		"a page with parameters": {"GET", "/shop?name=a&x=1&token=" + token, "", "none", "/shop?name=a&amp;x=1"},
		"another host":           {"GET", "//evil.example/?token=" + token, "", "none", "/evil.example"},
		"a file":                 {"POST", "/enter", "token=" + token, "cross-site", "/"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			response, text := answer(s, stranger(c.method, c.target, c.body, c.site))
			cookies := response.Cookies()
			if response.StatusCode != http.StatusOK || len(cookies) != 1 || !strings.Contains(text, `content="0; url=`+c.next+`"`) {
				t.Fatalf("status %d, cookies %v, %s", response.StatusCode, cookies, text)
			}
			if one := cookies[0]; one.Value != "SESSION" || one.SameSite != http.SameSiteStrictMode || !one.HttpOnly || one.Path != base+"/" || one.Domain != "" || one.MaxAge != 0 {
				t.Errorf("cookie %+v", one)
			}
			if strings.Contains(text, token) {
				t.Error("the next URL has the token")
			}
			if response, _ := answer(s, stranger(c.method, c.target, c.body, c.site)); response.StatusCode != http.StatusForbidden {
				t.Errorf("the token works again: status %d", response.StatusCode)
			}
		})
	}
}
