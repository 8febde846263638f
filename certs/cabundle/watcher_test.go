package cabundle

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/kube"
	"github.com/gatehouse-dev/gatehouse/test/support/certstest"
)

const service = "gatehouse.gatehouse-system.svc"

// events collects what is reported.
type events struct {
	mu   sync.Mutex
	list []certs.Event
}

func (e *events) notify(event certs.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, event)
}

// take returns what was reported since it was called last.
func (e *events) take() []certs.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := e.list
	e.list = nil
	return list
}

// one is the only event, which it must be.
func (e *events) one(t *testing.T) certs.Event {
	t.Helper()
	list := e.take()
	if len(list) != 1 {
		t.Fatalf("%d events were reported, want 1, the first are %+v", len(list), list[:min(3, len(list))])
	}
	return list[0]
}

func (e *events) none(t *testing.T) {
	t.Helper()
	if list := e.take(); len(list) > 0 {
		t.Fatalf("reported %+v, want nothing", list)
	}
}

func registrations(t testing.TB, names ...string) []Registration {
	t.Helper()
	var list []Registration
	for _, name := range names {
		r, err := ParseRegistration(name)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

// inBackground runs until the test ends.
func inBackground(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

// wantError checks that an error has all of the texts, or is nil if there are
// none.
func wantError(t *testing.T, err error, texts ...string) {
	t.Helper()
	if len(texts) == 0 {
		if err != nil {
			t.Errorf("got %v, want nil", err)
		}
		return
	}
	if err == nil {
		t.Fatalf("got nil, want an error with %q", texts)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want it to contain %q", err, text)
		}
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	root, other := newCA(t, "root", nil), newCA(t, "other", nil)
	middle := newCA(t, "middle", root)
	leaf := root.serve(t, service, "gatehouse.example.org", "192.0.2.10", "2001:db8::1")
	chained := middle.serve(t, service)
	chained.Certificate = append(chained.Certificate, middle.cert.Raw)
	client := issue(t, &x509.Certificate{DNSNames: []string{service}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, root)
	both := map[string]string{"a.gatehouse.dev": service, "b.gatehouse.dev": service}

	for _, test := range []struct {
		name   string
		put    map[string]func(*configuration)
		names  []string
		hosts  []string
		cert   *tls.Certificate
		at     time.Time
		wanted []string
	}{
		{name: "trusted", put: map[string]func(*configuration){"mutating/x": webhooks(root.pem(), both), "validating/x": webhooks(root.pem(), both)}},
		{name: "one of two kinds", put: map[string]func(*configuration){"validating/x": webhooks(root.pem(), both)}},
		{name: "among others", put: map[string]func(*configuration){"mutating/x": webhooks(bundleOf(root, other), both)}},
		{name: "through an intermediate", cert: chained, put: map[string]func(*configuration){"mutating/x": webhooks(root.pem(), both)}},
		{name: "by URL", put: map[string]func(*configuration){"mutating/x": webhooks(root.pem(), map[string]string{"a": "GATEHOUSE.example.org:9443"})}},
		{name: "by address", put: map[string]func(*configuration){"mutating/x": webhooks(root.pem(), map[string]string{"a": "192.0.2.10:9443", "b": "[2001:db8::1]"})}},
		{
			name: "another authority", put: map[string]func(*configuration){"mutating/x": webhooks(other.pem(), both)},
			wanted: []string{
				`MutatingWebhookConfiguration x, webhooks "a.gatehouse.dev" and "b.gatehouse.dev": its caBundle does not have the CA that signed the serving certificate (x509: `,
			},
		},
		{
			name: "only one of the kinds trusts", put: map[string]func(*configuration){"mutating/x": webhooks(root.pem(), both), "validating/x": webhooks(other.pem(), both)},
			wanted: []string{`ValidatingWebhookConfiguration x, webhooks "a.gatehouse.dev" and "b.gatehouse.dev": its caBundle does not have`},
		},
		{name: "another name", put: map[string]func(*configuration){"mutating/x": webhooks(root.pem(), map[string]string{"a": "other.gatehouse-system.svc"})}, wanted: []string{`webhook "a": it calls "other.gatehouse-system.svc", and the serving certificate is not for that name`}},
		{name: "another address", put: map[string]func(*configuration){"mutating/x": webhooks(root.pem(), map[string]string{"a": "192.0.2.11"})}, wanted: []string{`it calls "192.0.2.11"`}},
		{name: "expired", at: epoch.AddDate(2, 0, 0), put: map[string]func(*configuration){"mutating/x": webhooks(root.pem(), both)}, wanted: []string{"has expired or is not valid yet"}},
		{name: "not valid yet", at: epoch.AddDate(-1, 0, 0), put: map[string]func(*configuration){"mutating/x": webhooks(root.pem(), both)}, wanted: []string{"has expired or is not valid yet"}},
		{name: "not for servers", cert: &tls.Certificate{Certificate: [][]byte{client.cert.Raw}}, put: map[string]func(*configuration){"mutating/x": webhooks(root.pem(), both)}, wanted: []string{"incompatible key usage"}},
		{name: "no caBundle", put: map[string]func(*configuration){"mutating/x": webhooks("", both)}, wanted: []string{`webhooks "a.gatehouse.dev" and "b.gatehouse.dev": has no caBundle: an API server then trusts the CAs of its own system`}},
		{name: "placeholder", put: map[string]func(*configuration){"mutating/x": webhooks("\n", both)}, wanted: []string{"does not have the CA"}},
		{name: "damaged block", put: map[string]func(*configuration){"mutating/x": webhooks(strings.Replace(root.pem(), "M", "?", 1)+other.pem(), both)}, wanted: []string{"does not have the CA", "1 of its 2 PEM blocks are not certificates"}},
		{name: "damaged block beside", put: map[string]func(*configuration){"mutating/x": webhooks(strings.Replace(other.pem(), "M", "?", 1)+root.pem(), both)}},
		{name: "nothing there", wanted: []string{"MutatingWebhookConfiguration or ValidatingWebhookConfiguration x: not found: apply the output of gatehouse manifests"}},
		{
			name: "the other kind only", names: []string{"mutating/x"}, put: map[string]func(*configuration){"validating/x": webhooks(root.pem(), both)},
			wanted: []string{"MutatingWebhookConfiguration x: not found: apply the output of gatehouse manifests"},
		},
		{
			name: "all findings at once", names: []string{"x", "validating/y"}, put: map[string]func(*configuration){"mutating/x": webhooks(other.pem(), both)},
			wanted: []string{"ValidatingWebhookConfiguration y: not found", "MutatingWebhookConfiguration x, webhooks"},
		},
		{name: "no certificate", cert: &tls.Certificate{}, put: map[string]func(*configuration){"mutating/x": webhooks(root.pem(), both)}, wanted: []string{"there is no serving certificate yet"}},
		{name: "garbage for a certificate", cert: &tls.Certificate{Certificate: [][]byte{{1}}}, put: map[string]func(*configuration){"mutating/x": webhooks(root.pem(), both)}, wanted: []string{"certificate 1 of the serving certificate's chain cannot be read"}},
		{
			name: "of others not looked at", hosts: []string{"GATEHOUSE.gatehouse-system.svc"},
			put: map[string]func(*configuration){"mutating/x": webhooks(root.pem(), map[string]string{"a": service, "b": "else.where.svc"})},
		},
		{
			name: "none of ours", hosts: []string{"gatehouse.example.org", "192.0.2.1"},
			put:    map[string]func(*configuration){"mutating/x": webhooks(root.pem(), both)},
			wanted: []string{`MutatingWebhookConfiguration x: none of its webhooks calls Gatehouse: "a.gatehouse.dev" calls "gatehouse.gatehouse-system.svc", "b.gatehouse.dev" calls`, `the certificate is for ["gatehouse.example.org" "192.0.2.1"]`, "apply the output of gatehouse manifests"},
		},
		{name: "no webhooks", put: map[string]func(*configuration){"mutating/x": webhooks("", nil)}, wanted: []string{"MutatingWebhookConfiguration x: has no webhooks: apply the output"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := newAPIServer(t)
			for name, change := range test.put {
				server.put(name, change)
			}
			if test.names == nil {
				test.names = []string{"x"}
			}
			w := NewWatcher(WatcherConfig{Client: server.Client(), Registrations: registrations(t, test.names...), Hosts: test.hosts})
			if err := w.readOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
			if test.cert == nil {
				test.cert = leaf
			}
			if test.at.IsZero() {
				test.at = epoch
			}
			wantError(t, w.Verify(test.cert, test.at), test.wanted...)
		})
	}
}

func TestHolds(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	a, b := newCA(t, "a", nil), newCA(t, "b", nil)
	server.put("mutating/x", webhooks(bundleOf(a, b), map[string]string{"one": service}))
	server.put("validating/x", webhooks(b.pem(), map[string]string{"one": service, "two": service}))
	server.put("validating/empty", webhooks("", map[string]string{"one": service}))
	watching := func(names ...string) *Watcher {
		w := NewWatcher(WatcherConfig{Client: server.Client(), Registrations: registrations(t, names...)})
		if err := w.Holds(b.cert); len(names) > 0 && !errors.Is(err, certs.ErrUnread) {
			t.Errorf("before anything is read: got %v, want that it is not read", err)
		}
		if err := w.readOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		return w
	}
	wantError(t, watching("x").Holds(b.cert))
	err := watching("x").Holds(a.cert)
	wantError(t, err, `ValidatingWebhookConfiguration x, webhooks "one" and "two": its caBundle does not have the CA "CN=a" with SHA-256 `)
	if strings.Contains(err.Error(), "Mutating") {
		t.Errorf("%v names a configuration that has it", err)
	}
	wantError(t, watching("empty").Holds(a.cert), "has no caBundle")
	wantError(t, watching("x").Holds(nil), "there is no CA")
	wantError(t, watching().Holds(a.cert))
}

func TestWatcherOutlivesErrors(t *testing.T) {
	t.Parallel()
	const missing = `User "u" cannot watch resource "mutatingwebhookconfigurations"`
	for _, test := range []struct {
		name  string
		fault func(string, *http.Request) (*http.Response, error)
		says  []string
	}{
		{"away", func(string, *http.Request) (*http.Response, error) { return nil, errAway }, []string{"MutatingWebhookConfiguration x: the API server cannot be reached: ", "connection refused"}},
		{"hung", certstest.Hang, []string{"MutatingWebhookConfiguration x: the API server did not answer in time"}},
		{"hung at watches", func(verb string, r *http.Request) (*http.Response, error) {
			if verb == "watch" {
				return certstest.Hang(verb, r)
			}
			return nil, nil
		}, []string{"did not answer in time"}},
		{"broken", certstest.Refuses(http.StatusInternalServerError, "by the test", "list", "watch"), []string{"by the test"}},
		{"forbidden", certstest.Refuses(http.StatusForbidden, missing, "list", "watch"), []string{`MutatingWebhookConfiguration x: user "u" may not "watch" mutatingwebhookconfigurations (hint: a ClusterRole must allow list and watch of the mutatingwebhookconfigurations "x")`}},
		{"watch forbidden", certstest.Refuses(http.StatusForbidden, missing, "watch"), []string{"(hint: a ClusterRole must allow list and watch"}},
		{"unauthorized", certstest.Refuses(http.StatusUnauthorized, "by the test", "list"), []string{"rejects the credentials"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server, reported := newAPIServer(t), &events{}
				ca, other := newCA(t, "ca", nil), newCA(t, "other", nil)
				leaf := ca.serve(t, service)
				server.put("mutating/x", webhooks(ca.pem(), map[string]string{"one": service}))
				w := NewWatcher(WatcherConfig{Client: server.Client(), Registrations: registrations(t, "mutating/x"), Notify: reported.notify})
				inBackground(t, w.Run)
				synctest.Wait()
				wantError(t, w.Verify(leaf, time.Now()))

				server.Set(test.fault)
				begun := server.Requests("list") + server.Requests("watch")
				time.Sleep(10 * time.Minute)
				wantError(t, w.Verify(leaf, time.Now()))
				event := reported.one(t)
				wantError(t, event.Err, test.says...)
				if event.Object.Kind != "MutatingWebhookConfiguration" || event.Object.Name != "x" {
					t.Errorf("reported of %+v", event.Object)
				}
				if asked := server.Requests("list") + server.Requests("watch") - begun; asked < 25 || asked > 250 {
					t.Errorf("asked %d times in ten minutes", asked)
				}
				if w.Fresh() {
					t.Error("what cannot be read counts as fresh")
				}
				if s := w.Status(); len(s) != 1 || !s[0].Found || s[0].Problem == "" {
					t.Errorf("status is %+v", s)
				}

				server.put("mutating/x", webhooks(other.pem(), map[string]string{"one": service}))
				server.Set(nil)
				time.Sleep(longestDelay + kube.Timeout)
				wantError(t, w.Verify(leaf, time.Now()), "does not have the CA")
				wantError(t, reported.one(t).Err)
				if !w.Fresh() {
					t.Error("what is read again does not count as fresh")
				}
			})
		})
	}
}

// Everything that is named must have been read, what does not exist too.
func TestFresh(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer(t)
		server.put("mutating/x", webhooks("", map[string]string{"one": service}))
		w := NewWatcher(WatcherConfig{Client: server.Client(), Registrations: registrations(t, "x", "validating/y")})
		fresh := func(when string, want bool) {
			t.Helper()
			if got := w.Fresh(); got != want {
				t.Errorf("%s: fresh is %t, want %t", when, got, want)
			}
		}
		fresh("before anything is read", false)
		unreadable := func(_ string, r *http.Request) (*http.Response, error) {
			if strings.Contains(r.URL.Query().Get("fieldSelector"), "=y") {
				return nil, errAway
			}
			return nil, nil
		}
		server.Set(unreadable)
		inBackground(t, w.Run)
		time.Sleep(time.Minute)
		fresh("while one of three cannot be read", false)
		server.Set(nil)
		time.Sleep(2 * longestDelay)
		fresh("once all are read, two of which do not exist", true)
		time.Sleep(10 * time.Minute)
		fresh("through many watches", true)
		server.Set(func(string, *http.Request) (*http.Response, error) { return nil, errAway })
		time.Sleep(longestDelay)
		fresh("while the API server is away", false)
		server.Set(nil)
		time.Sleep(2 * longestDelay)
		fresh("once it is back", true)
	})
}

func TestUnreadSaysWhy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer(t)
		server.Set(certstest.Refuses(http.StatusForbidden, `User "u" cannot watch resource "x"`, "list"))
		w := NewWatcher(WatcherConfig{Client: server.Client(), Registrations: registrations(t, "validating/x")})
		inBackground(t, w.Run)
		synctest.Wait()
		err := w.Verify(newCA(t, "ca", nil).serve(t, service), time.Now())
		wantError(t, err, "(hint: a ClusterRole must allow list and watch of the validatingwebhookconfigurations")
		if !errors.Is(err, certs.ErrUnread) {
			t.Errorf("%v is not ErrUnread", err)
		}
	})
}

func TestNothingNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := NewWatcher(WatcherConfig{})
		inBackground(t, w.Run)
		wantError(t, w.Verify(nil, time.Now()))
		wantError(t, w.Ready(nil))
		if s := w.Status(); len(s) != 0 {
			t.Errorf("status is %+v", s)
		}
	})
}

func TestForeignConfigurationIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, reported := newAPIServer(t), &events{}
		ca := newCA(t, "ca", nil)
		server.put("mutating/x", webhooks(ca.pem(), map[string]string{"one": "else.where.svc"}))
		w := NewWatcher(WatcherConfig{Client: server.Client(), Registrations: registrations(t, "x"), Hosts: []string{service}, Notify: reported.notify})
		inBackground(t, w.Run)
		time.Sleep(time.Hour)
		wantError(t, reported.one(t).Err, `MutatingWebhookConfiguration x: none of its webhooks calls Gatehouse: "one" calls "else.where.svc", but the certificate is for ["`+service+`"]`)
		wantError(t, w.Holds(ca.cert), "none of its webhooks calls Gatehouse")
		server.put("mutating/x", webhooks(ca.pem(), map[string]string{"one": "else.where.svc", "two": service}))
		synctest.Wait()
		wantError(t, reported.one(t).Err)
		wantError(t, w.Holds(ca.cert))
	})
}

// A configuration that does not trust what is served is reported after a while,
// once, with the object, and so is the end of that.
func TestMonitorTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, reported := newAPIServer(t), &events{}
		ca, other := newCA(t, "ca", nil), newCA(t, "other", nil)
		leaf := ca.serve(t, service)
		one := map[string]string{"one": service}
		server.put("mutating/x", webhooks(other.pem(), one))
		server.put("validating/x", webhooks(ca.pem(), one))
		w := NewWatcher(WatcherConfig{Client: server.Client(), Registrations: registrations(t, "x"), Notify: reported.notify})
		inBackground(t, w.Run)
		inBackground(t, func(ctx context.Context) error { return w.MonitorTrust(ctx, func() *tls.Certificate { return leaf }) })
		time.Sleep(distrustTime - time.Second)
		reported.none(t)
		time.Sleep(distrustTime + time.Second)
		e := reported.one(t)
		wantError(t, e.Err, "MutatingWebhookConfiguration x, webhook \"one\": its caBundle does not have the CA")
		if e.Reason != certs.ReasonUntrusted || e.Object.Kind != "MutatingWebhookConfiguration" || e.Object.Name != "x" {
			t.Errorf("%+v", e)
		}
		time.Sleep(10 * distrustTime)
		reported.none(t)
		server.put("mutating/x", webhooks(ca.pem(), one))
		synctest.Wait()
		if e := reported.one(t); e.Err != nil || e.Reason != certs.ReasonTrusted || e.Message != "the serving certificate is trusted again" {
			t.Errorf("%+v", e)
		}
	})
}

// Whoever asks first is told what has been true for long enough: nobody has to ask
// for the time to pass. The certificate may come after what trusts it.
func TestReadyAtTheFirstProbe(t *testing.T) {
	t.Parallel()
	ca, other := newCA(t, "ca", nil), newCA(t, "other", nil)
	leaf := ca.serve(t, service)
	one := map[string]string{"one": service}
	for _, test := range []struct {
		name string
		// happens until there is something to notice.
		happens func(server *apiServer, serve func())
		// after is how long it takes to be noticed, noticeTime aside.
		after time.Duration
	}{
		{"trusted from the start", func(server *apiServer, serve func()) {
			serve()
			server.put("mutating/x", webhooks(ca.pem(), one))
		}, 0},
		{"trusted later", func(server *apiServer, serve func()) {
			serve()
			server.put("mutating/x", webhooks(other.pem(), one))
			time.Sleep(time.Minute + 300*time.Millisecond)
			server.put("mutating/x", webhooks(ca.pem(), one))
		}, 0},
		{"served later", func(server *apiServer, serve func()) {
			server.put("mutating/x", webhooks(ca.pem(), one))
			time.Sleep(time.Minute + 300*time.Millisecond)
			serve()
		}, noticeTime},
		{"changed while it waits", func(server *apiServer, serve func()) {
			serve()
			server.put("mutating/x", webhooks(ca.pem(), one))
			time.AfterFunc(noticeTime/2, func() { server.put("mutating/x", webhooks(bundleOf(ca, other), one)) })
		}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := newAPIServer(t)
				w := NewWatcher(WatcherConfig{Client: server.Client(), Registrations: registrations(t, "mutating/x")})
				var serving atomic.Pointer[tls.Certificate]
				inBackground(t, w.Run)
				inBackground(t, func(ctx context.Context) error { return w.MonitorTrust(ctx, serving.Load) })
				test.happens(server, func() { serving.Store(leaf) })
				time.Sleep(test.after + noticeTime)
				synctest.Wait()
				// Nobody has asked so far, and what was true then stays.
				server.remove("mutating/x")
				synctest.Wait()
				wantError(t, w.Verify(leaf, time.Now()), "not found")
				wantError(t, w.Ready(leaf))
			})
		})
	}
}

// What is untrusted again before API servers had the time to notice was never
// ready, and the time begins anew.
func TestTrustThatDoesNotLastIsNotReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer(t)
		ca := newCA(t, "ca", nil)
		leaf := ca.serve(t, service)
		one := map[string]string{"one": service}
		w := NewWatcher(WatcherConfig{Client: server.Client(), Registrations: registrations(t, "mutating/x")})
		inBackground(t, w.Run)
		inBackground(t, func(ctx context.Context) error { return w.MonitorTrust(ctx, func() *tls.Certificate { return leaf }) })
		for range 5 {
			server.put("mutating/x", webhooks(ca.pem(), one))
			time.Sleep(noticeTime - 100*time.Millisecond)
			server.put("mutating/x", webhooks("", one))
			time.Sleep(300 * time.Millisecond)
			wantError(t, w.Ready(leaf), "has no caBundle")
		}
	})
}

// A certificate that has ended is one state, whatever time it is: it is reported
// once.
func TestMonitorTrustOfAnExpiredCertificate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, reported := newAPIServer(t), &events{}
		ca := newCA(t, "ca", nil)
		leaf := ca.serve(t, service)
		server.put("mutating/x", webhooks(ca.pem(), map[string]string{"one": service}))
		w := NewWatcher(WatcherConfig{
			Client: server.Client(), Registrations: registrations(t, "x"), Notify: reported.notify,
			Now: func() time.Time { return time.Now().AddDate(100, 0, 0) },
		})
		inBackground(t, w.Run)
		inBackground(t, func(ctx context.Context) error { return w.MonitorTrust(ctx, func() *tls.Certificate { return leaf }) })
		time.Sleep(10 * distrustTime)
		wantError(t, reported.one(t).Err, "has expired or is not valid yet: check the clock, or renew it")
	})
}
