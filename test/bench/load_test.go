package main

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// serveTLS serves the handler on loopback over both versions of HTTP, and
// returns its address and what to trust.
func serveTLS(t *testing.T, handler http.Handler) (address, ca string) {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

// someScenario returns the scenario with the name.
func someScenario(t *testing.T, name string) scenario {
	t.Helper()
	all, err := scenarios(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.name == name {
			return s
		}
	}
	t.Fatalf("no scenario %q", name)
	return scenario{}
}

// The load generator asks as the API server does.
func TestLoadLooksLikeTheAPIServer(t *testing.T) {
	for _, tt := range []struct {
		scenario, proto string
		query           string
		maxConnections  int
	}{
		{"mutate/5KB/http2/c16", "HTTP/2.0", "timeout=10s", 1},
		{"mutate/5KB/http1/c16", "HTTP/1.1", "timeout=10s", 50},
		{"authenticate/http2/c16", "HTTP/2.0", "timeout=30s", 1},
	} {
		t.Run(tt.scenario, func(t *testing.T) {
			var mutex sync.Mutex
			uids, peers := map[string]int{}, map[string]int{}
			null := nullHandler()
			address, ca := serveTLS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				var review struct {
					Kind    string
					Request struct{ UID string }
				}
				if err := json.Unmarshal(body, &review); err != nil {
					t.Error(err)
				}
				mutex.Lock()
				uids[review.Request.UID]++
				peers[r.RemoteAddr]++
				mutex.Unlock()
				got := fmt.Sprintf("%s %s %s tls %#x, %s, %s, %s", r.Method, r.Proto, r.URL.RawQuery, r.TLS.Version,
					r.Header.Get("Accept"), r.Header.Get("Content-Type"), r.Header.Get("User-Agent"))
				want := "POST " + tt.proto + " " + tt.query + " tls 0x304, application/json, */*, application/json, kube-apiserver-admission"
				if got != want {
					t.Errorf("request %q, want %q", got, want)
				}
				r.Body = io.NopCloser(strings.NewReader(string(body)))
				null.ServeHTTP(w, r)
			}))
			s := someScenario(t, tt.scenario)
			c, err := newClient(address, s.protocol, ca, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer c.transport.CloseIdleConnections()
			l := load{client: c, path: s.path, body: s.body, wants: wants{user: s.wants.user}, concurrency: 1, requests: 1, firstUID: 7}
			for _, step := range []load{l, {client: c, path: l.path, body: l.body, wants: l.wants, concurrency: 16, requests: 200, firstUID: 8}} {
				if _, err := step.run(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if s.body.uidAt >= 0 && len(uids) != 201 {
				t.Errorf("%d different uids in 201 requests", len(uids))
			}
			if len(peers) > tt.maxConnections {
				t.Errorf("%d connections, want at most %d", len(peers), tt.maxConnections)
			}
		})
	}
}

// A server that answers anything but the right yes ends the run.
func TestLoadStopsAtWrongAnswers(t *testing.T) {
	s := someScenario(t, "validate/1.5KB/http1/c16")
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"status", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusServiceUnavailable) }, `status 503 Service Unavailable, body "no\n"`},
		{"one constant uid", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, nullAdmissionHead+placeholderUID+nullAdmissionTail)
		}, `uid "` + placeholderUID + `" instead of`},
		{"hang up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			address, ca := serveTLS(t, tt.answer)
			c, err := newClient(address, s.protocol, ca, nil)
			if err != nil {
				t.Fatal(err)
			}
			l := load{client: c, path: s.path, body: s.body, wants: s.wants, concurrency: 4, requests: 100, firstUID: 1}
			_, err = l.run(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestCheckAnswer(t *testing.T) {
	const uid = "0b1c"
	admission := func(response string) string { return `{"kind":"AdmissionReview","response":` + response + `}` }
	token := func(status string) string { return `{"kind":"TokenReview","status":` + status + `}` }
	for _, tt := range []struct {
		name, text, uid string
		wants           wants
		want            string // part of the error; empty is none
	}{
		{"yes", admission(`{"uid":"0b1c","allowed":true}`), uid, wants{}, ""},
		{"yes with patch", admission(`{"uid":"0b1c","allowed":true,"patch":"W10=","patchType":"JSONPatch"}`), uid, wants{patch: true}, ""},
		{"no", admission(`{"uid":"0b1c","allowed":false}`), uid, wants{}, "allowed is not true"},
		{"the wanted no", admission(`{"uid":"0b1c","allowed":false,"status":{"message":"one; two"}}`), uid, wants{denies: []string{"one", "two"}}, ""},
		{"half of the wanted no", admission(`{"uid":"0b1c","allowed":false,"status":{"message":"one"}}`), uid, wants{denies: []string{"one", "two"}}, `no "two"`},
		{"yes instead of no", admission(`{"uid":"0b1c","allowed":true,"status":{"message":"one"}}`), uid, wants{denies: []string{"one"}}, "allowed is true"},
		{"allowed missing", admission(`{"uid":"0b1c"}`), uid, wants{}, "allowed is not true"},
		{"other uid", admission(`{"uid":"0b1d","allowed":true}`), uid, wants{}, `uid "0b1d" instead of "0b1c"`},
		{"uid missing", admission(`{"allowed":true}`), uid, wants{}, `uid "" instead of "0b1c"`},
		{"no response", `{"kind":"AdmissionReview"}`, uid, wants{}, "no AdmissionReview with a response"},
		{"other kind", `{"kind":"TokenReview","response":{"uid":"0b1c","allowed":true}}`, uid, wants{}, "no AdmissionReview with a response"},
		{"patch missing", admission(`{"uid":"0b1c","allowed":true}`), uid, wants{patch: true}, "no JSON Patch"},
		{"patch without type", admission(`{"uid":"0b1c","allowed":true,"patch":"W10="}`), uid, wants{patch: true}, "no JSON Patch"},
		{"patch of a validating webhook", admission(`{"uid":"0b1c","allowed":true,"patch":"W10=","patchType":"JSONPatch"}`), uid, wants{}, "a patch"},
		{"no JSON", `ok`, uid, wants{}, "invalid character"},
		{"two answers", admission(`{"uid":"0b1c","allowed":true}`) + `{}`, uid, wants{}, "invalid character"},
		{"user", token(`{"authenticated":true,"user":{"username":"ann"}}`), "", wants{user: "ann"}, ""},
		{"other user", token(`{"authenticated":true,"user":{"username":"bob"}}`), "", wants{user: "ann"}, `user "bob" instead of "ann"`},
		{"unauthenticated", token(`{"authenticated":false}`), "", wants{user: "ann"}, "authenticated is not true"},
		{"token error", token(`{"authenticated":true,"error":"down","user":{"username":"ann"}}`), "", wants{user: "ann"}, "status.error"},
		{"admission for a token", admission(`{"uid":"0b1c","allowed":true}`), "", wants{user: "ann"}, "no TokenReview"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := checkAnswer([]byte(tt.text), tt.uid, tt.wants)
			if tt.want == "" && err != nil {
				t.Errorf("unexpected error: %v", err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// A webhook that says yes to all, or adds nothing, is found out before it is
// measured.
func TestProveFindsIdleWebhooks(t *testing.T) {
	for _, tt := range []struct{ scenario, want string }{
		{"validate/5KB/http2/c16", "a review that must be refused"},
		{"validate-10-policies/5KB/http2/c16", "a review that must be refused"},
		{"validate-10-violations/5KB/http2/c16", "allowed is true"},
		{"validate-template/5KB/http2/c16", "a review that must be refused"},
		{"authenticate/http2/c16", "a review that must be refused"},
		{"mutate/5KB/http2/c16", "no JSON Patch"},
		{"mutate-2-of-200-profiles/5KB/http2/c16", "no JSON Patch"},
		{"mutate-not-selected/5KB/http2/c16", "a review that must be refused"},
	} {
		t.Run(tt.scenario, func(t *testing.T) {
			address, ca := serveTLS(t, nullHandler())
			s := someScenario(t, tt.scenario)
			c, err := newClient(address, s.protocol, ca, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer c.transport.CloseIdleConnections()
			err = proveAnswers(t.Context(), load{client: c, path: s.path, wants: s.wants}, s, false)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// A patch that adds something else is found out.
func TestCheckInjected(t *testing.T) {
	const patch = `[{"op":"add","path":"/spec/initContainers","value":[{"name":"telemetry-agent"}]},{"op":"add","path":"/spec/volumes/-","value":{"name":"telemetry-agent"}}]`
	text, err := json.Marshal(map[string]any{"response": map[string]any{"patch": []byte(patch)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, scenario string
		sets           string
		want           string // part of the error; empty is none
	}{
		{"what it is to add", "mutate/5KB/http2/c16", "", ""},
		{"one of two", "mutate-2-profiles/5KB/http2/c16", "", `no init container "mesh-agent"`},
		{"without the parameters", "mutate-parameters/5KB/http2/c16", "", `no "--listen=:15021"`},
		{"with what was there", "mutate/5KB/http2/c16", `"checkout"`, `no "checkout" more than before`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := someScenario(t, tt.scenario)
			if tt.sets != "" {
				s.sets = []string{tt.sets}
			}
			err := checkInjected(s, text)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestRequireLoopback(t *testing.T) {
	for address, allowed := range map[string]bool{
		"127.0.0.1:443":      true,
		"127.8.8.8:0":        true,
		"[::1]:443":          true,
		"localhost:443":      false,
		"0.0.0.0:443":        false,
		":443":               false,
		"192.0.2.1:443":      false,
		"[::ffff:1.2.3.4]:1": false,
		"127.0.0.1":          false,
		"":                   false,
	} {
		if err := requireLoopback(address); (err == nil) != allowed {
			t.Errorf("%q: error %v, allowed %v", address, err, allowed)
		}
		if _, err := newClient(address, http2, "", nil); err == nil {
			t.Errorf("%q: a client without a CA was made", address)
		}
	}
}
