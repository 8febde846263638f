package certificates

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
)

// The program uses the files of the printed Certificate and has the printed rights, and cainjector fills in the registration:
// cert-manager issues first and injects afterwards, and however late it injects, no call fails.
func injected(t *testing.T, m *managed) {
	m.install(t)
	m.inject(t)
	ps := m.replicas(t)
	l := m.load(t, ps.connections)
	old, renewed := m.renewed(t, ps)

	goOn := m.hang(t)
	ca, leaf := m.changeCA(t)
	l.last(t, stall)
	for _, p := range ps {
		served, err := look(t.Context(), p.Reviews.String(), m.host(), certs.Bundle([]*x509.Certificate{old, ca}))
		must(t, err)
		if !served.Equal(renewed) {
			t.Errorf("%s serves another certificate, and cainjector has not injected its CA", p.name)
		}
	}
	goOn()
	took := m.follow(t, ps, leaf, old, ca)
	t.Logf("a new CA, and cainjector hangs for %s: %s", stall, took)
	held(t, took)

	ca2, leaf := m.changeCA(t)
	took = m.follow(t, ps, leaf, old, ca, ca2)
	t.Logf("a new CA: %s", took)
	held(t, took)
	l.last(t, lag)
	l.noneFailed(t, enough)
	ps.untrusted(t)
	ps.forbidden(t)
	bundle, err := m.bundle(t.Context())
	must(t, err)
	if list := certificatesIn(t, bundle); len(list) != 3 { // cainjector forgets what has expired, and nothing before
		t.Errorf("%d CAs are trusted, want 3", len(list))
	}
}

// noticed is within what time a change of the files is noticed.
const noticed = 10 * time.Second

// held fails the test if a certificate of a new CA was not held back.
func held(t *testing.T, p passage) {
	t.Helper()
	const late = lag / 2 // the bundle was there for so long before it was seen, at most
	if p.first-p.trusted < lag-late {
		t.Errorf("the certificate was served %s after it was trusted, want %s at least", p.first-p.trusted, lag)
	}
}

// renewed has the certificate renewed, without a new CA, and returns both.
func (m *managed) renewed(t *testing.T, ps programs) (ca, leaf *x509.Certificate) {
	t.Helper()
	ca, err := m.issued(t.Context(), m.authoritySecret())
	must(t, err)
	leaf = m.renew(t, m.name, m.leafSecret())
	took := m.follow(t, ps, leaf, ca)
	t.Logf("a renewal: %s", took)
	if took.last > noticed {
		t.Errorf("a renewed certificate was served after %s, want %s at most", took.last, noticed)
	}
	return ca, leaf
}
