package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// fileInterval is how often files are read again. A kubelet needs up to a minute to write what is in a
// Secret; nothing is gained by noticing a change at once.
const fileInterval = 5 * time.Second

// FilesConfig configures Files.
type FilesConfig struct {
	// CertFile holds the certificate and behind it those that lead to the root,
	// in PEM; KeyFile holds the private key. Both may be links, and the same
	// file.
	CertFile, KeyFile string
	// Now returns the time; nil is time.Now. It must be safe for concurrent use.
	Now func() time.Time
	// Trust is what clients trust. A new pair is served when they trust it, and one of
	// another issuer when they have trusted it for Hold. Nil serves each at once.
	Trust Trust
	Hold  time.Duration
	// Notify receives events from the goroutine of Run: first the active certificate, then
	// every change. Nil drops them.
	Notify func(Event)
}

// Files is a Source that follows a pair of files written by another program: the kubelet, which writes
// the Secret of a Certificate of cert-manager, or a client of another issuer.
//
// A pair that cannot be read, does not match, is expired or not valid yet is ignored as long as the
// active one is valid. One that clients do not trust yet waits, at the latest until the active one ends.
type Files struct {
	cfg     FilesConfig
	current atomic.Pointer[tls.Certificate]

	// What follows belongs to the goroutine of Run.

	// waiting is the pair that is not served yet, and since is from when on clients have trusted it, zero
	// if they do not.
	waiting  *tls.Certificate
	since    time.Time
	reporter reporter
}

var _ Source = (*Files)(nil)

// ErrWaiting means that the newest certificate is valid and not served yet, because clients
// do not trust it or have not for long enough. Nothing has to be done.
var ErrWaiting = errors.New("a new certificate is not served yet")

// NewFiles reads the pair. It returns an error if the pair cannot be used for TLS, but not
// if it is expired or not valid yet, because it may be renewed while the server runs: see
// Healthy.
func NewFiles(cfg FilesConfig) (*Files, error) {
	f := &Files{cfg: cfg, reporter: reporter{notify: cfg.Notify}}
	pair, err := readPair(cfg.CertFile, cfg.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ServingCertificate, err)
	}
	f.current.Store(pair)
	return f, nil
}

// GetCertificate implements Source.
func (f *Files) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return f.current.Load(), nil
}

// Run implements Source.
func (f *Files) Run(ctx context.Context) error {
	for {
		var changed <-chan struct{}
		if f.cfg.Trust != nil {
			changed = f.cfg.Trust.Changed() // before the files are read, so that no change falls in between
		}
		f.reload()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(f.pause()):
		case <-changed:
		}
	}
}

// pause returns the time until the files are read again, or until a pair has waited long enough.
func (f *Files) pause() time.Duration {
	const shortest = 100 * time.Millisecond
	if f.waiting == nil || f.since.IsZero() {
		return fileInterval
	}
	return min(fileInterval, max(shortest, f.since.Add(f.cfg.Hold).Sub(monotonic(f.cfg.Now))))
}

// Healthy implements Source.
func (f *Files) Healthy() error {
	if err := checkValidity(f.current.Load().Leaf, wall(f.cfg.Now)); err != nil {
		return fmt.Errorf("%s: %s: %w", ServingCertificate, f.cfg.CertFile, err)
	}
	return nil
}

// reload reads the pair, activates it if it is accepted, and reports the active one. Only Run calls it,
// so nothing else stores to current.
func (f *Files) reload() {
	now, current := wall(f.cfg.Now), f.current.Load()
	found, err := readPair(f.cfg.CertFile, f.cfg.KeyFile)
	switch {
	case err == nil && samePair(found, current):
		f.waiting = nil
	case err == nil && isValid(current, now):
		err = checkValidity(found.Leaf, now)
	}
	var waits error
	if err == nil && !samePair(found, current) {
		if waits = f.waits(current, found, now); waits == nil {
			f.current.Store(found)
			current, f.waiting = found, nil
		}
	}
	event := EventOf(ServingCertificate, current.Leaf)
	event.Warnings = warningsOf(current, now)
	invalid := checkValidity(current.Leaf, now)
	switch {
	case err != nil:
		event.Err = fmt.Errorf("rejected, the previous certificate stays active until %s: %w", stamp(current.Leaf.NotAfter), err)
	case waits != nil:
		event.Err = waits
	case invalid != nil:
		event.Err = fmt.Errorf("%s: %w", f.cfg.CertFile, invalid)
	}
	f.reporter.report(event)
}

// waits returns why a pair that was found is not served yet, nil if it is. API servers notice a change
// of their registration with a delay: an issuer that is new to them must be trusted for the hold.
func (f *Files) waits(current, found *tls.Certificate, now time.Time) error {
	if f.cfg.Trust == nil || !isValid(current, now) {
		return nil
	}
	distrust := f.cfg.Trust.Verify(found, now)
	if f.waiting == nil || !samePair(f.waiting, found) && !sameIssuer(f.waiting.Leaf, found.Leaf) || distrust != nil {
		f.since = time.Time{}
	}
	f.waiting = found
	if distrust == nil && f.since.IsZero() {
		f.since = monotonic(f.cfg.Now)
	}
	end := current.Leaf.NotAfter
	// Clocks differ, and that of a client may be ahead.
	ending := !now.Before(end.Add(-min(time.Hour, end.Sub(current.Leaf.NotBefore)/10)))
	why := "all webhook configurations trust it, and a new issuer must be trusted for " + f.cfg.Hold.String()
	switch {
	case distrust == nil && (ending || sameIssuer(current.Leaf, found.Leaf) || monotonic(f.cfg.Now).Sub(f.since) >= f.cfg.Hold):
		return nil
	case distrust != nil && !errors.Is(distrust, ErrUnread) && f.cfg.Trust.Verify(current, now) != nil:
		return nil //nolint:nilerr // it is no worse
	case distrust != nil && ending && errors.Is(distrust, ErrUnread):
		return nil
	case distrust != nil:
		why = "webhook configurations do not trust it: " + distrust.Error()
	}
	return fmt.Errorf("%s: %w: %s; it will be served by %s", f.cfg.CertFile, ErrWaiting, why, stamp(end))
}
