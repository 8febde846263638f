package source

import (
	"crypto/x509"
	"errors"
	"fmt"
	"testing"

	"github.com/gatehouse-dev/gatehouse/certs"
)

// distrust is that of each webhook in turn.
func distrust(registration string, why error, webhooks ...string) []error {
	var list []error
	for _, name := range webhooks {
		list = append(list, &certs.DistrustError{Registration: registration, Webhook: name, Err: why})
	}
	return list
}

const (
	mutating   = "MutatingWebhookConfiguration gatehouse"
	validating = "ValidatingWebhookConfiguration gatehouse"
)

// A text for people says once what is the same for many webhooks.
func TestSummary(t *testing.T) {
	t.Parallel()
	lacks, empty := errors.New("its caBundle does not have the CA"), errors.New("has no caBundle")
	cases := []struct {
		name  string
		doubt error
		want  string
	}{
		{"one error that is not joined", empty, "has no caBundle"},
		{"one sentence with two causes", fmt.Errorf("not read: %w: %w", empty, certs.ErrUnread), "not read: has no caBundle: not read from the API server yet"},
		{"one webhook", errors.Join(distrust(mutating, lacks, "a")...), mutating + `, webhook "a": its caBundle does not have the CA`},
		{"two webhooks", errors.Join(distrust(mutating, lacks, "a", "b")...), mutating + `, webhooks "a" and "b": its caBundle does not have the CA`},
		{"three webhooks", errors.Join(distrust(mutating, lacks, "a", "b", "c")...), mutating + `, webhooks "a", "b" and "c": its caBundle does not have the CA`},
		{"five webhooks", errors.Join(distrust(mutating, lacks, "a", "b", "c", "d", "e")...), mutating + `, webhooks "a", "b", "c" and 2 more: its caBundle does not have the CA`},
		{
			"two configurations", errors.Join(append(distrust(mutating, lacks, "a", "b"), distrust(validating, lacks, "a", "b")...)...),
			mutating + `, webhooks "a" and "b": its caBundle does not have the CA; ` + validating + `, webhooks "a" and "b": its caBundle does not have the CA`,
		},
		{
			"two reasons", errors.Join(append(append(distrust(mutating, lacks, "a"), distrust(mutating, empty, "b")...), distrust(mutating, lacks, "c")...)...),
			mutating + `, webhooks "a" and "c": its caBundle does not have the CA; ` + mutating + `, webhook "b": has no caBundle`,
		},
		{
			"with another problem", errors.Join(append([]error{errors.New("registration other: not found")}, distrust(mutating, lacks, "a")...)...),
			"registration other: not found; " + mutating + `, webhook "a": its caBundle does not have the CA`,
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := summary(c.doubt); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestOtherName(t *testing.T) {
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
		{"another problem", errors.Join(distrust(mutating, unknown, "a")...), ""},
		{"one webhook", errors.Join(distrust(mutating, calls("x"), "a")...), `the name "x" that is called by ` + mutating},
		{"two of one configuration, and another problem", errors.Join(append(distrust(mutating, calls("x"), "a", "b"), distrust(validating, unknown, "c")...)...), `the name "x" that is called by ` + mutating},
		{"two configurations", errors.Join(append(distrust(mutating, calls("x"), "a"), distrust(validating, calls("x"), "a")...)...), `the name "x" that is called by ` + mutating + " and " + validating},
		{"two names", errors.Join(append(distrust(mutating, calls("x"), "a"), distrust(mutating, calls("y"), "b")...)...), `the name "x" that is called by ` + mutating + ` and the name "y" that is called by ` + mutating},
		{"without a registration", calls("x"), `the name "x" that is called by a registration`},
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
