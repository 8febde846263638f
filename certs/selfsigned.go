package certs

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	leafLife   = 7 * 24 * time.Hour
	clientLife = 365 * 24 * time.Hour
	// renewInterval is how often the clock is compared with the certificates.
	renewInterval = 30 * time.Second

	// The names in the client certificate that WriteDir writes.
	apiServerName         = "kube-apiserver"
	apiServerOrganization = "gatehouse.dev"
)

// The files that WriteDir writes.
const (
	// CAFile holds what CABundle returns. It is both what a client trusts and
	// what the server accepts client certificates from.
	CAFile = "ca.crt"
	// ClientCertFile and ClientKeyFile hold a client certificate for the API
	// server.
	ClientCertFile = "apiserver-client.crt"
	ClientKeyFile  = "apiserver-client.key"
)

// SelfSignedConfig says for which names a SelfSigned issues.
type SelfSignedConfig struct {
	// Hosts are the DNS names and IP addresses under which clients reach the
	// server, at least one.
	Hosts []string
	// Now is the time by which certificates are made and expire; nil is
	// time.Now. It must be safe for concurrent use.
	Now func() time.Time
	// Notify is told what happens, from the goroutine of Run: first what is in
	// use, then every change. Nil tells nobody.
	Notify func(Event)
}

// SelfSigned is a Source with a certificate authority of its own, for one
// machine, for tests and for trying things out: keys are made when the process
// starts and live in its memory, so that after every start clients have to be
// given the CA anew, and replicas have different ones.
//
// The serving certificate lives for a week and the CA for a year; each is
// renewed after two thirds of that by the clock on the wall. A new CA is part of
// CABundle from then on, and signs serving certificates only when the old one is
// too old for another week of them: there are months to tell clients.
type SelfSigned struct {
	cfg   SelfSignedConfig
	dns   []string
	ips   []net.IP
	leaf  atomic.Pointer[tls.Certificate]
	ticks <-chan time.Time

	mu sync.Mutex
	// authorities are those that are trusted, the oldest first.
	authorities []*authority
	// dirs are the directories that WriteDir has written and Run keeps.
	dirs []string
}

// NewSelfSigned makes a CA and a serving certificate. An error names the host
// that is neither a DNS name nor an IP address.
func NewSelfSigned(cfg SelfSignedConfig) (*SelfSigned, error) {
	s := &SelfSigned{cfg: cfg}
	if len(cfg.Hosts) == 0 {
		return nil, errors.New("self-signed certificate: no host: give the DNS names and IP addresses under which clients reach the server")
	}
	var problems []error
	for _, host := range cfg.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			s.ips = append(s.ips, ip)
		} else if name := strings.ToLower(host); isDNSName(name) {
			s.dns = append(s.dns, name)
		} else {
			problems = append(problems, fmt.Errorf("self-signed certificate: host %q is neither a DNS name nor an IP address: write it without scheme, port and brackets", host))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if _, err := s.renew(wall(cfg.Now)); err != nil {
		return nil, err
	}
	return s, nil
}

// GetCertificate implements Source.
func (s *SelfSigned) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return s.leaf.Load(), nil
}

// Healthy implements Source.
func (s *SelfSigned) Healthy() error {
	if err := checkValidity(s.leaf.Load().Leaf, wall(s.cfg.Now)); err != nil {
		return fmt.Errorf("self-signed certificate: %w", err)
	}
	return nil
}

// Run implements Source. When the set of trusted CAs changes it writes the
// directories of WriteDir again.
func (s *SelfSigned) Run(ctx context.Context) error {
	ticks, stop := tickOr(s.ticks, renewInterval)
	defer stop()
	leaf := reporter{notify: s.cfg.Notify}
	ca := reporter{notify: s.cfg.Notify}
	stale := false
	for {
		now := wall(s.cfg.Now)
		changed, err := s.renew(now)
		current := s.leaf.Load().Leaf
		if err == nil {
			err = checkValidity(current, now)
		}
		event := eventOf(ServingCertificate, current)
		event.Err = err
		leaf.report(event)
		event = eventOf(SelfSignedCA, s.trusted()...)
		if stale = stale || changed; stale {
			event.Err = s.rewrite()
			stale = event.Err != nil
		}
		ca.report(event)
		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
		}
	}
}

// CABundle is the certificates of all CAs that clients should trust, in PEM, the
// one that signs serving certificates now first. It changes when Run makes a new
// CA, which it tells as an Event.
func (s *SelfSigned) CABundle() []byte {
	var bundle []byte
	for _, cert := range s.trusted() {
		bundle = append(bundle, encodeCertificate(cert.Raw)...)
	}
	return bundle
}

// trusted is the certificates of the CAs, the oldest first.
func (s *SelfSigned) trusted() []*x509.Certificate {
	s.mu.Lock()
	defer s.mu.Unlock()
	var certs []*x509.Certificate
	for _, a := range s.authorities {
		certs = append(certs, a.cert)
	}
	return certs
}

// ClientCertificate issues a client certificate for the names, which must not
// both be empty, and returns it and its key in PEM. It is good for a year or
// until the newest CA expires, whichever is first.
func (s *SelfSigned) ClientCertificate(commonName, organization string) (certPEM, keyPEM []byte, err error) {
	subject := pkix.Name{CommonName: commonName}
	if organization != "" {
		subject.Organization = []string{organization}
	}
	if commonName == "" && organization == "" {
		return nil, nil, errors.New("client certificate: neither common name nor organization: the server could not tell clients apart")
	}
	now := wall(s.cfg.Now)
	issuer := s.newest()
	pair, err := issuer.issue(&x509.Certificate{
		Subject:     subject,
		NotBefore:   now.Add(-backdate),
		NotAfter:    earlier(now.Add(clientLife), issuer.cert.NotAfter),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("client certificate: %w", err)
	}
	if keyPEM, err = encodeKey(pair.PrivateKey.(*ecdsa.PrivateKey)); err != nil {
		return nil, nil, fmt.Errorf("client certificate: %w", err)
	}
	return encodeCertificate(pair.Leaf.Raw), keyPEM, nil
}

// WriteDir writes CAFile, and a client certificate for the API server into
// ClientCertFile and ClientKeyFile, the key readable by the owner alone. The
// directory is made if it does not exist. Each file is replaced as a whole: a
// reader never sees half of one. Run keeps the directory up to date from then
// on.
func (s *SelfSigned) WriteDir(dir string) error {
	if err := s.writeDir(dir); err != nil {
		return fmt.Errorf("self-signed certificate: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.dirs, dir) {
		s.dirs = append(s.dirs, dir)
	}
	return nil
}

func (s *SelfSigned) writeDir(dir string) error {
	cert, key, err := s.ClientCertificate(apiServerName, apiServerOrganization)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	// The CA first, so that the server accepts the certificate before anybody
	// can show it.
	return errors.Join(
		writeFile(filepath.Join(dir, CAFile), s.CABundle(), 0o644),
		writeFile(filepath.Join(dir, ClientKeyFile), key, 0o600),
		writeFile(filepath.Join(dir, ClientCertFile), cert, 0o644),
	)
}

// rewrite writes the known directories again.
func (s *SelfSigned) rewrite() error {
	s.mu.Lock()
	dirs := slices.Clone(s.dirs)
	s.mu.Unlock()
	var problems []error
	for _, dir := range dirs {
		problems = append(problems, s.writeDir(dir))
	}
	return errors.Join(problems...)
}

func (s *SelfSigned) newest() *authority {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.authorities[len(s.authorities)-1]
}

// renew makes what is due at the time: it forgets CAs that have expired, makes a
// new one when the newest has used up two thirds of its life, and issues a
// serving certificate when that has. It tells whether the CAs have changed.
func (s *SelfSigned) renew(now time.Time) (changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := slices.DeleteFunc(slices.Clone(s.authorities), func(a *authority) bool { return now.After(a.cert.NotAfter) })
	if len(kept) == 0 || due(kept[len(kept)-1].cert, now) {
		a, err := newAuthority(now)
		if err != nil {
			return false, fmt.Errorf("self-signed CA: %w", err)
		}
		kept = append(kept, a)
	}
	changed = len(kept) != len(s.authorities) || kept[0] != s.authorities[0]
	s.authorities = kept

	leaf := s.leaf.Load()
	if leaf != nil && !due(leaf.Leaf, now) && !now.Before(leaf.Leaf.NotBefore) {
		return changed, nil
	}
	// The oldest that a serving certificate will not outlive: it has been in the
	// bundle for the longest time. One that is not valid yet is from the future
	// of a clock that was set back, and nothing signed by it would be accepted.
	notAfter := now.Add(leafLife)
	i := slices.IndexFunc(kept, func(a *authority) bool {
		return !now.Before(a.cert.NotBefore) && !notAfter.After(a.cert.NotAfter)
	})
	if i < 0 {
		return changed, fmt.Errorf("self-signed CA: not valid before %s: check the clock, or start again for a new CA", stamp(kept[0].cert.NotBefore))
	}
	pair, err := kept[i].issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "gatehouse"},
		DNSNames:    s.dns,
		IPAddresses: s.ips,
		NotBefore:   now.Add(-backdate),
		NotAfter:    notAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return changed, fmt.Errorf("self-signed certificate: %w", err)
	}
	s.leaf.Store(pair)
	return changed, nil
}

// isDNSName tells whether a name can stand in a certificate: labels of letters,
// digits and dashes, and in place of the first one a star. A name of digits and
// dots alone is a mistyped address.
func isDNSName(name string) bool {
	if len(name) > 253 || strings.Trim(name, "0123456789.") == "" {
		return false
	}
	for label := range strings.SplitSeq(strings.TrimPrefix(name, "*."), ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return true
}

// writeFile puts data into a new file beside the old one and renames it over
// that.
func writeFile(name string, data []byte, mode fs.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
