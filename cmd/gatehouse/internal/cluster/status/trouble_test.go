package status

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
)

// TestTrouble has the API server fail for an hour. Requests have a bounded rate, one line says what to do, and
// status is written once the problem is over.
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
		// isOther reports whether objects of other kinds have their status in spite of it.
		isOther bool
	}{
		{"no right to list a kind", only("list", policies, errForbidden), []string{`cannot list admissionpolicies|the ClusterRole gatehouse-resources must allow get and list of admissionpolicies`}, true},
		{"no right to write a status", only("patch", policies+"/status", errForbidden), []string{`cannot write the status of admissionpolicies|patch of admissionpolicies/status in gatehouse.dev`}, true},
		{"a kind is not served", only("", policies, errUnserved), []string{`cannot list admissionpolicies|apply the CustomResourceDefinition admissionpolicies.gatehouse.dev`}, true},
		{"a kind without status", only("patch", policies+"/status", apierrors.NewNotFound(schema.GroupResource{Resource: policies}, "p")), []string{`has no subresource status|apply the CustomResourceDefinition admissionpolicies.gatehouse.dev`}, true},
		{"no right to list Leases", only("list", "leases", errForbidden), []string{`cannot list the Leases with label gatehouse.dev/report=gatehouse|the Role gatehouse-resources in namespace`}, false},
		{"no right to any Lease", only("", "leases", errForbidden), []string{
			`cannot write Lease gatehouse-system/gatehouse-report-a|the Role gatehouse-resources in namespace \"gatehouse-system\" must allow`,
			`cannot take part in the election by Lease gatehouse-system/gatehouse-leader|a Role in namespace \"gatehouse-system\" must allow`,
		}, false},
		{"the API server is away", only("", "", errAway), []string{`cannot write Lease|connection refused`, `cannot take part in the election|connection refused`}, false},
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
				if most := 60 * 33; asked > most {
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
					one, other, _ := strings.Cut(want, "|")
					if text := strings.Join(warnings, ""); !strings.Contains(text, one) || !strings.Contains(text, other) {
						t.Errorf("no line with %q and %q in\n%s", one, other, text)
					}
				}
				want := "observed 0, Compiled  , Ready  , Degraded  "
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
