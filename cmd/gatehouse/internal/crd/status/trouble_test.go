package status

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
)

// TestTrouble has the API server not do what it is asked, for an hour. Nothing ends,
// it is asked at a bounded rate, one line says what to do, and status is written once
// the trouble is over.
func TestTrouble(t *testing.T) {
	t.Parallel()
	only := func(verb, resource string, err error) func(*fakeapi.Request) error {
		return func(r *fakeapi.Request) error {
			if (verb == "" || r.Verb == verb) && (resource == "" || r.Resource == resource) {
				return err
			}
			return nil
		}
	}
	const policies = "admissionpolicies"
	for _, tc := range []struct {
		name   string
		refuse func(*fakeapi.Request) error
		// lines are of the log, each with words of one warning.
		lines []string
		// most is how many requests there may be in the hour beside those of a steady
		// state. Other is whether objects of other kinds have their status in spite of it,
		// and all whether all have.
		most         int
		isOther, all bool
	}{
		{"no right to list a kind", only("list", policies, errForbidden), []string{`cannot list admissionpolicies|a ClusterRole must allow get and list of admissionpolicies`}, 60, true, false},
		{"no right to write a status", only("patch", policies+"/status", errForbidden), []string{`cannot write the status of admissionpolicies|patch of admissionpolicies/status in gatehouse.dev`}, 150, true, false},
		{"a kind is not served", only("", policies, errUnserved), []string{`cannot list admissionpolicies|apply the CustomResourceDefinition admissionpolicies.gatehouse.dev`}, 60, true, false},
		{"a kind without status", only("patch", policies+"/status", apierrors.NewNotFound(schema.GroupResource{Resource: policies}, "p")), []string{`has no subresource status|apply the CustomResourceDefinition admissionpolicies.gatehouse.dev`}, 300, true, false},
		{"a kind of another version", only("patch", policies+"/status", apierrors.NewInvalid(schema.GroupKind{}, "p", field.ErrorList{field.Invalid(nil, "x", "unknown field")})), []string{`unknown field|may be of another version`}, 150, true, false},
		{"errors for every write", only("patch", policies+"/status", errBroken), []string{`etcdserver: no leader|tried again`}, 700, true, false},
		{"no right to any Lease", only("", "leases", errForbidden), []string{
			`cannot write Lease gatehouse-system/gatehouse-report-a-|a Role in namespace \"gatehouse-system\" must allow`,
			`cannot get Lease gatehouse-system/gatehouse-status|a Role in namespace \"gatehouse-system\" must allow`,
		}, 0, false, false},
		{"no right to list Leases", only("list", "leases", errForbidden), []string{`cannot follow the Leases with label gatehouse.dev/report=gatehouse|a Role in namespace`}, 60, false, false},
		{"no right to watch Leases", only("watch", "leases", errForbidden), []string{`cannot follow the Leases|a Role in namespace`}, 120, true, true},
		{"no right to write the Lease of the election", only("create", "leases", errForbidden), []string{`cannot create Lease gatehouse-system/gatehouse-status|a Role in namespace`}, 0, false, false},
		{"errors for everything", only("", "", errBroken), []string{`cannot write Lease|no leader`, `cannot get Lease|no leader`}, 900, false, false},
		{"the API server is away", only("", "", errAway), []string{`cannot write Lease|connection refused`, `cannot get Lease|connection refused`}, 900, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				policy, token := w.create("AdmissionPolicy", "p"), w.create("AccessToken", "t")
				w.refuse(tc.refuse)
				a := w.start(t, "a")
				began := time.Now()
				a.Use(report("1", policy, token))
				time.Sleep(time.Hour)
				synctest.Wait()
				asked := len(w.requests(began, func(*fakeapi.Request) bool { return true }))
				t.Logf("%d requests in the hour", asked)
				if most := 60*19 + tc.most; asked > most {
					t.Errorf("%d requests in an hour, want %d at most", asked, most)
				}
				var warnings []string
				for line := range strings.Lines(a.log.String()) {
					if strings.Contains(line, "WARN") {
						warnings = append(warnings, line)
					}
				}
				if len(warnings) != len(tc.lines) {
					t.Errorf("%d warnings, want %d:\n%s", len(warnings), len(tc.lines), strings.Join(warnings, ""))
				}
				for _, want := range tc.lines {
					one, isOther, _ := strings.Cut(want, "|")
					if text := strings.Join(warnings, ""); !strings.Contains(text, one) || !strings.Contains(text, isOther) {
						t.Errorf("no line with %q and %q in\n%s", one, isOther, text)
					}
				}
				want := "observed 0, Compiled  , Ready  , Degraded  "
				if tc.all {
					want = "observed 1, " + healthy
				}
				w.wantStatus(t, policy, want)
				if tc.isOther {
					want = "observed 1, " + healthy
				}
				w.wantStatus(t, token, want)
				w.Update(func() { w.Intercept = nil })
				time.Sleep(3 * time.Minute)
				synctest.Wait()
				w.wantStatus(t, policy, "observed 1, "+healthy)
				w.wantStatus(t, token, "observed 1, "+healthy)
				if text := a.log.String(); !strings.Contains(text, "recovered") {
					t.Errorf("no word on the end of the trouble in\n%s", text)
				}
				a.stop()
			})
		})
	}
}

// TestAwayForAWhile cuts off the leader and then everybody, and has everything as it
// was afterwards, without a write.
func TestAwayForAWhile(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		policy := w.create("AdmissionPolicy", "p")
		a, b := w.start(t, "a"), w.start(t, "b")
		a.Use(report("1", policy))
		elected()
		b.Use(report("1", policy))
		elected()
		if !a.leads(t) {
			t.Fatal("a does not lead")
		}
		began := time.Now()
		w.refuse(func(r *fakeapi.Request) error {
			if r.UserAgent == "a" {
				return errAway
			}
			return nil
		})
		elected()
		if a.leads(t) || !b.leads(t) {
			t.Errorf("a was cut off for long enough: a leads: %v, b leads: %v", a.leads(t), b.leads(t))
		}
		w.refuse(func(*fakeapi.Request) error { return errAway })
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if a.leads(t) || b.leads(t) {
			t.Error("somebody leads whom nobody elected")
		}
		policy = w.edit(policy)
		b.Use(report("2", policy))
		a.Use(report("2", policy))
		w.Update(func() { w.Intercept = nil })
		time.Sleep(time.Minute)
		w.wantStatus(t, policy, "observed 2, "+healthy)
		if a.leads(t) == b.leads(t) {
			t.Errorf("a leads: %v, b leads: %v", a.leads(t), b.leads(t))
		}
		// One more if the report of one replica comes late.
		if list := w.requests(began, isStatusWrite); len(list) < 1 || len(list) > 2 {
			t.Errorf("%d writes: %+v", len(list), list)
		}
		a.stop()
		b.stop()
	})
}

// TestSlow has an API server that takes four seconds for every answer.
func TestSlow(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		policy := w.create("AdmissionPolicy", "p")
		w.Delay = 4 * time.Second
		a := w.start(t, "a")
		a.Use(report("1", policy))
		time.Sleep(time.Minute)
		synctest.Wait()
		w.wantStatus(t, policy, "observed 1, "+healthy)
		a.stop()
	})
}

// TestConflict has objects change at the worst moment.
func TestConflict(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		// between happens between the reading of the object and the first write.
		between func(w *world, o Object)
		want    string
		writes  int
	}{
		{"somebody writes something else", func(w *world, _ Object) {
			object := w.Get(resourceFor("AccessToken"), "", "t")
			object.SetLabels(map[string]string{"x": "y"})
			w.Put(object.Object)
		}, "observed 1, " + healthy, 2},
		{"it is edited", func(w *world, o Object) { w.edit(o) }, "observed 0, Compiled  , Ready  , Degraded  ", 1},
		{"it is made anew", func(w *world, o Object) {
			w.delete(o)
			w.create("AccessToken", "t")
		}, "observed 0, Compiled  , Ready  , Degraded  ", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				o := w.create("AccessToken", "t")
				done := false
				w.BeforeStatus = func() {
					if !done {
						done = true
						tc.between(w, o)
					}
				}
				a := w.start(t, "a")
				began := time.Now()
				a.Use(report("1", o))
				elected()
				w.wantStatus(t, o, tc.want)
				if n := len(w.requests(began, isStatusWrite)); n != tc.writes {
					t.Errorf("%d writes, want %d", n, tc.writes)
				}
				a.stop()
			})
		})
	}
}

// TestObjectsComeAndGo has objects that are not what was reported of them.
func TestObjectsComeAndGo(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		kept, gone := w.create("AccessToken", "kept"), w.create("AccessToken", "gone")
		w.delete(gone)
		a := w.start(t, "a")
		a.Use(report("1", kept, gone))
		elected()
		began := time.Now()
		time.Sleep(5 * time.Minute)
		if list := w.requests(began, func(a *fakeapi.Request) bool { return a.Resource != "leases" }); len(list) != 0 {
			t.Errorf("one that is gone is asked for again and again: %+v", list)
		}
		again, later := w.create("AccessToken", "gone"), w.create("AccessToken", "later")
		a.Use(report("2", kept, again, later))
		settle()
		for _, o := range []Object{kept, again, later} {
			w.wantStatus(t, o, "observed 1, "+healthy)
		}
		newer := w.edit(kept)
		began = time.Now()
		a.Use(report("3", kept, again, later))
		settle()
		if list := w.requests(began, isStatusWrite); len(list) != 0 {
			t.Errorf("of an object that is newer than the report: %+v", list)
		}
		a.Use(report("4", newer, again, later))
		settle()
		w.wantStatus(t, newer, "observed 2, "+healthy)
		a.stop()
	})
}
