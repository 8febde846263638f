package debug_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/debug"
)

// subject is a handler and the log whose level it changes.
type subject struct {
	http.Handler

	variable slog.LevelVar
	lines    bytes.Buffer
	log      *slog.Logger
}

func newSubject(profiling bool) *subject {
	s := &subject{}
	s.log = slog.New(slog.NewTextHandler(&s.lines, &slog.HandlerOptions{Level: &s.variable}))
	s.Handler = debug.Handler(debug.Options{Level: debug.NewLevel(&s.variable, s.log), Profiling: profiling})
	return s
}

// ask asks from this host.
func (s *subject) ask(t *testing.T, method, path, body string, change ...func(*http.Request)) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.RemoteAddr, r.Host = "127.0.0.1:50000", "localhost:8080"
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// TestLevel changes the level, and back.
func TestLevel(t *testing.T) {
	t.Parallel()
	s := newSubject(false)
	for _, c := range []struct{ method, body, answer string }{
		{http.MethodGet, "", `{"level":"info","base":"info"}`},
		{http.MethodPut, "DEBUG", `{"level":"debug","base":"info"}`},
		{http.MethodPut, "error\n", `{"level":"error","base":"info"}`},
		{http.MethodPut, "info", `{"level":"info","base":"info"}`},
	} {
		if code, got := s.ask(t, c.method, "/log-level", c.body); code != 200 || got != c.answer+"\n" {
			t.Errorf("%s %q is answered %d %s, want %s", c.method, c.body, code, got, c.answer)
		}
	}
	for _, want := range []string{"level=debug before=info", "level=error before=debug", "level=info before=error"} {
		if !strings.Contains(s.lines.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, &s.lines)
		}
	}
}

// TestRefused is what changes nothing.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, method, body string
		change             func(*http.Request)
		code               int
		answer             string
	}{
		{"another method", "POST", "debug", nil, 405, "only GET and PUT"},
		{"nothing", "PUT", "", nil, 400, `level "": must be debug, info, warn, error`},
		{"no level", "PUT", "loud", nil, 400, `level "loud": must be debug, info, warn, error`},
		{"a level in between", "PUT", "info+1", nil, 400, "must be debug"},
		{"two words", "PUT", "debug 10m", nil, 400, "must be debug"},
		{"a kilobyte and more", "PUT", "debug" + strings.Repeat(" ", 1<<10), nil, 413, "at most 1024 bytes"},
		{"a body that breaks off", "PUT", "", func(r *http.Request) { r.Body = io.NopCloser(brokenReader{}) }, 400, "must be complete"},
		{"another host", "PUT", "debug", func(r *http.Request) { r.RemoteAddr = "10.0.0.7:50000" }, 403, "hint: kubectl exec"},
		{"another host asks", "GET", "", func(r *http.Request) { r.RemoteAddr = "[2001:db8::1]:50000" }, 403, "hint: kubectl exec"},
		{"nobody knows who", "PUT", "debug", func(r *http.Request) { r.RemoteAddr = "@" }, 403, "hint: kubectl exec"},
		{"a page in a browser", "PUT", "debug", func(r *http.Request) { r.Host = "attacker.example:8080" }, 403, "must be localhost"},
		{"a name that begins well", "PUT", "debug", func(r *http.Request) { r.Host = "localhost.attacker.example" }, 403, "must be localhost"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newSubject(true)
			change := tc.change
			if change == nil {
				change = func(*http.Request) {}
			}
			if code, answer := s.ask(t, tc.method, "/log-level", tc.body, change); code != tc.code || !strings.Contains(answer, tc.answer) {
				t.Errorf("the answer is %d %s", code, answer)
			}
			if s.variable.Level() != slog.LevelInfo || s.lines.Len() > 0 {
				t.Errorf("the level is %s, and the log\n%s", s.variable.Level(), &s.lines)
			}
		})
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestThisHost is whoever may ask.
func TestThisHost(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0.1:1", "127.8.9.10:1", "[::1]:1", "[::ffff:127.0.0.1]:1"} {
		for _, host := range []string{"localhost", "localhost:8080", "127.0.0.1:8080", "127.0.0.1", "[::1]:8080", "[::1]"} {
			s := newSubject(false)
			if code, answer := s.ask(t, "PUT", "/log-level", "debug", func(r *http.Request) { r.RemoteAddr, r.Host = address, host }); code != 200 {
				t.Errorf("%s, to %s, is answered %d %s", address, host, code, answer)
			}
		}
	}
}
