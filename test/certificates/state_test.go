package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/certs/store"
	"github.com/gatehouse-dev/gatehouse/test/support"
)

// store is the hook's Secret, for an administrator.
func (h *hook) store() store.Store {
	return store.NewSecretStore(store.SecretStoreConfig{Client: h.Client(), Namespace: h.name, Name: secret})
}

func (h *hook) secret(ctx context.Context) (*corev1.Secret, error) {
	return h.Client().CoreV1().Secrets(h.name).Get(ctx, secret, metav1.GetOptions{})
}

// state is what is in the Secret. What is damaged is an error.
func (h *hook) state(ctx context.Context) (*rotation.State, error) {
	found, err := h.secret(ctx)
	if err != nil {
		return nil, err
	}
	return decode(found.Data)
}

// decode reads a state as replicas do, and the bundle beside it, which they only write.
func decode(data map[string][]byte) (*rotation.State, error) {
	s, err := rotation.Decode(data)
	if err != nil {
		return nil, err
	}
	if want := rotation.Bundle(s.Trusted(time.Now())); !bytes.Equal(data[rotation.KeyBundle], want) {
		return nil, fmt.Errorf("%s is not the bundle of the CAs that are there", rotation.KeyBundle)
	}
	return s, nil
}

// inPhase waits until the state has come to a phase, and returns it.
func (h *hook) inPhase(t *testing.T, phase rotation.Phase) *rotation.State {
	t.Helper()
	var s *rotation.State
	support.Eventually(t, "phase "+string(phase), func() error {
		var err error
		s, err = h.state(t.Context())
		if err == nil && s.Phase != phase {
			err = fmt.Errorf("it is in phase %s", s.Phase)
		}
		return err
	})
	return s
}

// rotated waits until a rotation that was requested is over, and the registration trusts the new CA alone.
func (h *hook) rotated(t *testing.T, id string) *rotation.State {
	t.Helper()
	var s *rotation.State
	support.Eventually(t, "the rotation", func() error {
		var err error
		s, err = h.state(t.Context())
		if err == nil && (s.Phase != rotation.Stable || s.Done != id) {
			err = fmt.Errorf("it is in phase %s, and the last rotation done is %q", s.Phase, s.Done)
		}
		return errors.Join(err, h.trusts(t.Context(), s))
	})
	return s
}

// trusts reports whether the registration trusts what the state says.
func (h *hook) trusts(ctx context.Context, s *rotation.State) error {
	bundle, err := h.bundle(ctx)
	if err == nil && s != nil && !bytes.Equal(bundle, rotation.Bundle(s.Trusted(time.Now()))) {
		err = errors.New("the registration trusts something else than the state says")
	}
	return err
}

func (h *hook) requestRotation(t *testing.T, emergency bool) (id string) {
	t.Helper()
	id, err := store.RequestRotation(t.Context(), h.store(), emergency, time.Now())
	must(t, err)
	return id
}

// served fails the test for each replica that has not presented certificates of all of these CAs.
func served(t *testing.T, rs replicas, authorities ...*rotation.Authority) {
	t.Helper()
	for _, r := range rs {
		for _, a := range authorities {
			if r.of(a.Cert) == 0 {
				t.Errorf("%s has presented no certificate of %s: this test has not seen it change over", r.config.Name, a.Cert.Subject.CommonName)
			}
		}
	}
}

// trustedBy reports whether an API server that trusts the bundle accepts a certificate now.
func trustedBy(bundle []byte, leaf *x509.Certificate, host string) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host})
	return err
}
