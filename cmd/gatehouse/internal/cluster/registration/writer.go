package registration

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/gatehouse-dev/gatehouse/certs"
	manifest "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install/registration"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

// FieldManager is the field manager of every Writer.
const FieldManager = "gatehouse"

const (
	// resync is how often everything is compared without a change.
	resync = time.Minute
	// quiet is how long after a change of the policies rules are written, so that many changes are one write.
	quiet = time.Second
	// firstRetry and lastRetry bound the pause after a failure.
	firstRetry, lastRetry = 200 * time.Millisecond, 30 * time.Second
	// writeInterval and writeBurst bound how often configurations are written while another client changes them all the time.
	writeInterval, writeBurst = time.Second, 10
	// writeTimeout bounds one write.
	writeTimeout = 10 * time.Second
)

// CA is what registrations should trust. An OwnCA is one.
type CA interface {
	// Bundle reads the certificates that should be trusted from where they are stored. After an error nothing is written.
	Bundle(ctx context.Context) ([]*x509.Certificate, error)
	// GetCertificate returns the serving certificate. No bundle is written that does not verify it.
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Changed is closed when Bundle may have changed.
	Changed() <-chan struct{}
}

// WriterConfig configures a Writer.
type WriterConfig struct {
	// Client needs the right to patch the configurations of the Reader, which the caller runs.
	Client certs.Client
	Reader *Reader
	// Needs returns what the active policies and profiles need to be sent, what of it may not be sent because it is not
	// included, and false while that is not known. Nil leaves rules and selectors as they are.
	Needs func(included []string) (needs manifest.Needs, leftOut []string, known bool)
	// Notify receives events about what was written and what cannot be. Nil drops them.
	Notify func(certs.Event)
}

// Writer writes the CA, rules and selectors into webhook configurations while this replica is elected, and again
// whenever another client changes them.
type Writer struct {
	cfg WriterConfig
	// ca is what is written into every webhook that calls the Hosts of the Reader, but where cert-manager's cainjector
	// writes. Nil leaves the bundles as they are.
	ca      CA
	limiter *rate.Limiter
	// poked receives a value after a change of Needs, and changed after a change of Hint.
	poked, changed      chan struct{}
	overwritten, failed atomic.Int64

	mu sync.Mutex
	// hints are why rules are not as needed, by the target.
	hints map[target]string

	// What follows belongs to the goroutine of Lead.

	// written is the last patch of a target, reported the class of its problem that was reported, leftOut what was reported that may
	// not be sent, and complained when it was last reported that another client changes it.
	written    map[target]string
	reported   map[target]apierr.Class
	leftOut    map[target]string
	complained map[target]time.Time
}

// NewWriter returns a Writer. It sends no request yet.
func NewWriter(cfg WriterConfig) *Writer {
	return &Writer{
		cfg: cfg, limiter: rate.NewLimiter(rate.Every(writeInterval), writeBurst), poked: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		hints: map[target]string{}, written: map[target]string{}, reported: map[target]apierr.Class{}, leftOut: map[target]string{}, complained: map[target]time.Time{},
	}
}

// Publish sets the CA that registrations should trust. It is called before Lead.
func (w *Writer) Publish(ca CA) { w.ca = ca }

// Poke makes the elected replica compare soon, because Needs have changed.
func (w *Writer) Poke() { poke(w.poked) }

// Changed receives a value when Hint has changed.
func (w *Writer) Changed() <-chan struct{} { return w.changed }

func poke(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Hint returns why rules are not as needed, for people. It is "" in a replica that is not elected.
func (w *Writer) Hint() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []string
	for _, t := range w.cfg.Reader.targets {
		if hint := w.hints[t]; hint != "" && !slices.Contains(list, hint) {
			list = append(list, hint)
		}
	}
	return strings.Join(list, "; ")
}

func (w *Writer) setHint(t target, hint string) {
	w.mu.Lock()
	same := w.hints[t] == hint
	w.hints[t] = hint
	w.mu.Unlock()
	if !same {
		poke(w.changed)
	}
}

// Overwritten counts the changes of other clients that were undone, and Failed the writes that failed.
func (w *Writer) Overwritten() int64 { return w.overwritten.Load() }

// Failed see Overwritten.
func (w *Writer) Failed() int64 { return w.failed.Load() }

// Lead writes until the context ends. It is called whenever this replica is elected, and never while it runs.
func (w *Writer) Lead(ctx context.Context) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[target](firstRetry, lastRetry))
	var working sync.WaitGroup
	working.Go(func() { w.work(ctx, queue) })
	defer func() {
		queue.ShutDown()
		working.Wait()
		for _, t := range w.cfg.Reader.targets {
			w.setHint(t, "")
		}
	}()
	clear(w.written) // another replica may have written since
	ticker := time.NewTicker(resync)
	defer ticker.Stop()
	for after := time.Duration(0); ; {
		// The channels are taken before what they are about is read, so that no change is lost.
		changed, ca := w.cfg.Reader.Changed(), (<-chan struct{})(nil)
		if w.ca != nil {
			ca = w.ca.Changed()
		}
		for _, t := range w.cfg.Reader.targets {
			queue.AddAfter(t, after)
		}
		after = 0
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-ca:
		case <-ticker.C:
		case <-w.poked:
			after = quiet
		}
	}
}

func (w *Writer) work(ctx context.Context, queue workqueue.TypedRateLimitingInterface[target]) {
	for {
		t, over := queue.Get()
		if over {
			return
		}
		err := w.reconcile(ctx, t)
		if err == nil {
			queue.Forget(t)
		} else if ctx.Err() == nil {
			queue.AddRateLimited(t)
		}
		// A conflict is over soon, and so is the patch that is invalid because the object has just been deleted, and a right that
		// an install is about to grant.
		soonOver := apierrors.IsInvalid(err) || apierrors.IsForbidden(err)
		if err == nil || !apierrors.IsConflict(err) && (!soonOver || queue.NumRequeues(t) > 1) {
			w.reportProblem(ctx, t, err)
		}
		queue.Done(t)
	}
}

// reportProblem reports why a configuration is not written, once as long as it lasts.
func (w *Writer) reportProblem(ctx context.Context, t target, err error) {
	class := apierr.Classify(err)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		w.failed.Add(1)
		w.setHint(t, t.String()+": "+truncate.Bytes(err.Error(), maxError))
	}
	if class == w.reported[t] {
		return
	}
	w.reported[t] = class
	event := certs.Event{Subject: Subject, Object: t.reference()}
	if err == nil {
		event.Reason, event.Message = certs.ReasonWritten, t.String()+" can be written again"
	} else {
		event.Reason, event.Err = certs.ReasonWriteFailed, fmt.Errorf("%s: %w", t, err)
	}
	w.notify(event)
}

func (w *Writer) notify(e certs.Event) {
	if w.cfg.Notify != nil {
		w.cfg.Notify(e)
	}
}

// applied are the fields of a webhook that a patch has. The API server removes a field that was applied before and is missing now.
type applied struct {
	Name         string                                        `json:"name"`
	ClientConfig *clientConfig                                 `json:"clientConfig,omitempty"`
	Rules        *[]admissionregistrationv1.RuleWithOperations `json:"rules,omitempty"`
	Namespaces   *metav1.LabelSelector                         `json:"namespaceSelector,omitempty"`
	Objects      *metav1.LabelSelector                         `json:"objectSelector,omitempty"`
}

type clientConfig struct {
	CABundle []byte `json:"caBundle"`
}

// reconcile writes one configuration if it is not as desired. The patch has the resourceVersion of the configuration, which was
// read before the CAs: a stale writer gets a conflict.
func (w *Writer) reconcile(ctx context.Context, t target) error {
	o := w.cfg.Reader.object(t)
	if o == nil || o.meta.DeletionTimestamp != nil {
		return nil
	}
	list := o.owned()
	bundleChanged, bundleErr := w.setBundles(ctx, o, list)
	rulesChanged, hint := w.setRules(o, list)
	w.setHint(t, hint)
	changed := slices.Concat(bundleChanged, rulesChanged)
	if len(changed) == 0 {
		return bundleErr
	}
	list = slices.DeleteFunc(list, func(f applied) bool {
		return f.ClientConfig == nil && f.Rules == nil && f.Namespaces == nil && f.Objects == nil
	})
	desired, err := json.Marshal(list)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{
		"apiVersion": admissionregistrationv1.SchemeGroupVersion.String(), "kind": t.kind,
		"metadata": map[string]any{"name": t.name, "resourceVersion": o.meta.ResourceVersion}, "webhooks": json.RawMessage(desired),
	})
	if err != nil {
		return err
	}
	overwritten := w.written[t] == string(desired)
	if err := w.limiter.Wait(ctx); err != nil {
		return err
	}
	if err := w.apply(ctx, t, patch); err != nil {
		return err
	}
	w.written[t] = string(desired)
	w.reportWritten(o, changed, overwritten)
	return bundleErr
}

// object returns the current object of a target, nil if it does not exist.
func (r *Reader) object(t target) *object { return r.snapshot()[slices.Index(r.targets, t)].found }

// owned returns what a patch has of each webhook so that the API server removes nothing.
func (o *object) owned() []applied {
	list := make([]applied, 0, len(o.webhooks))
	for i := range o.webhooks {
		one := &o.webhooks[i]
		f := applied{Name: one.name}
		if one.caBundle != "" && o.owns(one.name, "clientConfig", "caBundle") {
			f.ClientConfig = &clientConfig{[]byte(one.caBundle)}
		}
		if o.owns(one.name, "rules") {
			f.Rules = new(append([]admissionregistrationv1.RuleWithOperations{}, one.rules...))
		}
		if o.owns(one.name, "namespaceSelector") {
			f.Namespaces = one.namespaces
		}
		if o.owns(one.name, "objectSelector") {
			f.Objects = one.objects
		}
		list = append(list, f)
	}
	return list
}

// setBundles sets the desired caBundles, and returns what changes.
func (w *Writer) setBundles(ctx context.Context, o *object, list []applied) (changed []string, err error) {
	if w.ca == nil {
		return nil, nil
	}
	if o.injector != "" {
		return nil, fmt.Errorf("its caBundle is left to cert-manager's cainjector, because of the annotation %s: remove that annotation, or run with --publish-ca-bundle=false", o.injector)
	}
	certificate, err := w.ca.GetCertificate(nil)
	if err != nil {
		return nil, fmt.Errorf("no caBundle is written: %w", err)
	}
	cas, err := w.ca.Bundle(ctx)
	if err != nil {
		return nil, fmt.Errorf("no caBundle is written, because its CAs are unknown: %w", err)
	}
	desired := certs.Bundle(cas)
	for i := range o.webhooks {
		one := o.webhooks[i] // a copy
		if !one.isOurs(w.cfg.Reader.cfg.Hosts) {
			continue
		}
		differs := one.caBundle != string(desired)
		one.bundle = parseBundle(string(desired))
		if err := one.verify(certificate, w.cfg.Reader.cfg.Now().Round(0)); err != nil {
			return nil, fmt.Errorf("webhook %q: no caBundle is written, because calls would fail with it: %w", one.name, err)
		}
		list[i].ClientConfig = &clientConfig{desired}
		if differs {
			changed = append(changed, "caBundle of webhook "+strconv.Quote(one.name))
		}
	}
	return changed, nil
}

// setRules sets the desired rules and selectors, and returns what changes, and why something is not as needed.
//
// A webhook whose rules no Writer has written is taken over, even if they are as needed: an earlier install wrote them, and
// they would go when that one does not apply them any more.
func (w *Writer) setRules(o *object, list []applied) (changed []string, hint string) {
	if w.cfg.Needs == nil {
		return nil, ""
	}
	included := manifest.ParseIncluded(o.meta.Annotations)
	needs, leftOut, known := w.cfg.Needs(included)
	if !known {
		return nil, "this replica has not read all custom resources yet"
	}
	excluded, err := manifest.ParseExcluded(o.meta.Annotations)
	if err != nil {
		return nil, o.String() + ": " + err.Error()
	}
	missing := w.missing(o.name, needs)
	names := manifest.ValidatingNames()
	if o.kind == Mutating {
		names = manifest.MutatingNames()
	}
	for i := range o.webhooks {
		one, f := &o.webhooks[i], &list[i]
		if !slices.Contains(names, one.name) {
			continue
		}
		owned := f.Rules != nil && f.Namespaces != nil && f.Objects != nil
		needed := needs[one.name]
		namespaces, objects := needed.Selectors(excluded)
		if missing != "" { // this webhook may send what the one that is missing would
			needed.Rules, namespaces, objects = one.rules, one.namespaces, one.objects
		}
		f.Rules, f.Namespaces, f.Objects = new(append([]admissionregistrationv1.RuleWithOperations{}, needed.Rules...)), namespaces, objects
		if !owned || !equality.Semantic.DeepEqual(needed.Rules, one.rules) || !equality.Semantic.DeepEqual(namespaces, one.namespaces) || !equality.Semantic.DeepEqual(objects, one.objects) {
			changed = append(changed, "rules of webhook "+strconv.Quote(one.name))
		}
	}
	return changed, cmp.Or(missing, w.reportLeftOut(o, leftOut))
}

// maxLeftOut bounds how many resources are named that are not sent.
const maxLeftOut = 10

// reportLeftOut reports what policies match and the install does not include, once as long as it lasts, and returns it.
func (w *Writer) reportLeftOut(o *object, leftOut []string) string {
	text := ""
	if n := len(leftOut); n > 0 {
		text = fmt.Sprintf("policies match %s, which is not sent, because this install does not include it (hint: name resources in the policies, or list it in the value webhooks.includeResources of the chart, or gatehouse manifests --include-resource)",
			strings.Join(leftOut[:min(n, maxLeftOut)], ", "))
	}
	if before := w.leftOut[o.target]; text != before && text != "" {
		w.notify(certs.Event{Subject: Subject, Object: o.reference(), Reason: certs.ReasonNotIncluded, Message: o.String() + ": " + text})
	}
	w.leftOut[o.target] = text
	return text
}

// missing returns a hint about the first webhook that is needed and that no configuration of the name has.
func (w *Writer) missing(configuration string, needs manifest.Needs) string {
	exists := map[string]bool{}
	for _, s := range w.cfg.Reader.snapshot() {
		if s.found == nil || s.found.name != configuration {
			continue
		}
		for i := range s.found.webhooks {
			exists[s.found.webhooks[i].name] = true
		}
	}
	for _, name := range slices.Concat(manifest.MutatingNames(), manifest.ValidatingNames()) {
		if len(needs[name].Rules) > 0 && !exists[name] {
			return fmt.Sprintf("there is no webhook %q, and Gatehouse adds none (hint: apply the output of gatehouse manifests --manage-registration again)", name)
		}
	}
	return ""
}

// apply sends a patch, and takes the fields over from other managers. Nothing is left to write to an object that is gone.
func (w *Writer) apply(ctx context.Context, t target, patch []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := w.cfg.Client.AdmissionregistrationV1().RESTClient().Patch(types.ApplyPatchType).Resource(t.kind.resource()).Name(t.name).
		Param("fieldManager", FieldManager).Param("force", "true").Body(patch).Do(ctx).Error()
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case apierrors.IsInvalid(err):
		return fmt.Errorf("%w (hint: apply the output of gatehouse manifests again, a webhook may be missing)", err)
	case apierr.LacksRight(err, "patch"):
		return fmt.Errorf("%w (hint: a ClusterRole must allow patch of the %s %q)", err, t.kind.resource(), t.name)
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("the API server did not answer in time")
	}
	return err
}

// reportWritten reports what was written, and whether another client had changed it since the last time.
func (w *Writer) reportWritten(before *object, changed []string, overwritten bool) {
	event := certs.Event{Subject: Subject, Object: before.reference(), Reason: certs.ReasonWritten}
	event.Message = fmt.Sprintf("%s: wrote %s", before, strings.Join(changed, ", "))
	if overwritten {
		w.overwritten.Add(1)
		if last, ok := w.complained[before.target]; ok && time.Since(last) < resync {
			return // Overwritten counts every time
		}
		w.complained[before.target] = time.Now()
		who := "another client"
		for _, one := range before.webhooks {
			for _, field := range [][]any{{"clientConfig", "caBundle"}, {"rules"}, {"namespaceSelector"}, {"objectSelector"}} {
				if list := before.managers(one.name, field...); who == "another client" && len(list) > 0 && list[0].Name != FieldManager {
					who = fmt.Sprintf("%q (%s)", truncate.Bytes(list[0].Name, 100), list[0].Operation)
				}
			}
		}
		event.Reason = certs.ReasonOverwritten
		event.Message = fmt.Sprintf("%s: %s changed %s, and Gatehouse restored it: remove these fields from what it applies", before, who, strings.Join(changed, ", "))
	}
	w.notify(event)
}
