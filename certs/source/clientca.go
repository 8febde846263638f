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
	"github.com/gatehouse-dev/gatehouse/certs/internal/pki"
)

// ClientCAsConfig configures ClientCAs.
type ClientCAsConfig struct {
	// File holds their certificates in PEM and nothing else.
	File string
	// Now returns the time; nil is time.Now. It must be safe for concurrent use.
	Now func() time.Time
	// Notify receives events from the goroutine of Run: first the active pool, then every
	// change. Nil drops them.
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

// NewClientCAs reads the file. Run warns of certificates that are expired or not those of a
// CA; they are no error.
func NewClientCAs(cfg ClientCAsConfig) (*ClientCAs, error) {
	c := &ClientCAs{cfg: cfg}
	found, err := readBundle(cfg.File)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certs.ClientCA, err)
	}
	c.current.Store(found)
	return c, nil
}

// Pool returns the active pool, which must not be changed. A server that follows the file
// calls it for each handshake, or uses ConfigForClient.
func (c *ClientCAs) Pool() *x509.CertPool { return c.current.Load().pool }

// ConfigForClient returns a tls.Config.GetConfigForClient that verifies client
// certificates against the active pool. Its configurations are base with ClientCAs set and
// session tickets disabled: a resumed session is not verified again, and would outlive a CA
// that was removed. base must not be changed once the server runs.
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
	followFiles(ctx, []string{c.cfg.File}, c.ticks, nil, c.cfg.Notify, c.event(c.current.Load()), c.reload)
	return nil
}

// reload reads the file and activates it if it is valid. Only Run calls it.
func (c *ClientCAs) reload() certs.Event {
	current := c.current.Load()
	found, err := readBundle(c.cfg.File)
	if err != nil {
		err = fmt.Errorf("rejected, the previous CAs stay active: %w", err)
	} else if !slices.EqualFunc(found.certs, current.certs, (*x509.Certificate).Equal) {
		c.current.Store(found)
		current = found
	}
	event := c.event(current)
	event.Err = err
	event.Warnings = current.remarks(clock.Wall(c.cfg.Now))
	return event
}

// event returns an event about the active pool.
func (c *ClientCAs) event(inUse *bundle) certs.Event {
	event := certs.EventOf(certs.ClientCA, inUse.certs...)
	event.NotAfter = inUse.nextEnd(clock.Wall(c.cfg.Now))
	return event
}

// nextEnd returns when the first certificate expires that has not expired yet, or the
// expiry of the last if all have.
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

// readBundle reads a file of authorities. It returns an error if the file holds anything
// else than certificates: a private key in a public file is a mistake.
func readBundle(file string) (*bundle, error) {
	blocks, err := pki.ReadPEM(file)
	if err != nil {
		return nil, err
	}
	for i, block := range blocks {
		switch {
		case strings.HasSuffix(block.Type, pki.BlockPrivateKey):
			return nil, fmt.Errorf("%s: PEM block %d is a private key: use a file with only the CAs' certificates, and replace the key if others could read it", file, i+1)
		case block.Type != pki.BlockCertificate:
			return nil, fmt.Errorf("%s: PEM block %d is of type %q, allowed is CERTIFICATE", file, i+1, block.Type)
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

// remarks returns warnings about the authorities.
func (b *bundle) remarks(now time.Time) []string {
	var list []string
	for i, cert := range b.certs {
		name := fmt.Sprintf("certificate %d (%q)", i+1, cert.Subject.String())
		if !cert.IsCA {
			list = append(list, name+" is not a CA: only the holder of its own key is accepted")
		}
		if err := pki.CheckValidity(cert, now); err != nil {
			list = append(list, name+" accepts no client: "+err.Error())
		}
	}
	return list
}
