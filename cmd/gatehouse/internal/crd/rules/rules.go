// Package rules keeps the rules and selectors of webhook configurations as narrow as the active policies and profiles of all
// replicas need them.
//
// Every replica reports what it needs, and the elected one writes: a request is added when all replicas need it, and removed
// when none does. It writes by server-side apply of exactly these fields of webhooks that exist, and leaves to other field
// managers what they have set since.
package rules

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/status"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install/registration"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/problemlog"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

const (
	// quiet is how long what is needed must stay the same before it is written, and longest bounds that wait.
	quiet, longest = time.Second, 5 * time.Second
	// idlePause is the time between two comparisons, and busyPause that while something is awaited.
	idlePause, busyPause = 10 * time.Second, 500 * time.Millisecond
	// firstRetry is the pause after a failure. It doubles up to maxRetry.
	firstRetry, maxRetry = time.Second, time.Minute
	// maxNamed is how many names a hint has, and maxError bounds text of other programs, in bytes.
	maxNamed, maxError = 5, 500
)

// Unready is the report of a replica that answers no review yet, because its configuration is not complete. Nobody waits for it.
const Unready = "unready"

// Encode returns the report of a replica.
func Encode(needs registration.Needs) string {
	text, _ := json.Marshal(needs) //nolint:errchkjson // API types can be encoded
	return string(text)
}

// Config is the configuration of a Publisher. Every field is required.
type Config struct {
	// Client needs the rights get and patch on the configurations.
	Client certs.Client
	// Names are those of the configurations, of either kind.
	Names []string
	// Install is what replicas have in common, and other installs do not: the namespace.
	Install string
	// Own returns what this replica needs, and false while its configuration is not complete.
	Own func() (registration.Needs, bool)
	// Peers lists the other replicas.
	Peers func() *status.Peers
	Log   *slog.Logger
}

// Publisher writes rules and selectors while this replica is elected.
type Publisher struct {
	cfg      Config
	problems *problemlog.Log
	// poked receives a value after a change, and changed after a change of Hint.
	poked, changed chan struct{}

	mu   sync.Mutex
	hint string

	// What follows belongs to the goroutine of Lead.

	peers   *status.Peers
	pending map[string]*pending // by the name of the configuration
	retry   time.Duration
}

// pending is what is about to be written, and what was last written.
type pending struct {
	needs           string
	first, changed  time.Time
	written         string
	writtenAt       time.Time
	reportedForeign string
}

// New returns a Publisher. It sends no request yet.
func New(cfg Config) *Publisher {
	return &Publisher{cfg: cfg, problems: problemlog.New(cfg.Log, "registration"), poked: make(chan struct{}, 1), changed: make(chan struct{}, 1)}
}

// Poke makes the elected replica compare soon, because something has changed.
func (p *Publisher) Poke() { poke(p.poked) }

// Changed receives a value when Hint has changed.
func (p *Publisher) Changed() <-chan struct{} { return p.changed }

// Hint returns what the rules wait for, for people. It is "" in a replica that is not elected.
func (p *Publisher) Hint() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hint
}

func (p *Publisher) setHint(hint string) {
	p.mu.Lock()
	same := p.hint == hint
	p.hint = hint
	p.mu.Unlock()
	if !same {
		poke(p.changed)
	}
}

func poke(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Lead writes until the context ends. It is called whenever this replica is elected, and never while it runs.
func (p *Publisher) Lead(ctx context.Context) {
	p.peers, p.pending, p.retry = p.cfg.Peers(), map[string]*pending{}, 0
	defer p.setHint("")
	for ctx.Err() == nil {
		timer := time.NewTimer(p.reconcile(ctx))
		select {
		case <-p.poked:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// reconcile compares what is sent with what is needed, writes what is due, and returns when to compare again.
func (p *Publisher) reconcile(ctx context.Context) time.Duration {
	next := idlePause
	var hints []string
	for _, name := range p.cfg.Names {
		wait, hint, err := p.reconcileName(ctx, name)
		what := "write the rules of the webhook configurations " + name
		if err != nil && ctx.Err() == nil {
			p.retry = min(max(firstRetry, 2*p.retry), maxRetry)
			wait = p.retry
			class := apierr.Classify(err).Coarse()
			text := "cannot " + what + ": " + truncate.Bytes(err.Error(), maxError)
			p.problems.Report(what, string(class), text, p.failureHint(class))
			hint = text
		} else if err == nil {
			p.retry = 0
			p.problems.Recover(what)
		}
		next = min(next, wait)
		if hint != "" {
			hints = append(hints, hint)
		}
	}
	p.setHint(strings.Join(hints, "; "))
	return next
}

func (p *Publisher) failureHint(class apierr.Class) string {
	const cost = "policies about what is not sent have no effect"
	if class != apierr.Forbidden {
		return "it is tried again; until then, " + cost
	}
	return apierr.GrantHint("the ClusterRole gatehouse-registration", "get and patch", "the webhook configurations; until then, "+cost)
}

// reconcileName is reconcile for the configurations of a name. They are read before the reports of replicas, so that a
// stale writer gets a conflict.
func (p *Publisher) reconcileName(ctx context.Context, name string) (next time.Duration, hint string, err error) {
	found, err := p.read(ctx, name)
	if err != nil {
		return 0, "", err
	}
	own, complete := p.cfg.Own()
	if !complete {
		return busyPause, "this replica has not read all custom resources yet", nil
	}
	peers, err := p.peers.List(ctx)
	if err != nil {
		return 0, "", fmt.Errorf("cannot list the Leases by which replicas report: %w", err)
	}
	sent := registration.Needs{}
	for _, c := range found {
		for _, w := range c.webhooks {
			if len(w.sent.Rules) > 0 {
				sent[w.name] = w.sent
			}
		}
	}
	needs, waiting := []registration.Needs{own}, []string(nil)
	for _, peer := range peers {
		reported, counts := decode(peer.Needs)
		if !counts {
			continue
		}
		needs = append(needs, reported)
		if reported == nil || Encode(reported) != Encode(own) {
			waiting = append(waiting, peer.Name)
		}
	}
	desired := registration.Combine(sent, needs...)
	absent := missing(found, desired)
	if len(absent) > 0 {
		desired = registration.Combine(sent, nil) // another webhook may send what the one that is missing would
	}
	key := Encode(desired)
	state := p.pending[name]
	if state == nil {
		state = &pending{}
		p.pending[name] = state
	}
	plans, foreign, problems := plansOf(found, desired, FieldManager(p.cfg.Install))
	problems = append(problems, absent...)
	p.reportForeign(name, state, foreign)
	switch now := time.Now(); {
	case len(plans) == 0:
		state.needs = ""
	case !state.isDue(key, now):
		next = state.due().Sub(now)
	default:
		switch err := p.write(ctx, plans); {
		case apierrors.IsConflict(err):
			return busyPause, "", nil // it has changed since it was read
		case err != nil:
			return 0, "", err
		}
		state.needs, state.written, state.writtenAt = "", key, now
		p.cfg.Log.Info("registration written", "name", name, "waitingFor", len(waiting))
		return busyPause, "", nil
	}
	switch {
	case len(problems) > 0:
		hint = strings.Join(problems, "; ")
	case len(foreign) > 0:
		hint = describeForeign(foreign)
	case len(waiting) > 0:
		hint = "waiting for replicas that do not report that they use it: " + listNames(waiting)
	}
	if len(waiting) > 0 || len(plans) > 0 {
		next = min(max(next, 50*time.Millisecond), busyPause)
	} else {
		next = idlePause
	}
	return next, hint, nil
}

// isDue reports whether needs may be written now. What was there already and is missing now is written at once.
func (s *pending) isDue(needs string, now time.Time) bool {
	if needs == s.written && now.Sub(s.writtenAt) > quiet {
		return true
	}
	if s.needs == "" {
		s.first = now
	}
	if s.needs != needs {
		s.needs, s.changed = needs, now
	}
	return !now.Before(s.due())
}

func (s *pending) due() time.Time {
	if latest := s.first.Add(longest); latest.Before(s.changed.Add(quiet)) {
		return latest
	}
	return s.changed.Add(quiet)
}

// decode returns what a replica needs, nil if it does not report that, and whether it counts at all.
func decode(text string) (needs registration.Needs, counts bool) {
	if text == Unready {
		return nil, false
	}
	if json.Unmarshal([]byte(text), &needs) != nil {
		return nil, true
	}
	return needs, true
}

func listNames(names []string) string {
	names = slices.Clone(names)
	more := ""
	if n := len(names) - maxNamed; n > 0 {
		names, more = names[:maxNamed], fmt.Sprintf(" and %d more", n)
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("%q", truncate.Bytes(name, 100))
	}
	return strings.Join(names, ", ") + more
}

// reportForeign logs who else has set fields, once for as long as that stays the same.
func (p *Publisher) reportForeign(name string, state *pending, foreign []foreignField) {
	text := ""
	if len(foreign) > 0 {
		text = describeForeign(foreign)
	}
	if text != "" && text != state.reportedForeign {
		p.cfg.Log.Warn("registration", "error", "the webhook configurations "+name+": "+text,
			"hint", "Gatehouse leaves these fields as they are; policies that need more say so in their status")
	}
	state.reportedForeign = text
}
