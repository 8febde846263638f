package source

import (
	"crypto/x509"
	"errors"
	"fmt"
	"testing"

	"github.com/gatehouse-dev/gatehouse/certs"
)

func distrust(registration string, why error) error {
	return &certs.DistrustError{Registration: registration, Webhooks: []string{"a", "b"}, Err: why}
}

const (
	mutating   = "MutatingWebhookConfiguration gatehouse"
	validating = "ValidatingWebhookConfiguration gatehouse"
)

func TestNamesNotServed(t *testing.T) {
	t.Parallel()
	unknown := errors.New("its caBundle does not have the CA")
	calls := func(name string) error {
		return fmt.Errorf("it calls %q: %w", name, x509.HostnameError{Certificate: &x509.Certificate{DNSNames: []string{"z"}}, Host: name})
	}
	cases := []struct {
		name  string
		doubt error
		want  string
	}{
		{"another problem", distrust(mutating, unknown), ""},
		{"one webhook", distrust(mutating, calls("x")), `"x"`},
		{"two of one configuration, and another problem", errors.Join(distrust(mutating, calls("x")), distrust(validating, unknown)), `"x"`},
		{"two configurations", errors.Join(distrust(mutating, calls("x")), distrust(validating, calls("x"))), `"x"`},
		{"two names", errors.Join(distrust(mutating, calls("x")), distrust(mutating, calls("y"))), `"x" and "y"`},
		{"without a registration", calls("x"), `"x"`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := namesNotServed(c.doubt); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
