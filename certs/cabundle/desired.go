package cabundle

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/kube"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

// readAuthorities returns the CAs to publish. An error that lasts is reported.
func (p *Publisher) readAuthorities(ctx context.Context) ([]*x509.Certificate, error) {
	request, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	list, err := p.cfg.Authorities.Bundle(request)
	switch {
	case err != nil:
	case len(list) == 0:
		err = errors.New("there is no CA yet")
	case p.cfg.Authorities.Certificate() == nil:
		err = errNoCertificate
	default:
		p.unknown, p.unknownReported = time.Time{}, false
		p.unknownBackoff = growing(firstDelay, longestDelay)
		return list, nil
	}
	if p.unknown.IsZero() {
		p.unknown = time.Now()
	}
	if ctx.Err() == nil && !p.unknownReported && time.Since(p.unknown) >= grace {
		p.unknownReported = true
		p.failed.Add(1)
		p.notify(certs.Event{Reason: certs.ReasonPublishFailed, Err: fmt.Errorf("no caBundle is written, because its CAs are unknown: %w", err)})
	}
	return nil, err
}

// checkBundle returns an error if calls would fail with the bundle in a configuration.
func (p *Publisher) checkBundle(o *object, list []*x509.Certificate) error {
	now := p.cfg.Now().Round(0)
	for _, cert := range list {
		switch {
		case !cert.IsCA:
			return fmt.Errorf("%s: no caBundle is written: the certificate %q is not that of a CA", o, cert.Subject)
		case now.Before(cert.NotBefore):
			return fmt.Errorf("%s: no caBundle is written: the CA %q is not valid before %s: check the clock, or wait", o, cert.Subject, cert.NotBefore.UTC().Format(time.RFC3339))
		case now.After(cert.NotAfter):
			return fmt.Errorf("%s: no caBundle is written: the CA %q has expired at %s: check the clock, or rotate the CA", o, cert.Subject, cert.NotAfter.UTC().Format(time.RFC3339))
		}
	}
	chain, err := newChain(p.cfg.Authorities.Certificate())
	if err != nil {
		return fmt.Errorf("%s: no caBundle is written: %w", o, err)
	}
	desired := parseBundle(string(rotation.Bundle(list)))
	for _, e := range p.cfg.Watcher.ours(o) {
		if err := chain.verify(desired, e.server, now); err != nil {
			return fmt.Errorf("%s, webhook %q: no caBundle is written, because calls would fail with it: %w", o, e.name, err)
		}
	}
	return nil
}
