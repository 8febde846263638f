package registration

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/problemlog"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

// maxError bounds text of an API server in the log, in bytes.
const maxError = 500

// ReaderConfig says what to read.
type ReaderConfig struct {
	// Client asks the API server. It needs list and watch on what is named.
	Client certs.Client
	// Names are what must trust the certificate. Without any, everything is trusted.
	Names []string
	// Hosts are the names and addresses that we serve, *.DOMAIN among them: webhooks that
	// call none of them are ignored. Without any, none is ignored.
	Hosts []string
	// Now is the time by which certificates are verified; nil is time.Now.
	Now func() time.Time
	Log *slog.Logger
	// Notify receives events of MonitorTrust. Nil drops them.
	Notify func(certs.Event)
}

// Reader keeps webhook configurations in memory, and is a certs.Trust. While the API server cannot be reached, what was
// read last counts. A configuration that was deleted counts no more.
type Reader struct {
	cfg     ReaderConfig
	targets []target
	ready   atomic.Bool

	// noticed receives a value after a change.
	noticed chan struct{}

	mu sync.Mutex
	// states are those of the targets. The slice is immutable.
	states  []targetState
	changed chan struct{}
	// verified is since when Verify has succeeded, as seen by Ready.
	verified time.Time
}

var _ certs.Trust = (*Reader)(nil)

// targetState is what is known of a target.
type targetState struct {
	// read reports whether it was read once, and found is what was there last, nil if
	// nothing was.
	read  bool
	found *object
}

// NewReader makes a Reader that has read nothing yet.
func NewReader(cfg ReaderConfig) *Reader {
	r := &Reader{cfg: cfg, noticed: make(chan struct{}, 1), changed: make(chan struct{})}
	if r.cfg.Now == nil {
		r.cfg.Now = time.Now
	}
	r.targets = targetsOf(cfg.Names)
	r.states = make([]targetState, len(r.targets))
	return r
}

// Run reads and watches until the context ends, and returns nil then and not
// before. It is called once.
func (r *Reader) Run(ctx context.Context) error {
	var running sync.WaitGroup
	problems := problemlog.New(r.cfg.Log, "registration")
	for i, t := range r.targets {
		running.Go(func() { r.follow(ctx, i, t, problems) })
	}
	running.Wait()
	<-ctx.Done()
	return nil
}

// follow keeps one target up to date.
func (r *Reader) follow(ctx context.Context, i int, t target, problems *problemlog.Log) {
	what := "read the " + t.String()
	var like runtime.Object = &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if t.kind == Mutating {
		like = &admissionregistrationv1.MutatingWebhookConfiguration{}
	}
	selected := fields.OneTermEqualSelector(metav1.ObjectNameField, t.name)
	source := cache.NewListWatchFromClient(r.cfg.Client.AdmissionregistrationV1().RESTClient(), t.kind.resource(), metav1.NamespaceAll, selected)
	begin := source.WatchFuncWithContext
	source.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		w, err := begin(ctx, o)
		if err == nil { // a list that succeeds does not show that a missing right to watch is there now
			problems.Recover(what)
		}
		return w, err
	}
	informer := cache.NewSharedIndexInformer(source, like, 0, nil)
	// These fail only for an informer that runs.
	_ = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		class := apierr.Classify(err).Coarse()
		if ctx.Err() != nil || apierr.Classify(err) == apierr.Expired {
			return
		}
		hint := "Gatehouse tries again, and uses until then what it read last"
		if class == apierr.Forbidden {
			hint = apierr.GrantHint("a ClusterRole", "list and watch", fmt.Sprintf("the %s %q", t.kind.resource(), t.name))
		}
		problems.Report(what, string(class), "cannot "+what+": "+truncate.Bytes(err.Error(), maxError), hint)
	})
	set := func(found any) {
		if object, ok := found.(runtime.Object); ok {
			r.update(i, newObject(object))
		}
	}
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, found any) { set(found) },
		DeleteFunc: func(any) { r.update(i, nil) },
	})
	var waiting sync.WaitGroup
	defer waiting.Wait()
	waiting.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) && len(informer.GetStore().List()) == 0 {
			r.update(i, nil)
		}
	})
	informer.RunWithContext(ctx)
}

// update records the current object of a target, nil if it does not exist.
func (r *Reader) update(i int, found *object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.states = slices.Clone(r.states)
	r.states[i] = targetState{true, found}
	close(r.changed)
	r.changed = make(chan struct{})
	poke(r.noticed)
}

// Noticed receives a value after a change, for one reader.
func (r *Reader) Noticed() <-chan struct{} { return r.noticed }

// Changed implements certs.Trust.
func (r *Reader) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// snapshot returns the current states.
func (r *Reader) snapshot() []targetState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.states
}

// isMissed reports whether a target that does not exist should.
func (r *Reader) isMissed(i int, known []targetState) bool {
	const pair = 2 // see targetsOf
	first := i - i%pair
	return known[first].found == nil && known[first+1].found == nil
}

// Mutating returns the configurations that exist, in the order of their names, and false
// until all have been read.
func (r *Reader) Mutating() ([]admissionregistrationv1.MutatingWebhookConfiguration, bool) {
	return originals[admissionregistrationv1.MutatingWebhookConfiguration](r)
}

// Validating is Mutating for ValidatingWebhookConfigurations.
func (r *Reader) Validating() ([]admissionregistrationv1.ValidatingWebhookConfiguration, bool) {
	return originals[admissionregistrationv1.ValidatingWebhookConfiguration](r)
}

func originals[T any, P interface {
	*T
	metav1.Object
}](r *Reader) (list []T, complete bool) {
	for _, s := range r.snapshot() {
		if !s.read {
			return nil, false
		}
		if s.found == nil {
			continue
		}
		if one, ok := s.found.original.(P); ok {
			list = append(list, *one)
		}
	}
	slices.SortFunc(list, func(a, b T) int { return cmp.Compare(P(&a).GetName(), P(&b).GetName()) })
	return list, true
}

// Status is what was read of one configuration.
type Status struct {
	Kind Kind
	Name string
	// Found reports whether it exists, and Err is why it cannot be read.
	Found bool
	Err   error
	// Injector is the annotation by which cert-manager's cainjector writes the
	// caBundle, "" without, and InjectFrom its value.
	Injector, InjectFrom string
	// Webhooks are in its order.
	Webhooks []WebhookStatus
}

// WebhookStatus is one webhook of a configuration.
type WebhookStatus struct {
	Name string
	// Bundle are the certificates of the caBundle, in its order.
	Bundle []Certificate
	// Remark is what is wrong with the caBundle itself, "" if nothing is.
	Remark string
	// Managers are who wrote the caBundle, the latest first. FieldManager is a Writer.
	Managers []Manager
}

// Certificate is a certificate of a caBundle.
type Certificate struct {
	Subject string `json:"subject"`
	// ID is as certs.ID has it.
	ID       string    `json:"id"`
	NotAfter time.Time `json:"notAfter"`
}

// Read reads configurations once, which needs only the right to get them. One that need not exist, because that of the other
// kind does, is left out unless it exists.
func Read(ctx context.Context, client certs.Client, names []string) []Status {
	r := NewReader(ReaderConfig{Names: names})
	errs := make([]error, len(r.targets))
	var reading sync.WaitGroup
	for i, t := range r.targets {
		reading.Go(func() {
			found, err := t.get(ctx, client)
			r.update(i, found)
			if errs[i] = err; err != nil {
				errs[i] = apierr.Explain(fmt.Sprintf("cannot get the %s", t), err)
			}
		})
	}
	reading.Wait()
	known := r.snapshot()
	var list []Status
	for i, t := range r.targets {
		o := known[i].found
		s := Status{Kind: t.kind, Name: t.name, Found: o != nil, Err: errs[i]}
		switch {
		case o == nil && errs[i] == nil && !r.isMissed(i, known):
			continue
		case o != nil:
			s.Injector, s.InjectFrom = o.injector, o.injectFrom
			for j := range o.webhooks {
				s.Webhooks = append(s.Webhooks, o.statusOf(&o.webhooks[j]))
			}
		}
		list = append(list, s)
	}
	return list
}

func (o *object) statusOf(w *webhook) WebhookStatus {
	s := WebhookStatus{Name: w.name, Managers: o.managers(w.name, "clientConfig", "caBundle"), Remark: w.bundle.remark}
	for _, cert := range w.bundle.certs {
		s.Bundle = append(s.Bundle, Certificate{Subject: cert.Subject.String(), ID: certs.ID(cert), NotAfter: cert.NotAfter.UTC()})
	}
	return s
}
