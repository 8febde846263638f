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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/problemlog"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// follower keeps the objects of one target in memory while it runs, with one informer of client-go after the other: an informer
// ends with the first request that fails, and the next one begins after a pause, with whatever the kind is called by then. So a
// CustomResourceDefinition or a right may come and go. Objects that were read stay until the next informer has read them anew.
type follower struct {
	Target
	source source
	// labels selects objects, "" for all.
	labels string
	// vital is true if the server is not ready without these objects.
	vital bool
	// transform returns what is kept of an object.
	transform cache.TransformFunc
	// same reports whether a change of an object is ignored. It may be nil.
	same func(before, after any) bool
	// changed is called after objects have changed.
	changed  func()
	log      *slog.Logger
	problems *problemlog.Log
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
	store cache.Indexer
	// err is what keeps them from being brought up to date.
	err error
}

// newFollower returns a follower of objects as policies see them.
func (c *Cluster) newFollower(target Target) *follower {
	log := c.log.With("kind", kindLabel(target.Kind))
	if target.Namespace != "" {
		log = log.With("namespace", target.Namespace)
	}
	if target.Name != "" {
		log = log.With("name", target.Name)
	}
	f := &follower{
		Target: target, source: source{target.Kind, c.dynamic, c.discovery}, transform: keepParam, changed: func() {},
		log: log, problems: problemlog.New(log, "reading from the cluster"), count: c.metrics.counter(target.Kind), resolved: make(chan struct{}),
	}
	f.state.Store(&state{})
	return f
}

const (
	// steady is how long an informer must run for the pauses to start anew.
	steady = time.Minute
	// findTimeout bounds the request for the kind's resource: the API server may hang.
	findTimeout = 30 * time.Second
	// confirmAfter is how long an API server must say at a start that it has no definition of a custom resource before this server
	// is ready without it: an API server that starts says so for every one.
	confirmAfter = 10 * time.Second
)

// pauses returns the backoff between attempts: 250 ms at first, five to eight seconds in
// the end, which is how long it takes to notice a new kind.
func pauses() *wait.Backoff {
	return &wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: math.MaxInt32, Cap: 5 * time.Second}
}

// run returns when ctx is done.
func (f *follower) run(ctx context.Context) {
	// Logged when serve begins to read the objects that the configuration looks up.
	f.log.Info("watching objects in the cluster")
	// What client-go has to say of it has the kind, and the form of all else.
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(quiet{f.log.Handler()}))
	pause, unserved := pauses(), time.Time{}
	for ctx.Err() == nil {
		began := time.Now()
		found, err := f.find(ctx)
		if err == nil {
			err = f.inform(ctx, found)
		}
		if time.Since(began) >= steady {
			pause = pauses()
		}
		switch {
		case classify(err) != apierr.Unserved:
			unserved = time.Time{}
		case unserved.IsZero():
			unserved = began
		}
		if ctx.Err() == nil {
			f.fail(err, !unserved.IsZero() && time.Since(unserved) >= confirmAfter)
		}
		sleep.Context(ctx, pause.Step())
	}
}

// find asks for the resource of the kind.
func (f *follower) find(ctx context.Context) (*resource, error) {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	found, err := f.source.find(ctx)
	if err != nil {
		return nil, err
	}
	f.update(func(s *state) { s.resource = found })
	return found, nil
}

// inform keeps the objects up to date until a request fails, and returns why.
func (f *follower) inform(ctx context.Context, found *resource) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	logger, synced := klog.FromContext(ctx), make(chan struct{})
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		Logger: &logger, ListerWatcher: f.listWatch(found, synced, stop), ObjectType: &unstructured.Unstructured{},
		Indexers:  cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		Transform: f.transform,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { f.changed() },
			UpdateFunc: func(before, after any) {
				if f.same == nil || !f.same(before, after) {
					f.changed()
				}
			},
			DeleteFunc: func(any) { f.changed() },
		},
	})
	var group sync.WaitGroup
	group.Go(func() {
		select {
		case <-informer.HasSyncedChecker().Done():
			f.use(store)
			close(synced)
		case <-ctx.Done():
		}
	})
	informer.RunWithContext(ctx)
	group.Wait()
	return context.Cause(ctx)
}

// use makes a store that has all objects the one that answers.
func (f *follower) use(store cache.Store) {
	first := f.state.Load().store == nil
	f.update(func(s *state) { s.store, _ = store.(cache.Indexer) })
	f.changed()
	if first {
		// Logged when all objects that the configuration looks up have been read.
		f.log.Info("objects read from the cluster", "objects", len(store.ListKeys()))
	}
	f.resolve.Do(func() { close(f.resolved) })
}

// listWatch reads the target's objects. A request that fails calls stop, but what was listed is used, even if it must not be watched.
func (f *follower) listWatch(found *resource, synced <-chan struct{}, stop context.CancelCauseFunc) cache.ListerWatcher {
	objects := f.source.objects(found, f.Namespace)
	narrow := func(o *metav1.ListOptions) {
		o.LabelSelector = f.labels
		if f.Name != "" {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, f.Name).String()
		}
	}
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			narrow(&o)
			list, err := objects.List(ctx, o)
			if err == nil && !isList(list) {
				// As an empty list it would remove all policies.
				err = errNoList
			}
			if err != nil && !isExpired(err) {
				stop(err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			narrow(&o)
			w, err := objects.Watch(ctx, o)
			switch {
			case err == nil:
				f.succeed()
			case o.SendInitialEvents != nil && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)), isExpired(err):
				// The informer asks for a list next.
			case o.SendInitialEvents != nil:
				stop(err)
			default:
				select {
				case <-synced:
				case <-ctx.Done():
				}
				stop(err)
			}
			return w, err
		},
	}, f.source.client)
}

var errNoList = errors.New("the API server's answer is not a list: it has no resourceVersion (hint: check for a proxy in front of the API server)")

// isList reports whether a response is a list of an API server, which may be empty.
func isList(answer runtime.Object) bool {
	list, err := meta.ListAccessor(answer)
	return err == nil && list.GetResourceVersion() != ""
}

// isExpired reports whether the API server does not have the requested version of a list any more.
func isExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// update changes a copy of the state.
func (f *follower) update(edit func(*state)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := *f.state.Load()
	edit(&next)
	f.state.Store(&next)
}

// what is read, in a log that has only lines about it.
const what = "list and watch"

// succeed notes that the objects can be read.
func (f *follower) succeed() {
	f.update(func(s *state) { s.err = nil })
	f.problems.Recover(what)
}

// fail stores an error, and logs it once for as long as it lasts. Confirmed is true if a kind that is not served is none that an API
// server which is starting does not have yet.
//
// Custom resources of ours stay in use if their kind is not served any more: their deletion is seen before. Params do not: an object
// of a kind that is gone is none.
func (f *follower) fail(err error, confirmed bool) {
	class := classify(err)
	f.update(func(s *state) {
		s.err = err
		if class != apierr.Unserved || f.isOwn() {
			return
		}
		s.store = nil
		if !apierrors.IsNotFound(err) { // there is a kind, but not in the namespace of the binding
			s.resource = nil
		}
	})
	f.count(class)
	if class != apierr.Unreachable {
		f.changed()
	}
	if class == apierr.Unserved && (confirmed || !f.isOwn()) {
		f.resolve.Do(func() { close(f.resolved) })
	}
	hint := "Gatehouse retries; until then it uses the objects that it read before"
	switch class { //nolint:exhaustive // classify returns no others
	case apierr.Forbidden:
		hint = f.grantHint()
	case apierr.Unserved:
		hint = "install its CustomResourceDefinition; Gatehouse retries, and until then the failurePolicy of the policies decides"
		if f.isOwn() {
			hint = "install the CustomResourceDefinitions (gatehouse manifests --crds); Gatehouse retries"
		}
	case apierr.Unreachable, apierr.None:
	}
	f.problems.Report(what, string(class), err.Error(), hint)
}

// isOwn reports whether the objects are Gatehouse's own custom resources.
func (f *follower) isOwn() bool { return f.Kind.Group == v1alpha1.GroupVersion.Group }

// get returns an object from memory. It reports whether the objects have been read.
func (f *follower) get(namespace, name string) (object any, read bool) {
	s := f.state.Load()
	if s.store == nil {
		return nil, false
	}
	object, _, _ = s.store.GetByKey(key(namespace, name)) // it has no error
	return object, true
}

// list returns all objects in memory. It reports whether they have been read.
func (f *follower) list() (objects []any, read bool) {
	s := f.state.Load()
	if s.store == nil {
		return nil, false
	}
	return s.store.List(), true
}

// notReadError is the error for a look-up before anything has been read.
func (f *follower) notReadError() error {
	err := f.state.Load().err
	switch classify(err) { //nolint:exhaustive // classify returns no others
	case apierr.Unserved:
		return err
	case apierr.None:
		return fmt.Errorf("paramKind %v is not read from the cluster yet", f.Kind)
	case apierr.Forbidden:
		return fmt.Errorf("paramKind %v is not read from the cluster yet: %w (hint: %s)", f.Kind, err, f.grantHint())
	default:
		return fmt.Errorf("paramKind %v is not read from the cluster yet: %w", f.Kind, err)
	}
}

// grantHint returns the hint about the right that the follower needs.
func (f *follower) grantHint() string {
	role, what := "a ClusterRole", "objects of kind "+f.Kind.Kind
	switch {
	case f.Namespace != "":
		role = fmt.Sprintf("a Role in namespace %q", f.Namespace)
	case f.isOwn():
		role = "the ClusterRole gatehouse-resources"
	case f.Kind == namespaceKind:
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
