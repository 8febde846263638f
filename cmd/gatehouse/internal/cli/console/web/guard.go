package web

import (
	"crypto/rand"
	"crypto/subtle"
	"net"
	"net/http"
	"net/url"
	"path"
)

// tokenParameter is the parameter of the first URL.
const tokenParameter = "token"

// securityPolicy lets a page load what this server serves, and nothing else: no inline script, no other origin.
const securityPolicy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"

// NewToken returns a random token.
func NewToken() string { return rand.Text() }

// FirstURL returns the URL with which a browser begins. The path may have a query.
func FirstURL(address, path, token string) string {
	u, err := url.Parse(path)
	if err != nil {
		u = &url.URL{Path: "/"}
	}
	u.Scheme, u.Host = "http", address
	query := u.Query()
	query.Set(tokenParameter, token)
	u.RawQuery = query.Encode()
	return u.String()
}

// guard refuses everything that does not come from the browser of the user.
//
//   - Another name in Host is DNS rebinding: a page of another site whose name points to this machine.
//   - A request of a page of another origin is refused by Sec-Fetch-Site and Origin, whatever its method.
//   - A program that guesses the port has no cookie. The cookie is set by the token of the first URL alone. It is SameSite=Strict, and
//     its name has the port, because cookies of different ports are the same to a browser.
//
// The Referrer-Policy must not be no-referrer: a browser would send forms with the Origin null.
func (s *Server) guard(next http.Handler) http.Handler {
	_, port, _ := net.SplitHostPort(s.options.Address)
	hosts := map[string]bool{s.options.Address: true, "localhost:" + port: true}
	cookie := "gatehouse-console-" + port
	isSession := func(r *http.Request) bool {
		given, err := r.Cookie(cookie)
		return err == nil && equal(given.Value, s.options.Token)
	}
	protected := http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		for name, value := range map[string]string{
			"Content-Security-Policy": securityPolicy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
		} {
			header.Set(name, value)
		}
		given := r.URL.Query().Get(tokenParameter)
		switch {
		case !hosts[r.Host]:
			s.refuse(w, "this is the console of "+s.options.Address+", and the request names another host")
		case r.Method == http.MethodGet && given != "":
			if !equal(given, s.options.Token) {
				s.refuse(w, "the token of this URL is of another console (hint: open the URL that this console has printed)")
				return
			}
			http.SetCookie(w, &http.Cookie{Name: cookie, Value: s.options.Token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode}) //nolint:gosec // http on the loopback interface
			s.enter(w, r)
		case isForeign(r):
			s.refuse(w, "the request comes from a page of another site")
		case !isSession(r):
			s.refuse(w, "this browser has no session (hint: open the URL that 'gatehouse console' has printed)")
		default:
			protected.ServeHTTP(w, r)
		}
	})
}

// isForeign reports whether a page of another origin makes the request. Programs that are no browsers send no such header.
func isForeign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
	default:
		return true
	}
	origin := r.Header.Get("Origin")
	return origin != "" && origin != "http://"+r.Host
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// enter goes on to the URL without the token. It is a page and no redirect: a browser does not send a SameSite=Strict cookie
// with a redirect if the first request came from elsewhere, as from a terminal or a file.
func (s *Server) enter(w http.ResponseWriter, r *http.Request) {
	to := url.URL{Path: path.Clean("/" + r.URL.Path)} // "//host" would be another host
	query := r.URL.Query()
	query.Del(tokenParameter)
	to.RawQuery = query.Encode()
	text, err := s.execute("enter", to.RequestURI())
	if err != nil {
		s.refuse(w, "the page cannot be shown")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(text) // the browser may have gone
}

// refuse answers with 403.
func (s *Server) refuse(w http.ResponseWriter, why string) {
	http.Error(w, why, http.StatusForbidden)
}
