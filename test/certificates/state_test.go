package certificates

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/test/support"
)

func (h *hook) secret(ctx context.Context) (*corev1.Secret, error) {
	return h.Client().CoreV1().Secrets(h.name).Get(ctx, secret, metav1.GetOptions{})
}

// state is what is in the Secret. What is damaged is an error.
func (h *hook) state(ctx context.Context) (*certs.State, error) {
	found, err := h.secret(ctx)
	if err != nil {
		return nil, err
	}
	return decode(found.Data)
}

// decode reads a state as replicas do, and the bundle beside it, which they only write.
func decode(data map[string][]byte) (*certs.State, error) {
	s, err := certs.Decode(data)
	if err != nil {
		return nil, err
	}
	if want := certs.Bundle(s.Trusted()); !bytes.Equal(data[certs.KeyBundle], want) {
		return nil, fmt.Errorf("%s is not the bundle of the CAs that are there", certs.KeyBundle)
	}
	return s, nil
}

// inPhase waits until the state has come to a phase, and returns it.
func (h *hook) inPhase(t *testing.T, phase certs.Phase) *certs.State {
	t.Helper()
	var s *certs.State
	support.Eventually(t, "phase "+string(phase), func() error {
		var err error
		s, err = h.state(t.Context())
		if err == nil && s.Phase() != phase {
			err = fmt.Errorf("it is in phase %s", s.Phase())
		}
		return err
	})
	return s
}

// trusts reports whether the registration trusts what the state says.
func (h *hook) trusts(ctx context.Context, s *certs.State) error {
	bundle, err := h.bundle(ctx)
	if err == nil && s != nil && !bytes.Equal(bundle, certs.Bundle(s.Trusted())) {
		err = errors.New("the registration trusts something else than the state says")
	}
	return err
}

// trustedBy reports whether an API server that trusts the bundle accepts a certificate now.
func trustedBy(bundle []byte, leaf *x509.Certificate, host string) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host})
	return err
}

// look shakes hands with a server as an API server does, and returns what it presents.
func look(ctx context.Context, address, host string, bundle []byte) (*x509.Certificate, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return nil, errors.New("there is no certificate in the bundle")
	}
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS13}}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer connection.Close() //nolint:errcheck // nothing was written
	return connection.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}
