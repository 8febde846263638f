package cabundle

import (
	"bytes"
	"context"
	"crypto/x509"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

const (
	// interval is how often everything is looked at without any reason, and how
	// often at most it is reported that somebody else overwrites a bundle.
	interval = time.Minute
	// spread is the longest random wait before a bundle is written, so that of
	// several replicas most find it written already.
	spread = 150 * time.Millisecond
	// tries is how often a write is tried at once that others came before, and
	// retrySpread the longest random wait in between.
	tries       = 5
	retrySpread = 50 * time.Millisecond
	// grace is how long authorities may know nothing before that is reported: at the
	// first start they do not for a moment.
	grace = 10 * time.Second
)

// PublisherConfig says what to write and where.
type PublisherConfig struct {
	// Client asks the API server. It needs get and patch on what the Watcher names.
	Client certs.Client
	// Watcher tells what is there. Somebody else runs it.
	Watcher *Watcher
	// Authorities tell what should be there.
	Authorities certs.Authorities
	// Now is the time by which certificates are valid; nil is time.Now.
	Now func() time.Time
	// Notify is told what was written and what cannot be, from the goroutine of Run.
	// Nil tells nobody.
	Notify func(certs.Event)
}

// Stats counts what a Publisher did, since it was made.
type Stats struct {
	// Published are the patches that were written.
	Published int64
	// Overwritten are those of Published that put right what somebody else had
	// changed.
	Overwritten int64
	// Failed are the attempts that failed, without those that others came before.
	Failed int64
}

// Publisher writes the bundle of authorities into the configurations that a
// Watcher watches, and again whenever somebody changes it. It writes into no
// configuration that cert-manager's cainjector writes into, none that is being
// deleted, and never what is there already.
type Publisher struct {
	cfg PublisherConfig

	published, overwritten, failed atomic.Int64

	// What follows belongs to the goroutine of Run.

	// wanted is the bundle that was read last, nil before.
	wanted  []byte
	records map[target]*record
	// unknown is since when authorities have known nothing, zero if they do.
	unknown        time.Time
	unknownTold    bool
	unknownBackoff backoff
}

// record is what a Publisher remembers of a configuration.
type record struct {
	// seen are the bundles of entries, where they were as wanted.
	seen map[string]string
	// told is the class of the problem that was reported, "" if there is none.
	told string
	// retry is when to try again after a failure.
	retry   time.Time
	backoff backoff
	rivalry rivalry
	// overwrites is how often the configuration was overwritten since that was
	// reported, which was at reported; last describes the last time.
	overwrites int
	reported   time.Time
	last       certs.Event
}

// NewPublisher makes a Publisher.
func NewPublisher(cfg PublisherConfig) *Publisher {
	p := &Publisher{cfg: cfg, records: map[target]*record{}}
	if p.cfg.Now == nil {
		p.cfg.Now = time.Now
	}
	return p
}

// Stats may be called at any time.
func (p *Publisher) Stats() Stats {
	return Stats{Published: p.published.Load(), Overwritten: p.overwritten.Load(), Failed: p.failed.Load()}
}

// Run publishes until the context ends, and returns nil then and not before. It is
// called once.
func (p *Publisher) Run(ctx context.Context) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	// A change must be acted on even if others come at the same time: the channel is
	// given up only when it was seen closed.
	authorities := p.cfg.Authorities.Changed()
	for refresh := true; ; {
		watched := p.cfg.Watcher.Changed()
		p.step(ctx, refresh)
		refresh = false
		again, stop := p.again()
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
			p.flush()
		case <-again:
		}
		stop()
	}
}

// again fires when something that failed is to be tried again.
func (p *Publisher) again() (fires <-chan time.Time, stop func()) {
	var next time.Time
	for _, r := range p.records {
		at := r.retry
		if r.rivalry.until.After(at) {
			at = r.rivalry.until
		}
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if p.wanted == nil {
		next = time.Now().Add(p.unknownBackoff.next())
	}
	if next.IsZero() {
		return nil, func() {}
	}
	timer := time.NewTimer(time.Until(next))
	return timer.C, func() { timer.Stop() }
}

// step writes what is to be written. It asks the authorities first if told so, or
// if it does not know what is wanted.
func (p *Publisher) step(ctx context.Context, refresh bool) {
	if refresh || p.wanted == nil {
		if list, err := p.authorities(ctx); err == nil {
			p.want(list)
		}
	}
	if p.wanted == nil || len(p.due()) == 0 || !sleep(ctx, jitter(spread)) {
		return
	}
	for _, o := range p.due() {
		p.repair(ctx, o.target)
	}
}

// due are the configurations that have another bundle than wanted.
func (p *Publisher) due() []*object {
	var list []*object
	known, _ := p.cfg.Watcher.look()
	for i, k := range known {
		o, r := k.found, p.record(p.cfg.Watcher.targets[i])
		if o == nil || o.deleting {
			*r = record{seen: map[string]string{}, reported: r.reported, rivalry: r.rivalry}
			r.rivalry.until = time.Time{}
			continue
		}
		if o.injector != "" {
			r.retry, r.rivalry.until = time.Time{}, time.Time{}
			p.refuse(r, o)
			continue
		}
		differs := false
		for _, e := range p.ours(o) {
			if e.raw == string(p.wanted) {
				r.seen[e.name] = e.raw
			} else {
				differs = true
			}
		}
		switch {
		case !differs:
			r.told, r.retry, r.rivalry.until = "", time.Time{}, time.Time{}
			r.backoff.reset()
		case time.Now().Before(r.retry):
		case time.Now().Before(r.rivalry.until) && len(p.rivals(r, o)) > 0:
		default:
			list = append(list, o)
		}
	}
	return list
}

func (p *Publisher) ours(o *object) []entry { return hosts(p.cfg.Watcher.cfg.Hosts).ours(o) }

func (p *Publisher) record(t target) *record {
	if p.records[t] == nil {
		p.records[t] = &record{seen: map[string]string{}}
	}
	return p.records[t]
}

// repair writes a configuration, and tries again if others came before.
func (p *Publisher) repair(ctx context.Context, t target) {
	var failure *problem
	r := p.record(t)
	for try := range tries {
		if try > 0 && !sleep(ctx, jitter(retrySpread)) {
			return
		}
		failure = p.attempt(ctx, t)
		if failure == nil || failure.class != classConflict {
			break
		}
	}
	switch {
	case failure == nil:
		r.retry, r.rivalry.until = time.Time{}, time.Time{}
		r.backoff.reset()
		return
	case failure.class == classRival:
		r.retry = time.Time{}
		r.backoff.reset()
		return
	}
	if failure.class == classConflict {
		p.fail(ctx, r, t.reference(), failure)
	}
	r.retry = time.Now().Add(r.backoff.next())
}

// attempt reads a configuration, then the authorities, and writes the one into
// the other if it is still the one that was read. In this order nobody writes
// what is out of date: whoever reads older authorities has read the configuration
// before those were published that followed, and loses.
func (p *Publisher) attempt(ctx context.Context, t target) *problem {
	r := p.record(t)
	o, err := live(ctx, p.cfg.Client, t)
	if err != nil {
		return p.fail(ctx, r, t.reference(), getProblem(t, err))
	}
	switch {
	case o == nil || o.deleting:
		return nil
	case o.injector != "":
		p.refuse(r, o)
		return nil
	}
	list, err := p.authorities(ctx)
	if err != nil {
		return &problem{classAuthorities, err}
	}
	p.want(list)
	var (
		names, changed []string
		overwritten    bool
	)
	for _, e := range p.ours(o) {
		names = append(names, e.name)
		if e.raw != string(p.wanted) {
			changed = append(changed, e.name)
			overwritten = overwritten || r.seen[e.name] == string(p.wanted)
		}
	}
	theirs := p.rivals(r, o)
	if len(changed) == 0 {
		return nil
	}
	if err := p.check(o, list); err != nil {
		return p.fail(ctx, r, o.reference(), &problem{classUnverified, err})
	}
	if len(theirs) > 0 {
		if failure := p.yield(r, o, theirs[0]); failure != nil {
			return failure
		}
	}
	request, cancel := bounded(ctx)
	defer cancel()
	err = explained(request, t.kind.apply(request, p.cfg.Client, t.name, o.resourceVersion, p.patch(o, names)))
	switch {
	case apierrors.IsConflict(err):
		return writeProblem(t, err)
	case apierrors.IsInvalid(err):
		// That is what an API server says of a patch without all that a webhook must
		// have, where there is nothing to patch.
		if there, gone := live(ctx, p.cfg.Client, t); gone == nil && there == nil {
			return nil
		}
		return p.fail(ctx, r, o.reference(), writeProblem(t, err))
	case err != nil:
		return p.fail(ctx, r, o.reference(), writeProblem(t, err))
	}
	p.published.Add(1)
	r.told = ""
	for _, name := range names {
		r.seen[name] = string(p.wanted)
	}
	if len(theirs) > 0 {
		// What there is to say was said before the wait.
		p.overwritten.Add(1)
		return nil
	}
	p.tell(r, o, list, changed, overwritten)
	return nil
}

// patch are the entries to apply: ours, by their names, with what is wanted. Those
// that were ours once, or are another Gatehouse's that we share the configuration
// with, keep what they have: without them in the patch it would be taken away.
func (p *Publisher) patch(o *object, ours []string) []entry {
	var list []entry
	for _, e := range o.entries {
		switch {
		case slices.Contains(ours, e.name):
			list = append(list, entry{name: e.name, raw: string(p.wanted)})
		case e.raw != "" && o.applied(e.name):
			list = append(list, entry{name: e.name, raw: e.raw})
		}
	}
	return list
}

// want takes in what is wanted now. If that is something new, it is written at
// once, whoever wrote what is there.
func (p *Publisher) want(list []*x509.Certificate) {
	wanted := rotation.Bundle(list)
	if !bytes.Equal(wanted, p.wanted) {
		for _, r := range p.records {
			r.rivalry.until = time.Time{}
		}
	}
	p.wanted = wanted
}
