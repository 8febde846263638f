package cabundle

import (
	"bytes"
	"context"
	"crypto/x509"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/kube"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
)

const (
	// interval is how often everything is reconciled without a change, and how often at
	// most an overwritten bundle is reported.
	interval = time.Minute
	// spread is the longest random wait before a bundle is written: of several
	// replicas, most then find it written already.
	spread = 150 * time.Millisecond
	// tries is how often a write is tried at once after a conflict, and retrySpread the
	// longest random wait in between.
	tries       = 5
	retrySpread = 50 * time.Millisecond
	// grace is how long the CAs may be unknown before that is reported: at the first
	// start there are none yet.
	grace = 10 * time.Second
	// firstDelay and longestDelay bound the pause after a failure.
	firstDelay   = 200 * time.Millisecond
	longestDelay = 10 * time.Second
)

// PublisherConfig configures a Publisher.
type PublisherConfig struct {
	// Client needs the rights get and patch on the configurations of the Watcher.
	Client certs.Client
	// Watcher reads the configurations. The caller runs it.
	Watcher *Watcher
	// Authorities are the CAs to publish.
	Authorities certs.Authorities
	// Now returns the time by which certificates are valid; nil is time.Now.
	Now func() time.Time
	// Notify receives events about what was written and what cannot be, from the
	// goroutine of Run. Nil drops them.
	Notify func(certs.Event)
}

// Stats counts what a Publisher did, since it was made.
type Stats struct {
	// Published are the patches that were written.
	Published int64
	// Overwritten are those of Published that restored a caBundle that another client
	// had changed.
	Overwritten int64
	// Failed are the attempts that failed, without conflicts.
	Failed int64
}

// Publisher writes the bundle of Authorities into the configurations that a Watcher
// watches, and restores it whenever another client changes it. It skips configurations
// that cert-manager's cainjector writes into, that are being deleted, or that have the
// bundle already.
type Publisher struct {
	cfg PublisherConfig

	published, overwritten, failed atomic.Int64

	// What follows belongs to the goroutine of Run.

	// desired is the bundle that was read last, nil before.
	desired []byte
	records map[target]*record
	// unknown is since when reading the authorities has failed, zero if it succeeds.
	unknown         time.Time
	unknownReported bool
	unknownBackoff  wait.Backoff
}

// record is what a Publisher remembers of a configuration.
type record struct {
	// seen are the bundles of entries, where they were as desired.
	seen map[string]string
	// class is that of the problem that was reported, None if there is none.
	class apierr.Class
	// retry is when to try again after a failure.
	retry   time.Time
	backoff wait.Backoff
	// lastConflict is when another Gatehouse last wrote, and pauses are those before its
	// caBundle is overwritten.
	lastConflict time.Time
	pauses       wait.Backoff
	// reported is when it was last reported that another client changes the caBundle.
	reported time.Time
}

func newRecord() record {
	return record{seen: map[string]string{}, backoff: growing(firstDelay, longestDelay), pauses: growing(firstPause, longestPause)}
}

// growing returns delays: each is twice as long as the one before, up to the longest, minus
// a random part of a half, so that replicas do not retry at the same time.
func growing(first, longest time.Duration) wait.Backoff {
	return wait.Backoff{Duration: first / 2, Factor: 2, Jitter: 1, Steps: math.MaxInt32, Cap: longest / 2}
}

// randomUpTo returns a random duration of at most longest.
func randomUpTo(longest time.Duration) time.Duration {
	return rand.N(longest + 1) //nolint:gosec // no secret
}

// NewPublisher returns a Publisher.
func NewPublisher(cfg PublisherConfig) *Publisher {
	p := &Publisher{cfg: cfg, records: map[target]*record{}, unknownBackoff: growing(firstDelay, longestDelay)}
	if p.cfg.Now == nil {
		p.cfg.Now = time.Now
	}
	return p
}

// Stats is safe for concurrent use.
func (p *Publisher) Stats() Stats {
	return Stats{Published: p.published.Load(), Overwritten: p.overwritten.Load(), Failed: p.failed.Load()}
}

// Run publishes until the context ends, and returns nil then and not before. It is
// called once.
func (p *Publisher) Run(ctx context.Context) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	// The channel is replaced only after it was seen closed, so that no change is lost.
	authorities := p.cfg.Authorities.Changed()
	for refresh := true; ; {
		watched := p.cfg.Watcher.Changed()
		p.reconcile(ctx, refresh)
		refresh = false
		again, stop := p.retryTimer()
		select {
		case <-ctx.Done():
			stop()
			return nil
		case <-watched:
		case <-authorities:
			authorities = p.cfg.Authorities.Changed()
			refresh = true
		case <-ticker.C:
			refresh = true
		case <-again:
		}
		stop()
	}
}

// retryTimer fires when a failed write is to be tried again.
func (p *Publisher) retryTimer() (fires <-chan time.Time, stop func()) {
	var next time.Time
	for _, r := range p.records {
		if !r.retry.IsZero() && (next.IsZero() || r.retry.Before(next)) {
			next = r.retry
		}
	}
	if p.desired == nil {
		next = time.Now().Add(p.unknownBackoff.Step())
	}
	if next.IsZero() {
		return nil, func() {}
	}
	timer := time.NewTimer(time.Until(next))
	return timer.C, func() { timer.Stop() }
}

// reconcile writes every outdated configuration. It reads the authorities first if
// refresh is set or nothing is desired yet.
func (p *Publisher) reconcile(ctx context.Context, refresh bool) {
	if refresh || p.desired == nil {
		if list, err := p.readAuthorities(ctx); err == nil {
			p.setDesired(list)
		}
	}
	if p.desired == nil || len(p.outdated()) == 0 || !sleep.Context(ctx, randomUpTo(spread)) {
		return
	}
	for _, o := range p.outdated() {
		p.write(ctx, o.target)
	}
}

// outdated returns the configurations that have another bundle than desired, and may be
// written now.
func (p *Publisher) outdated() []*object {
	var list []*object
	for _, k := range p.cfg.Watcher.snapshot() {
		o, r := k.found, p.record(k.target)
		if o == nil || o.deleting {
			before := *r
			*r = newRecord()
			r.reported, r.lastConflict, r.pauses = before.reported, before.lastConflict, before.pauses
			continue
		}
		if o.injector != "" {
			r.retry = time.Time{}
			p.reportInjector(r, o)
			continue
		}
		differs := false
		for _, e := range p.cfg.Watcher.ours(o) {
			if e.raw == string(p.desired) {
				r.seen[e.name] = e.raw
			} else {
				differs = true
			}
		}
		switch {
		case !differs:
			r.class, r.retry = apierr.None, time.Time{}
			r.backoff = growing(firstDelay, longestDelay)
		case !time.Now().Before(r.retry), r.class == classPublisher && !p.hasConflict(r, o):
			list = append(list, o)
		}
	}
	return list
}

// hasConflict reports whether another Gatehouse has overwritten our entries, and
// nothing else is wrong.
func (p *Publisher) hasConflict(r *record, o *object) bool {
	_, ok := p.conflicting(r, o)
	return ok
}

func (p *Publisher) record(t target) *record {
	if p.records[t] == nil {
		p.records[t] = new(newRecord())
	}
	return p.records[t]
}

// write writes a configuration, and tries again at once after a conflict.
func (p *Publisher) write(ctx context.Context, t target) {
	var failure *problem
	r := p.record(t)
	for try := range tries {
		if try > 0 && !sleep.Context(ctx, randomUpTo(retrySpread)) {
			return
		}
		failure = p.tryWrite(ctx, t)
		if failure == nil || failure.class != apierr.Conflict {
			break
		}
	}
	switch {
	case failure == nil:
		r.retry = time.Time{}
		r.backoff = growing(firstDelay, longestDelay)
	case failure.class == classPublisher:
		r.backoff = growing(firstDelay, longestDelay)
	default:
		if failure.class == apierr.Conflict {
			p.fail(ctx, r, t.reference(), failure)
		}
		r.retry = time.Now().Add(r.backoff.Step())
	}
}

// tryWrite reads a configuration, then the authorities, and writes the bundle if the
// configuration has not changed since. This order keeps stale bundles out: a replica
// that has read older authorities has read an older configuration, and gets a conflict.
func (p *Publisher) tryWrite(ctx context.Context, t target) *problem {
	r := p.record(t)
	o, err := getObject(ctx, p.cfg.Client, t)
	if err != nil {
		return p.fail(ctx, r, t.reference(), requestProblem(ctx, t, "get", err))
	}
	switch {
	case o == nil || o.deleting:
		return nil
	case o.injector != "":
		p.reportInjector(r, o)
		return nil
	}
	list, err := p.readAuthorities(ctx)
	if err != nil {
		return &problem{classAuthorities, err}
	}
	p.setDesired(list)
	var (
		names, changed []string
		overwritten    bool
	)
	for _, e := range p.cfg.Watcher.ours(o) {
		names = append(names, e.name)
		if e.raw != string(p.desired) {
			changed = append(changed, e.name)
			overwritten = overwritten || r.seen[e.name] == string(p.desired)
		}
	}
	theirs, conflict := p.conflicting(r, o)
	if len(changed) == 0 {
		return nil
	}
	if err := p.checkBundle(o, list); err != nil {
		return p.fail(ctx, r, o.reference(), &problem{classUnverified, err})
	}
	if conflict && (r.class != classPublisher || time.Now().Before(r.retry)) {
		return p.conflict(ctx, r, o, theirs)
	}
	patch, err := patchOf(t, o.resourceVersion, p.patch(o, names))
	if err != nil {
		return p.fail(ctx, r, o.reference(), requestProblem(ctx, t, "patch", err))
	}
	request, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	err = t.kind.Apply(request, p.cfg.Client.AdmissionregistrationV1().RESTClient(), t.name, FieldManager, patch)
	switch {
	case apierrors.IsConflict(err):
		return requestProblem(ctx, t, "patch", err)
	case apierrors.IsInvalid(err):
		// That is what an API server says of a patch without all that a webhook must
		// have, where there is nothing to patch.
		if there, gone := getObject(ctx, p.cfg.Client, t); gone == nil && there == nil {
			return nil
		}
		return p.fail(ctx, r, o.reference(), requestProblem(ctx, t, "patch", err))
	case err != nil:
		return p.fail(ctx, r, o.reference(), requestProblem(ctx, t, "patch", err))
	}
	p.published.Add(1)
	r.class = apierr.None
	for _, name := range names {
		r.seen[name] = string(p.desired)
	}
	if conflict {
		p.overwritten.Add(1) // it was reported before the pause
		return nil
	}
	p.reportWritten(r, o, list, changed, overwritten)
	return nil
}

// patch returns the entries to apply: ours, by their names, with the desired bundle.
// Entries that were ours once, or are of another Gatehouse, keep what they have:
// server-side apply would remove what is missing in the patch.
func (p *Publisher) patch(o *object, ours []string) []entry {
	var list []entry
	for _, e := range o.entries {
		switch {
		case slices.Contains(ours, e.name):
			list = append(list, entry{name: e.name, raw: string(p.desired)})
		case e.raw != "" && o.isApplied(e.name):
			list = append(list, entry{name: e.name, raw: e.raw})
		}
	}
	return list
}

// setDesired sets what is desired now. A new bundle is written at once, whoever wrote
// what is there.
func (p *Publisher) setDesired(list []*x509.Certificate) {
	desired := rotation.Bundle(list)
	if !bytes.Equal(desired, p.desired) {
		for _, r := range p.records {
			if r.class == classPublisher {
				r.retry = time.Time{}
			}
		}
	}
	p.desired = desired
}
