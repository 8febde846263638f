package events_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/events"
	"github.com/gatehouse-dev/gatehouse/test/support/logbuffer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is one on a fake API server, on which reactions come first.
func recorder(ctx context.Context, react ...clienttesting.ReactionFunc) (*events.Recorder, *fake.Clientset, *logbuffer.Buffer) {
	client := fake.NewClientset()
	for _, r := range react {
		client.PrependReactor("*", "events", r)
	}
	l := &logbuffer.Buffer{}
	return events.New(ctx, events.Config{Client: client.CoreV1(), Replica: "gatehouse-0", Log: slog.New(slog.NewTextHandler(l, nil))}), client, l
}

// inBubble runs a test with a clock that jumps, and ends what it began.
func inBubble(t *testing.T, f func(t *testing.T, ctx context.Context)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		f(t, ctx)
	})
}

// written are the Events of the API server.
func written(t *testing.T, client *fake.Clientset) []corev1.Event {
	t.Helper()
	synctest.Wait()
	list, err := client.Tracker().List(corev1.SchemeGroupVersion.WithResource("events"), corev1.SchemeGroupVersion.WithKind("Event"), "")
	if err != nil {
		t.Fatal(err)
	}
	return list.(*corev1.EventList).Items
}

var (
	secret  = corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: "gatehouse-system", Name: "gatehouse-ca", UID: "u1"}
	webhook = corev1.ObjectReference{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfiguration", Name: "gatehouse", UID: "u2"}
)

// TestRecord wants what people should know to be told where they look for it, and
// nothing else.
func TestRecord(t *testing.T) {
	t.Parallel()
	failed := errors.New("the Secret is gone")
	for _, tc := range []struct {
		name  string
		event certs.Event
		// namespace is "" where there is no Event.
		namespace, kind, note string
	}{
		{"a step", certs.Event{Reason: certs.ReasonRotation, Object: secret, Message: "a new CA is published"}, "gatehouse-system", "Normal", "a new CA is published"},
		{"an object without a namespace", certs.Event{Reason: certs.ReasonWritten, Object: webhook, Message: "written"}, "default", "Normal", "written"},
		{"a repair", certs.Event{Reason: certs.ReasonRecovered, Object: secret, Message: "written again"}, "gatehouse-system", "Warning", "written again"},
		{"a store that fails", certs.Event{Reason: certs.ReasonStoreFailed, Object: secret, Err: failed}, "gatehouse-system", "Warning", "the Secret is gone"},
		{"a step that fails", certs.Event{Reason: certs.ReasonRotation, Object: secret, Message: "no step", Err: failed}, "gatehouse-system", "Warning", "no step: the Secret is gone"},
		{"several errors", certs.Event{Reason: certs.ReasonUntrusted, Object: webhook, Err: errors.Join(failed, errors.New("and\tthe other"))}, "default", "Warning", "the Secret is gone; and the other"},
		{"no reason", certs.Event{Object: secret, Message: "of no interest"}, "", "", ""},
		{"no object", certs.Event{Reason: certs.ReasonStoreFailed, Err: failed}, "", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, ctx context.Context) {
				r, client, l := recorder(ctx)
				r.Record(tc.event)
				list := written(t, client)
				if tc.namespace == "" {
					if len(list) > 0 {
						t.Errorf("there is an Event: %+v", list)
					}
					return
				}
				if len(list) != 1 {
					t.Fatalf("%d Events", len(list))
				}
				e := list[0]
				if e.Namespace != tc.namespace || e.Type != tc.kind || e.Message != tc.note || e.Reason != tc.event.Reason || e.InvolvedObject != tc.event.Object {
					t.Errorf("the Event is %+v", e)
				}
				if e.ReportingController != "gatehouse.dev/gatehouse" || e.ReportingInstance != "gatehouse-0" {
					t.Errorf("reported by %q of %q", e.ReportingInstance, e.ReportingController)
				}
				if l.String() != "" {
					t.Errorf("logged %s", l)
				}
			})
		})
	}
}

// TestNoteIsBounded has errors that are longer than an API server takes, or no text.
func TestNoteIsBounded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ text, end string }{
		"too long":            {strings.Repeat("x", 5000), "…"},
		"cut within a letter": {strings.Repeat("€", 2000), "…"},
		"no text":             {strings.Repeat("\xff", 2000), "?"},
		"lines":               {"one\ntwo\x1b[0m", "; two [0m"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, ctx context.Context) {
				r, client, _ := recorder(ctx)
				// Many that are alike are combined, by words in front of the note.
				for i := range 12 {
					r.Write(webhook, true, "Untrusted", fmt.Sprintf("%02d%s", i, tc.text))
					time.Sleep(time.Millisecond) // An Event's name has the time in it.
				}
				list := written(t, client)
				if len(list) == 0 || !strings.HasSuffix(list[0].Message, tc.end) {
					t.Fatalf("the Events are %+v", list)
				}
				for _, e := range list {
					if len(e.Message) > 1024 || !utf8.ValidString(e.Message) || strings.ContainsAny(e.Message, "\n\x1b") {
						t.Errorf("a note of %d bytes: %q", len(e.Message), e.Message)
					}
				}
			})
		})
	}
}

// TestWhatRepeatsItself has a bundle overwritten every 200 ms for 20 minutes: one
// Event counts it, the API server is not flooded, and another reason is seen all
// the same.
func TestWhatRepeatsItself(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var writes atomic.Int32
		r, client, _ := recorder(ctx, func(clienttesting.Action) (bool, runtime.Object, error) {
			writes.Add(1)
			return false, nil, nil
		})
		for range 5 * 60 * 20 {
			r.Record(certs.Event{Reason: certs.ReasonOverwritten, Object: webhook, Message: "repaired"})
			time.Sleep(200 * time.Millisecond)
		}
		list := written(t, client)
		if len(list) != 1 || list[0].Count < 5*60*18 {
			t.Errorf("%d Events, the first of which counts %d", len(list), list[0].Count)
		}
		if n := writes.Load(); n > 31 {
			t.Errorf("%d writes in 20 minutes", n)
		}
		r.Record(certs.Event{Reason: certs.ReasonUntrusted, Object: webhook, Message: "why"})
		r.Record(certs.Event{Reason: certs.ReasonRotation, Object: secret, Message: "published"})
		time.Sleep(time.Millisecond) // An Event's name has the time in it.
		r.Record(certs.Event{Reason: certs.ReasonRotation, Object: secret, Message: "held"})
		if list := written(t, client); len(list) != 4 {
			t.Errorf("%d Events, want those of the other reasons too, and one for each message", len(list))
		}
	})
}

// TestNoRight wants one line that says what to do, and Events once there is the right.
func TestNoRight(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var allowed atomic.Bool
		r, client, l := recorder(ctx, func(clienttesting.Action) (bool, runtime.Object, error) {
			if allowed.Load() {
				return false, nil, nil
			}
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("no rule allows it"))
		})
		for i := range 9 {
			r.Record(certs.Event{Reason: certs.ReasonStoreFailed, Object: secret, Err: fmt.Errorf("failure %d", i)})
			time.Sleep(time.Minute)
		}
		text := l.String()
		for _, want := range []string{"level=WARN", "no rule allows it", `allow create and patch of events in the namespace \"gatehouse-system\"`} {
			if !strings.Contains(text, want) {
				t.Errorf("no %s in %s", want, text)
			}
		}
		if n := strings.Count(text, "\n"); n != 1 {
			t.Errorf("%d lines:\n%s", n, text)
		}
		allowed.Store(true)
		time.Sleep(time.Hour)
		r.Record(certs.Event{Reason: certs.ReasonStoreFailed, Object: secret, Err: errors.New("another")})
		if list := written(t, client); len(list) != 1 || !strings.Contains(l.String(), "recovered") {
			t.Errorf("%d Events once there is the right, and the log is\n%s", len(list), l)
		}
	})
}

// TestAPIServerIsAway wants an Event to arrive when the API server is back soon,
// one line in between, and no caller to wait, however many Events there are.
func TestAPIServerIsAway(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var away atomic.Bool
		away.Store(true)
		r, client, l := recorder(ctx, func(clienttesting.Action) (bool, runtime.Object, error) {
			return away.Load(), nil, errors.New("connection refused")
		})
		began := time.Now()
		for i := range 5000 {
			r.Record(certs.Event{Reason: certs.ReasonStoreFailed, Object: secret, Err: fmt.Errorf("failure %d", i)})
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("callers waited for %s", took)
		}
		time.Sleep(30 * time.Second)
		away.Store(false)
		time.Sleep(time.Minute)
		list := written(t, client)
		if len(list) == 0 || list[0].Message != "failure 0" {
			t.Errorf("the first Event did not arrive: %d did", len(list))
		}
		if n := strings.Count(l.String(), "\n"); n != 2 || !strings.Contains(l.String(), "connection refused") {
			t.Errorf("%d lines:\n%s", n, l)
		}
	})
}

// TestEventIsGone has the API server forget an Event, as it does after an hour,
// before it happens again.
func TestEventIsGone(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, ctx context.Context) {
		r, client, l := recorder(ctx)
		again := certs.Event{Reason: certs.ReasonOverwritten, Object: webhook, Message: "repaired"}
		r.Record(again)
		for _, e := range written(t, client) {
			if err := client.CoreV1().Events(e.Namespace).Delete(ctx, e.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		r.Record(again)
		if list := written(t, client); len(list) != 1 || list[0].Count != 2 {
			t.Errorf("Events: %+v", list)
		}
		if l.String() != "" {
			t.Errorf("logged %s", l)
		}
	})
}

// TestAfterTheEnd has something happen when nobody writes any more.
func TestAfterTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r, client, l := recorder(ctx)
		cancel()
		synctest.Wait()
		r.Record(certs.Event{Reason: certs.ReasonStoreFailed, Object: secret, Err: errors.New("late")})
		if list := written(t, client); len(list) != 0 || l.String() != "" {
			t.Errorf("%d Events, logged %q", len(list), l)
		}
	})
}
