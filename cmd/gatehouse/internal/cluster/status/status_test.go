package status

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
	"github.com/gatehouse-dev/gatehouse/webhooks/config/resolve"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

func isStatusWrite(a *fakeapi.Request) bool {
	return a.Verb == "patch" && strings.HasSuffix(a.Resource, "/status")
}

// TestConditions has an object for each thing there is to say.
func TestConditions(t *testing.T) {
	t.Parallel()
	warning := diagnostic.List{{Severity: diagnostic.Warning, Field: "spec.rules[0]", Message: "matches nothing", Hint: "look"}}
	var long diagnostic.List
	for i := range 1000 {
		long = append(long, diagnostic.Diagnostic{Severity: diagnostic.Error, Message: fmt.Sprintf("%03d %s", i, strings.Repeat("é", 100))})
	}
	for _, tc := range []struct {
		name       string
		outcome    Outcome
		want       string
		wantEvents []string
		inMessage  string // of Compiled or Degraded
	}{
		{"fine", Outcome{Use: resolve.Current}, healthy, nil, "There are no problems."},
		{"warnings", Outcome{Use: resolve.Current, Findings: warning}, "Compiled True Warnings, Ready True InUse, Degraded True Warnings", nil, "warning: spec.rules[0]: matches nothing (hint: look)"},
		{
			"what does nothing",
			Outcome{Use: resolve.Current, Findings: diagnostic.List{{Severity: diagnostic.Warning, Source: "cluster", Field: "spec.match", Message: "matches nothing", NoEffect: true}}},
			"Compiled True Warnings, Ready False NoEffect, Degraded True Warnings", nil, "spec.match: matches nothing",
		},
		{"what has expired", Outcome{Use: resolve.Current, Expires: time.Unix(1, 0)}, "Compiled True Compiled, Ready False NoEffect, Degraded False Healthy", nil, "There are no problems."},
		{"what will expire", Outcome{Use: resolve.Current, Expires: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)}, healthy, nil, "There are no problems."},
		{
			"never used",
			Outcome{Use: resolve.Unused, Findings: diagnostic.List{{Severity: diagnostic.Error, Message: "bad"}, warning[0]}},
			"Compiled False Invalid, Ready False NotUsed, Degraded False NotUsed",
			[]string{"Warning Invalid SidecarProfile p: bad\nwarning: spec.rules[0]: matches nothing (hint: look)"},
			"bad\nwarning: spec",
		},
		{
			"not sent",
			Outcome{Use: resolve.Current, NotSent: []string{"nobody sends configmaps"}},
			"Compiled True Compiled, Ready True InUse, Degraded True NotSent",
			[]string{"Warning NotSent SidecarProfile p: nobody sends configmaps"},
			"nobody sends configmaps",
		},
		{
			"what it costs",
			Outcome{Use: resolve.Current, Warnings: []string{"it matches every resource"}},
			"Compiled True Compiled, Ready True InUse, Degraded True Warnings",
			nil, "it matches every resource",
		},
		{"very many errors", Outcome{Use: resolve.Unused, Findings: long}, "Compiled False Invalid, Ready False NotUsed, Degraded False NotUsed", nil, "\nand 991 more"},
		{
			"a token where none should be",
			Outcome{Use: resolve.Current, Findings: diagnostic.List{{Severity: diagnostic.Warning, Message: "gatehouse_ci_unq3zlo745dva5breddgfhhzitomcrrzpxtpo67a7xgobgi"}}},
			"Compiled True Warnings, Ready True InUse, Degraded True Warnings", nil, "warning: gatehouse_…",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				o := w.create("SidecarProfile", "p")
				tc.outcome.Object = o
				a := w.start(t, "a")
				a.Use(Report{Digest: "1", Outcomes: []Outcome{tc.outcome}})
				elected()
				got := w.wantStatus(t, o, "observed 1, "+tc.want)
				text := ""
				for _, c := range got.Conditions {
					if len(c.Message) > 2<<10 || c.Message == "" {
						t.Errorf("the message of %s has %d bytes", c.Type, len(c.Message))
					}
					text += c.Message + "\n"
				}
				if !strings.Contains(text, tc.inMessage) {
					t.Errorf("no %q in the messages %q", tc.inMessage, text)
				}
				if got := w.events.taken(); tc.wantEvents != nil || len(tc.outcome.Findings) < 100 && len(got) > 0 {
					wantLines(t, "Events", got, tc.wantEvents)
				}
				a.stop()
			})
		})
	}
}

// TestLeaderChanges has the leader leave and another one be killed: status goes on,
// and nothing is written or told again.
func TestLeaderChanges(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		fine, bad := w.create("AdmissionPolicy", "fine"), w.create("AdmissionPolicy", "bad")
		r := report("1", fine)
		r.Outcomes = append(r.Outcomes, invalid(bad, "bad"))
		r.Outcomes[0].NotSent = []string{"unsent"}
		var all []*process
		for _, name := range []string{"a", "b", "c"} {
			p := w.start(t, name)
			p.Use(r)
			all = append(all, p)
			elected()
		}
		if !all[0].leads() {
			t.Fatal("the first does not lead")
		}
		if n := len(w.events.taken()); n != 2 {
			t.Errorf("%d Events at first, want Invalid and NotSent", n)
		}
		began := time.Now()
		all[0].stop()
		elected()
		all[1].Use(r)
		first, second := all[1], all[2]
		if second.leads() {
			first, second = second, first
		}
		if !first.leads() || second.leads() {
			t.Fatal("nobody leads, or both do, after the leader left")
		}
		first.kill()
		elected()
		if !second.leads() {
			t.Fatal("nobody leads long after the leader was killed")
		}
		if list := w.requests(began, isStatusWrite); len(list) != 0 {
			t.Errorf("new leaders wrote what was written: %+v", list)
		}
		wantLines(t, "Events of new leaders", w.events.taken(), nil)
		// The one that was killed is waited for, and then it is not.
		fine = w.edit(fine)
		r = report("2", fine)
		r.Outcomes = append(r.Outcomes, invalid(bad, "bad"))
		second.Use(r)
		settle()
		got := w.wantStatus(t, fine, "observed 2, Compiled True Compiled, Ready Unknown WaitingForReplicas, Degraded False Healthy")
		if text := find(got.Conditions, "Ready").Message; !strings.Contains(text, `"`+first.cfg.Replica+`"`) || strings.Contains(text, `"a"`) {
			t.Errorf("Ready says %q, want only the name of the one that was killed", text)
		}
		time.Sleep(90 * time.Second)
		w.wantStatus(t, fine, "observed 2, "+healthy)
		if n := w.reports(); n != 2 {
			t.Errorf("%d reports a minute after a process was killed", n)
		}
		time.Sleep(11 * time.Minute)
		if n := w.reports(); n != 1 {
			t.Errorf("%d reports eleven minutes after a process was killed", n)
		}
		second.stop()
	})
}

// TestReplicaLags has one replica that does not follow: Ready says so of what changed,
// and nothing of what did not.
func TestReplicaLags(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		kept, edited := w.create("AccessToken", "kept"), w.create("SidecarProfile", "edited")
		a := w.start(t, "a")
		a.Use(report("1", kept, edited))
		elected()
		b := w.start(t, "b")
		b.Use(report("1", kept, edited))
		elected()
		w.wantStatus(t, edited, "observed 1, "+healthy)
		edited = w.edit(edited)
		began := time.Now()
		a.Use(report("2", kept, edited))
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if list := w.requests(began, isStatusWrite); len(list) != 0 {
			t.Errorf("replicas differ for a moment, and %d writes tell of it", len(list))
		}
		settle()
		w.wantStatus(t, edited, "observed 2, Compiled True Compiled, Ready Unknown WaitingForReplicas, Degraded False Healthy")
		w.wantStatus(t, kept, "observed 1, "+healthy)
		b.Use(report("2", kept, edited))
		settle()
		w.wantStatus(t, edited, "observed 2, "+healthy)
		if list := w.requests(began, isStatusWrite); len(list) != 2 {
			t.Errorf("%d writes, want one for waiting and one for its end: %+v", len(list), list)
		}
		b.stop()
		a.stop()
	})
}

// TestSteadyState counts the requests of an hour in which nothing happens.
func TestSteadyState(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		var objects []Object
		for _, kind := range []string{"SidecarProfile", "AdmissionPolicy", "AdmissionPolicyBinding", "PolicyException", "AccessToken", "TokenRevocation", "Grant"} {
			objects = append(objects, w.create(kind, "o"))
		}
		var all []*process
		for _, name := range []string{"a", "b", "c"} {
			p := w.start(t, name)
			p.Use(report("1", objects...))
			all = append(all, p)
			elected()
		}
		time.Sleep(time.Minute)
		began := time.Now()
		time.Sleep(time.Hour)
		if list := w.requests(began, isStatusWrite); len(list) != 0 {
			t.Errorf("%d writes of status in an hour in which nothing happened", len(list))
		}
		for _, p := range all {
			perMinute := float64(len(w.requests(began, func(a *fakeapi.Request) bool { return a.UserAgent == p.cfg.Replica }))) / 60
			t.Logf("leads: %v, requests per minute: %.1f", p.leads(), perMinute)
			most := 13.0
			if p.leads() {
				most = 32
			}
			if perMinute > most {
				t.Errorf("%.1f requests per minute, want %.0f at most", perMinute, most)
			}
			if text := p.log.String(); strings.Contains(text, "WARN") {
				t.Errorf("logged %s", text)
			}
		}
		for _, p := range all {
			p.stop()
		}
	})
}

// TestRate has 1,000 objects that all need a status.
func TestRate(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		var objects []Object
		for i := range 1000 {
			objects = append(objects, w.create("AdmissionPolicy", fmt.Sprintf("p%04d", i)))
		}
		a := w.start(t, "a")
		began := time.Now()
		a.Use(report("1", objects...))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		writes := w.requests(began, isStatusWrite)
		if len(writes) != 1000 {
			t.Fatalf("%d writes of 1,000 objects", len(writes))
		}
		for i := range writes {
			if j := i + 250; j < len(writes) && writes[j].Time.Sub(writes[i].Time) < 9*time.Second {
				t.Fatalf("250 writes within %s", writes[j].Time.Sub(writes[i].Time))
			}
		}
		t.Logf("1,000 objects in %s", writes[999].Time.Sub(writes[0].Time))
		if reads := w.requests(began, func(a *fakeapi.Request) bool { return a.Verb == "get" && a.Resource == "admissionpolicies" }); len(reads) != 0 {
			t.Errorf("%d objects were read one by one after they were listed", len(reads))
		}
		// What changes in the meantime does not wait for the others.
		for i := range objects {
			objects[i] = w.edit(objects[i])
		}
		a.Use(report("2", objects...))
		time.Sleep(5 * time.Second)
		bad := Report{Digest: "3", Outcomes: report("2", objects[1:]...).Outcomes}
		bad.Outcomes = append(bad.Outcomes, invalid(objects[0], "bad"))
		a.Use(bad)
		time.Sleep(time.Second)
		synctest.Wait()
		w.wantStatus(t, objects[0], "observed 2, Compiled False Invalid, Ready False NotUsed, Degraded False NotUsed")
		a.stop()
	})
}
