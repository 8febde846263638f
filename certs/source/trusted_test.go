package source

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/pki"
)

// trusted is a Trust whose registrations trust what a test says.
type trusted struct {
	mu     sync.Mutex
	unread bool
	// stale reports that registrations cannot be read now.
	stale bool
	cas   []*x509.Certificate
	// calls is the name that webhook x calls, "" if that does not matter.
	calls   string
	changed chan struct{}
}

func newTrusted(cas ...*x509.Certificate) *trusted {
	return &trusted{cas: cas, changed: make(chan struct{})}
}

// set is what a registration trusts from now on.
func (t *trusted) set(cas ...*x509.Certificate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unread, t.cas = false, cas
	close(t.changed)
	t.changed = make(chan struct{})
}

// call is the name that webhook x calls from now on.
func (t *trusted) call(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = name
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *trusted) Verify(cert *tls.Certificate, now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unread {
		return certs.ErrUnread
	}
	roots := x509.NewCertPool()
	for _, ca := range t.cas {
		roots.AddCert(ca)
	}
	_, err := cert.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, DNSName: t.calls})
	if host, ok := errors.AsType[x509.HostnameError](err); ok {
		return errors.Join(&certs.DistrustError{Registration: "ValidatingWebhookConfiguration x", Webhooks: []string{"a"}, Err: host})
	}
	if err != nil {
		return errors.New("registration x does not trust it")
	}
	return nil
}

func (t *trusted) Holds(ca *x509.Certificate) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unread {
		return certs.ErrUnread
	}
	if !slices.ContainsFunc(t.cas, ca.Equal) {
		return errors.New("registration x lacks it")
	}
	return nil
}

// Fresh implements Trust.
func (t *trusted) Fresh() bool { return !t.stale }

// Changed implements Trust.
func (t *trusted) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// parsed is a pair as a source has it.
func parsed(t testing.TB, p certPair) *tls.Certificate {
	t.Helper()
	c, err := pki.ParsePair("tls.crt", p.Cert, "tls.key", p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
