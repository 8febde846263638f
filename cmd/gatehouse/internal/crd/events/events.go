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
	"sync"
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
	// silence is the time between two log lines about Events that cannot be written.
	silence = 10 * time.Minute
)

// Config is the configuration of a Recorder. Every field is required.
type Config struct {
	// Client writes Events.
	Client corev1client.EventsGetter
	// Replica is which of several processes this is.
	Replica string
	// Log gets a line, at most every ten minutes, if Events cannot be written.
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
	broadcaster.StartRecordingToSink(&sink{ctx: ctx, client: c.Client, log: c.Log})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: Controller, Host: c.Replica})
	return &Recorder{recorder: recorder.WithLogger(logr.Discard())}
}

// Record writes an Event soon, if there is a reason for one and an object that it
// is about. It returns at once; where too many wait to be written it does nothing.
// It fits Notify of package certs.
func (r *Recorder) Record(e certs.Event) {
	r.write(e.Object, typeOf(&e), e.Reason, noteOf(&e))
}

// Write writes an Event about an object soon: with warning, one of type Warning,
// else Normal. The reason is one word in upper camel case. The note is shown on one
// line and cut where it is too long. As with Record, nothing is waited for, and
// without a reason or an object there is no Event.
func (r *Recorder) Write(object corev1.ObjectReference, warning bool, reason, note string) {
	kind := corev1.EventTypeNormal
	if warning {
		kind = corev1.EventTypeWarning
	}
	r.write(object, kind, reason, sanitize(note))
}

func (r *Recorder) write(object corev1.ObjectReference, kind, reason, note string) {
	if reason == "" || object.Kind == "" || object.Name == "" {
		return
	}
	r.recorder.Event(&object, kind, reason, note)
}

// typeOf returns the type of an Event: Warning for what needs attention.
func typeOf(e *certs.Event) string {
	if e.Err != nil {
		return corev1.EventTypeWarning
	}
	switch e.Reason {
	case certs.ReasonOverwritten, certs.ReasonUntrusted, certs.ReasonExpiring,
		certs.ReasonStoreFailed, certs.ReasonRecovered, certs.ReasonReplaced, certs.ReasonPublishFailed, certs.ReasonIssuerFailed:
		return corev1.EventTypeWarning
	default:
		return corev1.EventTypeNormal
	}
}

// noteOf is what an Event of package certs says.
func noteOf(e *certs.Event) string {
	parts := make([]string, 0, 2)
	if e.Message != "" {
		parts = append(parts, e.Message)
	}
	if e.Err != nil {
		parts = append(parts, e.Err.Error())
	}
	return sanitize(strings.Join(parts, ": "))
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
	ctx    context.Context //nolint:containedctx // record.EventSink knows none
	client corev1client.EventsGetter
	log    *slog.Logger

	mu sync.Mutex
	// silentUntil is when a failure may be logged again.
	silentUntil time.Time
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
	written, err := try(ctx)
	if err == nil || s.ctx.Err() != nil {
		return written, err
	}
	class := apierr.Classify(err)
	if verb == "patch" && class == apierr.NotFound {
		return nil, err // It is an hour old, and gone: record creates it anew.
	}
	s.report(verb, event, err)
	if !class.IsTemporary() {
		return event, nil
	}
	return nil, fmt.Errorf("%s Event: %w", verb, err)
}

// report logs that Events cannot be written, and what to do about it, unless it did so
// a short while ago.
func (s *sink) report(verb string, event *corev1.Event, err error) {
	now := time.Now().Round(0)
	s.mu.Lock()
	silent := now.Before(s.silentUntil)
	if !silent {
		s.silentUntil = now.Add(silence)
	}
	s.mu.Unlock()
	if silent {
		return
	}
	hint := "Gatehouse retries for some minutes; decisions do not depend on Events"
	if apierr.Classify(err) == apierr.Forbidden {
		hint = fmt.Sprintf("allow create and patch of events in the namespace %q; decisions do not depend on Events", event.Namespace)
	}
	s.log.Warn("cannot write Events", "error", fmt.Sprintf("cannot %s an Event in namespace %q: %v", verb, event.Namespace, err), "hint", hint,
		"reason", event.Reason, "object", event.InvolvedObject.Kind+" "+strings.TrimPrefix(event.InvolvedObject.Namespace+"/"+event.InvolvedObject.Name, "/"),
		"silentFor", silence.String())
}
