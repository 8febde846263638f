package certs

import (
	"errors"
	"testing"
)

// A state that lasts is reported once. What happens is reported each time, and does
// not make a state that lasted news.
func TestReporter(t *testing.T) {
	t.Parallel()
	var (
		fine      = Event{Subject: SelfSignedCA}
		failed    = Event{Subject: SelfSignedCA, Reason: ReasonStoreFailed, Err: errors.New("failed")}
		refused   = Event{Subject: SelfSignedCA, Reason: ReasonStoreFailed, Err: errors.New("refused")}
		remarked  = Event{Subject: SelfSignedCA, Warnings: []string{"odd"}}
		recovered = Event{Subject: SelfSignedCA, Reason: ReasonRecovered, Message: "the CA was deleted: Gatehouse restored it from memory", Generation: 7}
		rotation  = Event{Subject: SelfSignedCA, Reason: ReasonRotation, Message: "a step", Generation: 8}
		created   = Event{Subject: SelfSignedCA, Reason: ReasonCreated, Message: "a CA was created", Generation: 1}
		replaced  = Event{Subject: SelfSignedCA, Reason: ReasonReplaced, Message: "a CA was created", Generation: 1}
	)
	cases := []struct {
		name   string
		events []Event
		want   int
	}{
		{"a state that lasts", []Event{failed, failed, failed}, 1},
		{"a state that ends and comes back", []Event{failed, fine, failed}, 3},
		{"another error", []Event{failed, refused}, 2},
		{"a remark", []Event{fine, remarked, remarked}, 2},
		{"recovered twice", []Event{recovered, recovered}, 2},
		{"rotated twice", []Event{rotation, rotation}, 2},
		{"created twice", []Event{created, created}, 2},
		{"replaced twice", []Event{replaced, replaced}, 2},
		{"recovered while a state lasts", []Event{failed, recovered, failed, recovered}, 3},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := 0
			r := Reporter{Notify: func(Event) { got++ }}
			for _, e := range c.events {
				r.Report(e)
			}
			if got != c.want {
				t.Errorf("%d events reported, want %d", got, c.want)
			}
			(&Reporter{}).Report(c.events[0]) // nobody listens
		})
	}
}
