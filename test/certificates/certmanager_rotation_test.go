package certificates

import (
	"context"
	"crypto/x509"
	"testing"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmetav1 "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/test/support/certmanager"
)

// The program uses the printed Certificate and has the printed rights, and cainjector fills in the registration:
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
		served, err := look(t.Context(), p.Reviews.String(), m.host(), rotation.Bundle([]*x509.Certificate{old, ca}))
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

// watched is within what time a change is noticed that is watched for. Without that it takes a minute.
const watched = 10 * time.Second

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
	if took.last > watched {
		t.Errorf("a renewed certificate was served after %s, want %s at most", took.last, watched)
	}
	return ca, leaf
}

// clusterIssuer makes a CA for the whole cluster, of the hook's name.
func (m *managed) clusterIssuer(t *testing.T) {
	t.Helper()
	client := m.cm.Client().CertmanagerV1()
	selfSigned := m.name + "-self-signed"
	for name, config := range map[string]certmanagerv1.IssuerConfig{
		selfSigned: {SelfSigned: &certmanagerv1.SelfSignedIssuer{}},
		m.name:     {CA: &certmanagerv1.CAIssuer{SecretName: m.name}},
	} {
		_, err := client.ClusterIssuers().Create(t.Context(), &certmanagerv1.ClusterIssuer{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certmanagerv1.IssuerSpec{IssuerConfig: config},
		}, metav1.CreateOptions{})
		must(t, err)
	}
	_, err := client.Certificates(certmanager.Namespace).Create(t.Context(), &certmanagerv1.Certificate{
		ObjectMeta: metav1.ObjectMeta{Name: m.name},
		Spec: certmanagerv1.CertificateSpec{
			IsCA: true, CommonName: m.name, SecretName: m.name,
			IssuerRef: cmmetav1.IssuerReference{Name: selfSigned, Kind: certmanagerv1.ClusterIssuerKind},
		},
	}, metav1.CreateOptions{})
	must(t, err)
}

// createCertificate makes the hook's Certificate as a user does. It ends with the test.
func (m *managed) createCertificate(t *testing.T, hosts ...string) {
	t.Helper()
	const life, age = 30 * time.Second, 4 * time.Second // at which it is renewed
	certificates := m.cm.Client().CertmanagerV1().Certificates(m.name)
	t.Cleanup(func() {
		err := certificates.Delete(context.WithoutCancel(t.Context()), m.name, metav1.DeleteOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	_, err := certificates.Create(t.Context(), &certmanagerv1.Certificate{
		ObjectMeta: metav1.ObjectMeta{Name: m.name},
		Spec: certmanagerv1.CertificateSpec{
			DNSNames: hosts, SecretName: m.leafSecret(),
			Duration: &metav1.Duration{Duration: life}, RenewBefore: &metav1.Duration{Duration: life - age},
			IssuerRef: cmmetav1.IssuerReference{Name: m.name, Kind: certmanagerv1.ClusterIssuerKind},
		},
	}, metav1.CreateOptions{})
	must(t, err)
}
