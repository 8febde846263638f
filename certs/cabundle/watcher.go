package cabundle

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/kube"
	"github.com/gatehouse-dev/gatehouse/certs/webhookconfig"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
)

// Subject is what the Events of this package are about.
const Subject = "CA bundle"

// WatcherConfig says what to read back.
type WatcherConfig struct {
	// Client asks the API server. It needs list and watch on what is named.
	Client certs.Client
	// Registrations are what must trust us. Without any, everything is trusted.
	Registrations []Registration
	// Hosts are the names and addresses that we serve, *.DOMAIN among them: webhooks that
	// call none of them are ignored. Without any, none is ignored.
	Hosts []string
	// Now is the time by which Ready verifies certificates; nil is time.Now.
	Now func() time.Time
	// Notify receives events about what cannot be read, and when it can be again, from
	// one goroutine at a time. Nil drops them.
	Notify func(certs.Event)
}

// Watcher keeps webhook configurations in memory and verifies that they trust us. It is
// a certs.Trust. What was read last counts while the API server is unreachable; a
// configuration that was deleted does not.
type Watcher struct {
	cfg    WatcherConfig
	groups []group
	ready  atomic.Bool

	mu sync.Mutex
	// states are the targets, in the order of the registrations. The slice is immutable.
	states  []targetState
	changed chan struct{}
	// verified is since when Verify has succeeded, as seen by Ready.
	verified time.Time

	// reporting is held while Notify is called. It is taken before mu.
	reporting sync.Mutex
	reported  map[string]apierr.Class
}

var _ certs.Trust = (*Watcher)(nil)

// targetState is what is known of a target.
type targetState struct {
	target
	// read reports whether it was read once, and found is what was there last, nil if
	// nothing was.
	read  bool
	found *object
	// failed is why it cannot be read now.
	failed *problem
}

// NewWatcher makes a Watcher that has read nothing yet.
func NewWatcher(cfg WatcherConfig) *Watcher {
	w := &Watcher{cfg: cfg, changed: make(chan struct{}), reported: map[string]apierr.Class{}}
	if w.cfg.Now == nil {
		w.cfg.Now = time.Now
	}
	var targets []target
	targets, w.groups = targetsOf(cfg.Registrations)
	for _, t := range targets {
		w.states = append(w.states, targetState{target: t})
	}
	return w
}

// Run reads and watches until the context ends, and returns nil then and not
// before. It is called once.
func (w *Watcher) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for i, s := range w.snapshot() {
		running.Go(func() { w.follow(ctx, i, s.target) })
	}
	running.Wait()
	<-ctx.Done()
	return nil
}

// Changed implements certs.Trust.
func (w *Watcher) Changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

// follow keeps one target up to date: it lists the target when a watch begins, after every
// event of it, and when a watch cannot begin. A list that fails ends the watch, which begins
// again after a pause.
func (w *Watcher) follow(ctx context.Context, i int, t target) {
	client, options := w.cfg.Client.AdmissionregistrationV1(), kube.SelectName(t.name)
	read := func() error {
		request, cancel := context.WithTimeout(ctx, kube.Timeout)
		defer cancel()
		found, err := t.kind.Find(request, client.RESTClient(), t.name)
		switch {
		case err != nil:
			return err
		case found == nil:
			w.update(i, nil)
		default:
			w.update(i, newObject(t.kind, found))
		}
		return nil
	}
	record := func(err error) bool {
		if ctx.Err() != nil {
			return false
		}
		var p *problem
		if err != nil {
			p = requestProblem(ctx, t, "list and watch", err)
		}
		w.setProblem(i, p)
		return err == nil
	}
	open := func(ctx context.Context) (watch.Interface, error) {
		if t.kind == webhookconfig.Mutating {
			return client.MutatingWebhookConfigurations().Watch(ctx, options)
		}
		return client.ValidatingWebhookConfigurations().Watch(ctx, options)
	}
	began := func(err error) {
		if err != nil {
			_ = read() // which fails for the same reason, or not at all
			record(err)
		}
	}
	kube.Watch(ctx, kube.Timeout, open, began, func() bool { return record(read()) })
}

// update records the current object of a target, nil if it does not exist.
func (w *Watcher) update(i int, found *object) {
	w.mu.Lock()
	now := w.states[i]
	if !now.read || (found == nil) != (now.found == nil) || found != nil && found.resourceVersion != now.found.resourceVersion {
		now.read, now.found = true, found
		close(w.changed)
		w.changed = make(chan struct{})
	}
	w.set(i, now)
	w.mu.Unlock()
	w.report()
}

// setProblem records why a target cannot be read or watched, nil if it can.
func (w *Watcher) setProblem(i int, p *problem) {
	w.mu.Lock()
	now := w.states[i]
	now.failed = p
	w.set(i, now)
	w.mu.Unlock()
	w.report()
}

// set is called with mu held.
func (w *Watcher) set(i int, k targetState) {
	w.states = slices.Clone(w.states)
	w.states[i] = k
}

// snapshot returns the current states.
func (w *Watcher) snapshot() []targetState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.states
}

// absence returns a problem if nothing of a registration exists.
func (w *Watcher) absence(g group, known []targetState) *problem {
	for _, i := range g {
		if !known[i].read || known[i].found != nil {
			return nil
		}
	}
	return &problem{classMissing, fmt.Errorf("%s: not found: apply the output of gatehouse manifests", g.describe(known))}
}

// describe names the kinds and the name of a registration.
func (g group) describe(known []targetState) string {
	var names []string
	for _, i := range g {
		names = append(names, string(known[i].kind))
	}
	return strings.Join(names, " or ") + " " + known[g[0]].name
}

// foreignProblem returns a problem if a configuration has no webhook of ours.
func (w *Watcher) foreignProblem(o *object) *problem {
	if len(w.ours(o)) > 0 {
		return nil
	}
	if len(o.entries) == 0 {
		return &problem{classMissing, fmt.Errorf("%s: has no webhooks: apply the output of gatehouse manifests", o)}
	}
	var called []string
	for _, e := range o.entries {
		called = append(called, fmt.Sprintf("%q calls %q", e.name, e.server))
	}
	return &problem{classMissing, fmt.Errorf("%s: none of its webhooks calls Gatehouse: %s, but the certificate is for %q: apply the output of gatehouse manifests for one of these names, serve that name too, or set another --registration",
		o, strings.Join(called, ", "), w.cfg.Hosts)}
}

// report reports problems that are new, and those that are over.
func (w *Watcher) report() {
	if w.cfg.Notify == nil {
		return
	}
	w.reporting.Lock()
	defer w.reporting.Unlock()
	known := w.snapshot()
	for _, k := range known {
		about := k.reference()
		if k.found != nil {
			about = k.found.reference()
			w.reportProblem(k.String()+": its webhooks", w.foreignProblem(k.found), about)
		}
		w.reportProblem(k.String(), k.failed, about)
	}
	for _, g := range w.groups {
		w.reportProblem("registration "+g.describe(known), w.absence(g, known), known[g[0]].reference())
	}
}

// reportProblem reports the problem of what a key stands for, or its end, if that is new.
func (w *Watcher) reportProblem(key string, p *problem, about corev1.ObjectReference) {
	class := apierr.None
	event := certs.Event{Subject: Subject, Object: about, Message: key + " has no problem any more"}
	if p != nil {
		class, event.Err, event.Message = p.class, p.err, ""
	}
	if w.reported[key] != class {
		w.reported[key] = class
		w.cfg.Notify(event)
	}
}
