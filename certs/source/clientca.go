package source

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/clock"
	"github.com/gatehouse-dev/gatehouse/certs/internal/filewatch"
	"github.com/gatehouse-dev/gatehouse/certs/internal/pki"
)

// ClientCAsConfig says where the authorities for client certificates are.
type ClientCAsConfig struct {
	// File holds their certificates in PEM and nothing else.
	File string
	// Now is the time for remarks about expiry; nil is time.Now. It must be safe
	// for concurrent use.
	Now func() time.Time
	// Notify is told what happens, from the goroutine of Run: first what is in
	// use, then every change. Nil tells nobody.
	Notify func(certs.Event)
}

// ClientCAs is the pool of authorities whose client certificates are accepted.
// It follows a file as Files does, and keeps the last good pool when the file
// cannot be used: taking the file away withdraws nothing. All methods are safe
// for concurrent use.
type ClientCAs struct {
	cfg     ClientCAsConfig
	current atomic.Pointer[bundle]
	ticks   <-chan time.Time
}

// bundle is the content of a file of authorities.
type bundle struct {
	certs []*x509.Certificate
	pool  *x509.CertPool
}

// NewClientCAs reads the file. Certificates that will not help anybody in, being
// expired or not those of a CA, are remarked upon by Run and are no error.
func NewClientCAs(cfg ClientCAsConfig) (*ClientCAs, error) {
	c := &ClientCAs{cfg: cfg}
	found, err := readBundle(cfg.File)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certs.ClientCA, err)
	}
	c.current.Store(found)
	return c, nil
}

// Pool is the pool in use. It must not be changed. A server that wants to follow
// the file asks for each handshake anew, or uses ConfigForClient.
func (c *ClientCAs) Pool() *x509.CertPool { return c.current.Load().pool }

// ConfigForClient is a tls.Config.GetConfigForClient that verifies client
// certificates against the pool in use. The configurations that it gives are
// base with ClientCAs set and session tickets disabled: a resumed session
// is not verified again against the authorities, and would outlive one that was
// withdrawn. Base says by its ClientAuth whether a certificate is required, and
// gives everything else too; it must not be changed once the server runs.
func (c *ClientCAs) ConfigForClient(base *tls.Config) func(*tls.ClientHelloInfo) (*tls.Config, error) {
	var last atomic.Pointer[tls.Config]
	return func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pool := c.Pool()
		if config := last.Load(); config != nil && config.ClientCAs == pool {
			return config, nil
		}
		config := base.Clone()
		config.ClientCAs = pool
		config.SessionTicketsDisabled = true
		config.GetConfigForClient = nil
		last.Store(config)
		return config, nil
	}
}

// Run follows the file until the context ends, and returns nil then and not
// before. It is called once.
func (c *ClientCAs) Run(ctx context.Context) error {
	ticks, stop := filewatch.TickOr(c.ticks, filewatch.Interval)
	defer stop()
	followFiles(ctx, []string{c.cfg.File}, ticks, c.cfg.Notify, c.event(c.current.Load()), c.reload)
	return nil
}

// reload reads the file and takes it if it can be used. Only Run calls it.
func (c *ClientCAs) reload() certs.Event {
	current := c.current.Load()
	found, err := readBundle(c.cfg.File)
	if err != nil {
		err = fmt.Errorf("not in use, the pool before it is: %w", err)
	} else if !slices.EqualFunc(found.certs, current.certs, (*x509.Certificate).Equal) {
		c.current.Store(found)
		current = found
	}
	event := c.event(current)
	event.Err = err
	event.Warnings = current.remarks(clock.Wall(c.cfg.Now))
	return event
}

// event says what is in use.
func (c *ClientCAs) event(inUse *bundle) certs.Event {
	event := certs.EventOf(certs.ClientCA, inUse.certs...)
	event.NotAfter = inUse.nextEnd(clock.Wall(c.cfg.Now))
	return event
}

// nextEnd is when the first of those that have not ended does: the next moment from
// which somebody is not let in any more. It is the end of the last if all have.
func (b *bundle) nextEnd(now time.Time) time.Time {
	var next, last time.Time
	for _, cert := range b.certs {
		end := cert.NotAfter
		if !now.After(end) && (next.IsZero() || end.Before(next)) {
			next = end
		}
		if end.After(last) {
			last = end
		}
	}
	if next.IsZero() {
		return last
	}
	return next
}

// readBundle reads a file of authorities. It holds certificates alone: a private
// key in a file that is handed around to be trusted is a mishap worth stopping
// at.
func readBundle(file string) (*bundle, error) {
	blocks, err := pki.ReadPEM(file)
	if err != nil {
		return nil, err
	}
	for i, block := range blocks {
		switch {
		case strings.HasSuffix(block.Type, pki.BlockPrivateKey):
			return nil, fmt.Errorf("%s: PEM block %d is a private key: give the certificates of the authorities alone, and renew the key if others could read it", file, i+1)
		case block.Type != pki.BlockCertificate:
			return nil, fmt.Errorf("%s: PEM block %d is of type %q: only CERTIFICATE is known", file, i+1, block.Type)
		}
	}
	certs, err := pki.ParseCertificates(file, blocks)
	if err != nil {
		return nil, err
	}
	b := &bundle{certs: certs, pool: x509.NewCertPool()}
	for _, cert := range certs {
		b.pool.AddCert(cert)
	}
	return b, nil
}

// remarks are what is odd about the authorities.
func (b *bundle) remarks(now time.Time) []string {
	var list []string
	for i, cert := range b.certs {
		name := fmt.Sprintf("certificate %d (%q)", i+1, cert.Subject.String())
		if !cert.IsCA {
			list = append(list, name+" is not a CA: it lets in the holder of its own key and nobody else")
		}
		if err := pki.CheckValidity(cert, now); err != nil {
			list = append(list, name+" lets nobody in: "+err.Error())
		}
	}
	return list
}
