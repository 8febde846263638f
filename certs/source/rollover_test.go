package source

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/test/support/certstest"
)

func TestRolloverDecides(t *testing.T) {
	t.Parallel()
	const hold = 10 * time.Minute
	a, b := newCA(t), newCA(t)
	oldA := parsed(t, a.Pair(t, leafTemplate(certstest.Noon.Add(-9*day), certstest.Noon.Add(day))))
	newA, newB := parsed(t, a.Valid(t, 10*day)), parsed(t, b.Valid(t, 10*day))
	expired := parsed(t, a.Pair(t, leafTemplate(certstest.Noon.Add(-9*day), certstest.Noon.Add(-time.Second))))
	// Ten days of life: the last hour counts. Twenty minutes: the last two do.
	ending := parsed(t, a.Pair(t, leafTemplate(certstest.Noon.Add(-9*day), certstest.Noon.Add(time.Hour))))
	notYet := parsed(t, a.Pair(t, leafTemplate(certstest.Noon.Add(-9*day), certstest.Noon.Add(time.Hour+time.Second))))
	shortNotYet := parsed(t, a.Pair(t, leafTemplate(certstest.Noon.Add(-17*time.Minute), certstest.Noon.Add(3*time.Minute))))
	unread := newTrusted()
	unread.unread = true
	cases := []struct {
		name           string
		trust          certs.Trust
		current, found *tls.Certificate
		take           bool
		why            string
		until          time.Time
	}{
		{"nobody knows and nobody asks", nil, oldA, newB, true, "", time.Time{}},
		{"nothing is served", newTrusted(a.Cert), nil, newA, true, "", time.Time{}},
		{"nothing is served and it is not trusted", newTrusted(a.Cert), nil, newB, true, "", time.Time{}},
		{"a renewal", newTrusted(a.Cert), oldA, newA, true, "", time.Time{}},
		{"a renewal of a CA that was withdrawn", newTrusted(b.Cert), oldA, newA, false, "registration x does not trust it", oldA.Leaf.NotAfter},
		{"nothing was read", unread, oldA, newA, false, certs.ErrUnread.Error(), oldA.Leaf.NotAfter.Add(-time.Hour)},
		{"another CA that nobody trusts", newTrusted(a.Cert), oldA, newB, false, "registration x does not trust it", oldA.Leaf.NotAfter},
		{"another CA that all trust since now", newTrusted(a.Cert, b.Cert), oldA, newB, false, "a new issuer must be trusted for 10m0s", certstest.Noon.Add(hold)},
		{"another CA in the place of the one before", newTrusted(b.Cert), oldA, newB, true, "", time.Time{}},
		{"neither is trusted", newTrusted(), oldA, newB, false, "registration x does not trust it", oldA.Leaf.NotAfter},
		{"the one before has expired", newTrusted(a.Cert), expired, newB, true, "", time.Time{}},
		{"the one before ends, trusted since now", newTrusted(a.Cert, b.Cert), ending, newB, true, "", time.Time{}},
		{"the one before ends, nothing was read", unread, ending, newB, true, "", time.Time{}},
		{"the one before ends a little later, nothing was read", unread, notYet, newB, false, certs.ErrUnread.Error(), certstest.Noon.Add(time.Second)},
		{"the one before ends, and is trusted alone", newTrusted(a.Cert), ending, newB, false, "registration x does not trust it", ending.Leaf.NotAfter},
		{"the one before ends, and neither is trusted", newTrusted(), ending, newB, true, "", time.Time{}},
		{"a short one ends during the hold", newTrusted(a.Cert, b.Cert), shortNotYet, newB, false, "must be trusted for 10m0s", certstest.Noon.Add(time.Minute)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := rolloverPolicy{trust: c.trust, hold: hold}
			d := g.decide(c.current, c.found, certstest.Noon)
			if d.accept != c.take || !strings.Contains(d.reason, c.why) || !d.latest.Equal(c.until) {
				t.Errorf("got %+v, want %+v", d, decision{accept: c.take, reason: c.why, latest: c.until})
			}
		})
	}
}

// A certificate without the identifier of its issuer's key may be of any key of
// that name.
func TestRolloverHoldsWhereTheIssuerIsNotKnown(t *testing.T) {
	t.Parallel()
	a := newCA(t)
	current, found := *parsed(t, a.Valid(t, day)), *parsed(t, a.Valid(t, 2*day))
	for _, pair := range []*tls.Certificate{&current, &found} {
		without := *pair.Leaf
		without.AuthorityKeyId = nil
		pair.Leaf = &without
	}
	g := rolloverPolicy{trust: newTrusted(a.Cert), hold: time.Minute}
	if d := g.decide(&current, &found, certstest.Noon); d.accept {
		t.Errorf("taken at once: %s", d.reason)
	}
	if d := g.decide(&current, &found, certstest.Noon.Add(time.Minute)); !d.accept {
		t.Errorf("waits for ever: %s", d.reason)
	}
}

// A hold is without an interruption, and for the issuer.
func TestRolloverHolds(t *testing.T) {
	t.Parallel()
	const hold = 10 * time.Minute
	a, b, c := newCA(t), newCA(t), newCA(t)
	current := parsed(t, a.Valid(t, 30*day))
	ofB, laterB, ofC := parsed(t, b.Valid(t, 30*day)), parsed(t, b.Valid(t, 31*day)), parsed(t, c.Valid(t, 30*day))
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
			g := rolloverPolicy{trust: trust, hold: hold}
			for _, l := range c.looks {
				trust.set(l.trust...)
				if d := g.decide(current, l.found, certstest.Noon.Add(l.at)); d.accept != l.take {
					t.Errorf("after %s: got %+v, want take %v", l.at, d, l.take)
				}
			}
		})
	}
}

// gated is a running Files that waits for trust.
func gated(t *testing.T, dir string, trust certs.Trust, hold time.Duration, c *certstest.Clock) (*Files, *observer) {
	t.Helper()
	o := newObserver(t)
	config := filesIn(dir)
	config.Now, config.Notify, config.Trust, config.Hold = c.Now, o.Notify, trust, hold
	f, err := NewFiles(config)
	if err != nil {
		t.Fatal(err)
	}
	f.ticks = o.Ticks
	o.Start(func() error { return f.Run(t.Context()) })
	o.Await("the first look", func(certs.Event) bool { return true })
	return f, o
}

func waitsFor(what string) func(certs.Event) bool {
	return func(e certs.Event) bool { return errors.Is(e.Err, ErrWaiting) && strings.Contains(e.Err.Error(), what) }
}

func put(t *testing.T, dir string, p certPair) {
	t.Helper()
	certstest.Write(t, filepath.Join(dir, "tls.key"), p.Key)
	certstest.Write(t, filepath.Join(dir, "tls.crt"), p.Cert)
}

// A new CA's certificate is served after every registration has trusted it for a
// while, and the trust alone brings that about: no file changes.
func TestFilesWaitForTrust(t *testing.T) {
	t.Parallel()
	const hold = 10 * time.Minute
	a, b := newCA(t), newCA(t)
	trust, now := newTrusted(a.Cert), certstest.NewClock()
	first, second := a.Valid(t, 10*day), b.Valid(t, 20*day)
	dir := dirOf(t, first)
	f, o := gated(t, dir, trust, hold, now)

	put(t, dir, second)
	e := o.Await("that it waits", waitsFor("tls.crt: a new certificate is not served yet: registrations do not trust it: registration x does not trust it; it will be served by 2026-11-30T12:00:00Z"))
	if !e.NotAfter.Equal(first.Until) || string(serving(t, f)) != string(first.Cert) {
		t.Errorf("in use until %v, want %v", e.NotAfter, first.Until)
	}
	if err := f.Healthy(); err != nil {
		t.Errorf("unhealthy while a new one waits: %v", err)
	}
	trust.set(a.Cert, b.Cert) // nobody ticks
	o.Await("the hold", waitsFor("a new issuer must be trusted for 10m0s; it will be served by 2026-11-20T12:10:00Z"))
	if string(serving(t, f)) != string(first.Cert) {
		t.Error("served before the hold is over")
	}
	now.Advance(hold)
	o.Tick()
	o.Await("the second pair", inUse(second.Until))
	if string(serving(t, f)) != string(second.Cert) {
		t.Error("not served after the hold")
	}
}

// What waits is remembered, whatever becomes of the files, until something newer
// is there or the files go back to what is served. Files that are refused are an
// error, and no wait, although something waits.
func TestFilesRememberWhatWaits(t *testing.T) {
	t.Parallel()
	a, b, c := newCA(t), newCA(t), newCA(t)
	first, second, third := a.Valid(t, 10*day), b.Valid(t, 20*day), c.Valid(t, 30*day)
	ended := b.Pair(t, leafTemplate(certstest.Noon.Add(-2*day), certstest.Noon.Add(-day)))
	cases := []struct {
		name string
		edit func(t *testing.T, dir string)
		says string
		want certPair
	}{
		{"files removed", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "tls.key")); err != nil {
				t.Fatal(err)
			}
		}, "no such file", second},
		{"half-written", func(t *testing.T, dir string) { certstest.Write(t, filepath.Join(dir, "tls.crt"), third.Cert[:50]) }, "half-written", second},
		{"one that has ended", func(t *testing.T, dir string) { put(t, dir, ended) }, "expired at", second},
		{"a newer one", func(t *testing.T, dir string) { put(t, dir, third) }, "", third},
		{"the one in use", func(t *testing.T, dir string) { put(t, dir, first) }, "", first},
	}
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			trust := newTrusted(a.Cert)
			dir := dirOf(t, first)
			f, o := gated(t, dir, trust, 0, certstest.NewClock())
			put(t, dir, second)
			o.Await("that it waits", waitsFor(""))
			test.edit(t, dir)
			o.Tick()
			if test.says != "" {
				e := o.Await(test.says, func(e certs.Event) bool { return e.Err != nil && strings.Contains(e.Err.Error(), test.says) })
				if errors.Is(e.Err, ErrWaiting) {
					t.Errorf("it passes for a wait: %v", e.Err)
				}
				refused, waits := strings.Index(e.Err.Error(), test.says), strings.Index(e.Err.Error(), ErrWaiting.Error())
				if waits < refused {
					t.Errorf("what is wrong does not come first, or what waits is not told: %v", e.Err)
				}
			}
			trust.set(a.Cert, b.Cert, c.Cert)
			o.Await("the end of waiting", func(e certs.Event) bool {
				return (e.Err == nil || !strings.Contains(e.Err.Error(), ErrWaiting.Error())) && e.NotAfter.Equal(test.want.Until)
			})
			if string(serving(t, f)) != string(test.want.Cert) {
				t.Error("another pair is served")
			}
		})
	}
}

// What ends while it waits is not served in the place of something valid, nor
// waited for.
func TestRolloverForgetsWhatEnds(t *testing.T) {
	t.Parallel()
	a, b := newCA(t), newCA(t)
	trust := newTrusted(a.Cert)
	s := rollover{policy: rolloverPolicy{trust: trust}}
	current, short := parsed(t, a.Valid(t, 10*day)), parsed(t, b.Valid(t, day))
	if got, err := s.next(current, short, "x", certstest.Noon); got != current || !errors.Is(err, ErrWaiting) {
		t.Fatalf("it does not wait: %v", err)
	}
	trust.set(a.Cert, b.Cert)
	if got, err := s.next(current, nil, "x", certstest.Noon.Add(2*day)); got != current || err != nil {
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
		ca   *testAuthority
	}{{"of the same CA", a}, {"of another CA", b}} {
		t.Run(issuer.name, func(t *testing.T) {
			t.Parallel()
			trust := newTrusted(a.Cert, b.Cert)
			trust.call("localhost")
			first, good := a.Valid(t, 10*day), a.Valid(t, 30*day)
			template := leafTemplate(certstest.Noon.Add(-time.Hour), certstest.Noon.Add(20*day))
			template.DNSNames = []string{"elsewhere.example"}
			other := issuer.ca.Pair(t, template)
			dir := dirOf(t, first)
			f, o := gated(t, dir, trust, 0, certstest.NewClock())

			put(t, dir, other)
			e := o.Await("the refusal", func(e certs.Event) bool { return e.Err != nil && strings.Contains(e.Err.Error(), "it lacks ") })
			const want = `tls.crt: it lacks "localhost", which registrations call, and is not served: ` +
				"issue it for every name that is called, or correct the clientConfig"
			if text := e.Err.Error(); errors.Is(e.Err, ErrWaiting) || !strings.HasSuffix(text, want) ||
				!strings.HasPrefix(text, "rejected, the previous certificate stays active until 2026-11-30T12:00:00Z: ") {
				t.Errorf("got %v", e.Err)
			}
			if string(serving(t, f)) != string(first.Cert) {
				t.Error("it is served")
			}
			trust.call("elsewhere.example")
			o.Await("that the registration was corrected", inUse(other.Until))
			trust.call("localhost")
			put(t, dir, good)
			o.Await("a good one", inUse(good.Until))
		})
	}
}

// What waits is not lost to a certificate for another name, and given up when it is
// for another name itself. A name that what is served is not for either is no
// reason to refuse anything.
func TestRolloverAndNames(t *testing.T) {
	t.Parallel()
	a, b := newCA(t), newCA(t)
	named := func(ca *testAuthority, name string) *tls.Certificate {
		template := leafTemplate(certstest.Noon.Add(-time.Hour), certstest.Noon.Add(20*day))
		template.DNSNames = []string{name}
		return parsed(t, ca.Pair(t, template))
	}
	current, next, other := named(a, "x.svc"), named(b, "x.svc"), named(b, "y.svc")
	trust := newTrusted(a.Cert)
	s := rollover{policy: rolloverPolicy{trust: trust}}
	if got, err := s.next(current, next, "f", certstest.Noon); got != current || !errors.Is(err, ErrWaiting) {
		t.Fatalf("it does not wait: %v", err)
	}
	trust.call("x.svc")
	if _, err := s.next(current, other, "f", certstest.Noon); err == nil || errors.Is(err, ErrWaiting) || s.waiting != next {
		t.Errorf("another name takes the place of what waits: %v", err)
	}
	trust.set(a.Cert, b.Cert)
	if got, err := s.next(current, other, "f", certstest.Noon); got != next || err == nil || errors.Is(err, ErrWaiting) {
		t.Errorf("what waited is not used, or what was refused is no error: %v", err)
	}

	s = rollover{policy: rolloverPolicy{trust: newTrusted(a.Cert)}}
	if _, err := s.next(current, next, "f", certstest.Noon); !errors.Is(err, ErrWaiting) {
		t.Fatalf("it does not wait: %v", err)
	}
	both := parsed(t, a.Pair(t, &x509.Certificate{DNSNames: []string{"x.svc", "z.svc"}, NotBefore: certstest.Noon.Add(-time.Hour), NotAfter: certstest.Noon.Add(day)}))
	trust = newTrusted(a.Cert)
	trust.call("z.svc")
	s.policy.trust = trust
	if got, err := s.next(both, nil, "f", certstest.Noon); got != both || err != nil || s.waiting != nil {
		t.Errorf("it waits for what is for another name now: %v", err)
	}

	trust = newTrusted(a.Cert)
	trust.call("z.svc")
	s = rollover{policy: rolloverPolicy{trust: trust}}
	if _, err := s.next(current, parsed(t, a.Valid(t, day)), "f", certstest.Noon); !errors.Is(err, ErrWaiting) {
		t.Errorf("refused for a name that what is served is not for either: %v", err)
	}
}
