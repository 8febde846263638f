// Package issuers keeps the keys of JWT issuers in memory: it finds them by
// OpenID Connect Discovery, fetches them in the background, and answers from
// memory.
//
// Tokens are anybody's to forge, so they cause next to no calls. A token of a
// known key causes none, whatever its signature. One with a key id that is not
// known makes the issuer be asked at once, because it may have a new key, but
// only so often. Every fetch replaces all keys of the issuer, so that one that it
// withdrew is gone. While an issuer is away, or answers something that cannot be
// right, its last good keys stay in use up to a stated age. After that nobody can
// tell whether they are still good.
package issuers

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

const (
	// refreshInterval and maxAge are the defaults of the configuration, and
	// leastInterval is the least that it may say.
	refreshInterval = 5 * time.Minute
	leastInterval   = 30 * time.Second
	maxAge          = 24 * time.Hour
)

// Options are what New takes. Log is required.
type Options struct {
	// Log is told when an issuer begins or ceases to answer as it should, and
	// when its keys change; not of every fetch.
	Log *slog.Logger
	// Version is that of this program, for the issuers' logs.
	Version string
	// Waiting is how many calls of Find, over all issuers together, wait for a
	// fetch at one time. Any further one cannot tell, at once. 0 is no bound.
	//
	// Who waits holds what the caller gave to the check of the token, such as a
	// slot that all tokens share: forged key ids of an issuer that does not answer
	// must not take all of them.
	Waiting int
}

// Issuers are the issuers of a configuration, and for a moment those of the one
// before it. It is safe for concurrent use.
type Issuers struct {
	log     *slog.Logger
	agent   string
	metrics *metrics
	// connect makes the transport to an issuer.
	connect connector
	// waiting has room for those who wait for fetches. Nil is room for all.
	waiting chan struct{}

	// ctx ends with the Issuers. What is fetched in the background begins and ends
	// with configurations, not with calls.
	ctx   context.Context
	close context.CancelFunc
	group sync.WaitGroup

	mu sync.Mutex
	// running are those that were begun and not stopped.
	running map[settings]*issuer
}

// settings are all of a configuration that the keys of an issuer depend on.
type settings struct {
	origin
	// static means that keys holds them, and that they are not fetched.
	static           bool
	keys             string
	interval, maxAge time.Duration
}

// origin is where keys come from. Keys of the same origin are the same.
type origin struct {
	url, discoveryURL, certificateAuthority string
}

// New returns Issuers without any issuer. Close must be called in the end.
func New(o Options) *Issuers {
	i := &Issuers{log: o.Log, agent: agent(o.Version), metrics: newMetrics(), connect: connect, running: map[settings]*issuer{}}
	if o.Waiting > 0 {
		i.waiting = make(chan struct{}, o.Waiting)
	}
	i.ctx, i.close = context.WithCancel(context.Background())
	return i
}

// agent returns the User-Agent of a version, which may be "".
func agent(version string) string { return strings.TrimSuffix("gatehouse/"+version, "/") }

// Close ends all fetches and returns when they have ended. What was fetched can
// still be found. Provide must not be called any more.
func (i *Issuers) Close() {
	i.close()
	i.Keep(&View{})
	i.group.Wait()
}

// Provide gives each issuer of the Spec its Keys, which answer from memory. The
// keys of issuers that are new begin to be fetched, in the background. An issuer
// that another configuration has too, with the same settings, is one for both; if
// no more than intervals differ, it begins with the keys of the other.
//
// Provide does not judge the configuration, which may not have been compiled yet:
// an issuer that cannot be asked, because of its URL or its certificate
// authority, has no keys, and neither has one whose KeysJSON is no key set. One
// whose URL has a password in it gets no Keys at all: URLs are logged.
func (i *Issuers) Provide(spec *authn.Spec) *View {
	v := &View{}
	i.mu.Lock()
	defer i.mu.Unlock()
	for n := range spec.Issuers {
		configured := &spec.Issuers[n]
		if configured.Config == nil || hasUser(configured.Config.Issuer.URL) {
			continue
		}
		of := i.issuer(settingsOf(configured, spec.Configuration))
		configured.Keys = of
		v.all = append(v.all, of)
	}
	return v
}

// hasUser reports whether a URL has a user name, or a password, before its host.
// Whether the rest of it is a URL makes no difference.
func hasUser(text string) bool {
	_, rest, found := strings.Cut(text, "//")
	if !found {
		rest = text
	}
	authority, _, _ := strings.Cut(rest, "/")
	return strings.Contains(authority, "@")
}

func settingsOf(configured *authn.Issuer, c *authn.Configuration) settings {
	s := settings{
		origin: originOf(configured), static: configured.KeysJSON != nil, keys: string(configured.KeysJSON),
		interval: refreshInterval, maxAge: maxAge,
	}
	if c == nil {
		return s
	}
	if d := c.JWT.KeyRefreshInterval; d != nil {
		s.interval = max(d.Duration, leastInterval)
	}
	if d := c.JWT.MaxKeyAge; d != nil {
		s.maxAge = d.Duration
	}
	return s
}

func originOf(configured *authn.Issuer) origin {
	from := configured.Config.Issuer
	return origin{url: from.URL, discoveryURL: from.DiscoveryURL, certificateAuthority: from.CertificateAuthority}
}

// issuer returns the issuer with these settings, which is started if it does not run. The
// caller holds the lock.
func (i *Issuers) issuer(s settings) *issuer {
	if of, runs := i.running[s]; runs {
		return of
	}
	log := i.log.With("issuer", s.url)
	var of *issuer
	if s.static {
		of = newStatic(s, log)
	} else {
		of = newIssuer(i.ctx, s, newFetcher(s.origin, i.agent, i.connect).fetch, log, i.metrics.of(s.url), &i.group)
		of.waiting = i.waiting
		of.begin(i.known(s.origin))
	}
	i.running[s] = of
	return of
}

// known returns the latest that is known of the keys of an origin, nil if nothing is.
func (i *Issuers) known(from origin) *state {
	var latest *state
	for s, of := range i.running {
		known := of.state.Load()
		if s.origin == from && !s.static && known.set != nil && (latest == nil || known.fetched.After(latest.fetched)) {
			latest = known
		}
	}
	return latest
}

// Keep stops what was begun for other configurations than that of the View.
// Tokens that are being checked by an older configuration are checked with what
// is in memory.
func (i *Issuers) Keep(v *View) {
	i.mu.Lock()
	defer i.mu.Unlock()
	urls := map[string]bool{}
	for _, of := range v.all {
		urls[of.url] = true
	}
	for s, of := range i.running {
		if slices.Contains(v.all, of) {
			continue
		}
		of.stop()
		delete(i.running, s)
		if !urls[s.url] {
			i.metrics.drop(s.url)
		}
	}
}

// Describe implements prometheus.Collector.
func (i *Issuers) Describe(ch chan<- *prometheus.Desc) { i.metrics.describe(ch) }

// Collect implements prometheus.Collector.
func (i *Issuers) Collect(ch chan<- prometheus.Metric) { i.metrics.collect(ch, i.issuers()) }

// issuers returns the running issuers, in no order.
func (i *Issuers) issuers() []*issuer {
	i.mu.Lock()
	defer i.mu.Unlock()
	all := make([]*issuer, 0, len(i.running))
	for _, of := range i.running {
		all = append(all, of)
	}
	return all
}

// View is the issuers of one configuration. It is immutable.
type View struct {
	// all is in the order of the configuration.
	all []*issuer
}

// Wait returns when each issuer has keys or has been asked once, whatever came
// of that, or with ctx. Then the error names those that have not answered.
func (v *View) Wait(ctx context.Context) error {
	for n, of := range v.all {
		select {
		case <-of.resolved:
		case <-ctx.Done():
			return fmt.Errorf("keys not fetched yet: %s: %w", unresolvedURLs(v.all[n:]), ctx.Err())
		}
	}
	return nil
}

func unresolvedURLs(all []*issuer) string {
	var urls []string
	for _, of := range all {
		select {
		case <-of.resolved:
		default:
			urls = append(urls, quoted(of.url))
		}
	}
	return strings.Join(urls, ", ")
}
