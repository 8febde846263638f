// Package events writes Kubernetes Events about certificates, the configuration and custom resources, which kubectl events
// and kubectl describe show. Writing is best effort: nothing waits for an Event, and nothing fails without it.
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/problemlog"
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
)

// Config is the configuration of a Recorder. Every field is required.
type Config struct {
	// Client writes Events. Its requests need a timeout.
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
	broadcaster.StartRecordingToSink(&sink{&corev1client.EventSinkImpl{Interface: c.Client.Events("")}, problemlog.New(c.Log, "Events")})
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
	r.Write(e.Object, e.IsWarning(), e.Reason, strings.Join(parts, ": "))
}

// Write writes an Event about an object in the background: of type Warning with warning, else Normal. Reason is one word
// in upper camel case. The note becomes one line, and is cut if it is too long. Write does nothing without a reason or an
// object, and drops the Event if too many wait to be written.
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

// sink is where package record writes Events. It reports when that fails.
type sink struct {
	record.EventSink

	problems *problemlog.Log
}

// Create implements record.EventSink.
func (s *sink) Create(event *corev1.Event) (*corev1.Event, error) {
	written, err := s.EventSink.Create(event)
	s.note(event, err)
	return written, err
}

// Patch implements record.EventSink.
func (s *sink) Patch(event *corev1.Event, data []byte) (*corev1.Event, error) {
	written, err := s.EventSink.Patch(event, data)
	if !apierrors.IsNotFound(err) { // It is an hour old, and gone: record creates it anew.
		s.note(event, err)
	}
	return written, err
}

// note reports an error, or that there is none any more. A right is one of a namespace, and an Event of another shows nothing about it.
func (s *sink) note(event *corev1.Event, err error) {
	const what = "write Events"
	here := fmt.Sprintf("%s in namespace %q", what, event.Namespace)
	if apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return // An earlier try has written it, though its answer did not arrive, or it would go with its namespace.
	}
	switch class := apierr.Classify(err).Coarse(); class { //nolint:exhaustive // the others are alike
	case apierr.None:
		s.problems.Recover(what)
		s.problems.Recover(here)
	case apierr.Forbidden:
		s.problems.Report(here, string(class), fmt.Sprintf("cannot %s: %v", here, err),
			fmt.Sprintf("allow create and patch of events in the namespace %q; decisions do not depend on Events", event.Namespace))
	default:
		s.problems.Report(what, string(class), fmt.Sprintf("cannot %s: %v", here, err),
			"Gatehouse retries for some minutes; decisions do not depend on Events")
	}
}
