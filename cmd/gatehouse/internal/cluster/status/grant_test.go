package status

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config/resolve"
)

// TestGrant follows a Grant from before its start until it is removed: phase, condition and Events, each at its time.
func TestGrant(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		o := w.create("Grant", "g")
		prolonged := w.create("Grant", "prolonged")
		began := time.Now()
		outcome := Outcome{
			Object: o, Use: resolve.Current, Gives: "oncall to jane",
			Begins: began.Add(10*time.Minute + 1500*time.Millisecond), Expires: began.Add(20 * time.Minute), Remove: began.Add(time.Hour),
		}
		other := outcome
		other.Object = prolonged
		a := w.start(t, "a")
		a.Use(Report{Digest: "1", Outcomes: []Outcome{outcome, other}})
		at := func(after time.Duration, phase v1alpha1.GrantPhase, ready, reason string) {
			t.Helper()
			time.Sleep(time.Until(began.Add(after)))
			synctest.Wait()
			got := w.status(t, o)
			if c := find(got.Conditions, v1alpha1.ReadyCondition); got.Phase != phase || string(c.Status) != ready || c.Reason != reason {
				t.Errorf("after %s the phase is %q and Ready %s %s (%s), want %q and %s %s", after, got.Phase, c.Status, c.Reason, c.Message, phase, ready, reason)
			}
		}
		at(time.Minute, v1alpha1.GrantNotYet, "False", "NoEffect")
		at(10*time.Minute, v1alpha1.GrantNotYet, "False", "NoEffect")
		wantLines(t, "Events before it begins", w.events.taken(), nil)
		at(10*time.Minute+3*time.Second, v1alpha1.GrantActive, "True", "InUse")
		until := outcome.Expires.UTC().Format(time.RFC3339)
		wantLines(t, "Events when it begins", w.events.taken(), []string{
			"Normal GrantStarted Grant g: Gatehouse gives oncall to jane until " + until + ".",
			"Normal GrantStarted Grant prolonged: Gatehouse gives oncall to jane until " + until + ".",
		})
		at(20*time.Minute-time.Second, v1alpha1.GrantActive, "True", "InUse")
		at(20*time.Minute+2*time.Second, v1alpha1.GrantExpired, "False", "NoEffect")
		wantLines(t, "Events when it ends", w.events.taken(), []string{
			"Normal GrantEnded Grant g: Gatehouse does not give oncall to jane any more. API servers forget it when their cache of tokens ends.",
			"Normal GrantEnded Grant prolonged: Gatehouse does not give oncall to jane any more. API servers forget it when their cache of tokens ends.",
		})

		// It is removed at its time, unless somebody has changed it since it was read.
		time.Sleep(time.Until(began.Add(time.Hour - time.Second)))
		synctest.Wait()
		if w.Get(resourceFor("Grant"), "", "g") == nil {
			t.Fatal("it is removed too early")
		}
		w.refuse(func(r *fakeapi.Request) error {
			if r.Verb == "delete" && r.Name == "g" {
				return errForbidden
			}
			return nil
		})
		w.edit(prolonged)
		settle()
		if w.Get(resourceFor("Grant"), "", "prolonged") == nil {
			t.Error("a Grant that was changed is removed")
		}
		if a.log.Count("the ClusterRole gatehouse-resources must allow delete of grants in gatehouse.dev") == 0 {
			t.Errorf("the log is\n%s", a.log)
		}
		w.refuse(func(*fakeapi.Request) error { return nil })
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if w.Get(resourceFor("Grant"), "", "g") != nil {
			t.Error("it is not removed")
		}
		a.stop()
	})
}

// TestGrantWithErrors has neither a phase nor an Event about a start.
func TestGrantWithErrors(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		o := w.create("Grant", "g")
		bad := invalid(o, "nobody has verified it")
		bad.Expires = time.Now().Add(time.Hour)
		a := w.start(t, "a")
		a.Use(Report{Digest: "1", Outcomes: []Outcome{bad}})
		elected()
		if got := w.wantStatus(t, o, "observed 1, Compiled False Invalid, Ready False NotUsed, Degraded False NotUsed"); got.Phase != "" {
			t.Errorf("the phase is %q", got.Phase)
		}
		wantLines(t, "Events", w.events.taken(), []string{"Warning Invalid Grant g: spec: nobody has verified it"})
		a.stop()
	})
}
