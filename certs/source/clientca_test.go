package source

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"encoding/pem"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/pki"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/test/support/certstest"
)

func caPEM(cas ...*testAuthority) []byte {
	var bundle []byte
	for _, ca := range cas {
		bundle = append(bundle, pki.EncodeCertificate(ca.Cert.Raw)...)
	}
	return bundle
}

// followedCAs is a running ClientCAs over a file.
func followedCAs(t *testing.T, file string, c *certstest.Clock) (*ClientCAs, *observer, certs.Event) {
	t.Helper()
	o := newObserver(t)
	cas, err := NewClientCAs(ClientCAsConfig{File: file, Now: c.Now, Notify: o.Notify})
	if err != nil {
		t.Fatal(err)
	}
	cas.ticks = o.Ticks
	o.Start(func() error { return cas.Run(t.Context()) })
	return cas, o, o.Await("the first look", func(certs.Event) bool { return true })
}

func TestClientCAsFollowTheFile(t *testing.T) {
	first, second, server := newCA(t), newCA(t), newCA(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	certstest.Write(t, file, caPEM(first))
	cas, o, _ := followedCAs(t, file, certstest.NewClock())

	own := server.Valid(t, day)
	serverPair, err := tls.X509KeyPair(own.Cert, own.Key)
	if err != nil {
		t.Fatal(err)
	}
	addr := serveTLS(t, &tls.Config{GetConfigForClient: cas.ConfigForClient(&tls.Config{
		Certificates: []tls.Certificate{serverPair}, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13, Time: certstest.NewClock().Now,
	})})
	configs := map[*testAuthority]*tls.Config{}
	for _, ca := range []*testAuthority{first, second} {
		p := ca.Valid(t, day)
		client, err := tls.X509KeyPair(p.Cert, p.Key)
		if err != nil {
			t.Fatal(err)
		}
		configs[ca] = &tls.Config{
			RootCAs: poolOf(server), ServerName: "localhost", Time: certstest.NewClock().Now,
			Certificates: []tls.Certificate{client}, ClientSessionCache: tls.NewLRUClientSessionCache(4),
			// Whatever CAs the server names: it is the server's judgement that
			// is tested.
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &client, nil },
		}
	}
	expect := func(when string, firstOK, secondOK bool) {
		t.Helper()
		for ca, want := range map[*testAuthority]bool{first: firstOK, second: secondOK} {
			if err := dialTLS(addr, configs[ca]); (err == nil) != want {
				t.Errorf("%s: client of %v: %v, want accepted %v", when, ca.Cert.Subject, err, want)
			}
		}
	}
	expect("with the first", true, false)
	certstest.Write(t, file, caPEM(first, second))
	o.Await("both", func(e certs.Event) bool { return e.Err == nil })
	expect("with both", true, true)
	certstest.Write(t, file, caPEM(second)[:100])
	e := o.Await("half of a file", func(e certs.Event) bool { return e.Err != nil })
	if want := "rejected, the previous CAs stay active: "; !strings.HasPrefix(e.Err.Error(), want) || !strings.Contains(e.Err.Error(), "ca.crt: 0 of 1 PEM blocks") {
		t.Errorf("got %v", e.Err)
	}
	expect("with half of a file", true, true)
	certstest.Remove(t, file)
	o.Await("no file", func(e certs.Event) bool { return e.Err != nil && strings.Contains(e.Err.Error(), "no such file") })
	expect("with no file", true, true)
	// A client that is withdrawn is refused, a session from before or not.
	certstest.Write(t, file, caPEM(second))
	o.Await("the second", func(e certs.Event) bool { return e.Err == nil })
	expect("with the second", false, true)

	old := configs[second].Clone()
	old.MaxVersion = tls.VersionTLS12
	if err := dialTLS(addr, old); err == nil {
		t.Error("the base's lowest version does not hold after a change")
	}
}

func TestConfigForClientIsMadeOncePerPool(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	certstest.Write(t, file, caPEM(newCA(t)))
	cas, err := NewClientCAs(ClientCAsConfig{File: file})
	if err != nil {
		t.Fatal(err)
	}
	get := cas.ConfigForClient(&tls.Config{MinVersion: tls.VersionTLS13})
	a, errA := get(nil)
	b, errB := get(nil)
	if a != b || errA != nil || errB != nil {
		t.Error("every handshake gets a configuration of its own")
	}
	if !a.SessionTicketsDisabled || a.ClientCAs != cas.Pool() {
		t.Error("the configuration resumes sessions or has another pool")
	}
}

func TestNewClientCAsErrors(t *testing.T) {
	ca := newCA(t)
	key, err := pki.EncodeKey(ca.Key.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	bundle := caPEM(ca)
	for _, c := range []struct {
		name string
		data []byte
		says string
	}{
		{"empty", nil, "ca.crt: is empty"},
		{"DER", ca.Cert.Raw, "ca.crt: holds no PEM block"},
		{"with the CA's key", append(slices.Clone(bundle), key...), "ca.crt: PEM block 2 is a private key: use a file with only the CAs' certificates, and replace the key"},
		{"with a list of the revoked", append(slices.Clone(bundle), pem.EncodeToMemory(&pem.Block{Type: "X509 CRL"})...), `ca.crt: PEM block 2 is of type "X509 CRL", allowed is CERTIFICATE`},
		{"not a certificate inside", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), "ca.crt: PEM block 1 is not a valid certificate"},
		{"cut off", bytes.Join([][]byte{bundle, bundle[:200]}, nil), "ca.crt: 1 of 2 PEM blocks can be read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "ca.crt")
			certstest.Write(t, file, c.data)
			_, err := NewClientCAs(ClientCAsConfig{File: file})
			if err == nil || !strings.HasPrefix(err.Error(), "client CA: ") || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
	if _, err := NewClientCAs(ClientCAsConfig{File: filepath.Join(t.TempDir(), "none")}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("missing file: %v", err)
	}
}

func TestClientCAsRemarks(t *testing.T) {
	ca := newCA(t)
	notCA := parseOne(t, ca.Valid(t, 10*day).Cert)
	expired, err := pki.NewAuthority(certstest.Noon.Add(-400*day), rotation.DefaultCALife)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	certstest.Write(t, file, append(caPEM(ca, &testAuthority{Authority: expired}), pki.EncodeCertificate(notCA.Raw)...))
	now := certstest.NewClock()
	_, o, e := followedCAs(t, file, now)
	want := []string{
		"certificate 2 (\"" + expired.Cert.Subject.String() + "\") accepts no client: expired at 2026-10-16T12:00:00Z",
		`certificate 3 ("CN=test") is not a CA: only the holder of its own key is accepted`,
	}
	if e.Err != nil || len(e.Warnings) != 2 || !strings.Contains(e.Warnings[0], want[0]) || e.Warnings[1] != want[1] {
		t.Errorf("got %q, %v, want %q", e.Warnings, e.Err, want)
	}
	// Expiry is noticed without a change of the file.
	now.Advance(20 * day)
	o.Tick()
	e = o.Await("another expiry", func(e certs.Event) bool { return len(e.Warnings) == 3 })
	if !strings.Contains(e.Warnings[2], "certificate 3") || !strings.Contains(e.Warnings[2], "expired at") {
		t.Errorf("got %q", e.Warnings)
	}
	o.Quiet()
}

// The end of a pool is when the next of its certificates ends: an alert has to come
// before anybody is shut out. When all have ended it is the end of the last.
func TestClientCAsEnd(t *testing.T) {
	t.Parallel()
	first, err := pki.NewAuthority(certstest.Noon.Add(-300*day), rotation.DefaultCALife)
	if err != nil {
		t.Fatal(err)
	}
	last := newCA(t)
	for _, order := range [][]*testAuthority{{{Authority: first}, last}, {last, {Authority: first}}} {
		file := filepath.Join(t.TempDir(), "ca.crt")
		certstest.Write(t, file, caPEM(order...))
		now := certstest.NewClock()
		_, o, e := followedCAs(t, file, now)
		if !e.NotAfter.Equal(first.Cert.NotAfter) {
			t.Errorf("ends at %v, want %v", e.NotAfter, first.Cert.NotAfter)
		}
		now.Advance(100 * day)
		o.Tick()
		if e := o.Await("the end of the first", func(certs.Event) bool { return true }); !e.NotAfter.Equal(last.Cert.NotAfter) {
			t.Errorf("ends at %v after the first has, want %v", e.NotAfter, last.Cert.NotAfter)
		}
		now.Advance(1000 * day)
		o.Tick()
		if e := o.Await("the end of both", func(certs.Event) bool { return true }); !e.NotAfter.Equal(last.Cert.NotAfter) {
			t.Errorf("ends at %v after both have, want %v", e.NotAfter, last.Cert.NotAfter)
		}
	}
}
