package cabundle

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/kube"
	"github.com/gatehouse-dev/gatehouse/test/support/certstest"
)

// authorities are a certs.Authorities that a test sets.
type authorities struct {
	mu      sync.Mutex
	list    []*x509.Certificate
	err     error
	cert    *tls.Certificate
	changed chan struct{}
	// before is called by Bundle after it has read, and before it returns.
	before func(context.Context)
}

func newAuthorities(cert *tls.Certificate, list ...*authority) *authorities {
	a := &authorities{changed: make(chan struct{})}
	a.set(cert, list...)
	return a
}

func (a *authorities) set(cert *tls.Certificate, list ...*authority) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cert, a.list, a.err = cert, nil, nil
	for _, each := range list {
		a.list = append(a.list, each.cert)
	}
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *authorities) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

func (a *authorities) Bundle(ctx context.Context) ([]*x509.Certificate, error) {
	a.mu.Lock()
	list, err, before := a.list, a.err, a.before
	a.mu.Unlock()
	if before != nil {
		before(ctx)
	}
	return list, err
}

func (a *authorities) Certificate() *tls.Certificate {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cert
}

func (a *authorities) Changed() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changed
}

// replica is a Watcher and a Publisher that run.
type replica struct {
	*Publisher
	reported *events
}

func startReplica(t *testing.T, server *apiServer, a certs.Authorities, names ...string) *replica {
	t.Helper()
	r := &replica{reported: &events{}}
	client := server.Client()
	w := NewWatcher(WatcherConfig{Client: client, Registrations: registrations(t, names...), Hosts: []string{service}})
	r.Publisher = NewPublisher(PublisherConfig{Client: client, Watcher: w, Authorities: a, Notify: r.reported.notify})
	inBackground(t, w.Run)
	inBackground(t, r.Run)
	return r
}

// soon is by when a bundle must be right again.
const soon = time.Second

func wantBundles(t *testing.T, server *apiServer, name string, want ...string) {
	t.Helper()
	got := server.bundles(name)
	if len(got) != len(want) {
		t.Fatalf("%s has %d webhooks, want %d", name, len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("webhook %d of %s has the caBundle %q, want %q", i, name, got[i], want[i])
		}
	}
}

func TestReplicasWriteOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer(t)
		ca := newCA(t, "ca", nil)
		server.put("validating/x", webhooks("", map[string]string{"one": service}))
		for range 5 {
			startReplica(t, server, newAuthorities(ca.serve(t, service), ca), "x")
		}
		time.Sleep(time.Hour)
		wantBundles(t, server, "validating/x", ca.pem())
		if patches, gets := server.Requests("patch"), server.Requests("get"); patches != 1 || gets != 1 {
			t.Errorf("five replicas wrote %d times and set about it %d times", patches, gets)
		}
	})
}

func TestOverwritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer(t)
		ca, other := newCA(t, "ca", nil), newCA(t, "other", nil)
		server.put("validating/x", webhooks("", map[string]string{"one": service, "two": service}))
		r := startReplica(t, server, newAuthorities(ca.serve(t, service), ca), "x")
		time.Sleep(soon)
		r.reported.take()

		const times = 450 // 90 s
		for range times {
			server.put("validating/x", func(o *configuration) {
				o.Webhooks[0].ClientConfig.CABundle = []byte(other.pem())
				o.ManagedFields = []metav1.ManagedFieldsEntry{
					{Manager: FieldManager, Operation: "Apply", FieldsV1: metav1.NewFieldsV1(`{"f:webhooks":{"k:{\"name\":\"two\"}":{"f:clientConfig":{"f:caBundle":{}}}}}`), Time: &metav1.Time{Time: epoch.AddDate(0, 0, 2)}},
					{Manager: "scaler", Operation: "Update", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{}}`), Time: &metav1.Time{Time: epoch.AddDate(0, 0, 1)}},
					{Manager: "argocd-controller", Operation: "Apply", FieldsV1: metav1.NewFieldsV1(`{"f:webhooks":{"k:{\"name\":\"one\"}":{".":{},"f:clientConfig":{"f:caBundle":{}}}}}`), Time: &metav1.Time{Time: epoch}},
				}
			})
			time.Sleep(spread + 50*time.Millisecond)
			wantBundles(t, server, "validating/x", ca.pem(), ca.pem())
		}
		time.Sleep(2 * interval)
		list := r.reported.take()
		if len(list) != 2 {
			t.Fatalf("reported %d times, want at once and after a minute: %+v", len(list), list)
		}
		for _, e := range list {
			if e.Reason != certs.ReasonOverwritten || e.Object.Name != "x" || e.Err != nil || !strings.Contains(e.Message, `"argocd-controller" (Apply) changed the caBundle of webhook "one", and Gatehouse restored it`) {
				t.Errorf("reported %+v", e)
			}
		}
		if s := r.Stats(); s != (Stats{Published: times + 1, Overwritten: times}) {
			t.Errorf("counted %+v, want %d", s, times)
		}
	})
}

func TestInjectorIsLeftAlone(t *testing.T) {
	t.Parallel()
	for _, annotation := range []string{"cert-manager.io/inject-ca-from", "cert-manager.io/inject-ca-from-secret", "cert-manager.io/inject-apiserver-ca"} {
		t.Run(annotation, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := newAPIServer(t)
				ca := newCA(t, "ca", nil)
				server.put("mutating/x", webhooks("", map[string]string{"one": service}))
				server.put("mutating/x", func(o *configuration) { o.Annotations = map[string]string{annotation: "true"} })
				server.put("validating/x", webhooks("", map[string]string{"one": service}))
				r := startReplica(t, server, newAuthorities(ca.serve(t, service), ca), "mutating/x", "validating/x")
				time.Sleep(time.Hour)
				wantBundles(t, server, "mutating/x", "")
				wantBundles(t, server, "validating/x", ca.pem())
				if n := server.Requests("get"); n != 1 {
					t.Errorf("set about writing %d times", n)
				}
				list := r.reported.take()
				if len(list) != 2 || list[0].Reason != certs.ReasonPublishFailed || list[0].Object.Kind != "MutatingWebhookConfiguration" {
					t.Fatalf("reported %+v", list)
				}
				wantError(t, list[0].Err, "MutatingWebhookConfiguration x: its caBundle is left to cert-manager's cainjector, because of the annotation "+annotation+": remove that annotation, or run with --publish-ca-bundle=false")

				server.put("mutating/x", func(o *configuration) { o.Annotations = nil })
				time.Sleep(soon)
				wantBundles(t, server, "mutating/x", ca.pem())
			})
		})
	}
}

// A change of the authorities while something else happens must not be missed
// until the next look without a reason.
func TestChangesAtTheSameTime(t *testing.T) {
	t.Parallel()
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			server := newAPIServer(t)
			a, b := newCA(t, "a", nil), newCA(t, "b", nil)
			leaf := a.serve(t, service)
			server.put("validating/x", webhooks("", map[string]string{"one": service}))
			source := newAuthorities(leaf, a)
			reads := 0
			source.before = func(context.Context) {
				if reads++; reads == 1 {
					source.set(leaf, a, b)
					server.put("validating/x", webhooks(a.pem(), map[string]string{"one": service}))
					synctest.Wait()
				}
			}
			startReplica(t, server, source, "x")
			time.Sleep(soon)
			wantBundles(t, server, "validating/x", bundleOf(a, b))
		})
	}
}

func TestWritesNothingThatBreaksCalls(t *testing.T) {
	t.Parallel()
	a, b := newCA(t, "a", nil), newCA(t, "b", nil)
	leaf := a.serve(t, service)
	ended := issue(t, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, NotBefore: epoch.AddDate(-2, 0, 0), NotAfter: epoch.AddDate(-1, 0, 0)}, nil)
	begins := issue(t, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, NotBefore: epoch.AddDate(1, 0, 0), NotAfter: epoch.AddDate(2, 0, 0)}, nil)
	for _, test := range []struct {
		name string
		from *authorities
		err  error
		says string
	}{
		{name: "does not verify", from: newAuthorities(leaf, b), says: `ValidatingWebhookConfiguration x, webhook "one": no caBundle is written, because calls would fail with it: its caBundle does not have the CA`},
		{name: "another name", from: newAuthorities(a.serve(t, "else.where.svc"), a), says: `it calls "gatehouse.gatehouse-system.svc"`},
		{name: "not a CA", from: newAuthorities(leaf, a, &authority{cert: leaf.Leaf}), says: `the certificate "CN=gatehouse" is not that of a CA`},
		{name: "has expired", from: newAuthorities(leaf, a, ended), says: "has expired at 1999-01-01T00:00:00Z"},
		{name: "is not valid yet", from: newAuthorities(leaf, a, begins), says: "is not valid before 2001-01-01T00:00:00Z"},
		{name: "nothing is served", from: newAuthorities(nil, a), says: "no caBundle is written, because its CAs are unknown: there is no serving certificate yet"},
		{name: "no CA", from: newAuthorities(leaf), says: "there is no CA yet"},
		{name: "not known", from: newAuthorities(leaf, a), err: errors.New("Secret a/b: cannot be read"), says: "because its CAs are unknown: Secret a/b: cannot be read"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				test.from.changed = make(chan struct{}) // one of this bubble
				test.from.fail(test.err)
				server := newAPIServer(t)
				server.put("validating/x", webhooks("as it was", map[string]string{"one": service}))
				r := startReplica(t, server, test.from, "x")
				time.Sleep(grace / 2)
				if strings.Contains(test.says, "not known") {
					r.reported.none(t)
				}
				time.Sleep(time.Hour)
				e := r.reported.one(t)
				wantError(t, e.Err, test.says)
				if e.Reason != certs.ReasonPublishFailed || r.Stats().Failed == 0 || r.Stats().Published != 0 {
					t.Errorf("reported %+v, counted %+v", e, r.Stats())
				}
				wantBundles(t, server, "validating/x", "as it was")
				if n := server.Requests("patch"); n != 0 {
					t.Errorf("%d patches were tried", n)
				}

				test.from.set(leaf, a)
				time.Sleep(longestDelay)
				wantBundles(t, server, "validating/x", a.pem())
			})
		})
	}
}

func TestWriteFails(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		fault func(string, *http.Request) (*http.Response, error)
		says  []string
	}{
		{"patch forbidden", certstest.Refuses(http.StatusForbidden, `User "u" cannot patch resource "x"`, "patch"), []string{`ValidatingWebhookConfiguration x: user "u" may not "patch" validatingwebhookconfigurations (hint: a ClusterRole must allow patch of the validatingwebhookconfigurations "x")`}},
		{"get forbidden", certstest.Refuses(http.StatusForbidden, "by the test", "get"), []string{"ValidatingWebhookConfiguration x: the API server refuses to get it: by the test"}},
		{"entry gone", certstest.Refuses(http.StatusUnprocessableEntity, "by the test", "patch"), []string{"apply the output of gatehouse manifests again, a webhook may be missing"}},
		{"away", func(verb string, _ *http.Request) (*http.Response, error) {
			if verb == "patch" {
				return nil, errAway
			}
			return nil, nil
		}, []string{"the API server cannot be reached: ", "connection refused"}},
		{"hung", func(verb string, r *http.Request) (*http.Response, error) {
			if verb == "patch" {
				return certstest.Hang(verb, r)
			}
			return nil, nil
		}, []string{"did not answer in time when asked to patch it"}},
		{"conflicts", certstest.Refuses(http.StatusConflict, "by the test", "patch"), []string{"another client changes it all the time: find it with kubectl get --show-managed-fields"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := newAPIServer(t)
				ca := newCA(t, "ca", nil)
				server.put("validating/x", webhooks("", map[string]string{"one": service}))
				server.Set(test.fault)
				r := startReplica(t, server, newAuthorities(ca.serve(t, service), ca), "x")
				time.Sleep(10 * time.Minute)
				e := r.reported.one(t)
				wantError(t, e.Err, test.says...)
				if e.Reason != certs.ReasonPublishFailed || e.Object.Name != "x" {
					t.Errorf("reported %+v", e)
				}
				failed := r.Stats().Failed
				if failed < 10 || failed > 200 {
					t.Errorf("failed %d times in ten minutes", failed)
				}
				server.Set(nil)
				time.Sleep(longestDelay + kube.Timeout)
				wantBundles(t, server, "validating/x", ca.pem())
				if e := r.reported.one(t); e.Reason != certs.ReasonPublished {
					t.Errorf("reported %+v", e)
				}
			})
		})
	}
}
