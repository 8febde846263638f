package configuration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/compile"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// Documents are the documents of gatehouse compile in a cluster. cluster.Compiled implements it.
type Documents interface {
	// All returns the documents. The error is cluster.ErrNotReadYet, or why they are not known.
	All() ([]compile.Found, error)
	// Changed receives a value after changes.
	Changed() <-chan struct{}
}

// Native follows what the API server itself enforces of the active configuration, by documents of gatehouse compile. It compiles the
// configuration only while there are such documents, and not in the goroutine that activates it. It is safe for concurrent use.
type Native struct {
	documents Documents
	log       *slog.Logger
	// used receives a value after Use, and changed after another result.
	used, changed notifier
	// linger is for how long something must be enforced until nothing need be sent for it.
	linger time.Duration

	mu     sync.Mutex
	active source
	last   enforced
}

// source is what is compiled: a configuration, and the namespaces that are never sent to Gatehouse, with commas.
type source struct {
	config   *config.Config
	excluded string
}

// enforced is what was found last. It is immutable.
type enforced struct {
	// of is what documents were compared with, if there are any.
	of   source
	list []compile.Enforcement
	// since is from when on each of the list holds.
	since map[compile.Enforcement]time.Time
	// unknown is why nothing is known, "" if something is.
	unknown string
	// read is false before the first reading.
	read bool
}

// linger is longer than API servers take to enforce what is in the cluster: each looks once a second for policies that have changed.
const linger = 5 * time.Second

type notifier chan struct{}

func (n notifier) notify() {
	select {
	case n <- struct{}{}:
	default:
	}
}

// NewNative returns a Native, whose Run is called once.
func NewNative(documents Documents, log *slog.Logger) *Native {
	return &Native{documents: documents, log: log, used: make(notifier, 1), changed: make(notifier, 1), linger: linger}
}

// Changed receives a value when something else is enforced than before.
func (n *Native) Changed() <-chan struct{} { return n.changed }

// Use sets the active configuration, and the namespaces that are never sent to Gatehouse, and returns what every API server enforces, as far
// as is known: nothing if it is not. The list may be about the configuration before.
func (n *Native) Use(c *config.Config, excluded []string) []compile.Enforcement {
	n.mu.Lock()
	defer n.mu.Unlock()
	if active := (source{c, strings.Join(excluded, ",")}); n.active != active {
		n.active = active
		n.used.notify()
	}
	return slices.DeleteFunc(slices.Clone(n.last.list), func(e compile.Enforcement) bool { return time.Since(n.last.since[e]) < n.linger })
}

// condition returns the condition Native of a policy of a configuration, without a type if it must not have it, and nil while it is not known.
func (n *Native) condition(c *config.Config, kind, name string) *metav1.Condition {
	n.mu.Lock()
	last := n.last
	n.mu.Unlock()
	switch {
	case last.unknown != "":
		return &metav1.Condition{Type: v1alpha1.NativeCondition, Status: metav1.ConditionUnknown, Reason: v1alpha1.NotReadReason, Message: last.unknown}
	case !last.read || last.of.config != nil && last.of.config != c:
		return nil
	}
	e := compile.Of(last.list, kind, name)
	if e == nil {
		return &metav1.Condition{}
	}
	out := &metav1.Condition{Type: v1alpha1.NativeCondition, Status: metav1.ConditionFalse, Reason: e.State, Message: e.Text}
	if e.IsWhole() {
		out.Status = metav1.ConditionTrue
	}
	return out
}

// Run follows the documents and the configuration until ctx ends.
func (n *Native) Run(ctx context.Context) {
	var wanted *compile.Wanted
	var of source
	for {
		var ends <-chan time.Time
		if wanted != nil && !wanted.Until.IsZero() {
			ends = time.After(time.Until(wanted.Until))
		}
		select {
		case <-ctx.Done():
			return
		case <-n.documents.Changed():
		case <-n.used:
		case <-ends:
			of = source{}
		}
		n.mu.Lock()
		active := n.active
		n.mu.Unlock()
		found, err := n.documents.All()
		if active.config == nil || errors.Is(err, cluster.ErrNotReadYet) {
			continue
		}
		now, next := time.Now(), enforced{read: true}
		var rest time.Duration
		switch {
		case err != nil:
		case len(found) == 0:
			wanted, of = nil, source{}
		default:
			if of != active {
				wanted, err = want(active, now)
				of, rest = active, min(restFactor*time.Since(now), maxRest)
			}
			if err == nil {
				next.of, next.list = of, wanted.Compare(found, now)
			}
		}
		if err != nil {
			next, of = enforced{unknown: err.Error()}, source{}
		}
		n.set(next)
		sleep.Context(ctx, rest)
	}
}

// want compiles a configuration. A fault must not end a server, which decides without it.
func want(of source, now time.Time) (w *compile.Wanted, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("a fault of gatehouse compile: %v", fault)
		}
	}()
	return compile.Want(of.config, strings.Split(of.excluded, ","), now)
}

// set makes a result the last one, and logs what has changed.
func (n *Native) set(next enforced) {
	n.mu.Lock()
	before, isNew := n.last, false
	next.since = map[compile.Enforcement]time.Time{}
	for _, e := range next.list {
		at, was := before.since[e]
		if !was {
			at, isNew = time.Now(), true
		}
		next.since[e] = at
	}
	n.last = next
	n.mu.Unlock()
	if isNew {
		time.AfterFunc(n.linger, n.changed.notify)
	}
	if before.unknown == next.unknown && before.of == next.of && before.read == next.read && slices.Equal(before.list, next.list) {
		return
	}
	n.changed.notify()
	if next.unknown != "" && next.unknown != before.unknown {
		// Logged when Gatehouse cannot tell any more which policies the API server enforces itself. All requests are sent to it then.
		n.log.Warn("compiled policies", "error", next.unknown, "hint", "their status says so; decisions do not depend on it")
	}
	var texts []string
	for i := range next.list {
		e := &next.list[i]
		if was := compile.Of(before.list, e.Kind, e.Name); was == nil || *was != *e {
			texts = append(texts, e.Kind+"/"+e.Name+": "+e.Text)
		}
	}
	for i := range before.list {
		e := &before.list[i]
		if next.unknown == "" && compile.Of(next.list, e.Kind, e.Name) == nil {
			texts = append(texts, e.Kind+"/"+e.Name+": the policy is gone, or all that was compiled from it (hint: until you delete what was compiled, the API server enforces it)")
		}
	}
	for _, text := range texts[:min(len(texts), maxPerResource)] {
		// Logged when the documents of gatehouse compile in the cluster enforce a policy otherwise than before: wholly, partly, or out of date.
		n.log.Info("compiled policies", "changed", text, "all", len(texts))
	}
}
