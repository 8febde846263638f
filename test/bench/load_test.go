package main

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// serveTLS returns a client of a server that has the handler, and a change to
// make to it before it starts.
func serveTLS(t *testing.T, protocol string, handler http.Handler, change func(*httptest.Server)) *client {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	change(s)
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	c := newClient(s.Listener.Addr().String(), protocol, roots)
	t.Cleanup(c.transport.CloseIdleConnections)
	return c
}

// someScenario returns the scenario with the name.
func someScenario(t *testing.T, name string) scenario {
	t.Helper()
	found := scenarios(regexp.MustCompile("^" + name + "$"))
	if len(found) != 1 {
		t.Fatalf("%d scenarios %q", len(found), name)
	}
	return found[0]
}

// checkError checks that an error contains a text, or that there is none.
func checkError(t *testing.T, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

// The load generator asks as the API server does.
func TestLoadLooksLikeTheAPIServer(t *testing.T) {
	for _, tt := range []struct {
		scenario, want string
		maxConnections int
	}{
		{"mutate/5KB/http2/c16", "HTTP/2.0 timeout=10s", 1},
		{"mutate/5KB/http1/c16", "HTTP/1.1 timeout=10s", 50},
		{"authenticate/http2/c16", "HTTP/2.0 timeout=30s", 1},
	} {
		t.Run(tt.scenario, func(t *testing.T) {
			var mutex sync.Mutex
			uids, peers := map[string]bool{}, map[string]bool{}
			null := nullHandler()
			s := someScenario(t, tt.scenario)
			c := serveTLS(t, s.protocol, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				var review struct{ Request struct{ UID string } }
				if err == nil {
					err = json.Unmarshal(body, &review)
				}
				if err != nil {
					t.Error(err)
				}
				mutex.Lock()
				uids[review.Request.UID], peers[r.RemoteAddr] = true, true
				mutex.Unlock()
				got := fmt.Sprintf("%s %s tls %#x, %s, %s, %s", r.Proto, r.URL.RawQuery, r.TLS.Version,
					r.Header.Get("Accept"), r.Header.Get("Content-Type"), r.Header.Get("User-Agent"))
				if want := tt.want + " tls 0x304, application/json, */*, application/json, kube-apiserver-admission"; got != want {
					t.Errorf("request %q, want %q", got, want)
				}
				r.Body = io.NopCloser(strings.NewReader(string(body)))
				null.ServeHTTP(w, r)
			}), func(*httptest.Server) {})
			l := load{client: c, path: s.path, review: s.review, wants: wants{user: s.wants.user}, duration: 20 * time.Millisecond}
			requests := 0
			for _, l.concurrency = range []int{1, 16} { // the first connects
				latencies, err := l.run(t.Context())
				if err != nil || len(latencies) < l.concurrency || slices.Min(latencies) <= 0 {
					t.Fatalf("%d requests of %d workers, error %v", len(latencies), l.concurrency, err)
				}
				requests += len(latencies)
			}
			if s.path == pathMutate && len(uids) != requests {
				t.Errorf("%d different uids in %d requests", len(uids), requests)
			}
			if len(peers) > tt.maxConnections {
				t.Errorf("%d connections, want at most %d", len(peers), tt.maxConnections)
			}
		})
	}
}

// A server that gives any but the right answer ends the run.
func TestLoadStopsAtWrongAnswers(t *testing.T) {
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"status": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusServiceUnavailable) }, `status 503 Service Unavailable, body "no\n"`},
		"one constant uid": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, nullAdmission, placeholderUID)
		}, `uid "` + placeholderUID + `" instead of`},
		"hang up": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			s := someScenario(t, "validate/1.5KB/http1/c16")
			c := serveTLS(t, s.protocol, tt.answer, func(*httptest.Server) {})
			_, err := load{client: c, path: s.path, review: s.review, wants: s.wants, concurrency: 4, duration: 50 * time.Millisecond}.run(t.Context())
			checkError(t, err, tt.want)
		})
	}
}

func TestCheckAnswer(t *testing.T) {
	const uid = "0b1c"
	patched, denied, user := wants{adds: []string{"a"}}, wants{denies: []string{"one", "two"}}, wants{user: "ann"}
	admission := func(response string) string { return `{"kind":"AdmissionReview","response":` + response + `}` }
	token := func(status string) string { return `{"kind":"TokenReview","status":` + status + `}` }
	for name, tt := range map[string]struct {
		text, uid string
		wants     wants
		want      string // part of the error; empty is none
	}{
		"yes":                           {admission(`{"uid":"0b1c","allowed":true}`), uid, wants{}, ""},
		"yes with patch":                {admission(`{"uid":"0b1c","allowed":true,"patch":"W10=","patchType":"JSONPatch"}`), uid, patched, ""},
		"no":                            {admission(`{"uid":"0b1c","allowed":false}`), uid, wants{}, "allowed is not true"},
		"the wanted no":                 {admission(`{"uid":"0b1c","allowed":false,"status":{"message":"one; two"}}`), uid, denied, ""},
		"half of the wanted no":         {admission(`{"uid":"0b1c","allowed":false,"status":{"message":"one"}}`), uid, denied, `no "two"`},
		"yes instead of no":             {admission(`{"uid":"0b1c","allowed":true,"status":{"message":"one; two"}}`), uid, denied, "allowed is true"},
		"uid missing":                   {admission(`{"allowed":true}`), uid, wants{}, `uid "" instead of "0b1c"`},
		"no response":                   {`{"kind":"AdmissionReview"}`, uid, wants{}, "no AdmissionReview with a response"},
		"other kind":                    {`{"kind":"TokenReview","response":{"uid":"0b1c","allowed":true}}`, uid, wants{}, "no AdmissionReview with a response"},
		"patch missing":                 {admission(`{"uid":"0b1c","allowed":true}`), uid, patched, "no JSON Patch"},
		"patch without type":            {admission(`{"uid":"0b1c","allowed":true,"patch":"W10="}`), uid, patched, "no JSON Patch"},
		"patch of a validating webhook": {admission(`{"uid":"0b1c","allowed":true,"patch":"W10=","patchType":"JSONPatch"}`), uid, wants{}, "a patch"},
		"two answers":                   {admission(`{"uid":"0b1c","allowed":true}`) + `{}`, uid, wants{}, "invalid character"},
		"user":                          {token(`{"authenticated":true,"user":{"username":"ann"}}`), "", user, ""},
		"other user":                    {token(`{"authenticated":true,"user":{"username":"bob"}}`), "", user, `user "bob" instead of "ann"`},
		"unauthenticated":               {token(`{"authenticated":false}`), "", user, "authenticated is not true"},
		"token error":                   {token(`{"authenticated":true,"error":"down","user":{"username":"ann"}}`), "", user, "status.error"},
		"admission for a token":         {admission(`{"uid":"0b1c","allowed":true}`), "", user, "no TokenReview"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := checkAnswer([]byte(tt.text), tt.uid, tt.wants)
			checkError(t, err, tt.want)
		})
	}
}

// A webhook that allows everything, or adds nothing, is detected before it is
// measured.
func TestProveFindsIdleWebhooks(t *testing.T) {
	for name, want := range map[string]string{
		"validate/5KB/http2/c16":                 "a review that must be refused",
		"validate-10-violations/5KB/http2/c16":   "allowed is true",
		"validate-template/5KB/http2/c16":        "a review that must be refused",
		"authenticate/http2/c16":                 "a review that must be refused",
		"mutate-2-of-200-profiles/5KB/http2/c16": "no JSON Patch",
		"mutate-not-selected/5KB/http2/c16":      "a review that must be refused",
	} {
		t.Run(name, func(t *testing.T) {
			s := someScenario(t, name)
			c := serveTLS(t, s.protocol, nullHandler(), func(*httptest.Server) {})
			checkError(t, proveAnswers(t.Context(), load{client: c, path: s.path, wants: s.wants}, s, false), want)
		})
	}
}

// A patch that adds something else is detected.
func TestCheckInjected(t *testing.T) {
	const patch = `[{"op":"add","path":"/spec/initContainers","value":[{"name":"telemetry-agent"}]},{"op":"add","path":"/spec/volumes/-","value":{"name":"telemetry-agent"}}]`
	for name, want := range map[string]string{
		"mutate/5KB/http2/c16":            "",
		"mutate-2-profiles/5KB/http2/c16": `no init container "mesh-agent"`,
		"mutate-parameters/5KB/http2/c16": `no "--listen=:15021"`,
	} {
		t.Run(name, func(t *testing.T) { checkError(t, checkInjected(someScenario(t, name), []byte(patch)), want) })
	}
}
