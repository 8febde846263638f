package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/pemcert"
)

// ClientCAsConfig configures ClientCAs.
type ClientCAsConfig struct {
	// File holds their certificates in PEM and nothing else.
	File string
	// Now returns the time; nil is time.Now. It must be safe for concurrent use.
	Now func() time.Time
	// Notify receives events from the goroutine of Run: first the active pool, then every
	// change. Nil drops them.
	Notify func(Event)
}

// ClientCAs is the pool of authorities whose client certificates are accepted.
// It follows a file as Files does, and keeps the last good pool when the file
// cannot be used: taking the file away withdraws nothing. All methods are safe
// for concurrent use.
type ClientCAs struct {
	cfg     ClientCAsConfig
	current atomic.Pointer[clientPool]
}

// clientPool is the content of a file of authorities.
type clientPool struct {
	certs []*x509.Certificate
	pool  *x509.CertPool
}

// NewClientCAs reads the file. Run warns of certificates that are expired or not those of a
// CA; they are no error.
func NewClientCAs(cfg ClientCAsConfig) (*ClientCAs, error) {
	c := &ClientCAs{cfg: cfg}
	found, err := readPool(cfg.File)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ClientCA, err)
	}
	c.current.Store(found)
	return c, nil
}

// readPool reads a file of authorities.
func readPool(file string) (*clientPool, error) {
	text, err := readFile(file)
	if err != nil {
		return nil, err
	}
	list, err := pemcert.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w (hint: use a file with only the CAs' certificates)", file, err)
	}
	p := &clientPool{certs: list, pool: x509.NewCertPool()}
	for _, cert := range list {
		p.pool.AddCert(cert)
	}
	return p, nil
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
	r := reporter{notify: c.cfg.Notify}
	for {
		r.report(c.reload())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(fileInterval):
		}
	}
}

// reload reads the file, activates it if it is valid, and returns an event about the active pool. Only
// Run calls it.
func (c *ClientCAs) reload() Event {
	current := c.current.Load()
	found, err := readPool(c.cfg.File)
	if err != nil {
		err = fmt.Errorf("rejected, the previous CAs stay active: %w", err)
	} else if !slices.EqualFunc(found.certs, current.certs, (*x509.Certificate).Equal) {
		c.current.Store(found)
		current = found
	}
	now := wall(c.cfg.Now)
	event := EventOf(ClientCA, current.certs...)
	event.Err = err
	for i, cert := range current.certs {
		name := fmt.Sprintf("certificate %d (%q)", i+1, cert.Subject.String())
		if !cert.IsCA {
			event.Warnings = append(event.Warnings, name+" is not a CA: only the holder of its own key is accepted")
		}
		if err := checkValidity(cert, now); err != nil {
			event.Warnings = append(event.Warnings, name+" accepts no client: "+err.Error())
		} else {
			event.NotAfter = earlier(event.NotAfter, cert.NotAfter)
		}
	}
	return event
}
