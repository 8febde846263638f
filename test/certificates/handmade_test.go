package certificates

import (
	"crypto/tls"
	"crypto/x509"
	"sync/atomic"
	"testing"

	typedv1 "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

const unknownAuthority = "certificate signed by unknown authority"

func (h *hook) configurations() typedv1.ValidatingWebhookConfigurationInterface {
	return h.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations()
}

func bundleOf(authorities ...*rotation.Authority) []byte {
	var certs []*x509.Certificate
	for _, a := range authorities {
		certs = append(certs, a.Cert)
	}
	return rotation.Bundle(certs)
}

// handmade is a server whose certificate is changed by hand.
type handmade struct {
	*server
	cert atomic.Pointer[tls.Certificate]
}

func (h *hook) serveByHand(t *testing.T, cert *tls.Certificate) *handmade {
	t.Helper()
	m := &handmade{}
	m.cert.Store(cert)
	var err error
	m.server, err = serve(t.Context(), func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return m.cert.Load(), nil })
	must(t, err)
	t.Cleanup(func() { _ = m.close() })
	return m
}

type pair [2]*handmade

func (p pair) work() work { return p[0].work().and(p[1].work()) }
