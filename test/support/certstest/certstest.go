// Package certstest helps the tests of certs: a clock, a CA, an observer of events, a
// TLS server, and an API server in the process.
package certstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

// Week is how long a serving certificate lasts.
const Week = 7 * 24 * time.Hour

// Noon is when these tests begin.
var Noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// Clock is a time that a test sets.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a Clock that stands at Noon.
func NewClock() *Clock { return &Clock{now: Noon} }

// Now returns the time of the clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Observer runs a source and sees its events.
type Observer struct {
	t      *testing.T
	events chan certs.Event
	Ticks  chan time.Time
}

// NewObserver returns an Observer whose ticks a source may wait for.
func NewObserver(t *testing.T) *Observer {
	return &Observer{t: t, events: make(chan certs.Event, 1000), Ticks: make(chan time.Time)}
}

// Notify records an event.
func (o *Observer) Notify(e certs.Event) { o.events <- e }

// Start runs the source until the test ends.
func (o *Observer) Start(run func() error) {
	o.t.Helper()
	done := make(chan error, 1)
	go func() { done <- run() }()
	o.t.Cleanup(func() {
		if err := <-done; err != nil {
			o.t.Errorf("Run: %v", err)
		}
	})
}

// Await is the next event of which want holds. Others are passed over.
func (o *Observer) Await(what string, want func(certs.Event) bool) certs.Event {
	o.t.Helper()
	for e := range o.events {
		if want(e) {
			return e
		}
	}
	o.t.Fatalf("%s: no such event", what)
	return certs.Event{}
}

// Tick makes the source look again and returns when it has: Run takes the second
// tick when it is through with the first.
func (o *Observer) Tick() {
	o.Ticks <- time.Time{}
	o.Ticks <- time.Time{}
}

// Quiet fails if there is an event that nobody waited for.
func (o *Observer) Quiet() {
	o.t.Helper()
	select {
	case e := <-o.events:
		o.t.Errorf("unexpected event: %+v", e)
	default:
	}
}

// InUse matches the event of a certificate that is active until a time.
func InUse(until time.Time) func(certs.Event) bool {
	return func(e certs.Event) bool { return e.Err == nil && e.NotAfter.Equal(until) }
}

// Authority is a CA that issues files.
type Authority struct{ *rotation.Authority }

// NewCA is an authority whose certificate is valid around noon.
func NewCA(t testing.TB) *Authority {
	t.Helper()
	key, id := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: fmt.Sprintf("gatehouse self-signed CA %x", id[:4])},
		NotBefore: Noon.Add(-24*time.Hour - rotation.Backdate), NotAfter: Noon.Add(rotation.DefaultCALife - 24*time.Hour),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign, SubjectKeyId: id, AuthorityKeyId: id,
	}
	return &Authority{&rotation.Authority{Cert: sign(t, template, template, key.Public(), key), Key: key}}
}

// newKey returns a key and its identifier.
func newKey(t testing.TB) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(der)
	return key, sum[:20]
}

func sign(t testing.TB, template, parent *x509.Certificate, public, private any) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, private)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// Leaf is a template for a server called localhost.
func Leaf(from, until time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: "test"}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: from, NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

// Pair is the content of two files, and until when they are valid.
type Pair struct {
	Cert, Key []byte
	Until     time.Time
}

// Pair issues a certificate.
func (a *Authority) Pair(t testing.TB, template *x509.Certificate) Pair {
	t.Helper()
	key, id := newKey(t)
	filled := *template
	filled.SerialNumber, filled.SubjectKeyId, filled.AuthorityKeyId = big.NewInt(2), id, a.Cert.SubjectKeyId
	filled.BasicConstraintsValid, filled.KeyUsage = true, x509.KeyUsageDigitalSignature
	if filled.NotAfter.After(a.Cert.NotAfter) {
		filled.NotAfter = a.Cert.NotAfter
	}
	leaf := sign(t, &filled, a.Cert, key.Public(), a.Key)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), Until: leaf.NotAfter,
	}
}

// Valid is a pair that is valid from an hour before noon and for so long after.
func (a *Authority) Valid(t testing.TB, life time.Duration) Pair {
	t.Helper()
	return a.Pair(t, Leaf(Noon.Add(-time.Hour), Noon.Add(life)))
}

// Write replaces a file as a whole.
func Write(t testing.TB, file string, data []byte) {
	t.Helper()
	replacement := file + ".new"
	if err := os.WriteFile(replacement, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(replacement, file); err != nil {
		t.Fatal(err)
	}
}

// DirOf is a directory with the pair in tls.crt and tls.key.
func DirOf(t testing.TB, p Pair) string {
	t.Helper()
	dir := t.TempDir()
	Write(t, filepath.Join(dir, "tls.crt"), p.Cert)
	Write(t, filepath.Join(dir, "tls.key"), p.Key)
	return dir
}

// PoolOf returns a pool of CAs.
func PoolOf(cas ...*Authority) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, ca := range cas {
		pool.AddCert(ca.Cert)
	}
	return pool
}

// Serve is the address of a TLS server that says hello and hangs up.
func Serve(t testing.TB, config *tls.Config) string {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			group.Go(func() {
				defer func() { _ = conn.Close() }()
				_, _ = conn.Write([]byte("hello"))
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		group.Wait()
	})
	return listener.Addr().String()
}

// Dial connects, reads what the server says, and returns the server's leaf. With
// TLS 1.3 only reading shows whether a client certificate was accepted.
func Dial(addr string, config *tls.Config) (*x509.Certificate, error) {
	conn, err := tls.Dial("tcp", addr, config)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Read(make([]byte, 5)); err != nil {
		return nil, err
	}
	return conn.ConnectionState().PeerCertificates[0], nil
}

// Remove deletes a file.
func Remove(t testing.TB, file string) {
	t.Helper()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}

// Under is a CA that another one signed.
func (a *Authority) Under(t *testing.T) *Authority {
	t.Helper()
	below := NewCA(t)
	template := *below.Cert
	template.AuthorityKeyId, template.MaxPathLenZero, template.MaxPathLen = nil, false, -1
	below.Cert = sign(t, &template, a.Cert, below.Cert.PublicKey, a.Key)
	return below
}
