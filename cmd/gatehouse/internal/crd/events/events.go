// Package events writes Events of Kubernetes about certificates and custom resources, which
// kubectl events and kubectl describe show.
//
// Nothing waits for an Event and nothing fails without it.
package events

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/problemlog"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

// Controller is the name under which Events are reported.
const Controller = "gatehouse.dev/gatehouse"

const (
	// maxNote is the most bytes of a message that an API server takes, without what
	// package record puts in front of many that are alike.
	maxNote = 1024 - len("(combined from similar events): ")
	// burst is how many Events of one reason about one object may be written at once,
	// and refill how often one more. What repeats itself is counted in its first
	// Event, which is a write too.
	burst  = 10
	refill = time.Minute
	// writeTimeout bounds one try.
	writeTimeout = 10 * time.Second
)

// Config is the configuration of a Recorder. Every field is required.
type Config struct {
	// Client writes Events.
	Client corev1client.EventsGetter
	// Replica is which of several processes this is.
	Replica string
	// Log gets a line when Events cannot be written, and one when they can again.
	Log *slog.Logger
}

// Recorder writes Events. It is safe for concurrent use.
type Recorder struct {
	recorder record.EventRecorder
}

// New makes a Recorder, which writes until the context ends.
//
// It writes Events of core/v1 with package record: they are the same objects as
// those of events.k8s.io/v1, and package events of client-go, which writes these,
// does not distinguish two messages of one reason and has no limit on their rate.
func New(ctx context.Context, c Config) *Recorder {
	// What the libraries have to say of a failure is an Event in full, each time.
	ctx = klog.NewContext(ctx, logr.Discard())
	broadcaster := record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(record.CorrelatorOptions{
		BurstSize: burst, QPS: 1 / float32(refill/time.Second),
		// One reason that repeats itself must not keep the others from being seen.
		SpamKeyFunc: func(e *corev1.Event) string {
			o := &e.InvolvedObject
			return strings.Join([]string{e.Type, e.Reason, o.APIVersion, o.Kind, o.Namespace, o.Name}, "\x00")
		},
	}))
	broadcaster.StartRecordingToSink(&sink{ctx: ctx, client: c.Client, problems: problemlog.New(c.Log, "Events")})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: Controller, Host: c.Replica})
	return &Recorder{recorder: recorder.WithLogger(logr.Discard())}
}

// Record writes an Event about what package certs has done, if it has a reason and an object. It fits
// Notify of package certs.
func (r *Recorder) Record(e certs.Event) {
	var parts []string
	if e.Message != "" {
		parts = append(parts, e.Message)
	}
	if e.Err != nil {
		parts = append(parts, e.Err.Error())
	}
	r.Write(e.Object, isWarning(&e), e.Reason, strings.Join(parts, ": "))
}

// Write writes an Event about an object soon: with warning, one of type Warning,
// else Normal. It returns at once; where too many wait to be written it does nothing, as without a reason
// or an object. The reason is one word in upper camel case. The note is shown on one
// line and cut where it is too long.
func (r *Recorder) Write(object corev1.ObjectReference, warning bool, reason, note string) {
	if reason == "" || object.Kind == "" || object.Name == "" {
		return
	}
	kind := corev1.EventTypeNormal
	if warning {
		kind = corev1.EventTypeWarning
	}
	r.recorder.Event(&object, kind, reason, sanitize(note))
}

// isWarning reports whether an Event needs attention.
func isWarning(e *certs.Event) bool {
	switch e.Reason {
	case certs.ReasonOverwritten, certs.ReasonUntrusted, certs.ReasonExpiring,
		certs.ReasonStoreFailed, certs.ReasonRecovered, certs.ReasonReplaced, certs.ReasonPublishFailed, certs.ReasonIssuerFailed:
		return true
	default:
		return e.Err != nil
	}
}

// sanitize makes one line of bounded length.
func sanitize(text string) string {
	note := strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\n", "; ")
	note = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, note)
	return truncate.Bytes(note, maxNote)
}

// sink is where package record writes Events. It fails only in a way that is worth
// another try.
type sink struct {
	ctx      context.Context //nolint:containedctx // record.EventSink knows none
	client   corev1client.EventsGetter
	problems *problemlog.Log
}

var _ record.EventSink = (*sink)(nil)

// Create implements record.EventSink.
func (s *sink) Create(event *corev1.Event) (*corev1.Event, error) {
	return s.write("create", event, func(ctx context.Context) (*corev1.Event, error) {
		return s.client.Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
	})
}

// Update implements record.EventSink.
func (s *sink) Update(event *corev1.Event) (*corev1.Event, error) {
	return s.write("update", event, func(ctx context.Context) (*corev1.Event, error) {
		return s.client.Events(event.Namespace).Update(ctx, event, metav1.UpdateOptions{})
	})
}

// Patch implements record.EventSink.
func (s *sink) Patch(event *corev1.Event, data []byte) (*corev1.Event, error) {
	return s.write("patch", event, func(ctx context.Context) (*corev1.Event, error) {
		return s.client.Events(event.Namespace).Patch(ctx, event.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{})
	})
}

// write tries once. Of an answer that is a refusal it says that it was written,
// because the next try would end alike.
func (s *sink) write(verb string, event *corev1.Event, try func(context.Context) (*corev1.Event, error)) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(s.ctx, writeTimeout)
	defer cancel()
	const what = "write Events"
	written, err := try(ctx)
	if err == nil {
		s.problems.Recover(what)
	}
	if err == nil || s.ctx.Err() != nil {
		return written, err
	}
	class := apierr.Classify(err)
	if verb == "patch" && class == apierr.NotFound {
		return nil, err // It is an hour old, and gone: record creates it anew.
	}
	if class == apierr.AlreadyExists {
		return event, nil // An earlier try has written it, though its answer did not arrive.
	}
	hint := "Gatehouse retries for some minutes; decisions do not depend on Events"
	if class == apierr.Forbidden {
		hint = fmt.Sprintf("allow create and patch of events in the namespace %q; decisions do not depend on Events", event.Namespace)
	}
	s.problems.Report(what, string(class.Coarse()), fmt.Sprintf("cannot %s an Event in namespace %q: %v", verb, event.Namespace, err), hint)
	if !class.IsTemporary() {
		return event, nil
	}
	return nil, fmt.Errorf("%s Event: %w", verb, err)
}
