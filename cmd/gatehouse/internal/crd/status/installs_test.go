package status

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func inNamespace(name string) func(*Config) { return func(c *Config) { c.Namespace = name } }

// TestTwoInstalls has two installs that do not agree on an object: each says so once
// and names the other, and they do not fight.
func TestTwoInstalls(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		o := w.create("AdmissionPolicy", "p")
		one, isOther := w.start(t, "a", inNamespace("one")), w.start(t, "b", inNamespace("other"))
		one.Use(report("1", o))
		elected()
		isOther.Use(Report{Digest: "1", Outcomes: []Outcome{invalid(o, Unused, "unknown field")}})
		elected()
		w.wantStatus(t, o, "observed 1, "+healthy)
		if text := isOther.log.String(); strings.Count(text, "WARN") != 1 || !strings.Contains(text, `another install of Gatehouse, namespace/name \"one/gatehouse\"`) {
			t.Errorf("the log of the second install is\n%s", text)
		}
		list := w.events.taken()
		if len(list) != 1 || !strings.HasPrefix(list[0], "Warning StatusContested AdmissionPolicy p: the status is written by \"gatehouse-status:one/gatehouse\" too") {
			t.Errorf("Events are %q", list)
		}
		began := time.Now()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		writes := w.requests(began, isStatusWrite)
		if len(writes) > 20 {
			t.Errorf("%d writes in two hours", len(writes))
		}
		stable := w.status(t, o)
		time.Sleep(time.Hour)
		synctest.Wait()
		if now := w.status(t, o); says(now) != says(stable) {
			t.Errorf("the status goes from %q to %q, and nobody changed anything", says(stable), says(now))
		}
		for _, p := range []*process{one, isOther} {
			if n := strings.Count(p.log.String(), "WARN"); n != 1 {
				t.Errorf("%d warnings in three hours:\n%s", n, p.log)
			}
		}
		one.stop()
		isOther.stop()
	})
}

// TestFormerInstall has an install that was removed, and whose status the next one
// takes over.
func TestFormerInstall(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		o := w.create("AdmissionPolicy", "p")
		former := w.start(t, "a", inNamespace("former"))
		former.Use(report("1", o))
		elected()
		former.stop()
		next := w.start(t, "b")
		next.Use(Report{Digest: "1", Outcomes: []Outcome{invalid(o, Unused, "bad")}})
		elected()
		w.wantStatus(t, o, "observed 1, "+healthy)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		w.wantStatus(t, o, "observed 1, Compiled False Invalid, Ready False NotUsed, Degraded False NotUsed")
		if text := next.log.String(); !strings.Contains(text, "takenOverFrom=gatehouse-status:former/gatehouse") {
			t.Errorf("no word on that in\n%s", text)
		}
		// From now on it is as if there had never been another one.
		o = w.edit(o)
		next.Use(report("2", o))
		settle()
		w.wantStatus(t, o, "observed 2, "+healthy)
		next.stop()
	})
}
