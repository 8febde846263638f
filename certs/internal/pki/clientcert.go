package pki

import (
	"crypto/ecdsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

const clientLife = 365 * 24 * time.Hour

// ClientCertificate issues a client certificate of the API server by the newest CA of a
// state, in PEM.
func ClientCertificate(state *rotation.State, now time.Time) (certPEM, keyPEM []byte, err error) {
	pair, err := Issue(Newest(state), &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver", Organization: []string{"gatehouse.dev"}},
		NotBefore:   now.Add(-rotation.Backdate),
		NotAfter:    now.Add(clientLife),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("client certificate: %w", err)
	}
	if keyPEM, err = EncodeKey(pair.PrivateKey.(*ecdsa.PrivateKey)); err != nil {
		return nil, nil, fmt.Errorf("client certificate: %w", err)
	}
	return EncodeCertificate(pair.Leaf.Raw), keyPEM, nil
}

// Newest is the CA that will be trusted for longest.
func Newest(state *rotation.State) *rotation.Authority {
	if state.Pending != nil && state.Pending.Key != nil {
		return state.Pending
	}
	return state.Current
}
