// Package source implements certs.Source, which gives a TLS server its certificate:
// Files that somebody else renews, a SelfSigned CA that replicas share, and
// certificates that cert-manager issues (CertManager). ClientCAs is the pool that
// client certificates are verified against.
//
// The reconciler is what SelfSigned and CertManager have in common: it keeps the state
// of package rotation in a store.
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
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/clock"
	"github.com/gatehouse-dev/gatehouse/certs/internal/pki"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/certs/store"
)

// SelfSignedConfig says for which names a SelfSigned issues, and where its CA is
// kept.
type SelfSignedConfig struct {
	// Hosts are the DNS names and IP addresses under which clients reach the
	// server, at least one.
	Hosts []string
	// Store is where the CA is kept, shared by all replicas, and Replicas where
	// they say what they serve. Nil is memory: a CA of this process alone.
	Store    store.Store
	Replicas store.Replicas
	// Replica is the name of this one; "" is the host's. Version is that of the
	// program, for people.
	Replica, Version string
	// ServerOnly makes CAs of which client certificates are good for nothing. Where
	// they are wanted, see ClientCertificate, it must be false.
	ServerOnly bool
	// Trust is what clients have been told. Nil if nobody can tell: then a new CA
	// signs as late as possible, unless somebody asked for it.
	Trust certs.Trust
	// Life is how long a CA is good for, LeafLife how long a serving certificate;
	// zero is the default. Both are renewed after two thirds.
	Life, LeafLife time.Duration
	// Hold, EmergencyHold and EmergencyWait are those of a rotation.Policy; zero is
	// the default.
	Hold, EmergencyHold, EmergencyWait time.Duration
	// Interval is how often the clock and the store are looked at; zero is ten
	// seconds.
	Interval time.Duration
	// Now is the time by which certificates are made and expire; nil is
	// time.Now. It must be safe for concurrent use.
	Now func() time.Time
	// Notify is told what happens, from NewSelfSigned and from the goroutine of
	// Run: first what is in use, then every change. Nil tells nobody.
	Notify func(certs.Event)
}

// SelfSigned is a Source with a certificate authority of its own, which any
// number of replicas share through a Store. Each makes its serving certificate
// in its memory, from the CA in the Store, so that no key but that of the CA is
// ever written down.
//
// A serving certificate lives for a week and a CA for a year; each is renewed
// after two thirds of that by the clock on the wall. How one CA follows another
// is told in package rotation.
type SelfSigned struct {
	*reconciler

	cfg     SelfSignedConfig
	dns     []string
	ips     []net.IP
	leaf    atomic.Pointer[tls.Certificate]
	issuing sync.Mutex
	served  certs.Reporter

	mu sync.Mutex
	// dirs are the directories that WriteDir has written and Run keeps.
	dirs []string
}

var _ certs.Source = (*SelfSigned)(nil)

// NewSelfSigned looks at the store once, and makes a CA if there is none, and a
// serving certificate. The error is about the configuration: one names the host
// that is neither a DNS name nor an IP address. A store that cannot be used is
// none, because it may come to be usable while the server runs: Healthy tells.
func NewSelfSigned(ctx context.Context, cfg SelfSignedConfig) (*SelfSigned, error) {
	s := &SelfSigned{cfg: cfg, served: certs.Reporter{Notify: cfg.Notify}}
	if len(cfg.Hosts) == 0 {
		return nil, errors.New("self-signed certificate: no host: give the DNS names and IP addresses under which clients reach the server")
	}
	dns, ips, err := splitHosts(cfg.Hosts)
	if err != nil {
		return nil, fmt.Errorf("self-signed certificate: %w", err)
	}
	s.dns = dns
	for _, ip := range ips {
		s.ips = append(s.ips, net.ParseIP(ip))
	}
	s.cfg.Life = cmp.Or(cfg.Life, rotation.DefaultCALife)
	s.cfg.LeafLife = cmp.Or(cfg.LeafLife, rotation.DefaultLeafLife)
	var usages []x509.ExtKeyUsage
	if cfg.ServerOnly {
		usages = append(usages, x509.ExtKeyUsageServerAuth)
	}
	s.reconciler = &reconciler{
		subject: certs.SelfSignedCA,
		store:   cfg.Store, replicas: cfg.Replicas, replica: store.ReplicaName(cfg.Replica), version: cfg.Version, trust: cfg.Trust,
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
	if s.store == nil {
		s.store = &store.MemoryStore{}
	}
	if s.replicas == nil {
		s.replicas = &store.MemoryReplicas{Now: cfg.Now}
	}
	s.reconcile(ctx)
	return s, nil
}

// GetCertificate implements Source. It reads one pointer and the clock. A
// certificate that has ended while the machine was suspended is replaced before
// the handshake goes on.
func (s *SelfSigned) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	leaf := s.leaf.Load()
	if now := clock.Wall(s.cfg.Now); leaf == nil || now.After(leaf.Leaf.NotAfter) {
		state := s.state.Load()
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

// CABundle is the certificates of the CAs that clients must trust, in PEM.
func (s *SelfSigned) CABundle() []byte {
	state := s.state.Load()
	if state == nil {
		return nil
	}
	return rotation.Bundle(state.Trusted(clock.Wall(s.cfg.Now)))
}

// Certificate implements Authorities.
func (s *SelfSigned) Certificate() *tls.Certificate { return s.leaf.Load() }

// Healthy implements Source. A replica is unhealthy too until the others have
// been told of it once: who has not been heard of is not waited for when the CA
// of its certificate is forgotten. And it is when it was cut off from the others
// for longer than they wait.
func (s *SelfSigned) Healthy() error {
	leaf := s.leaf.Load()
	if leaf == nil || !s.joined.Load() {
		if err := s.lastError(); err != nil {
			return fmt.Errorf("self-signed certificate: %w", err)
		}
		return errors.New("self-signed certificate: there is none yet")
	}
	now := clock.Wall(s.cfg.Now)
	if err := cmp.Or(pki.CheckValidity(leaf.Leaf, now), s.checkIsolated(now)); err != nil {
		return fmt.Errorf("self-signed certificate: %w", err)
	}
	return nil
}

// Run implements Source. When the CAs change it writes the directories of
// WriteDir again.
func (s *SelfSigned) Run(ctx context.Context) error {
	s.run(ctx)
	s.Leave(ctx)
	return nil
}

// use takes a state into use.
func (s *SelfSigned) use(state *rotation.State, now time.Time) error {
	_, err := s.ensure(state, now, s.hasBeenHeld(state))
	if leaf := s.leaf.Load(); leaf != nil {
		s.served.Report(certs.EventOf(certs.ServingCertificate, leaf.Leaf))
	}
	return errors.Join(err, s.rewriteDirs(state, now))
}

// ensure makes a serving certificate if the one in use is not the state's, or is
// due, and returns the one that is in use then. A good one of a CA that is still
// trusted makes way for one of another CA only if that was held: who wrote that it
// signs may have seen more than this replica, or have had a clock that was wrong.
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
		s.notifyChanged()
	}
	return leaf, nil
}

// ClientCertificate issues a client certificate for the names, which must not
// both be empty, and returns it and its key in PEM. It is good for a year or
// until the newest CA expires, whichever is first.
func (s *SelfSigned) ClientCertificate(commonName, organization string) (certPEM, keyPEM []byte, err error) {
	state := s.state.Load()
	if state == nil {
		return nil, nil, errors.Join(errors.New("client certificate: there is no CA yet"), s.lastError())
	}
	return pki.ClientCertificate(state, commonName, organization, clock.Wall(s.cfg.Now))
}

// WriteDir writes CAFile, and a client certificate for the API server into
// ClientCertFile and ClientKeyFile, the key readable by the owner alone. The
// directory is made if it does not exist. Each file is replaced as a whole: a
// reader never sees half of one. What is there and good for a while stays. A CAFile
// that holds no CA of ours is a ForeignError, and everything stays as it is. What
// cannot be written is ErrUnwritten, and Run tries again: it keeps the directory up to
// date from then on.
func (s *SelfSigned) WriteDir(dir string) error {
	state := s.state.Load()
	if state == nil {
		return errors.Join(errors.New("self-signed certificate: there is no CA yet"), s.lastError())
	}
	err := store.WriteDir(dir, state, clock.Wall(s.cfg.Now))
	if err != nil {
		err = fmt.Errorf("self-signed certificate: %w", err)
	}
	if err == nil || errors.Is(err, store.ErrUnwritten) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !slices.Contains(s.dirs, dir) {
			s.dirs = append(s.dirs, dir)
		}
	}
	return err
}

// rewriteDirs writes the known directories again.
func (s *SelfSigned) rewriteDirs(state *rotation.State, now time.Time) error {
	s.mu.Lock()
	dirs := slices.Clone(s.dirs)
	s.mu.Unlock()
	var problems []error
	for _, dir := range dirs {
		problems = append(problems, store.WriteDir(dir, state, now))
	}
	return errors.Join(problems...)
}
