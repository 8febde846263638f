// Package issuers keeps the keys of JWT issuers in memory. It finds them by OpenID Connect Discovery and fetches them in
// the background; package jwt verifies tokens with what is in memory.
//
// Anyone can send forged tokens, so a token must not cause many requests to an issuer. A token with a known key id causes
// none. A token with an unknown key id makes the issuer be asked, because it may have a new key, but not more often than
// once in a while. A fetch replaces all keys, so that a key that the issuer withdrew is not accepted any more. If an
// issuer does not answer, or gives an invalid answer, its last valid keys are used until the configured age.
package issuers

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/gatehouse-dev/gatehouse/internal/problemlog"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
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
	prometheus.Collector

	log      *slog.Logger
	problems *problemlog.Log
	agent    string
	metrics  metrics
	// connect makes the client of an issuer.
	connect func(*x509.CertPool) *http.Client
	// waiting has room for those who wait for fetches. Nil is room for all.
	waiting chan struct{}

	// ctx ends with the Issuers. What is fetched in the background begins and ends
	// with configurations, not with calls.
	ctx   context.Context
	close context.CancelFunc
	group sync.WaitGroup

	mu sync.Mutex
	// running are those that were begun and not stopped.
	running map[origin]*issuer
	// static are the URLs of the active issuers that are never asked.
	static map[string]int
}

// origin is where keys come from. Keys of the same origin are the same.
type origin struct {
	url, discoveryURL, certificateAuthority string
}

// ages are how often keys are fetched, and for how long they are used.
type ages struct{ interval, maxAge time.Duration }

// metrics show which keys there are and how well they are kept up to date. The
// label is the issuer's URL in the configuration.
type metrics struct {
	keys, timestamp *prometheus.GaugeVec
	fetches         *prometheus.CounterVec
}

// New returns Issuers without any issuer. Close must be called in the end.
func New(o Options) *Issuers {
	i := &Issuers{
		log: o.Log, problems: problemlog.New(o.Log, "keys of issuers"), agent: agent(o.Version), connect: connect, running: map[origin]*issuer{},
	}
	registry := prometheus.NewRegistry()
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return promauto.With(registry).NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	i.metrics = metrics{
		keys:      gauges("gatehouse_issuer_keys", "Keys of an issuer that are in use. 0 while no token of the issuer can be checked.", "issuer"),
		timestamp: gauges("gatehouse_issuer_keys_fetched_timestamp_seconds", "When the keys that are known of an issuer were fetched. Absent before, and for keys that come from a file.", "issuer"),
		fetches: promauto.With(registry).NewCounterVec(prometheus.CounterOpts{
			Name: "gatehouse_issuer_key_fetches_total",
			Help: "Fetches of the keys of an issuer, by result (ok, failed). A failed one leaves the keys as they were.",
		}, []string{"issuer", "result"}),
	}
	i.Collector = registry
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

// View is the issuers of one configuration. It is immutable.
type View struct {
	// all is in the order of the configuration.
	all  []*issuer
	ages ages
	// static counts the keys of issuers that are never asked.
	static map[string]int
}

// Provide gives each issuer of the Spec its Keys, which answer from memory. The
// keys of issuers that are new begin to be fetched, in the background. An issuer
// that another configuration has too is one for both.
//
// Provide does not judge the configuration, which may not have been compiled yet:
// an issuer that cannot be asked, because of its URL or its certificate
// authority, has no keys. One whose keys come from a file keeps them. One
// whose URL may have a password in it gets no Keys at all: URLs are logged.
func (i *Issuers) Provide(spec *authn.Spec) *View {
	v := &View{ages: agesOf(spec.Configuration), static: map[string]int{}}
	i.mu.Lock()
	defer i.mu.Unlock()
	for n := range spec.Issuers {
		configured := &spec.Issuers[n]
		if configured.Config == nil {
			continue
		}
		if set, ok := configured.Keys.(*jwt.KeySet); ok {
			v.static[configured.Config.Issuer.URL] = len(set.All())
			continue
		}
		if u, err := url.Parse(configured.Config.Issuer.URL); err != nil || u.User != nil || u.Opaque != "" {
			continue
		}
		from := originOf(configured)
		of := i.running[from]
		if of == nil {
			of = i.newIssuer(from, v.ages)
			i.running[from] = of
		}
		configured.Keys = of
		v.all = append(v.all, of)
	}
	return v
}

func agesOf(c *authn.Configuration) ages {
	a := ages{refreshInterval, maxAge}
	if c == nil {
		return a
	}
	if d := c.JWT.KeyRefreshInterval; d != nil {
		a.interval = max(d.Duration, leastInterval)
	}
	if d := c.JWT.MaxKeyAge; d != nil {
		a.maxAge = d.Duration
	}
	return a
}

func originOf(configured *authn.Issuer) origin {
	from := configured.Config.Issuer
	return origin{url: from.URL, discoveryURL: from.DiscoveryURL, certificateAuthority: from.CertificateAuthority}
}

// Keep stops what was begun for other configurations than that of the View, whose
// intervals apply from now on. Tokens that are being checked by an older configuration are
// checked with what is in memory.
func (i *Issuers) Keep(v *View) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for from, of := range i.running {
		if slices.Contains(v.all, of) {
			of.setAges(v.ages)
			continue
		}
		of.halt()
		delete(i.running, from)
		i.drop(of.url, v)
	}
	for url := range i.static {
		i.drop(url, v)
	}
	i.static = v.static
	for url, keys := range v.static {
		i.metrics.keys.WithLabelValues(url).Set(float64(keys))
	}
}

// drop forgets the metrics of an issuer that the View does not have.
func (i *Issuers) drop(url string, v *View) {
	if slices.ContainsFunc(v.all, func(kept *issuer) bool { return kept.url == url }) {
		return
	}
	i.problems.Retain(func(what string) bool { return what != problemOf(url) })
	label := prometheus.Labels{"issuer": url}
	i.metrics.keys.Delete(label)
	i.metrics.timestamp.Delete(label)
	i.metrics.fetches.DeletePartialMatch(label)
}

// Wait returns when each issuer has keys or has been asked once, whatever came
// of that, or with ctx. Then the error names one that has not answered.
func (v *View) Wait(ctx context.Context) error {
	for _, of := range v.all {
		select {
		case <-of.resolved:
		case <-ctx.Done():
			return fmt.Errorf("keys of %s not fetched yet: %w", quoted(of.url), ctx.Err())
		}
	}
	return nil
}
