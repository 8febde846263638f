package certs

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// trusted is a Trust whose registrations trust what a test says.
type trusted struct {
	mu     sync.Mutex
	unread bool
	cas    []*x509.Certificate
	// calls is the name that webhook x calls, "" if that does not matter.
	calls   string
	changed chan struct{}
}

func newTrusted(cas ...*x509.Certificate) *trusted {
	return &trusted{cas: cas, changed: make(chan struct{})}
}

// set is what a registration trusts from now on.
func (t *trusted) set(cas ...*x509.Certificate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unread, t.cas = false, cas
	close(t.changed)
	t.changed = make(chan struct{})
}

// call is the name that webhook x calls from now on.
func (t *trusted) call(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = name
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *trusted) Verify(cert *tls.Certificate, now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unread {
		return ErrUnread
	}
	roots := x509.NewCertPool()
	for _, ca := range t.cas {
		roots.AddCert(ca)
	}
	_, err := cert.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, DNSName: t.calls})
	if host, ok := errors.AsType[x509.HostnameError](err); ok {
		return errors.Join(&DistrustError{Registration: "ValidatingWebhookConfiguration x", Webhook: "a", Err: host})
	}
	if err != nil {
		return errors.New("registration x does not trust it")
	}
	return nil
}

func (t *trusted) Holds(ca *x509.Certificate) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unread {
		return ErrUnread
	}
	for _, other := range t.cas {
		if other.Equal(ca) {
			return nil
		}
	}
	return errors.New("registration x lacks it")
}

// Fresh implements Trust.
func (t *trusted) Fresh() bool { return true }

// Changed implements Trust.
func (t *trusted) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// parsed is a pair as a source has it.
func parsed(t testing.TB, p pair) *tls.Certificate {
	t.Helper()
	c, err := parsePair("tls.crt", p.cert, "tls.key", p.key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestGateDecides(t *testing.T) {
	t.Parallel()
	const hold = 10 * time.Minute
	a, b := newCA(t), newCA(t)
	oldA := parsed(t, a.pair(t, leaf(noon.Add(-9*day), noon.Add(day))))
	newA, newB := parsed(t, a.valid(t, 10*day)), parsed(t, b.valid(t, 10*day))
	expired := parsed(t, a.pair(t, leaf(noon.Add(-9*day), noon.Add(-time.Second))))
	early := parsed(t, a.pair(t, leaf(noon.Add(time.Minute), noon.Add(day))))
	// Ten days of life: the last hour counts. Twenty minutes: the last two do.
	ending := parsed(t, a.pair(t, leaf(noon.Add(-9*day), noon.Add(time.Hour))))
	notYet := parsed(t, a.pair(t, leaf(noon.Add(-9*day), noon.Add(time.Hour+time.Second))))
	shortEnding := parsed(t, a.pair(t, leaf(noon.Add(-18*time.Minute), noon.Add(2*time.Minute))))
	shortNotYet := parsed(t, a.pair(t, leaf(noon.Add(-17*time.Minute), noon.Add(3*time.Minute))))
	unread := newTrusted()
	unread.unread = true
	cases := []struct {
		name           string
		trust          Trust
		current, found *tls.Certificate
		take           bool
		why            string
		until          time.Time
	}{
		{"nobody knows and nobody asks", nil, oldA, newB, true, "nobody says what clients trust", time.Time{}},
		{"nothing is served", newTrusted(a.Cert), nil, newA, true, "nothing else", time.Time{}},
		{"nothing is served and nothing was read", unread, nil, newB, true, "nothing else", time.Time{}},
		{"nothing is served and it is not trusted", newTrusted(a.Cert), nil, newB, true, "nothing else", time.Time{}},
		{"a renewal", newTrusted(a.Cert), oldA, newA, true, "of the same issuer", time.Time{}},
		{"a renewal while the next CA is trusted too", newTrusted(a.Cert, b.Cert), oldA, newA, true, "of the same issuer", time.Time{}},
		{"a renewal of a CA that was withdrawn", newTrusted(b.Cert), oldA, newA, false, "registration x does not trust it", oldA.Leaf.NotAfter},
		{"nothing was read", unread, oldA, newA, false, ErrUnread.Error(), oldA.Leaf.NotAfter.Add(-time.Hour)},
		{"another CA that nobody trusts", newTrusted(a.Cert), oldA, newB, false, "registration x does not trust it", oldA.Leaf.NotAfter},
		{"another CA that all trust since now", newTrusted(a.Cert, b.Cert), oldA, newB, false, "a new issuer is held for 10m0s", noon.Add(hold)},
		{"another CA in the place of the one before", newTrusted(b.Cert), oldA, newB, true, "and the one before it no more", time.Time{}},
		{"neither is trusted", newTrusted(), oldA, newB, false, "registration x does not trust it", oldA.Leaf.NotAfter},
		{"the one before has expired", newTrusted(a.Cert), expired, newB, true, "expired at 2026-11-20T11:59:59Z", time.Time{}},
		{"the one before is of tomorrow", newTrusted(a.Cert), early, newB, true, "not valid before", time.Time{}},
		{"the one before ends, trusted since now", newTrusted(a.Cert, b.Cert), ending, newB, true, "ends at 2026-11-20T13:00:00Z", time.Time{}},
		{"the one before ends, nothing was read", unread, ending, newB, true, "ends at 2026-11-20T13:00:00Z", time.Time{}},
		{"the one before ends a little later, nothing was read", unread, notYet, newB, false, ErrUnread.Error(), noon.Add(time.Second)},
		{"the one before ends, and is trusted alone", newTrusted(a.Cert), ending, newB, false, "registration x does not trust it", ending.Leaf.NotAfter},
		{"the one before ends, and neither is trusted", newTrusted(), ending, newB, true, "not trusted either", time.Time{}},
		{"a short one ends", unread, shortEnding, newB, true, "ends at", time.Time{}},
		{"a short one ends during the hold", newTrusted(a.Cert, b.Cert), shortNotYet, newB, false, "held for 10m0s", noon.Add(time.Minute)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := Gate{Trust: c.trust, Hold: hold}
			d := g.Decide(c.current, c.found, noon)
			if d.Take != c.take || !strings.Contains(d.Why, c.why) || !d.Until.Equal(c.until) {
				t.Errorf("got %+v, want %+v", d, Decision{Take: c.take, Why: c.why, Until: c.until})
			}
		})
	}
}

// A certificate without the identifier of its issuer's key may be of any key of
// that name.
func TestGateHoldsWhereTheIssuerIsNotKnown(t *testing.T) {
	t.Parallel()
	a := newCA(t)
	current, found := *parsed(t, a.valid(t, day)), *parsed(t, a.valid(t, 2*day))
	for _, pair := range []*tls.Certificate{&current, &found} {
		without := *pair.Leaf
		without.AuthorityKeyId = nil
		pair.Leaf = &without
	}
	g := Gate{Trust: newTrusted(a.Cert), Hold: time.Minute}
	if d := g.Decide(&current, &found, noon); d.Take {
		t.Errorf("taken at once: %s", d.Why)
	}
	if d := g.Decide(&current, &found, noon.Add(time.Minute)); !d.Take {
		t.Errorf("waits for ever: %s", d.Why)
	}
}

// A hold is without an interruption, and for the issuer.
func TestGateHolds(t *testing.T) {
	t.Parallel()
	const hold = 10 * time.Minute
	a, b, c := newCA(t), newCA(t), newCA(t)
	current := parsed(t, a.valid(t, 30*day))
	ofB, laterB, ofC := parsed(t, b.valid(t, 30*day)), parsed(t, b.valid(t, 31*day)), parsed(t, c.valid(t, 30*day))
	all := []*x509.Certificate{a.Cert, b.Cert, c.Cert}
	type look struct {
		at    time.Duration
		found *tls.Certificate
		trust []*x509.Certificate
		take  bool
	}
	cases := []struct {
		name  string
		looks []look
	}{
		{"to its end", []look{{0, ofB, all, false}, {hold - 1, ofB, all, false}, {hold, ofB, all, true}}},
		{"begins when it is trusted", []look{{0, ofB, all[:1], false}, {hold, ofB, all, false}, {2*hold - 1, ofB, all, false}, {2 * hold, ofB, all, true}}},
		{"interrupted", []look{{0, ofB, all, false}, {5 * time.Minute, ofB, all[:1], false}, {6 * time.Minute, ofB, all, false}, {hold, ofB, all, false}, {6*time.Minute + hold, ofB, all, true}}},
		{"goes on with a later one of the same CA", []look{{0, ofB, all, false}, {5 * time.Minute, laterB, all, false}, {hold, laterB, all, true}}},
		{"begins anew with another CA", []look{{0, ofB, all, false}, {5 * time.Minute, ofC, all, false}, {hold, ofC, all, false}, {5*time.Minute + hold, ofC, all, true}}},
		{"cut short when the one before is not trusted any more", []look{{0, ofB, all, false}, {time.Minute, ofB, all[1:], true}}},
		{"begins anew when the clock is set back", []look{{time.Hour, ofB, all, false}, {0, ofB, all, false}, {hold, ofB, all, true}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			trust := newTrusted()
			g := Gate{Trust: trust, Hold: hold}
			for _, l := range c.looks {
				trust.set(l.trust...)
				if d := g.Decide(current, l.found, noon.Add(l.at)); d.Take != l.take {
					t.Errorf("after %s: got %+v, want take %v", l.at, d, l.take)
				}
			}
		})
	}
}

// gated is a running Files with a Gate.
func gated(t *testing.T, dir string, trust Trust, hold time.Duration, c *clock) (*Files, *observer) {
	t.Helper()
	o := newObserver(t)
	f, err := NewFiles(FilesConfig{
		CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"), Now: c.Now, Notify: o.notify, Trust: trust, Hold: hold,
	})
	if err != nil {
		t.Fatal(err)
	}
	f.ticks = o.ticks
	o.start(func() error { return f.Run(t.Context()) })
	o.await("the first look", func(Event) bool { return true })
	return f, o
}

func waitsFor(what string) func(Event) bool {
	return func(e Event) bool { return errors.Is(e.Err, ErrWaiting) && strings.Contains(e.Err.Error(), what) }
}

func put(t *testing.T, dir string, p pair) {
	t.Helper()
	write(t, filepath.Join(dir, "tls.key"), p.key)
	write(t, filepath.Join(dir, "tls.crt"), p.cert)
}

// A new CA's certificate is served after every registration has trusted it for a
// while, and the trust alone brings that about: no file changes.
func TestFilesWaitForTrust(t *testing.T) {
	t.Parallel()
	const hold = 10 * time.Minute
	a, b := newCA(t), newCA(t)
	trust, now := newTrusted(a.Cert), newClock()
	first, second := a.valid(t, 10*day), b.valid(t, 20*day)
	dir := dirOf(t, first)
	f, o := gated(t, dir, trust, hold, now)

	put(t, dir, second)
	e := o.await("that it waits", waitsFor("tls.crt: a new certificate is not in use yet: registrations do not trust it: registration x does not trust it; it will be by 2026-11-30T12:00:00Z"))
	if !e.NotAfter.Equal(first.until) || string(serving(t, f)) != string(first.cert) {
		t.Errorf("in use until %v, want %v", e.NotAfter, first.until)
	}
	if err := f.Healthy(); err != nil {
		t.Errorf("unhealthy while a new one waits: %v", err)
	}
	trust.set(a.Cert, b.Cert) // nobody ticks
	o.await("the hold", waitsFor("a new issuer is held for 10m0s; it will be by 2026-11-20T12:10:00Z"))
	if string(serving(t, f)) != string(first.cert) {
		t.Error("served before the hold is over")
	}
	now.advance(hold)
	o.tick()
	o.await("the second pair", inUse(second.until))
	if string(serving(t, f)) != string(second.cert) {
		t.Error("not served after the hold")
	}
}

// What waits is remembered, whatever becomes of the files, until something newer
// is there or the files go back to what is served. Files that are refused are an
// error, and no wait, although something waits.
func TestFilesRememberWhatWaits(t *testing.T) {
	t.Parallel()
	a, b, c := newCA(t), newCA(t), newCA(t)
	first, second, third := a.valid(t, 10*day), b.valid(t, 20*day), c.valid(t, 30*day)
	ended := b.pair(t, leaf(noon.Add(-2*day), noon.Add(-day)))
	cases := []struct {
		name string
		edit func(t *testing.T, dir string)
		says string
		want pair
	}{
		{"files removed", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "tls.key")); err != nil {
				t.Fatal(err)
			}
		}, "no such file", second},
		{"half-written", func(t *testing.T, dir string) { write(t, filepath.Join(dir, "tls.crt"), third.cert[:50]) }, "half-written", second},
		{"one that has ended", func(t *testing.T, dir string) { put(t, dir, ended) }, "expired at", second},
		{"a newer one", func(t *testing.T, dir string) { put(t, dir, third) }, "", third},
		{"the one in use", func(t *testing.T, dir string) { put(t, dir, first) }, "", first},
	}
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			trust := newTrusted(a.Cert)
			dir := dirOf(t, first)
			f, o := gated(t, dir, trust, 0, newClock())
			put(t, dir, second)
			o.await("that it waits", waitsFor(""))
			test.edit(t, dir)
			o.tick()
			if test.says != "" {
				e := o.await(test.says, func(e Event) bool { return e.Err != nil && strings.Contains(e.Err.Error(), test.says) })
				if errors.Is(e.Err, ErrWaiting) {
					t.Errorf("it passes for a wait: %v", e.Err)
				}
				refused, waits := strings.Index(e.Err.Error(), test.says), strings.Index(e.Err.Error(), ErrWaiting.Error())
				if waits < refused {
					t.Errorf("what is wrong does not come first, or what waits is not told: %v", e.Err)
				}
			}
			trust.set(a.Cert, b.Cert, c.Cert)
			o.await("the end of waiting", func(e Event) bool {
				return (e.Err == nil || !strings.Contains(e.Err.Error(), ErrWaiting.Error())) && e.NotAfter.Equal(test.want.until)
			})
			if string(serving(t, f)) != string(test.want.cert) {
				t.Error("another pair is served")
			}
		})
	}
}

// What ends while it waits is not served in the place of something valid, nor
// waited for.
func TestSuccessionForgetsWhatEnds(t *testing.T) {
	t.Parallel()
	a, b := newCA(t), newCA(t)
	trust := newTrusted(a.Cert)
	s := succession{gate: Gate{Trust: trust}}
	current, short := parsed(t, a.valid(t, 10*day)), parsed(t, b.valid(t, day))
	if got, err := s.next(current, short, "x", noon); got != current || !errors.Is(err, ErrWaiting) {
		t.Fatalf("it does not wait: %v", err)
	}
	trust.set(a.Cert, b.Cert)
	if got, err := s.next(current, nil, "x", noon.Add(2*day)); got != current || err != nil {
		t.Errorf("it is served after its end, or waits: %v", err)
	}
}

// A certificate for another name than the one that is called is refused, and is
// not promised to come into use: only a registration that calls another name, or a
// certificate that is for this one, changes that.
func TestFilesRefuseAnotherName(t *testing.T) {
	t.Parallel()
	a, b := newCA(t), newCA(t)
	for _, issuer := range []struct {
		name string
		ca   *authority
	}{{"of the same CA", a}, {"of another CA", b}} {
		t.Run(issuer.name, func(t *testing.T) {
			t.Parallel()
			trust := newTrusted(a.Cert, b.Cert)
			trust.call("localhost")
			first, good := a.valid(t, 10*day), a.valid(t, 30*day)
			template := leaf(noon.Add(-time.Hour), noon.Add(20*day))
			template.DNSNames = []string{"elsewhere.example"}
			other := issuer.ca.pair(t, template)
			dir := dirOf(t, first)
			f, o := gated(t, dir, trust, 0, newClock())

			put(t, dir, other)
			e := o.await("the refusal", func(e Event) bool { return e.Err != nil && strings.Contains(e.Err.Error(), "not for the name") })
			const want = `tls.crt: it is not for the name "localhost" that is called by ValidatingWebhookConfiguration x: it will not be used: ` +
				"have it issued for every name that is called, or correct the clientConfig"
			if text := e.Err.Error(); errors.Is(e.Err, ErrWaiting) || !strings.HasSuffix(text, want) ||
				!strings.HasPrefix(text, "not in use, the one before it is until 2026-11-30T12:00:00Z: ") {
				t.Errorf("got %v", e.Err)
			}
			if string(serving(t, f)) != string(first.cert) {
				t.Error("it is served")
			}
			trust.call("elsewhere.example")
			o.await("that the registration was corrected", inUse(other.until))
			trust.call("localhost")
			put(t, dir, good)
			o.await("a good one", inUse(good.until))
		})
	}
}

// What waits is not lost to a certificate for another name, and given up when it is
// for another name itself. A name that what is served is not for either is no
// reason to refuse anything.
func TestSuccessionAndNames(t *testing.T) {
	t.Parallel()
	a, b := newCA(t), newCA(t)
	named := func(ca *authority, name string) *tls.Certificate {
		template := leaf(noon.Add(-time.Hour), noon.Add(20*day))
		template.DNSNames = []string{name}
		return parsed(t, ca.pair(t, template))
	}
	current, next, other := named(a, "x.svc"), named(b, "x.svc"), named(b, "y.svc")
	trust := newTrusted(a.Cert)
	s := succession{gate: Gate{Trust: trust}}
	if got, err := s.next(current, next, "f", noon); got != current || !errors.Is(err, ErrWaiting) {
		t.Fatalf("it does not wait: %v", err)
	}
	trust.call("x.svc")
	if _, err := s.next(current, other, "f", noon); err == nil || errors.Is(err, ErrWaiting) || s.waiting != next {
		t.Errorf("another name takes the place of what waits: %v", err)
	}
	trust.set(a.Cert, b.Cert)
	if got, err := s.next(current, other, "f", noon); got != next || err == nil || errors.Is(err, ErrWaiting) {
		t.Errorf("what waited is not used, or what was refused is no error: %v", err)
	}

	s = succession{gate: Gate{Trust: newTrusted(a.Cert)}}
	if _, err := s.next(current, next, "f", noon); !errors.Is(err, ErrWaiting) {
		t.Fatalf("it does not wait: %v", err)
	}
	both := parsed(t, a.pair(t, &x509.Certificate{DNSNames: []string{"x.svc", "z.svc"}, NotBefore: noon.Add(-time.Hour), NotAfter: noon.Add(day)}))
	trust = newTrusted(a.Cert)
	trust.call("z.svc")
	s.gate.Trust = trust
	if got, err := s.next(both, nil, "f", noon); got != both || err != nil || s.waiting != nil {
		t.Errorf("it waits for what is for another name now: %v", err)
	}

	trust = newTrusted(a.Cert)
	trust.call("z.svc")
	s = succession{gate: Gate{Trust: trust}}
	if _, err := s.next(current, parsed(t, a.valid(t, day)), "f", noon); !errors.Is(err, ErrWaiting) {
		t.Errorf("refused for a name that what is served is not for either: %v", err)
	}
}

// The renewal that takes place every few weeks does not wait for anything.
func TestFilesTakeARenewalAtOnce(t *testing.T) {
	t.Parallel()
	a := newCA(t)
	dir := dirOf(t, a.valid(t, 10*day))
	_, o := gated(t, dir, newTrusted(a.Cert), time.Hour, newClock())
	next := a.valid(t, 20*day)
	put(t, dir, next)
	o.await("the renewal", inUse(next.until))
}

// FuzzParsePair reads what anybody may have written into a Secret or a file.
func FuzzParsePair(f *testing.F) {
	a := newCA(f)
	good := a.valid(f, day)
	sec1, err := x509.MarshalECPrivateKey(parsed0(f, good))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good.cert, good.key)
	f.Add(append(append([]byte{}, good.cert...), encodeCertificate(a.Cert.Raw)...), good.key)
	f.Add(good.key, good.cert)
	f.Add(good.cert[:len(good.cert)/2], sec1)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), []byte("-----BEGIN PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, cert, key []byte) {
		found, err := parseIssued("Secret a/b", map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": cert})
		if err != nil {
			if text := err.Error(); len(text) > 2000 || !strings.HasPrefix(text, "Secret a/b: ") || strings.ContainsAny(text, "\n\x00\x1b") {
				t.Errorf("an error that nobody wants to read: %q", text)
			}
			return
		}
		if found.pair.Leaf == nil || len(found.pair.Certificate) == 0 {
			t.Fatal("half a pair")
		}
		if found.ca != nil && !found.ca.IsCA {
			t.Error("the CA is none")
		}
		// What is accepted can be served: the key is the certificate's.
		if _, err := tls.X509KeyPair(cert, key); err != nil && strings.Contains(err.Error(), "does not match") {
			t.Error(err)
		}
	})
}

func parsed0(t testing.TB, p pair) *ecdsa.PrivateKey {
	t.Helper()
	key, ok := parsed(t, p).PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		t.Fatal("not an ECDSA key")
	}
	return key
}
