package certs

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

// noon is when these tests begin.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// clock is a time that a test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: noon} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// observer runs a source and sees its events.
type observer struct {
	t      *testing.T
	events chan Event
	ticks  chan time.Time
}

func newObserver(t *testing.T) *observer {
	return &observer{t: t, events: make(chan Event, 1000), ticks: make(chan time.Time)}
}

func (o *observer) notify(e Event) { o.events <- e }

// start runs the source until the test ends.
func (o *observer) start(run func() error) {
	o.t.Helper()
	done := make(chan error, 1)
	go func() { done <- run() }()
	o.t.Cleanup(func() {
		if err := <-done; err != nil {
			o.t.Errorf("Run: %v", err)
		}
	})
}

// await is the next event of which want holds. Others are passed over.
func (o *observer) await(what string, want func(Event) bool) Event {
	o.t.Helper()
	guard := time.NewTimer(time.Minute)
	defer guard.Stop()
	for {
		select {
		case e := <-o.events:
			if want(e) {
				return e
			}
		case <-guard.C:
			o.t.Fatalf("%s: no such event", what)
		}
	}
}

// tick makes the source look again and returns when it has: Run takes the second
// tick when it is through with the first.
func (o *observer) tick() {
	o.ticks <- time.Time{}
	o.ticks <- time.Time{}
}

// quiet fails if there is an event that nobody waited for.
func (o *observer) quiet() {
	o.t.Helper()
	select {
	case e := <-o.events:
		o.t.Errorf("unexpected event: %+v", e)
	default:
	}
}

func inUse(until time.Time) func(Event) bool {
	return func(e Event) bool { return e.Err == nil && e.NotAfter.Equal(until) }
}

// authority is a CA that issues files.
type authority struct{ *rotation.Authority }

// newCA is an authority whose certificate is valid around noon.
func newCA(t testing.TB) *authority {
	t.Helper()
	a, err := newAuthority(noon.Add(-24*time.Hour), DefaultCALife)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{a}
}

// leaf is a template for a server called localhost.
func leaf(from, until time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: "test"}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: from, NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

// pair is the content of two files, and until when they are valid.
type pair struct {
	cert, key []byte
	until     time.Time
}

func (a *authority) pair(t testing.TB, template *x509.Certificate) pair {
	t.Helper()
	issued, err := issue(a.Authority, template)
	if err != nil {
		t.Fatal(err)
	}
	key, err := encodeKey(issued.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	return pair{encodeCertificate(issued.Leaf.Raw), key, issued.Leaf.NotAfter}
}

// valid is a pair that is valid from an hour before noon and for so long after.
func (a *authority) valid(t testing.TB, life time.Duration) pair {
	t.Helper()
	return a.pair(t, leaf(noon.Add(-time.Hour), noon.Add(life)))
}

func write(t testing.TB, file string, data []byte) {
	t.Helper()
	if err := replaceFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// dirOf is a directory with the pair in tls.crt and tls.key.
func dirOf(t testing.TB, p pair) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "tls.crt"), p.cert)
	write(t, filepath.Join(dir, "tls.key"), p.key)
	return dir
}

func poolOf(cas ...*authority) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, ca := range cas {
		pool.AddCert(ca.Cert)
	}
	return pool
}

// serve is the address of a TLS server that says hello and hangs up.
func serve(t testing.TB, config *tls.Config) string {
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

// dial connects, reads what the server says, and returns the server's leaf. With
// TLS 1.3 only reading shows whether a client certificate was accepted.
func dial(addr string, config *tls.Config) (*x509.Certificate, error) {
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

func remove(t testing.TB, file string) {
	t.Helper()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}
