// Package source implements certs.Source, which gives a TLS server its certificate:
// Files that another program renews, a SelfSigned CA that replicas share, and
// certificates that cert-manager issues (CertManager). ClientCAs is the pool that
// client certificates are verified against.
//
// The reconciler of a SelfSigned keeps the state of package rotation in a store.
package source

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/clock"
	"github.com/gatehouse-dev/gatehouse/certs/internal/pki"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/certs/store"
)

// SelfSignedConfig configures a SelfSigned.
type SelfSignedConfig struct {
	// Hosts are the DNS names and IP addresses under which clients reach the
	// server, at least one.
	Hosts []string
	// Store keeps the CA and Replicas the heartbeats, shared by all replicas. Nil is
	// memory: a CA of this process alone.
	Store    store.Store
	Replicas store.Replicas
	// Replica is the name of this one; "" is the host's. Version is that of the program.
	Replica, Version string
	// ServerOnly makes CAs that cannot issue client certificates.
	ServerOnly bool
	// Trust is what clients trust. If it is nil, a new CA signs as late as possible, unless
	// an administrator requested it.
	Trust certs.Trust
	// Life is how long a CA is good for, LeafLife how long a serving certificate;
	// zero is the default. Both are renewed after two thirds.
	Life, LeafLife time.Duration
	// Hold, EmergencyHold and EmergencyWait are those of a rotation.Policy; zero is
	// the default.
	Hold, EmergencyHold, EmergencyWait time.Duration
	// Interval is how often the state is reconciled; zero is ten seconds.
	Interval time.Duration
	// Now returns the time; nil is time.Now. It must be safe for concurrent use.
	Now func() time.Time
	// Notify receives events from NewSelfSigned and from the goroutine of Run: first the
	// active certificate and CA, then every change. Nil drops them.
	Notify func(certs.Event)
}

// SelfSigned is a Source with a certificate authority of its own, which any
// number of replicas share through a Store. Each replica issues its serving certificate
// from the CA in the Store and keeps it in memory, so that only the key of the CA is stored.
//
// A serving certificate is valid for a week and a CA for a year; each is renewed
// after two thirds of that by the wall clock. See package rotation for how one CA follows
// another.
type SelfSigned struct {
	cfg SelfSignedConfig
	// rotation keeps the state of the CAs.
	rotation *reconciler
	dns      []string
	ips      []net.IP
	leaf     atomic.Pointer[tls.Certificate]
	issuing  sync.Mutex
	served   certs.Reporter

	// dir is the directory that WriteDir has written and Run keeps, nil if there is none.
	dir atomic.Pointer[string]
}

var (
	_ certs.Source      = (*SelfSigned)(nil)
	_ certs.Authorities = (*SelfSigned)(nil)
)

// NewSelfSigned reads the store once, makes a CA if there is none, and issues a serving
// certificate. An error is about the configuration, for example a host that is neither a
// DNS name nor an IP address. A store that fails is no error, because it may recover while
// the server runs: see Healthy.
func NewSelfSigned(ctx context.Context, cfg SelfSignedConfig) (*SelfSigned, error) {
	s := &SelfSigned{cfg: cfg, served: certs.Reporter{Notify: cfg.Notify}}
	if len(cfg.Hosts) == 0 {
		return nil, errors.New("self-signed certificate: no host: set the DNS names and IP addresses that clients connect to")
	}
	var err error
	if s.dns, s.ips, err = splitHosts(cfg.Hosts); err != nil {
		return nil, fmt.Errorf("self-signed certificate: %w", err)
	}
	s.cfg.Life = cmp.Or(cfg.Life, rotation.DefaultCALife)
	s.cfg.LeafLife = cmp.Or(cfg.LeafLife, rotation.DefaultLeafLife)
	var usages []x509.ExtKeyUsage
	if cfg.ServerOnly {
		usages = append(usages, x509.ExtKeyUsageServerAuth)
	}
	s.rotation = &reconciler{
		store: cfg.Store, replicas: cfg.Replicas, replica: store.ReplicaName(cfg.Replica), version: cfg.Version, trust: cfg.Trust,
		policy: rotation.Policy{
			New:           func(now time.Time) (*rotation.Authority, error) { return pki.NewAuthority(now, s.cfg.Life, usages...) },
			LeafLife:      s.cfg.LeafLife,
			Hold:          cmp.Or(cfg.Hold, rotation.DefaultHold),
			EmergencyHold: cmp.Or(cfg.EmergencyHold, rotation.DefaultEmergencyHold),
			EmergencyWait: cmp.Or(cfg.EmergencyWait, rotation.DefaultEmergencyWait),
		},
		interval: cmp.Or(cfg.Interval, store.PollInterval), now: cfg.Now, use: s.use, serving: s.Certificate,
		problems: certs.Reporter{Notify: cfg.Notify}, steps: certs.Reporter{Notify: cfg.Notify},
	}
	if s.rotation.store == nil {
		s.rotation.store = &store.MemoryStore{}
	}
	if s.rotation.replicas == nil {
		s.rotation.replicas = &store.MemoryReplicas{Now: cfg.Now}
	}
	s.rotation.reconcile(ctx)
	return s, nil
}

// GetCertificate implements Source. It reads one pointer and the clock. A certificate that
// expired while the machine was suspended is replaced before the handshake continues.
func (s *SelfSigned) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	leaf := s.leaf.Load()
	if now := clock.Wall(s.cfg.Now); leaf == nil || now.After(leaf.Leaf.NotAfter) {
		state := s.rotation.state.Load()
		if state == nil {
			return nil, errors.New("there is no certificate yet")
		}
		if renewed, err := s.ensure(state, now, true); err == nil {
			return renewed, nil
		} else if leaf == nil {
			return nil, err
		}
	}
	return leaf, nil
}

// Certificate implements Authorities.
func (s *SelfSigned) Certificate() *tls.Certificate { return s.leaf.Load() }

// Bundle implements Authorities.
func (s *SelfSigned) Bundle(ctx context.Context) ([]*x509.Certificate, error) {
	return s.rotation.bundle(ctx)
}

// Changed implements Authorities.
func (s *SelfSigned) Changed() <-chan struct{} { return s.rotation.nextChange() }

// State returns the active state, nil if there is none yet. It must not be changed.
func (s *SelfSigned) State() *rotation.State { return s.rotation.state.Load() }

// IsReconciled reports whether the last round found no problem. It is safe for concurrent use.
func (s *SelfSigned) IsReconciled() bool { return s.rotation.lastError() == nil }

// Leave removes the heartbeat of this replica, for a caller that never calls Run, which
// does so at its end. It takes two seconds at most, even if the context has ended.
func (s *SelfSigned) Leave(ctx context.Context) { s.rotation.leave(ctx) }

// Healthy implements Source. A replica is also unhealthy before its first heartbeat, because
// the others remove the CA of its certificate without waiting for it, and when it was
// isolated for longer than they wait.
func (s *SelfSigned) Healthy() error {
	leaf := s.leaf.Load()
	if leaf == nil || !s.rotation.joined.Load() {
		if err := s.rotation.lastError(); err != nil {
			return fmt.Errorf("self-signed certificate: %w", err)
		}
		return errors.New("self-signed certificate: there is none yet")
	}
	now := clock.Wall(s.cfg.Now)
	if err := cmp.Or(pki.CheckValidity(leaf.Leaf, now), s.rotation.checkIsolated(now)); err != nil {
		return fmt.Errorf("self-signed certificate: %w", err)
	}
	return nil
}

// Run implements Source. When the CAs change it writes the directory of WriteDir again.
func (s *SelfSigned) Run(ctx context.Context) error {
	s.rotation.run(ctx)
	s.rotation.leave(ctx)
	return nil
}

// use activates a state.
func (s *SelfSigned) use(state *rotation.State, now time.Time) error {
	_, err := s.ensure(state, now, s.rotation.hasBeenHeld(state))
	if leaf := s.leaf.Load(); leaf != nil {
		s.served.Report(certs.EventOf(certs.ServingCertificate, leaf.Leaf))
	}
	if dir := s.dir.Load(); dir != nil {
		err = errors.Join(err, store.WriteDir(*dir, state, now))
	}
	return err
}

// ensure returns the serving certificate. It issues another one if the active one is not of
// the state's CA, or is due. A valid certificate of a CA that is still trusted is replaced
// by one of another CA only after a hold: the replica that activated that CA may have seen
// more than this one, or its clock may be wrong.
func (s *SelfSigned) ensure(state *rotation.State, now time.Time, held bool) (*tls.Certificate, error) {
	s.issuing.Lock()
	defer s.issuing.Unlock()
	leaf := s.leaf.Load()
	switch {
	case leaf == nil, pki.CheckValidity(leaf.Leaf, now) != nil:
		leaf = nil
	case bytes.Equal(leaf.Leaf.AuthorityKeyId, state.Current.Cert.SubjectKeyId):
		if rotation.IsDue(leaf.Leaf, now) {
			leaf = nil
		}
	case held || issuerOf(leaf, state) == nil:
		leaf = nil
	}
	if leaf == nil {
		if err := pki.CheckValidity(state.Current.Cert, now); err != nil {
			return nil, fmt.Errorf("the CA is %w", err)
		}
		pair, err := pki.Issue(state.Current, &x509.Certificate{
			Subject:     pkix.Name{CommonName: "gatehouse"},
			DNSNames:    s.dns,
			IPAddresses: s.ips,
			NotBefore:   now.Add(-rotation.Backdate),
			NotAfter:    now.Add(s.cfg.LeafLife),
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		})
		if err != nil {
			return nil, fmt.Errorf("self-signed certificate: %w", err)
		}
		s.leaf.Store(pair)
		leaf = pair
		s.rotation.notifyChanged()
	}
	return leaf, nil
}

// WriteDir writes CAFile, and a client certificate for the API server into
// ClientCertFile and ClientKeyFile, the key readable by the owner alone. It makes the
// directory if necessary, replaces each file atomically, and keeps files that are still
// valid. After ErrUnwritten Run tries again: it keeps the directory up to date from then on.
func (s *SelfSigned) WriteDir(dir string) error {
	state := s.rotation.state.Load()
	if state == nil {
		return errors.Join(errors.New("self-signed certificate: there is no CA yet"), s.rotation.lastError())
	}
	err := store.WriteDir(dir, state, clock.Wall(s.cfg.Now))
	if err != nil {
		err = fmt.Errorf("self-signed certificate: %w", err)
	}
	if err == nil || errors.Is(err, store.ErrUnwritten) {
		s.dir.Store(&dir)
	}
	return err
}
