package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const day = 24 * time.Hour

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// clock is the time of a test.
type clock struct{ time.Time }

func newClock() *clock { return &clock{noon} }

func (c *clock) now() time.Time          { return c.Time }
func (c *clock) advance(d time.Duration) { c.Time = c.Add(d) }

// events keeps the last event.
type events struct{ last Event }

func (e *events) notify(one Event) { e.last = one }

func newCA(t *testing.T) *Authority {
	t.Helper()
	ca, err := NewAuthority(noon, DefaultCALife)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// pairOf returns a certificate for localhost that a CA issues, in PEM.
func pairOf(t *testing.T, ca *Authority, from, until time.Time) (cert, key []byte) {
	t.Helper()
	pair, err := ca.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "test"}, DNSNames: []string{"localhost"}, NotBefore: from, NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		t.Fatal(err)
	}
	key, err = encodeKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return Bundle([]*x509.Certificate{pair.Leaf}), key
}

func write(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// trust is a Trust in which a test says what is trusted.
type trust struct {
	err func(cert *tls.Certificate) error
}

func (t *trust) Verify(cert *tls.Certificate, _ time.Time) error { return t.err(cert) }
func (*trust) Holds(*x509.Certificate) error                     { return nil }
func (*trust) Changed() <-chan struct{}                          { return nil }

// fixture is a Files over a directory.
type fixture struct {
	*Files
	*clock

	dir    string
	events events
}

func newFiles(t *testing.T, ca *Authority, trusted Trust) *fixture {
	t.Helper()
	f := &fixture{clock: newClock(), dir: t.TempDir()}
	f.put(t, ca, noon.Add(-time.Hour), noon.Add(day))
	var err error
	f.Files, err = NewFiles(FilesConfig{
		CertFile: filepath.Join(f.dir, "tls.crt"), KeyFile: filepath.Join(f.dir, "tls.key"), Now: f.now, Trust: trusted, Hold: time.Minute, Notify: f.events.notify,
	})
	if err != nil {
		t.Fatal(err)
	}
	f.reload()
	return f
}

func (f *fixture) put(t *testing.T, ca *Authority, from, until time.Time) []byte {
	t.Helper()
	cert, key := pairOf(t, ca, from, until)
	write(t, filepath.Join(f.dir, "tls.crt"), cert)
	write(t, filepath.Join(f.dir, "tls.key"), key)
	return cert
}

func (f *fixture) serves(cert []byte) bool {
	f.reload()
	return bytes.Equal(Bundle([]*x509.Certificate{f.current.Load().Leaf}), cert)
}

// Whatever is found in place of a good pair, the last good one stays, and a good pair is taken when it comes.
func TestFilesKeepTheLastGoodPair(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	for name, c := range map[string]struct {
		edit func(t *testing.T, f *fixture)
		says string
	}{
		"certificate half-written": {func(t *testing.T, f *fixture) {
			cert, _ := pairOf(t, ca, noon, noon.Add(day))
			write(t, filepath.Join(f.dir, "tls.crt"), cert[:len(cert)/2])
		}, "tls.crt and "},
		"chain half-written": {func(t *testing.T, f *fixture) {
			cert := f.put(t, ca, noon, noon.Add(day))
			write(t, filepath.Join(f.dir, "tls.crt"), append(cert, cert[:100]...))
		}, "1 of 2 certificates can be read: the file is half-written or damaged"},
		"key emptied": {func(t *testing.T, f *fixture) { write(t, filepath.Join(f.dir, "tls.key"), nil) }, "write the certificate and the key of the same issue"},
		"certificate replaced": {func(t *testing.T, f *fixture) {
			cert, _ := pairOf(t, ca, noon, noon.Add(day))
			write(t, filepath.Join(f.dir, "tls.crt"), cert)
		}, "does not match"},
		"directory removed": {func(_ *testing.T, f *fixture) { _ = os.RemoveAll(f.dir); _ = os.Mkdir(f.dir+"-", 0o700) }, "no such file or directory (hint: check the path"},
		"expired":           {func(t *testing.T, f *fixture) { f.put(t, ca, noon.Add(-2*day), noon.Add(-time.Second)) }, "expired at 2026-11-20T11:59:59Z: renew it"},
		"of tomorrow":       {func(t *testing.T, f *fixture) { f.put(t, ca, noon.Add(day), noon.Add(2*day)) }, "not valid before 2026-11-21T12:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFiles(t, ca, nil)
			first := Bundle([]*x509.Certificate{f.current.Load().Leaf})
			c.edit(t, f)
			if !f.serves(first) || f.Healthy() != nil {
				t.Error("the last good pair is not served")
			}
			if err := f.events.last.Err; err == nil || !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), "rejected, the previous certificate stays active until 2026-11-21T12:00:00Z: ") {
				t.Errorf("it reports %v, want %q", err, c.says)
			}
			_ = os.MkdirAll(f.dir, 0o700)
			if next := f.put(t, ca, noon, noon.Add(2*day)); !f.serves(next) || f.events.last.Err != nil {
				t.Errorf("a good pair is not served: %v", f.events.last.Err)
			}
		})
	}
}

// A pair of another issuer waits until it has been trusted for the hold, and no longer than until the served one ends.
func TestFilesWaitForTrust(t *testing.T) {
	t.Parallel()
	first, second := newCA(t), newCA(t)
	knows := map[*Authority]bool{first: true}
	unread := false
	trusted := &trust{func(cert *tls.Certificate) error {
		for ca, yes := range knows {
			if yes && ca.signed(cert) {
				return nil
			}
		}
		if unread {
			return ErrUnread
		}
		return errors.New("it is not trusted")
	}}
	f := newFiles(t, first, trusted)
	old := f.put(t, first, noon, noon.Add(day+time.Minute))
	if !f.serves(old) {
		t.Fatal("a renewal of the same issuer waits")
	}
	next := f.put(t, second, noon, noon.Add(2*day))
	if f.serves(next) || !errors.Is(f.events.last.Err, ErrWaiting) || !strings.Contains(f.events.last.Err.Error(), "webhook configurations do not trust it") {
		t.Fatalf("it is served before it is trusted, or why is not said: %v", f.events.last.Err)
	}
	knows[second] = true
	if f.serves(next) || !strings.Contains(f.events.last.Err.Error(), "a new issuer must be trusted for 1m0s") {
		t.Fatalf("it is served without a hold: %v", f.events.last.Err)
	}
	f.advance(59 * time.Second)
	knows[second] = false
	_ = f.serves(next) // an interruption
	knows[second] = true
	f.advance(2 * time.Second)
	if f.serves(next) {
		t.Fatal("the hold does not start again after an interruption")
	}
	f.advance(time.Minute)
	if !f.serves(next) || f.events.last.Err != nil {
		t.Fatalf("it is not served after the hold: %v", f.events.last.Err)
	}

	// What is unknown is served before the served one ends, and what is not trusted at the end.
	unread = true
	third := f.put(t, newCA(t), noon, noon.Add(3*day))
	if f.serves(third) {
		t.Error("it is served although it is unknown whether it is trusted")
	}
	f.Time = noon.Add(2*day - 30*time.Minute)
	if !f.serves(third) {
		t.Error("it is not served before the old one ends")
	}
	unread = false
	knows[newCA(t)] = true
	fourth := f.put(t, newCA(t), noon, noon.Add(4*day))
	if !f.serves(fourth) {
		t.Error("it waits although what is served is not trusted either")
	}
}

func TestNewFiles(t *testing.T) {
	t.Parallel()
	if _, err := NewFiles(FilesConfig{CertFile: "nowhere.crt", KeyFile: "nowhere.key"}); err == nil || !strings.Contains(err.Error(), "serving certificate: nowhere.crt cannot be read: no such file or directory (hint: check the path") {
		t.Errorf("got %v", err)
	}
	f := newFiles(t, newCA(t), nil)
	f.advance(2 * day)
	f.reload()
	if err := f.Healthy(); err == nil || !strings.Contains(err.Error(), "tls.crt: expired at") || f.events.last.Err == nil {
		t.Errorf("expired: %v, %v", err, f.events.last.Err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Run(ctx); err != nil {
		t.Error(err)
	}
}

func TestClientCAs(t *testing.T) {
	t.Parallel()
	first, second, leafCert := newCA(t), newCA(t), []byte(nil)
	leafCert, key := pairOf(t, second, noon.Add(-time.Hour), noon.Add(day))
	file := filepath.Join(t.TempDir(), "ca.crt")
	bundle := func(list ...*Authority) (text []byte) {
		for _, a := range list {
			text = append(text, Bundle([]*x509.Certificate{a.Cert})...)
		}
		return text
	}
	write(t, file, bundle(first))
	now := newClock()
	c, err := NewClientCAs(ClientCAsConfig{File: file, Now: now.now})
	if err != nil {
		t.Fatal(err)
	}
	get := c.ConfigForClient(&tls.Config{MinVersion: tls.VersionTLS13})
	a, _ := get(nil)
	if b, _ := get(nil); a != b || !a.SessionTicketsDisabled || a.ClientCAs != c.Pool() || a.MinVersion != tls.VersionTLS13 {
		t.Error("the configuration is made for each handshake, resumes sessions, or has another pool")
	}
	accepts := func() bool {
		pair, err := tls.X509KeyPair(leafCert, key)
		if err != nil {
			t.Fatal(err)
		}
		_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: c.Pool(), CurrentTime: noon, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		return err == nil
	}
	if accepts() {
		t.Error("a client of another CA is accepted")
	}
	write(t, file, bundle(first, second))
	if e := c.reload(); e.Err != nil || !accepts() {
		t.Errorf("a client of a new CA is not accepted: %v", e.Err)
	}
	for says, content := range map[string][]byte{
		"is of type": append(bundle(second), key...), "cut off or damaged": bundle(second)[:100], "contains no PEM certificate": nil,
	} {
		write(t, file, content)
		if e := c.reload(); e.Err == nil || !strings.Contains(e.Err.Error(), says) || !strings.HasPrefix(e.Err.Error(), "rejected, the previous CAs stay active: ") || !accepts() {
			t.Errorf("got %v, want %q", e.Err, says)
		}
	}
	write(t, file, bundle(first))
	if c.reload(); accepts() {
		t.Error("a client of a CA that was removed is accepted")
	}
	write(t, file, append(bundle(first), leafCert...))
	if e := c.reload(); len(e.Warnings) != 1 || !strings.Contains(e.Warnings[0], "is not a CA") || !e.NotAfter.Equal(noon.Add(day)) {
		t.Errorf("%+v", e)
	}
	now.advance(2 * day)
	if e := c.reload(); len(e.Warnings) != 2 || !strings.Contains(e.Warnings[1], "accepts no client: expired at") {
		t.Errorf("%+v", e)
	}
}
