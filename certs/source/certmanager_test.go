package source

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/pki"
	"github.com/gatehouse-dev/gatehouse/test/support/certstest"
)

// managed is a cluster in which a test plays cert-manager.
type managed struct {
	t       *testing.T
	core    *fake.Clientset
	dynamic *dynamicfake.FakeDynamicClient

	mu     sync.Mutex
	events []certs.Event
}

func newManaged(t *testing.T) *managed {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := certmanagerv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	certificate := &certmanagerv1.Certificate{
		ObjectMeta: metav1.ObjectMeta{Name: "gatehouse", Namespace: "gatehouse-system"}, Spec: certmanagerv1.CertificateSpec{SecretName: "gatehouse-tls"},
	}
	return &managed{t: t, core: fake.NewClientset(), dynamic: dynamicfake.NewSimpleDynamicClient(scheme, certificate)}
}

func (c *managed) config() CertManagerConfig {
	return CertManagerConfig{
		Client: c.core, Dynamic: c.dynamic, Namespace: "gatehouse-system", Name: "gatehouse",
		Now: certstest.NewClock().Now, Notify: c.notify,
	}
}

func (c *managed) notify(e certs.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, e)
}

// last is the newest event about the certificate.
func (c *managed) last() certs.Event {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range slices.Backward(c.events) {
		if e.Subject == certs.ServingCertificate {
			return e
		}
	}
	c.t.Fatal("no event")
	return certs.Event{}
}

func (c *managed) source(cfg CertManagerConfig) *CertManager {
	return NewCertManager(c.t.Context(), cfg)
}

// edit changes the Certificate as cert-manager or a user does.
func (c *managed) edit(change func(map[string]any)) {
	c.t.Helper()
	client := c.dynamic.Resource(certificates()).Namespace("gatehouse-system")
	live, err := client.Get(c.t.Context(), "gatehouse", metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	change(live.Object)
	if _, err := client.Update(c.t.Context(), live, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// issue puts a pair into the Secret, and says that the Certificate is ready.
func (c *managed) issue(p certPair, ca *testAuthority) {
	c.t.Helper()
	c.secret(corev1.SecretTypeTLS, map[string][]byte{"tls.crt": p.Cert, "tls.key": p.Key, "ca.crt": pki.EncodeCertificate(ca.Cert.Raw)})
	c.condition("True", "Ready", "Certificate is up to date and has not expired")
}

func (c *managed) condition(status, reason, message string) {
	c.t.Helper()
	c.edit(func(o map[string]any) {
		o["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": status, "reason": reason, "message": message}}}
	})
}

func (c *managed) secret(kind corev1.SecretType, data map[string][]byte) {
	c.t.Helper()
	secrets := c.core.CoreV1().Secrets("gatehouse-system")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "gatehouse-tls", Namespace: "gatehouse-system"}, Type: kind, Data: data}
	_, err := secrets.Update(c.t.Context(), secret, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = secrets.Create(c.t.Context(), secret, metav1.CreateOptions{})
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// noKinds is what an API server answers that does not have cert-manager's CRDs.
func noKinds(action clienttesting.Action) (bool, runtime.Object, error) {
	return true, nil, apierrors.NewGenericServerResponse(http.StatusNotFound, action.GetVerb(), action.GetResource().GroupResource(), "", "404 page not found", 0, true)
}

func forbidden(action clienttesting.Action) (bool, runtime.Object, error) {
	resource := action.GetResource().GroupResource()
	return true, nil, apierrors.NewForbidden(resource, "gatehouse", errors.New(
		`User "system:serviceaccount:gatehouse-system:gatehouse" cannot `+action.GetVerb()+` resource "`+resource.Resource+`" in API group "`+resource.Group+`" in the namespace "gatehouse-system"`))
}

// What the cluster refuses is told with its remedy, and mended when the cluster
// is.
func TestCertManagerInATroubledCluster(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name string
		// verb of which resource is answered how, by the core API or by cert-manager's.
		verb, resource string
		answer         clienttesting.ReactionFunc
		says           []string
	}{
		{"cert-manager is not there", "*", "*", noKinds, []string{"the API server does not know cert-manager's kinds: install cert-manager, or use --self-signed-secret"}},
		{"no right", "get", "certificates", forbidden, []string{
			`Certificate gatehouse-system/gatehouse: user "system:serviceaccount:gatehouse-system:gatehouse" may not "get" certificates`,
			`(hint: a Role in namespace "gatehouse-system" must allow get and watch of the Certificate gatehouse-system/gatehouse)`,
		}},
		{"no Certificate", "get", "certificates", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewNotFound(certificates().GroupResource(), "gatehouse")
		}, []string{"does not exist (hint: apply the output of gatehouse manifests --certificates cert-manager --rights)"}},
		{"nobody answers", "get", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, context.DeadlineExceeded
		}, []string{"did not answer in time"}},
	}
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newManaged(t)
			wrong := true
			c.dynamic.PrependReactor(test.verb, test.resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
				if !wrong {
					return false, nil, nil
				}
				return test.answer(action)
			})
			m := c.source(c.config())
			e := c.last()
			if e.Err == nil || e.Reason != certs.ReasonIssuerFailed || e.Object.Name != "gatehouse" {
				t.Fatalf("got %+v", e)
			}
			for _, want := range test.says {
				if strings.Count(e.Err.Error(), want) != 1 {
					t.Errorf("said %q, want %q", e.Err, want)
				}
				if err := m.Healthy(); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("Healthy: %v, want %q", err, want)
				}
			}
			if m.nextRefresh() != issueInterval {
				t.Errorf("tried again after %s", m.nextRefresh())
			}
			wrong = false
			m.refresh(t.Context())
			if e := c.last(); e.Err != nil {
				t.Errorf("still says %v", e.Err)
			}
		})
	}
}

// What cert-manager says about a Certificate is passed on: at once where there is
// nothing to serve, and in an Event when it lasts.
func TestCertManagerPassesOnWhatIsNotReady(t *testing.T) {
	t.Parallel()
	c := newManaged(t)
	now := certstest.NewClock()
	cfg := c.config()
	cfg.Now = now.Now
	m := c.source(cfg)
	if err := m.Healthy(); err == nil || !strings.Contains(err.Error(), "cert-manager has not processed it (hint: check that cert-manager's controller runs)") {
		t.Errorf("Healthy: %v", err)
	}
	if _, err := m.GetCertificate(nil); err == nil {
		t.Error("a certificate out of nothing")
	}
	c.condition("False", "DoesNotExist", "issuer \x1b[31m not found "+strings.Repeat("ab ", 1000))
	m.refresh(t.Context())
	err := m.Healthy()
	if err == nil || !strings.Contains(err.Error(), `Certificate gatehouse-system/gatehouse: is not ready: "DoesNotExist": "issuer  [31m not found ab ab`) {
		t.Fatalf("Healthy: %v", err)
	}
	if len(err.Error()) > 1000 {
		t.Errorf("%d bytes of error", len(err.Error()))
	}
	if e := c.last(); e.Err != nil {
		t.Errorf("an event at once: %v", e.Err)
	}
	now.Advance(issueTime)
	m.refresh(t.Context())
	if e := c.last(); e.Reason != certs.ReasonIssuerFailed || e.Err == nil || !strings.Contains(e.Err.Error(), "DoesNotExist") {
		t.Errorf("got %+v", e)
	}
	ca := newCA(t)
	c.issue(ca.Valid(t, 30*day), ca)
	m.refresh(t.Context())
	if e := c.last(); e.Err != nil || m.Healthy() != nil {
		t.Errorf("got %+v, Healthy: %v", e, m.Healthy())
	}
}

// Whatever is in the Secret, the last good pair stays, what is wrong is named with
// Secret and key, and no key is shown.
func TestCertManagerAndHostileSecrets(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	good, next := ca.Valid(t, 30*day), ca.Valid(t, 60*day)
	caPEM := pki.EncodeCertificate(ca.Cert.Raw)
	const reissue = "(hint: delete the Secret: cert-manager creates it again)"
	set := func(cert, key []byte) map[string][]byte {
		return map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": caPEM}
	}
	ended := ca.Pair(t, leafTemplate(certstest.Noon.Add(-2*day), certstest.Noon.Add(-day)))
	early := ca.Pair(t, leafTemplate(certstest.Noon.Add(day), certstest.Noon.Add(2*day)))
	cases := []struct {
		name string
		kind corev1.SecretType
		data map[string][]byte
		says []string
	}{
		{"nothing", corev1.SecretTypeTLS, nil, []string{"tls.crt is missing, tls.key is missing " + reissue}},
		{"empty keys", corev1.SecretTypeTLS, set(nil, nil), []string{"tls.crt is missing, tls.key is missing"}},
		{"a Secret for something else", corev1.SecretTypeOpaque, map[string][]byte{"password": []byte("hunter2")}, []string{"tls.crt is missing", `(it is of type "Opaque" and not "kubernetes.io/tls")`}},
		{"no key", corev1.SecretTypeTLS, set(next.Cert, nil), []string{": tls.key is missing"}},
		{"no certificate", corev1.SecretTypeTLS, set(nil, next.Key), []string{": tls.crt is missing"}},
		{"half a certificate", corev1.SecretTypeTLS, set(next.Cert[:100], next.Key), []string{"tls.crt: 0 of 1 PEM blocks can be read"}},
		{"half a key", corev1.SecretTypeTLS, set(next.Cert, next.Key[:100]), []string{"tls.key: 0 of 1 PEM blocks can be read"}},
		{"another's key", corev1.SecretTypeTLS, set(next.Cert, good.Key), []string{"certificate and key do not match: tls.crt was not issued for the key in tls.key"}},
		{"swapped", corev1.SecretTypeTLS, set(next.Key, next.Cert), []string{"tls.crt: holds a private key and no certificate"}},
		{"the CA first", corev1.SecretTypeTLS, set(append(slices.Clone(caPEM), next.Cert...), next.Key), []string{"is number 2 in the file"}},
		{"garbage", corev1.SecretTypeTLS, set([]byte("\x00\xff"), []byte("\x00\xff")), []string{"tls.crt: holds no PEM block"}},
		{"a type that goes on", corev1.SecretTypeTLS, set([]byte("-----BEGIN "+strings.Repeat("A B\x1b", 10000)+"-----\n-----END "+strings.Repeat("A B\x1b", 10000)+"-----\n"), next.Key), []string{"tls.crt: "}},
		{"a private key of a strange type", corev1.SecretTypeTLS, set(next.Cert, []byte("-----BEGIN \x1b[31m PRIVATE KEY-----\nAAAA\n-----END \x1b[31m PRIVATE KEY-----\n")), []string{"tls.key: the  [31m PRIVATE KEY cannot be read"}},
		{"expired", corev1.SecretTypeTLS, set(ended.Cert, ended.Key), []string{"expired at 2026-11-19T12:00:00Z"}},
		{"not valid yet", corev1.SecretTypeTLS, set(early.Cert, early.Key), []string{"not valid before 2026-11-21T12:00:00Z"}},
	}
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newManaged(t)
			m := c.source(c.config())
			c.issue(good, ca)
			m.refresh(t.Context())

			c.secret(test.kind, test.data)
			m.refresh(t.Context())
			e := c.last()
			if e.Err == nil || !e.NotAfter.Equal(good.Until) {
				t.Fatalf("got %+v", e)
			}
			text := e.Err.Error()
			for _, want := range append(test.says, "Secret gatehouse-system/gatehouse-tls: ") {
				if !strings.Contains(text, want) {
					t.Errorf("said %q, want %q", text, want)
				}
			}
			if len(text) > 2000 || strings.Contains(text, "hunter2") || strings.ContainsAny(text, "\x1b\n") ||
				strings.Contains(text, string(next.Key[40:60])) || strings.Contains(text, string(good.Key[40:60])) {
				t.Errorf("said %q", text)
			}
			if !bytes.Equal(serving(t, m), good.Cert) || m.Healthy() != nil {
				t.Errorf("the good pair is not served, or not healthy: %v", m.Healthy())
			}

			c.issue(next, ca)
			m.refresh(t.Context())
			if e := c.last(); e.Err != nil || !bytes.Equal(serving(t, m), next.Cert) {
				t.Errorf("the next pair is not served: %+v", e)
			}
		})
	}
}

func TestCertManagerKeepsWhatItHas(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name string
		do   func(c *managed)
		says string
	}{
		{"the Secret is deleted", func(c *managed) {
			if err := c.core.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("secrets"), "gatehouse-system", "gatehouse-tls"); err != nil {
				c.t.Fatal(err)
			}
		}, "Secret gatehouse-system/gatehouse-tls: does not exist any more: cert-manager creates it again"},
		{"the right is withdrawn", func(c *managed) { c.core.PrependReactor("get", "secrets", forbidden) }, `may not "get" secrets (hint: a Role in namespace "gatehouse-system" must allow get and watch of the Secret gatehouse-system/gatehouse-tls)`},
		{"nobody answers", func(c *managed) {
			for _, f := range []*clienttesting.Fake{&c.core.Fake, &c.dynamic.Fake} {
				f.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, context.DeadlineExceeded
				})
			}
		}, "did not answer in time"},
		{"cert-manager is removed", func(c *managed) { c.dynamic.PrependReactor("*", "*", noKinds) }, errNoCertManager.Error()},
	}
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newManaged(t)
			m := c.source(c.config())
			ca := newCA(t)
			good := ca.Valid(t, 30*day)
			c.issue(good, ca)
			m.refresh(t.Context())
			test.do(c)
			m.refresh(t.Context())
			if e := c.last(); e.Err == nil || !strings.Contains(e.Err.Error(), test.says) || e.Reason != certs.ReasonIssuerFailed {
				t.Errorf("got %+v, want %q", e, test.says)
			}
			if !bytes.Equal(serving(t, m), good.Cert) || m.Healthy() != nil {
				t.Errorf("not served any more, or not healthy: %v", m.Healthy())
			}
		})
	}
}

// A certificate that nobody renews is told long before its end, and unhealthy
// after it.
func TestCertManagerSaysWhatIsNotRenewed(t *testing.T) {
	t.Parallel()
	c := newManaged(t)
	now := certstest.NewClock()
	cfg := c.config()
	cfg.Now = now.Now
	m := c.source(cfg)
	ca := newCA(t)
	c.issue(ca.Pair(t, leafTemplate(certstest.Noon, certstest.Noon.Add(60*day))), ca)
	m.refresh(t.Context())
	now.Advance(49 * day)
	m.refresh(t.Context())
	if e := c.last(); e.Err != nil {
		t.Errorf("too early: %v", e.Err)
	}
	now.Advance(2 * day)
	m.refresh(t.Context())
	if e := c.last(); e.Reason != certs.ReasonExpiring || e.Err == nil || !strings.Contains(e.Err.Error(), "was not renewed") {
		t.Errorf("got %+v", e)
	}
	now.Advance(10 * day)
	m.refresh(t.Context())
	if err := m.Healthy(); err == nil || !strings.Contains(err.Error(), "Certificate gatehouse-system/gatehouse: expired at") {
		t.Errorf("Healthy: %v", err)
	}
}

// Without the right to watch, changes are noticed within a minute, and that is
// told.
func TestCertManagerWithoutWatching(t *testing.T) {
	t.Parallel()
	a := newCA(t)
	first, second := a.Valid(t, 30*day), a.Valid(t, 60*day)
	synctest.Test(t, func(t *testing.T) {
		c := newManaged(t)
		c.core.PrependWatchReactor("secrets", func(action clienttesting.Action) (bool, watch.Interface, error) {
			_, _, err := forbidden(action)
			return true, nil, err
		})
		m := c.source(c.config())
		c.issue(first, a)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		time.Sleep(2 * issuedInterval)
		synctest.Wait()
		if e := c.last(); e.Err == nil || !strings.Contains(e.Err.Error(), `changes are detected only every 1m0s: Secret gatehouse-system/gatehouse-tls: user`) {
			t.Errorf("got %+v", e)
		}
		c.secret(corev1.SecretTypeTLS, map[string][]byte{"tls.crt": second.Cert, "tls.key": second.Key})
		time.Sleep(issuedInterval)
		synctest.Wait()
		if !bytes.Equal(serving(t, m), second.Cert) {
			t.Error("the renewal is not served after a minute")
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}
