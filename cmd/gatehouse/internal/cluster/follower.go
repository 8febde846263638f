package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// follower keeps the objects of one target in memory while it runs. They stay when the API
// server cannot be reached, unless it answers that there is no such kind any more.
type follower struct {
	Target
	source source
	// vital is true if the server is not ready without these objects.
	vital bool
	// absent is the hint if the cluster has no such kind.
	absent string
	// grace is how long objects stay in use after the API server answered that there is no
	// such kind: a starting one answers so for every custom resource.
	grace time.Duration
	// confirmAfter is how long the API server must have answered so at a start before the
	// follower counts as read.
	confirmAfter time.Duration
	// transform returns what is kept of an object.
	transform cache.TransformFunc
	// same reports whether a change of an object is ignored. It may be nil.
	same func(before, after any) bool
	// changed is called after objects have changed.
	changed func()
	log     *slog.Logger
	// count counts an error.
	count func(apierr.Class)

	// resolved is closed when it is known for the first time which objects there
	// are, or that there is no such kind.
	resolved chan struct{}
	resolve  sync.Once
	// late is true after a wait for it timed out.
	late atomic.Bool

	// liveGets are look-ups by name in progress.
	liveGets singleflight.Group

	mu    sync.Mutex // held while the state is changed
	state atomic.Pointer[state]
}

// state is the state of a follower. It is immutable.
type state struct {
	// resource is nil until the kind is known.
	resource *resource
	// store is nil until the objects are.
	store *store
	// err is what keeps them from being brought up to date.
	err error
	// unservedSince is the time since when there is no such kind.
	unservedSince time.Time
}

func newFollower(target Target, s source, log *slog.Logger, count func(apierr.Class)) *follower {
	f := &follower{
		Target: target, source: s, log: log.With("kind", kindLabel(target.Kind)), count: count, resolved: make(chan struct{}),
		absent:    "install its CustomResourceDefinition; Gatehouse retries, and until then the failurePolicy of the policies decides",
		transform: strip, changed: func() {},
	}
	if target.Namespace != "" {
		f.log = f.log.With("namespace", target.Namespace)
	}
	if target.Name != "" {
		f.log = f.log.With("name", target.Name)
	}
	f.state.Store(&state{})
	return f
}

// pauses returns the backoff between attempts: 250 ms at first, five to eight seconds in
// the end, which is how long it takes to notice a new kind.
func pauses() *wait.Backoff {
	return &wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: math.MaxInt32, Cap: 5 * time.Second}
}

const (
	// steady is how long a watch must last for the backoff to start anew. A watch that ends
	// at once would cause several lists a second.
	steady = time.Minute
	// unsteady is the number of shorter watches in a row that are logged. A single one is
	// normal: the resource version of the list may have expired.
	unsteady = 4
)

// run returns when ctx is done.
func (f *follower) run(ctx context.Context) {
	f.log.Info("watching objects in the cluster")
	// What client-go has to say of it has the kind, and the form of all else.
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(quiet{f.log.Handler()}))
	pause := pauses()
	for ctx.Err() == nil {
		found, err := f.find(ctx)
		if err == nil && !found.namespaced && f.Namespace != "" {
			err = errMisplaced
		}
		if found != nil {
			f.update(func(s *state) { s.resource = found })
		}
		if err == nil {
			began := time.Now()
			f.follow(ctx, found)
			if time.Since(began) >= steady {
				pause = pauses()
			}
		} else {
			f.report(ctx, "find", err)
		}
		sleep.Context(ctx, pause.Step())
	}
}

// find asks for the kind's resource, and not for ever: the API server may hang.
func (f *follower) find(ctx context.Context) (*resource, error) {
	const longest = 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	return f.source.find(ctx)
}

// follow keeps the store up to date until ctx is done, or until the API server
// says that there is no such resource. That may be a passing weakness of an API
// server that is starting, so what is in memory stays for now.
func (f *follower) follow(ctx context.Context, found *resource) {
	s := newStore(f.transform, f.same, f.changed)
	s.replaced = func() {
		before := f.state.Load().store
		f.update(func(next *state) { next.store = s })
		f.changed()
		if before == nil {
			f.log.Info("objects read from the cluster", "objects", len(s.ListKeys()))
		}
		f.resolve.Do(func() { close(f.resolved) })
	}
	reflector := cache.NewReflectorWithOptions(f.listWatch(found), f.source.example(), s, cache.ReflectorOptions{
		Name: "cluster", Backoff: pauses(),
	})
	pause, short := pauses(), 0
	for ctx.Err() == nil {
		began := time.Now()
		err := reflector.ListAndWatchWithContext(ctx)
		switch {
		case apierrors.IsNotFound(err):
			return
		case time.Since(began) >= steady:
			pause, short = pauses(), 0
		case err == nil && ctx.Err() == nil: // others are noted
			if short++; short == unsteady {
				f.log.Warn("watches end immediately",
					"hint", "Gatehouse lists the objects every few seconds instead; check whether the API server is overloaded, or whether a proxy ends watches")
			}
			if short >= unsteady {
				f.count(apierr.Unreachable)
			}
		}
		sleep.Context(ctx, pause.Step())
	}
}

// listWatch reads the target's objects, and notes how that goes.
func (f *follower) listWatch(found *resource) cache.ListerWatcher {
	narrow := func(o *metav1.ListOptions) {
		if f.Name != "" {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, f.Name).String()
		}
	}
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			narrow(&o)
			list, err := f.source.list(ctx, found, f.Namespace, o)
			if err == nil && !isList(list) {
				// As an empty list it would remove all policies.
				err = errNoList
			}
			if err != nil {
				f.report(ctx, "list", err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			narrow(&o)
			w, err := f.source.watch(ctx, found, f.Namespace, o)
			// An API server that cannot send everything by a watch is asked for a
			// list next.
			if !apierrors.IsInvalid(err) || o.SendInitialEvents == nil {
				f.report(ctx, "watch", err)
			}
			return w, err
		},
	}, f.source)
}

var errNoList = errors.New("the API server's answer is not a list: it has no resourceVersion (hint: check for a proxy in front of the API server)")

// isList reports whether a response is a list of an API server, which may be empty.
func isList(answer runtime.Object) bool {
	list, err := meta.ListAccessor(answer)
	return err == nil && list.GetResourceVersion() != ""
}

// update changes a copy of the state.
func (f *follower) update(edit func(*state)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := *f.state.Load()
	edit(&next)
	f.state.Store(&next)
}

// report stores an error, and logs it once for as long as it lasts. Nil is a success.
func (f *follower) report(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil || apierrors.IsNotFound(err) {
		return // it was stopped, or discovery is next
	}
	class := classify(err)
	var before apierr.Class
	dropped, now := false, time.Now()
	f.update(func(s *state) {
		before = classify(s.err)
		s.err = err
		if class != apierr.Unserved {
			s.unservedSince = time.Time{}
			return
		}
		if s.unservedSince.IsZero() {
			s.unservedSince = now
		}
		if now.Sub(s.unservedSince) >= f.grace {
			dropped = s.store != nil
			s.resource, s.store = nil, nil
		}
	})
	if dropped {
		f.log.Warn("the cluster does not serve this kind any more: its objects are not used", "after", f.grace.String())
		f.changed()
	}
	if class == apierr.None {
		if before != apierr.None {
			f.log.Info("the cluster can be read again")
		}
		return
	}
	f.count(class)
	if class == apierr.Unserved && now.Sub(f.state.Load().unservedSince) >= f.confirmAfter || class == misplaced {
		f.resolve.Do(func() { close(f.resolved) })
	}
	if class == before {
		return
	}
	level, hint := slog.LevelWarn, "Gatehouse retries; until then it uses the objects that it read before"
	switch class { //nolint:exhaustive // classify returns no others
	case apierr.Forbidden:
		level, hint = slog.LevelError, f.grantHint()
	case apierr.Unserved:
		hint = f.absent
	case misplaced:
		hint = "remove paramRef.namespace from the binding"
	case apierr.Unreachable, apierr.None:
	}
	f.log.Log(ctx, level, "cannot read from the cluster", "verb", verb, "error", err.Error(), "hint", hint)
}

// get returns an object from memory. It reports whether the objects have been read.
func (f *follower) get(namespace, name string) (object any, read bool) {
	s := f.state.Load()
	if s.store == nil {
		return nil, false
	}
	object, _, _ = s.store.GetByKey(key(namespace, name)) // it has no error
	return object, true
}

// notReadError is the error for a look-up before anything has been read.
func (f *follower) notReadError() error {
	s := f.state.Load()
	switch classify(s.err) { //nolint:exhaustive // classify returns no others
	case apierr.Unserved, misplaced:
		return s.err
	case apierr.None:
		return fmt.Errorf("paramKind %v is not read from the cluster yet", f.Kind)
	case apierr.Forbidden:
		return fmt.Errorf("paramKind %v is not read from the cluster yet: %w (hint: %s)", f.Kind, s.err, f.grantHint())
	case apierr.Unreachable:
		return fmt.Errorf("paramKind %v is not read from the cluster yet: %w", f.Kind, s.err)
	default:
		return s.err
	}
}

// grantHint returns the hint about the right that the follower needs.
func (f *follower) grantHint() string {
	role, what := "a ClusterRole", "objects of kind "+f.Kind.Kind
	switch {
	case f.Namespace != "":
		role = fmt.Sprintf("a Role in namespace %q", f.Namespace)
	case f.Kind.Group == v1alpha1.GroupVersion.Group:
		role = "the ClusterRole gatehouse-resources"
	case f.Kind == corev1.SchemeGroupVersion.WithKind("Namespace"):
		role = "the ClusterRole gatehouse-context"
	}
	if found := f.state.Load().resource; found != nil {
		what = found.GroupResource().String()
	}
	return apierr.GrantHint(role, "get, list and watch", what)
}

// String names the target in a message.
func (f *follower) String() string {
	text := kindLabel(f.Kind)
	if f.Name != "" {
		text += fmt.Sprintf(" %q", f.Name)
	}
	if f.Namespace != "" {
		text += fmt.Sprintf(" in namespace %q", f.Namespace)
	}
	return text
}
