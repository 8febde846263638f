package rotation

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"slices"
	"testing"
	"time"
)

const day = 24 * time.Hour

func epoch() time.Time { return time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC) }

// signer is a key for authorities whose certificates nobody parses.
type signer struct{ crypto.Signer }

// paper is an authority for everything but cryptography: its certificate has
// dates and an identity.
func paper(name string, notBefore, notAfter time.Time) *Authority {
	return &Authority{Cert: &x509.Certificate{Raw: []byte(name), NotBefore: notBefore, NotAfter: notAfter}, Key: signer{}}
}

// year is a paper authority that was made at the time.
func year(name string, at time.Time) *Authority { return paper(name, at.Add(-day), at.Add(365*day)) }

// external is an authority whose key is somewhere else.
func external(a *Authority) *Authority { return &Authority{Cert: a.Cert} }

// realAuthority can be written down and parsed.
func realAuthority(t testing.TB, name string, change func(*x509.Certificate)) *Authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: epoch().Add(-day), NotAfter: epoch().Add(365 * day),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{Cert: cert, Key: key}
}

// show is a state in one line.
func show(s *State) string {
	if s == nil {
		return "none"
	}
	name := func(a *Authority) string {
		switch {
		case a == nil:
			return "-"
		case a.Key == nil:
			return string(a.Cert.Raw) + "(no key)"
		default:
			return string(a.Cert.Raw)
		}
	}
	request := "-"
	if s.Request != nil {
		request = s.Request.ID
	}
	return fmt.Sprintf("%s/%d %s %s current %s pending %s previous %s request %s done %s",
		s.Lineage, s.Generation, s.Phase, s.Cause, name(s.Current), name(s.Pending), name(s.Previous), request, s.Done)
}

func TestAuthorities(t *testing.T) {
	t.Parallel()
	a, b, c := year("a", epoch()), year("b", epoch()), year("c", epoch())
	s := &State{Previous: a, Current: b, Pending: c}
	if got := s.Authorities(); !slices.Equal(got, []*Authority{a, b, c}) {
		t.Errorf("%v", got)
	}
	if got := (&State{Current: b}).Authorities(); !slices.Equal(got, []*Authority{b}) {
		t.Errorf("%v", got)
	}
}

func TestTrusted(t *testing.T) {
	t.Parallel()
	old, now, next := year("z old", epoch()), year("b now", epoch().Add(100*day)), year("a next", epoch().Add(200*day))
	twin := year("a twin", epoch().Add(100*day))
	for name, c := range map[string]struct {
		state *State
		at    time.Duration
		want  []string
	}{
		"one":                               {&State{Current: now}, 0, []string{"b now"}},
		"by age, not by name or role":       {&State{Previous: next, Current: old, Pending: now}, 0, []string{"z old", "b now", "a next"}},
		"roles change and the bytes do not": {&State{Previous: old, Current: next, Pending: now}, 0, []string{"z old", "b now", "a next"}},
		"of one age":                        {&State{Current: now, Pending: twin}, 0, []string{"a twin", "b now"}},
		"each once":                         {&State{Current: now, Pending: now, Previous: external(now)}, 0, []string{"b now"}},
		"the end itself is not yet over":    {&State{Previous: old, Current: now}, 365 * day, []string{"z old", "b now"}},
		"one that has ended":                {&State{Previous: old, Current: now}, 365*day + time.Second, []string{"b now"}},
		"the current one, though ended":     {&State{Current: now}, 1000 * day, []string{"b now"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, cert := range c.state.Trusted(epoch().Add(c.at)) {
				got = append(got, string(cert.Raw))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
