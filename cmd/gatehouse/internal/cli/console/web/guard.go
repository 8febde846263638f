package web

import (
	"crypto/rand"
	"crypto/subtle"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
)

// tokenParameter is the parameter of the first URL.
const tokenParameter = "token"

// securityPolicy lets a page load what this server serves, and nothing else: no inline script, no other origin.
const securityPolicy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"

// refusedPolicy is that of a refusal, which loads nothing.
const refusedPolicy = "default-src 'none'; img-src data:; frame-ancestors 'none'"

// Secrets are what the browser of the user knows and others do not.
type Secrets struct {
	// Token is that of the first URL. It is good for one browser: then there is another one.
	Token string
	// Session is the value of the cookie.
	Session string
	// Base begins the path of each URL, as "/NAME". Browsers send a cookie to all ports of this machine, but to no other path.
	Base string
}

// NewSecrets returns random ones.
func NewSecrets() Secrets { return Secrets{rand.Text(), rand.Text(), "/" + rand.Text()} }

// FirstURL returns the URL with which a browser begins.
func (s *Secrets) FirstURL(address string) string {
	return "http://" + address + s.Base + "/?" + url.Values{tokenParameter: {s.Token}}.Encode()
}

// guard refuses everything that does not come from the browser of the user.
//
//   - Another name in Host is DNS rebinding: a page of another site whose name points to this machine.
//   - A request of a page of another origin is refused by Sec-Fetch-Site and Origin, whatever its method, the first one too.
//   - A program that guesses the port knows neither the base path nor the cookie, which the token of the first URL sets, once. The cookie
//     is SameSite=Strict and for the base path alone: a server on another port of this machine does not get it.
//
// The Referrer-Policy must not be no-referrer: a browser would send forms with the Origin null.
func (s *Server) guard(next http.Handler) http.Handler {
	_, port, _ := net.SplitHostPort(s.options.Address)
	hosts := map[string]bool{s.options.Address: true, "localhost:" + port: true}
	cookie := "gatehouse-console-" + port
	secrets := &s.options.Secrets
	isSession := func(r *http.Request) bool {
		given, err := r.Cookie(cookie)
		return err == nil && equal(given.Value, secrets.Session)
	}
	protected := http.StripPrefix(secrets.Base, http.NewCrossOriginProtection().Handler(next))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		for name, value := range map[string]string{
			"Content-Security-Policy": securityPolicy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
		} {
			header.Set(name, value)
		}
		given, isFile := r.URL.Query().Get(tokenParameter), false
		if r.Method == http.MethodPost && r.URL.Path == secrets.Base+enterPath {
			r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
			given = r.PostFormValue(tokenParameter)
			// The file that openBrowser writes has no origin.
			into := r.Header.Get("Sec-Fetch-Dest")
			isFile = r.Header.Get("Origin") == "null" && (into == "" || into == "document")
		}
		switch {
		case !hosts[r.Host]:
			s.refuse(w, "this is the console of "+s.options.Address+", and the request names another host")
		case isForeign(r) && !isFile:
			s.refuse(w, "the request comes from a page of another site (hint: paste the URL into the address bar)")
		case !strings.HasPrefix(r.URL.Path, secrets.Base+"/"):
			s.refuse(w, "this browser has no session here (hint: open the URL that 'gatehouse console' has printed last)")
		case given != "" && (r.Method == http.MethodGet || r.URL.Path == secrets.Base+enterPath):
			if isSession(r) { // the URL is loaded again
				s.enter(w, r)
				return
			}
			if !s.spend(given) {
				s.refuse(w, "the token of this URL was used, or is of another console (hint: open the URL that this console has printed last)")
				return
			}
			http.SetCookie(w, &http.Cookie{Name: cookie, Value: secrets.Session, Path: secrets.Base + "/", HttpOnly: true, SameSite: http.SameSiteStrictMode}) //nolint:gosec // http on the loopback interface
			s.enter(w, r)
		case !isSession(r):
			s.refuse(w, "this browser has no session (hint: open the URL that 'gatehouse console' has printed last)")
		default:
			protected.ServeHTTP(w, r)
		}
	})
}

// enterPath is where the file that opens a browser sends the token, so that it is in no history.
const enterPath = "/enter"

// spend reports whether a token is right, and makes another one in place of it.
func (s *Server) spend(token string) bool {
	s.spending.Lock()
	defer s.spending.Unlock()
	if !equal(token, s.options.Secrets.Token) {
		return false
	}
	s.options.Secrets.Token = rand.Text()
	if s.options.Renewed != nil {
		s.options.Renewed(s.options.Secrets.FirstURL(s.options.Address))
	}
	return true
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
	at := strings.TrimPrefix(r.URL.Path, s.options.Secrets.Base)
	if at == enterPath {
		at = "/"
	}
	to := url.URL{Path: path.Clean("/" + at)} // "//host" would be another host
	query := r.URL.Query()
	query.Del(tokenParameter)
	to.RawQuery = query.Encode()
	text, err := s.execute("enter", to.RequestURI())
	if err != nil {
		s.refuse(w, "the page cannot be shown")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(s.addBase(text)) // the browser may have gone
}

// refuse answers with 403. The page names an empty icon: a browser would ask for /favicon.ico otherwise, which is not below the base path.
func (s *Server) refuse(w http.ResponseWriter, why string) {
	header := w.Header()
	header.Set("Content-Security-Policy", refusedPolicy)
	header.Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusForbidden)
	_ = s.templates.ExecuteTemplate(w, "refused", why) // the browser may have gone
}
