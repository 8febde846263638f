package source

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/pki"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/test/support/certstest"
)

// observer runs a source and sees its events.
type observer struct {
	t      *testing.T
	events chan certs.Event
	Ticks  chan time.Time
}

// newObserver returns an observer whose ticks a source may wait for.
func newObserver(t *testing.T) *observer {
	return &observer{t: t, events: make(chan certs.Event, 1000), Ticks: make(chan time.Time)}
}

// Notify records an event.
func (o *observer) Notify(e certs.Event) { o.events <- e }

// Start runs the source until the test ends.
func (o *observer) Start(run func() error) {
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
func (o *observer) Await(what string, want func(certs.Event) bool) certs.Event {
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
func (o *observer) Tick() {
	o.Ticks <- time.Time{}
	o.Ticks <- time.Time{}
}

// Quiet fails if there is an event that nobody waited for.
func (o *observer) Quiet() {
	o.t.Helper()
	select {
	case e := <-o.events:
		o.t.Errorf("unexpected event: %+v", e)
	default:
	}
}

// inUse matches the event of a certificate that is active until a time.
func inUse(until time.Time) func(certs.Event) bool {
	return func(e certs.Event) bool { return e.Err == nil && e.NotAfter.Equal(until) }
}

// testAuthority is a CA that issues files.
type testAuthority struct{ *rotation.Authority }

// newCA is an authority whose certificate is valid around noon.
func newCA(t testing.TB) *testAuthority {
	t.Helper()
	ca, err := pki.NewAuthority(certstest.Noon.Add(-24*time.Hour), rotation.DefaultCALife)
	if err != nil {
		t.Fatal(err)
	}
	return &testAuthority{ca}
}

// leafTemplate is a template for a server called localhost.
func leafTemplate(from, until time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: "test"}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: from, NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

// certPair is the content of two files, and until when they are valid.
type certPair struct {
	Cert, Key []byte
	Until     time.Time
}

// Pair issues a certificate.
func (a *testAuthority) Pair(t testing.TB, template *x509.Certificate) certPair {
	t.Helper()
	filled := *template
	leaf, err := pki.Issue(a.Authority, &filled)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return certPair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Leaf.Raw}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), Until: leaf.Leaf.NotAfter,
	}
}

// Valid is a pair that is valid from an hour before noon and for so long after.
func (a *testAuthority) Valid(t testing.TB, life time.Duration) certPair {
	t.Helper()
	return a.Pair(t, leafTemplate(certstest.Noon.Add(-time.Hour), certstest.Noon.Add(life)))
}

// dirOf is a directory with the pair in tls.crt and tls.key.
func dirOf(t testing.TB, p certPair) string {
	t.Helper()
	dir := t.TempDir()
	certstest.Write(t, filepath.Join(dir, "tls.crt"), p.Cert)
	certstest.Write(t, filepath.Join(dir, "tls.key"), p.Key)
	return dir
}

// poolOf returns a pool of CAs.
func poolOf(cas ...*testAuthority) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, ca := range cas {
		pool.AddCert(ca.Cert)
	}
	return pool
}

// serveTLS is the address of a TLS server that says hello and hangs up.
func serveTLS(t testing.TB, config *tls.Config) string {
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

// dialTLS connects, and reads what the server says. With TLS 1.3 only reading shows
// whether a client certificate was accepted.
func dialTLS(addr string, config *tls.Config) error {
	conn, err := tls.Dial("tcp", addr, config)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = conn.Read(make([]byte, 5))
	return err
}

// Under is a CA that another one signed.
func (a *testAuthority) Under(t *testing.T) *testAuthority {
	t.Helper()
	below := newCA(t)
	template := *below.Cert
	template.AuthorityKeyId, template.MaxPathLenZero, template.MaxPathLen = nil, false, -1
	der, err := x509.CreateCertificate(rand.Reader, &template, a.Cert, below.Cert.PublicKey, a.Key)
	if err != nil {
		t.Fatal(err)
	}
	if below.Cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return below
}
