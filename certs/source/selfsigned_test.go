package source

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/clock"
	"github.com/gatehouse-dev/gatehouse/certs/internal/pki"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/certs/store"
	"github.com/gatehouse-dev/gatehouse/test/support/certstest"
)

func newSelfSigned(t *testing.T, c *certstest.Clock, hosts ...string) *SelfSigned {
	t.Helper()
	s, err := NewSelfSigned(t.Context(), SelfSignedConfig{Hosts: hosts, Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// bundleOf returns the CAs that clients must trust, in PEM.
func bundleOf(s *SelfSigned) []byte { return rotation.Bundle(s.State().Trusted(clock.Wall(s.cfg.Now))) }

func parseOne(t *testing.T, data []byte) *x509.Certificate {
	t.Helper()
	block, rest := pem.Decode(data)
	if block == nil || len(bytes.TrimSpace(rest)) > 0 {
		t.Fatalf("not one PEM block: %q", data)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func poolFrom(t *testing.T, bundle []byte) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		t.Fatalf("no certificate in %q", bundle)
	}
	return pool
}

func TestSelfSignedServesEveryHost(t *testing.T) {
	hosts := []string{"gatehouse.gatehouse.svc", "LOCALHOST", "*.example.org", "127.0.0.1", "::1"}
	s := newSelfSigned(t, certstest.NewClock(), hosts...)
	addr := serveTLS(t, &tls.Config{GetCertificate: s.GetCertificate, MinVersion: tls.VersionTLS13})
	for name, accepted := range map[string]bool{
		"gatehouse.gatehouse.svc": true, "localhost": true, "www.example.org": true, "127.0.0.1": true, "::1": true,
		"gatehouse.other.svc": false, "example.org": false, "127.0.0.2": false,
	} {
		err := dialTLS(addr, &tls.Config{RootCAs: poolFrom(t, bundleOf(s)), ServerName: name, Time: certstest.NewClock().Now})
		if (err == nil) != accepted {
			t.Errorf("%s: %v, want accepted %v", name, err, accepted)
		}
	}
}

func TestSelfSignedCertificates(t *testing.T) {
	s := newSelfSigned(t, certstest.NewClock(), "localhost")
	other := newSelfSigned(t, certstest.NewClock(), "localhost")
	ca := parseOne(t, bundleOf(s))
	current, err := s.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	clientPEM, _, err := pki.ClientCertificate(s.State(), certstest.Noon)
	if err != nil {
		t.Fatal(err)
	}
	leaf, client := current.Leaf, parseOne(t, clientPEM)

	if !ca.IsCA || !ca.BasicConstraintsValid || ca.MaxPathLen != 0 || !ca.MaxPathLenZero {
		t.Error("the CA may sign further CAs")
	}
	if ca.KeyUsage != x509.KeyUsageCertSign|x509.KeyUsageCRLSign {
		t.Errorf("CA key usage %b", ca.KeyUsage)
	}
	if otherCA := parseOne(t, bundleOf(other)); ca.Subject.String() == otherCA.Subject.String() || bytes.Equal(ca.SubjectKeyId, otherCA.SubjectKeyId) {
		t.Error("two CAs cannot be decided apart by name and key identifier")
	}
	for what, cert := range map[string]*x509.Certificate{"CA": ca, "leaf": leaf, "client": client} {
		if key, ok := cert.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
			t.Errorf("%s: key %T", what, cert.PublicKey)
		}
		if !cert.NotBefore.Equal(certstest.Noon.Add(-rotation.Backdate)) {
			t.Errorf("%s: not before %v", what, cert.NotBefore)
		}
		if len(cert.SubjectKeyId) != 20 || !bytes.Equal(cert.AuthorityKeyId, ca.SubjectKeyId) {
			t.Errorf("%s: key identifiers %x by %x", what, cert.SubjectKeyId, cert.AuthorityKeyId)
		}
		if cert.SerialNumber.Sign() <= 0 || cert.SerialNumber.BitLen() > 127 || cert.SerialNumber.BitLen() < 64 {
			t.Errorf("%s: serial %v", what, cert.SerialNumber)
		}
		if cert != ca && (cert.IsCA || cert.KeyUsage != x509.KeyUsageDigitalSignature) {
			t.Errorf("%s: CA %v, key usage %b", what, cert.IsCA, cert.KeyUsage)
		}
	}
	year := 365 * day
	if got := ca.NotAfter.Sub(certstest.Noon); got != year {
		t.Errorf("CA lives for %v", got)
	}
	if got := leaf.NotAfter.Sub(certstest.Noon); got != 7*day {
		t.Errorf("leaf lives for %v", got)
	}
	if got := client.NotAfter.Sub(certstest.Noon); got != year {
		t.Errorf("client certificate lives for %v", got)
	}
	if client.Subject.CommonName != "kube-apiserver" || !slices.Equal(client.Subject.Organization, []string{"gatehouse.dev"}) {
		t.Errorf("client %v", client.Subject)
	}

	// A serving certificate must not open what asks for a client certificate.
	verify := func(cert *x509.Certificate, usage x509.ExtKeyUsage) error {
		_, err := cert.Verify(x509.VerifyOptions{Roots: poolFrom(t, bundleOf(s)), CurrentTime: certstest.Noon, KeyUsages: []x509.ExtKeyUsage{usage}})
		return err
	}
	if err := verify(leaf, x509.ExtKeyUsageServerAuth); err != nil {
		t.Error(err)
	}
	if err := verify(client, x509.ExtKeyUsageClientAuth); err != nil {
		t.Error(err)
	}
	if verify(leaf, x509.ExtKeyUsageClientAuth) == nil || verify(client, x509.ExtKeyUsageServerAuth) == nil {
		t.Error("a certificate is good for the other side")
	}
}

func TestSelfSignedHosts(t *testing.T) {
	for host, accepted := range map[string]bool{
		"localhost": true, "a.b-c.d1": true, "10.0.0.1": true, "fd00::1": true, "*.svc": true, "xn--bcher-kva.example": true,
		"": false, "https://localhost": false, "localhost:8443": false, "[::1]": false, "a..b": false, "-a": false, "a-": false,
		"a b": false, "bücher.example": false, "*": false, "a.*.b": false, "10.0.0.256": false, "10.0.0": false, "a_b": false,
		strings.Repeat("a", 64): false, strings.Repeat("a.", 127): false,
	} {
		_, err := NewSelfSigned(t.Context(), SelfSignedConfig{Hosts: []string{host}})
		if (err == nil) != accepted {
			t.Errorf("%q: %v, want accepted %v", host, err, accepted)
		}
	}
	_, err := NewSelfSigned(t.Context(), SelfSignedConfig{Hosts: []string{"ok", "http://a", "b:1"}})
	if err == nil || !strings.Contains(err.Error(), `host "http://a" is neither`) || !strings.Contains(err.Error(), `host "b:1" is neither`) {
		t.Errorf("not every host is named: %v", err)
	}
	if _, err := NewSelfSigned(t.Context(), SelfSignedConfig{}); err == nil || !strings.Contains(err.Error(), "no host") {
		t.Errorf("no hosts: %v", err)
	}
}

// Over two years, whoever was given the bundle of four weeks ago accepts what is
// served today; and no certificate is ever served past two thirds of its life
// and a little more.
func TestSelfSignedRenewal(t *testing.T) {
	const step = 12 * time.Hour
	now := certstest.NewClock()
	s := newSelfSigned(t, now, "localhost")
	var bundles [][]byte
	leaves, cas := map[string]bool{}, map[string]bool{}
	for at := time.Duration(0); at < 2*365*day; at += step {
		s.rotation.reconcile(t.Context())
		if err := s.rotation.lastError(); err != nil {
			t.Fatalf("after %v: %v", at, err)
		}
		bundles = append(bundles, bundleOf(s))
		known := bundles[max(0, len(bundles)-1-int(28*day/step))]
		pair, err := s.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: poolFrom(t, known), DNSName: "localhost", CurrentTime: now.Now()}); err != nil {
			t.Fatalf("after %v: %v", at, err)
		}
		if left := pair.Leaf.NotAfter.Sub(now.Now()); left < 2*day {
			t.Errorf("after %v: the leaf has %v left", at, left)
		}
		if err := s.Healthy(); err != nil {
			t.Errorf("after %v: %v", at, err)
		}
		leaves[pair.Leaf.SerialNumber.String()] = true
		cas[string(pair.Leaf.AuthorityKeyId)] = true
		if n := bytes.Count(bundleOf(s), []byte("BEGIN")); n > 2 {
			t.Errorf("after %v: %d CAs are trusted", at, n)
		}
		now.Advance(step)
	}
	// Two years of certificates that live for four and two thirds of a day, and
	// of CAs that sign for a year but a week.
	if len(leaves) < 140 || len(leaves) > 170 {
		t.Errorf("%d leaves in two years", len(leaves))
	}
	if len(cas) < 3 || len(cas) > 4 {
		t.Errorf("%d CAs in two years", len(cas))
	}
}

// started is a running SelfSigned.
func started(t *testing.T, now *certstest.Clock) (*SelfSigned, *observer) {
	t.Helper()
	o := newObserver(t)
	s, err := NewSelfSigned(t.Context(), SelfSignedConfig{Hosts: []string{"localhost"}, Now: now.Now, Notify: o.Notify})
	if err != nil {
		t.Fatal(err)
	}
	s.rotation.ticks = o.Ticks
	o.Start(func() error { return s.Run(t.Context()) })
	o.Await("the leaf", func(e certs.Event) bool {
		return e.Subject == "serving certificate" && inUse(certstest.Noon.Add(7*day))(e)
	})
	o.Await("the CA", func(e certs.Event) bool {
		return e.Subject == "self-signed CA" && inUse(certstest.Noon.Add(365*day))(e)
	})
	return s, o
}

func TestSelfSignedRun(t *testing.T) {
	now := certstest.NewClock()
	s, o := started(t, now)
	bundle := bundleOf(s)
	o.Tick()
	o.Quiet()

	now.Advance(4 * day)
	o.Tick()
	o.Quiet()
	now.Advance(day)
	o.Tick()
	o.Await("the second leaf", inUse(certstest.Noon.Add(12*day)))
	if !bytes.Equal(bundle, bundleOf(s)) {
		t.Error("the CA changed with the leaf")
	}

	// A machine that slept past the end of everything.
	now.Advance(400 * day)
	if s.Healthy() == nil {
		t.Error("healthy with an expired certificate")
	}
	o.Tick()
	o.Await("a leaf after the sleep", inUse(certstest.Noon.Add(412*day)))
	o.Await("a CA after the sleep", func(e certs.Event) bool {
		return e.Subject == "self-signed CA" && inUse(certstest.Noon.Add(770*day))(e)
	})
	if err := s.Healthy(); err != nil {
		t.Error(err)
	}
}

// A clock that is set back before the CA was made: nothing that could be issued
// would be accepted, so nothing is, and the reason is said.
func TestSelfSignedClockSetBack(t *testing.T) {
	now := certstest.NewClock()
	s, o := started(t, now)
	before := serving(t, s)
	now.Advance(-25 * time.Hour)
	o.Tick()
	o.Await("the clock", func(e certs.Event) bool {
		return e.Err != nil && strings.Contains(e.Err.Error(), "the CA is not valid before 2026-11-19T12:00:00Z: check the clock of this machine")
	})
	if err := s.Healthy(); err == nil || !strings.Contains(err.Error(), "check the clock") {
		t.Errorf("Healthy: %v", err)
	}
	now.Advance(25 * time.Hour)
	o.Tick()
	o.Await("the clock again", func(e certs.Event) bool {
		return e.Subject == "self-signed CA" && inUse(certstest.Noon.Add(365*day))(e)
	})
	if !bytes.Equal(before, serving(t, s)) {
		t.Error("the certificate changed")
	}
}

// A clock set back by less than the age of the CA: another leaf is issued.
func TestSelfSignedClockSetBackALittle(t *testing.T) {
	now := certstest.NewClock()
	s, o := started(t, now)
	now.Advance(5 * day)
	o.Tick()
	o.Await("the second leaf", inUse(certstest.Noon.Add(12*day)))
	now.Advance(-2 * day)
	o.Tick()
	o.Await("a leaf for the earlier time", inUse(certstest.Noon.Add(10*day)))
	if err := s.Healthy(); err != nil {
		t.Error(err)
	}
}

func TestWriteDir(t *testing.T) {
	now := certstest.NewClock()
	dir := filepath.Join(t.TempDir(), "new", "certs") // it is removed after Run has ended
	s, o := started(t, now)
	if err := s.WriteDir(dir); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]fs.FileMode{store.CAFile: 0o644, store.ClientCertFile: 0o644, store.ClientKeyFile: 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != mode {
			t.Errorf("%s has mode %v, want %v", name, info.Mode(), mode)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Errorf("%d entries, want 3: %v", len(entries), err)
	}

	// What was written is enough for a server and a client to know each other.
	cas, err := NewClientCAs(ClientCAsConfig{File: filepath.Join(dir, store.CAFile)})
	if err != nil {
		t.Fatal(err)
	}
	addr := serveTLS(t, &tls.Config{
		GetConfigForClient: cas.ConfigForClient(&tls.Config{
			GetCertificate: s.GetCertificate, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13, Time: now.Now,
		}),
	})
	connect := func() error {
		client, err := tls.LoadX509KeyPair(filepath.Join(dir, store.ClientCertFile), filepath.Join(dir, store.ClientKeyFile))
		if err != nil {
			t.Fatal(err)
		}
		bundle, err := os.ReadFile(filepath.Join(dir, store.CAFile))
		if err != nil {
			t.Fatal(err)
		}
		err = dialTLS(addr, &tls.Config{RootCAs: poolFrom(t, bundle), ServerName: "localhost", Certificates: []tls.Certificate{client}, Time: now.Now})
		return err
	}
	if err := connect(); err != nil {
		t.Error(err)
	}
	if err := dialTLS(addr, &tls.Config{RootCAs: poolFrom(t, bundleOf(s)), ServerName: "localhost", Time: now.Now}); err == nil {
		t.Error("a client without a certificate was let in")
	}

	// A new CA reaches the directory without anybody's doing.
	now.Advance(300 * day)
	o.Tick()
	o.Await("the second CA", func(e certs.Event) bool { return e.Subject == "self-signed CA" && e.Reason == certs.ReasonRotation })
	o.Await("the look that found it", func(e certs.Event) bool { return e.Subject == "self-signed CA" && e.Reason == "" })
	bundle, err := os.ReadFile(filepath.Join(dir, store.CAFile))
	if err != nil || !bytes.Equal(bundle, bundleOf(s)) || bytes.Count(bundle, []byte("BEGIN")) != 2 {
		t.Errorf("the directory has the old CA: %v", err)
	}
	if cas, err = NewClientCAs(ClientCAsConfig{File: filepath.Join(dir, store.CAFile)}); err != nil {
		t.Fatal(err)
	}
	addr = serveTLS(t, &tls.Config{GetConfigForClient: cas.ConfigForClient(&tls.Config{
		GetCertificate: s.GetCertificate, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13, Time: now.Now,
	})})
	if err := connect(); err != nil {
		t.Errorf("after the change: %v", err)
	}
}

func TestWriteDirErrorNamesThePath(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	certstest.Write(t, file, nil)
	err := newSelfSigned(t, certstest.NewClock(), "localhost").WriteDir(file)
	if err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v", err)
	}
}

// Whoever has read the CA of a cluster cannot pose as a client with it, even
// where its certificate is trusted for clients.
func TestServerOnly(t *testing.T) {
	s, err := NewSelfSigned(t.Context(), SelfSignedConfig{Hosts: []string{"localhost"}, ServerOnly: true, Now: certstest.NewClock().Now})
	if err != nil {
		t.Fatal(err)
	}
	client, err := pki.Issue(s.State().Current, &x509.Certificate{
		NotBefore: certstest.Noon, NotAfter: certstest.Noon.Add(day), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		t.Fatal(err)
	}
	verify := func(cert *tls.Certificate, usage x509.ExtKeyUsage) error {
		_, err := cert.Leaf.Verify(x509.VerifyOptions{Roots: poolFrom(t, bundleOf(s)), CurrentTime: certstest.Noon, KeyUsages: []x509.ExtKeyUsage{usage}})
		return err
	}
	if err := verify(client, x509.ExtKeyUsageClientAuth); err == nil {
		t.Error("a client certificate is accepted")
	}
	if err := verify(s.Certificate(), x509.ExtKeyUsageServerAuth); err != nil {
		t.Error(err)
	}
}
