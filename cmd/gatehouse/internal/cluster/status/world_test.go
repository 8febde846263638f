package status

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/leader"
	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
	"github.com/gatehouse-dev/gatehouse/test/support/logbuffer"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/config/resolve"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is an API server and the processes of one or more installs.
type world struct {
	*fakeapi.Server

	ctx    context.Context
	events *events
}

var (
	leases = fakeapi.Resource{GroupVersionResource: coordinationv1.SchemeGroupVersion.WithResource("leases"), Kind: "Lease", Namespaced: true}

	errForbidden = apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no rule allows it"))
	errUnserved  = fakeapi.Unserved(schema.GroupResource{})
	errAway      = errors.New("connection refused")
)

func newServer() *fakeapi.Server {
	s := fakeapi.New(leases)
	for _, gvk := range config.ResourceKinds() {
		s.Serve(resourceFor(gvk.Kind))
	}
	return s
}

func resourceFor(kind string) fakeapi.Resource {
	return fakeapi.Resource{GroupVersionResource: v1alpha1.GroupVersion.WithResource(resourceOf(kind)), Kind: kind, Namespaced: kind == "PolicyBaseline" || kind == "PolicyException"}
}

// create creates a custom resource.
func (w *world) create(kind, name string) Object {
	u := w.Put(map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind, "metadata": map[string]any{"name": name}})
	return Object{Kind: kind, Name: name, UID: u.GetUID(), Generation: u.GetGeneration()}
}

// edit changes the spec of a custom resource.
func (w *world) edit(o Object) Object {
	u := w.Get(resourceFor(o.Kind), "", o.Name)
	u.Object["spec"] = map[string]any{"edits": o.Generation}
	o.Generation = w.Put(u.Object).GetGeneration()
	return o
}

func (w *world) delete(o Object) { w.Delete(resourceFor(o.Kind), "", o.Name) }

// status returns that of a custom resource.
func (w *world) status(t *testing.T, o Object) fields {
	t.Helper()
	found := w.Get(resourceFor(o.Kind), "", o.Name)
	if found == nil {
		t.Fatalf("there is no %s %s", o.Kind, o.Name)
	}
	var e entry
	e.observe(found)
	return e.fields
}

// reports returns how many Leases are reports.
func (w *world) reports() int {
	count := 0
	for _, lease := range w.List(leases) {
		if lease.GetLabels()[reportLabel] != "" {
			count++
		}
	}
	return count
}

// refuse has the server answer requests with what a function returns, unless that is nil.
func (w *world) refuse(f func(r *fakeapi.Request) error) {
	w.Update(func() {
		w.Intercept = func(r *fakeapi.Request) (any, error) { return nil, f(r) }
	})
}

// requests returns the requests since a time that satisfy a condition.
func (w *world) requests(since time.Time, condition func(*fakeapi.Request) bool) []fakeapi.Request {
	return w.Requests(func(r *fakeapi.Request) bool { return !r.Time.Before(since) && condition(r) })
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// events are what was recorded. They are safe for concurrent use.
type events struct {
	mu   sync.Mutex
	list []string
}

func (e *events) record(object corev1.ObjectReference, warning bool, reason, note string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	kind := "Normal"
	if warning {
		kind = "Warning"
	}
	e.list = append(e.list, fmt.Sprintf("%s %s %s %s: %s", kind, reason, object.Kind, object.Name, note))
}

// taken are those since it was last asked.
func (e *events) taken() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := e.list
	e.list = nil
	return list
}

// process is one replica.
type process struct {
	*Controller

	log    *logbuffer.Buffer
	dead   atomic.Bool
	isLead atomic.Bool
	cancel context.CancelFunc
	ended  chan struct{}
}

// inWorld runs a test with a clock that jumps.
func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &world{Server: newServer(), ctx: ctx, events: &events{}}
		defer func() {
			cancel()
			synctest.Wait()
		}()
		f(t, w)
	})
}

// start begins a process of the install gatehouse, and reports nothing yet.
func (w *world) start(t *testing.T, replica string) *process {
	t.Helper()
	p := &process{log: &logbuffer.Buffer{}, ended: make(chan struct{})}
	rest := w.Config(replica)
	rest.QPS, rest.Burst = 20, 40
	rest.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		if p.dead.Load() {
			return nil, errAway
		}
		return w.RoundTrip(r)
	})
	client, err := dynamic.NewForConfig(rest)
	if err != nil {
		t.Fatal(err)
	}
	leases, err := typedcoordinationv1.NewForConfig(rest)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Client: client, Leases: leases, Namespace: "gatehouse-system", Replica: replica,
		Record: w.events.record, Log: slog.New(slog.NewTextHandler(p.log, nil)),
	}
	p.Controller = New(cfg)
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(w.ctx)
	candidate := leader.New(leader.Config{Leases: leases, Namespace: cfg.Namespace, Name: "gatehouse-leader", Replica: replica, Log: cfg.Log})
	go func() {
		defer close(p.ended)
		var group sync.WaitGroup
		group.Go(func() { p.Run(ctx) })
		candidate.Run(ctx, func(ctx context.Context) {
			p.isLead.Store(true)
			p.Lead(ctx)
			p.isLead.Store(false)
		})
		group.Wait()
	}()
	return p
}

// stop ends a process in good order.
func (p *process) stop() {
	p.cancel()
	<-p.ended
}

// kill ends a process so that it cannot say goodbye.
func (p *process) kill() {
	p.dead.Store(true)
	p.cancel()
	<-p.ended
}

// leads reports whether a process is the one that writes.
func (p *process) leads() bool { return p.isLead.Load() }

// report is one of objects that are fine.
func report(digest string, objects ...Object) Report {
	r := Report{Digest: digest}
	for _, o := range objects {
		r.Outcomes = append(r.Outcomes, Outcome{Object: o, Use: resolve.Current})
	}
	return r
}

// invalid is the outcome of an object that is not used, with an error.
func invalid(o Object, messages ...string) Outcome {
	out := Outcome{Object: o, Use: resolve.Unused}
	for _, m := range messages {
		out.Findings = append(out.Findings, diagnostic.Diagnostic{Severity: diagnostic.Error, Source: "cluster", Object: o.Kind + "/" + o.Name, Field: "spec", Message: m})
	}
	return out
}

// settle waits for what follows a change of the configuration.
func settle() {
	time.Sleep(5 * time.Second)
	synctest.Wait()
}

// elected waits until somebody writes, for as long as it may take when the one before is gone.
func elected() {
	time.Sleep(40 * time.Second)
	synctest.Wait()
}

// says is a status in one line.
func says(f fields) string {
	parts := []string{fmt.Sprintf("observed %d", f.ObservedGeneration)}
	for _, kind := range []string{v1alpha1.CompiledCondition, v1alpha1.ReadyCondition, v1alpha1.DegradedCondition} {
		c := find(f.Conditions, kind)
		parts = append(parts, fmt.Sprintf("%s %s %s", kind, c.Status, c.Reason))
	}
	return strings.Join(parts, ", ")
}

const healthy = "Compiled True Compiled, Ready True InUse, Degraded False Healthy"

func (w *world) wantStatus(t *testing.T, o Object, want string) fields {
	t.Helper()
	got := w.status(t, o)
	if says(got) != want {
		t.Errorf("the status of %s is %q (%s), want %q", o.Name, says(got), find(got.Conditions, v1alpha1.ReadyCondition).Message, want)
	}
	return got
}

func wantLines(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s are\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
