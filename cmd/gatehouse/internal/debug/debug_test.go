package debug_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/debug"
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

// TestLevel changes the level for a while, twice, and back.
func TestLevel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(false)
		want := func(code int, body, answer string) {
			t.Helper()
			method := http.MethodPut
			if body == "" {
				method = http.MethodGet
			}
			if gotCode, got := s.ask(t, method, "/log-level", body); gotCode != code || got != answer+"\n" {
				t.Errorf("%s %q is answered %d %s, want %d %s", method, body, gotCode, got, code, answer)
			}
		}
		// The clock begins at midnight of the year 2000.
		want(200, "", `{"level":"info","base":"info"}`)
		if code, _ := s.ask(t, http.MethodHead, "/log-level", ""); code != 200 {
			t.Errorf("HEAD is answered %d", code)
		}
		want(200, "debug", `{"level":"debug","base":"info","until":"2000-01-01T00:10:00Z"}`)
		time.Sleep(9 * time.Minute)
		s.log.Debug("seen")
		want(200, "DEBUG 30m", `{"level":"debug","base":"info","until":"2000-01-01T00:39:00Z"}`)
		time.Sleep(29 * time.Minute) // the first change would have ended
		want(200, "", `{"level":"debug","base":"info","until":"2000-01-01T00:39:00Z"}`)
		time.Sleep(time.Minute)
		synctest.Wait()
		want(200, "", `{"level":"info","base":"info"}`)
		s.log.Debug("unseen")
		want(200, "error 1h", `{"level":"error","base":"info","until":"2000-01-01T01:39:00Z"}`)
		want(200, "info", `{"level":"info","base":"info"}`)
		time.Sleep(2 * time.Hour)
		want(200, "", `{"level":"info","base":"info"}`)
		var told []string
		for line := range strings.Lines(s.lines.String()) {
			_, what, _ := strings.Cut(strings.TrimSpace(line), "level=")
			told = append(told, what)
		}
		if got, want := strings.Join(told, "\n"), `WARN msg="log level" level=debug before=info for=10m0s
DEBUG msg=seen
WARN msg="log level" level=debug before=debug for=30m0s
WARN msg="log level" level=info before=debug for=good
WARN msg="log level" level=error before=info for=1h0m0s
WARN msg="log level" level=info before=error for=good`; got != want {
			t.Errorf("the log is\n%s\nwant\n%s", got, want)
		}
	})
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
		{"no time", "PUT", "debug soon", nil, 400, `for "soon": must be a time from 1s to 24h0m0s`},
		{"a time that has passed", "PUT", "debug -1m", nil, 400, "must be a time from 1s"},
		{"a moment", "PUT", "debug 999ms", nil, 400, "must be a time from 1s"},
		{"for ever", "PUT", "debug 25h", nil, 400, "must be a time from 1s"},
		{"three words", "PUT", "debug 10m please", nil, 400, "more than two words"},
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

// FuzzChange asks for anything. Whatever it is, the level is one of four and ends.
func FuzzChange(f *testing.F) {
	f.Add("debug 10m")
	f.Fuzz(func(t *testing.T, body string) {
		s := newSubject(false)
		code, answer := s.ask(t, "PUT", "/log-level", body)
		changed := s.variable.Level() != slog.LevelInfo
		if changed && (code != 200 || !strings.Contains(answer, `"until"`)) || code == 200 && !strings.Contains(strings.ToLower(body), strings.ToLower(s.variable.Level().String())) {
			t.Errorf("%q is answered %d %s", body, code, answer)
		}
		s.ask(t, "PUT", "/log-level", "info") // ends the timer
	})
}
