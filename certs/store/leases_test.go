package store

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/certs/internal/certstest"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

const leasePath = "/apis/coordination.k8s.io/v1/namespaces/system/leases/"

func leasesIn(a *certstest.APIServer, replica string, c *certstest.Clock) *Leases {
	return NewLeases(LeasesConfig{Client: a.Client(), Namespace: "system", Group: "ca", Replica: replica, LeafLife: certstest.Week, Now: c.Now})
}

func reportOf(replica string) *rotation.Report {
	return &rotation.Report{Replica: replica, Issuer: issuerA, SHA256: leafA, NotAfter: certstest.Noon.Add(5 * 24 * time.Hour), Version: "1.2.3"}
}

func mustReport(t testing.TB, r Replicas, replica string) {
	t.Helper()
	if err := r.Report(t.Context(), reportOf(replica)); err != nil {
		t.Fatal(err)
	}
}

func mustList(t testing.TB, r Replicas) []rotation.Report {
	t.Helper()
	list, err := r.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func namesOf(list []rotation.Report) string {
	var names []string
	for i := range list {
		names = append(names, list[i].Replica)
	}
	return strings.Join(names, " ")
}

// testReplicas is what every Replicas that is shared has to do.
func testReplicas(t *testing.T, open func(replica string, c *certstest.Clock) Replicas) {
	t.Helper()
	c := certstest.NewClock()
	one, two := open("one", c), open("two", c)
	if list := mustList(t, one); len(list) != 0 {
		t.Fatalf("got %+v of nobody", list)
	}
	if err := one.Leave(t.Context()); err != nil {
		t.Fatalf("left without having reported: %v", err)
	}
	for name, r := range map[string]Replicas{"two": two, "one": one, "Three.example.org": open("Three.example.org", c)} {
		mustReport(t, r, name)
	}
	want := *reportOf("one")
	want.Seen = certstest.Noon
	list := mustList(t, two)
	if want.Location = list[1].Location; namesOf(list) != "Three.example.org one two" || list[1] != want || !strings.Contains(want.Location, "one-") {
		t.Fatalf("got %+v", list)
	}

	c.Advance(time.Hour)
	if err := two.Report(t.Context(), &rotation.Report{Replica: "two", Version: "1.2.4"}); err != nil {
		t.Fatal(err)
	}
	if got := mustList(t, two)[2]; got != (rotation.Report{Replica: "two", Version: "1.2.4", Seen: certstest.Noon.Add(time.Hour), Location: got.Location}) {
		t.Errorf("got %+v of one that serves nothing any more", got)
	}
	mustReport(t, one, "one")
	another := open("one", c)
	mustReport(t, another, "one")
	if names := namesOf(mustList(t, two)); names != "Three.example.org one one two" {
		t.Errorf("got %s of two processes of one name", names)
	}
	for _, left := range []string{"one two", "two"} {
		if err := one.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if names := namesOf(mustList(t, two)); names != "Three.example.org "+left {
			t.Errorf("got %s after one left", names)
		}
		one = another
	}

	var group sync.WaitGroup
	for i := range 10 {
		r := open(fmt.Sprintf("r%d", i), c)
		group.Go(func() {
			for range 3 {
				if err := r.Report(t.Context(), reportOf(fmt.Sprintf("r%d", i))); err != nil {
					t.Error(err)
				}
				if _, err := r.List(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if names := namesOf(mustList(t, two)); names != "Three.example.org r0 r1 r2 r3 r4 r5 r6 r7 r8 r9 two" {
		t.Errorf("got %s", names)
	}
}

func TestLeases(t *testing.T) {
	t.Parallel()
	api := certstest.NewAPIServer(t)
	testReplicas(t, func(replica string, c *certstest.Clock) Replicas {
		api.Mu.Lock()
		api.Now = c.Now
		api.Mu.Unlock()
		return leasesIn(api, replica, c)
	})
	if api.Requests("get")+api.Requests("update")+api.Requests("watch") > 0 {
		t.Error("asked for more rights than list, create, patch and delete")
	}
	list := mustList(t, leasesIn(api, "", certstest.NewClock()))
	lease := api.Get(leasePath + list[slices.IndexFunc(list, func(r rotation.Report) bool { return r.Replica == "r0" })].Location)
	if labels := fmt.Sprint(certstest.Meta(lease)["labels"]); labels != "map[app.kubernetes.io/managed-by:gatehouse gatehouse.dev/certificates:ca]" {
		t.Errorf("got labels %s", labels)
	}
	if spec := fmt.Sprint(lease["spec"]); spec != "map[holderIdentity:r0 leaseDurationSeconds:60 renewTime:2026-11-20T13:00:00.000000Z]" {
		t.Errorf("got spec %s", spec)
	}
}

// Groups share a namespace and see nothing of each other.
func TestLeasesOfGroups(t *testing.T) {
	t.Parallel()
	api := certstest.NewAPIServer(t)
	long := strings.Repeat("g", 253)
	for _, group := range []string{"ca", "ca-x", long} {
		l := NewLeases(LeasesConfig{Client: api.Client(), Namespace: "system", Group: group, Replica: "one", Now: certstest.NewClock().Now})
		if err := l.Report(t.Context(), reportOf("one")); err != nil {
			t.Fatal(err)
		}
		if names := namesOf(mustList(t, l)); names != "one" {
			t.Errorf("group %q has %q", group, names)
		}
	}
}

// Whatever stands in a Lease, it can be listed, and is waited for as long as a
// certificate lasts.
func TestLeasesOfOthers(t *testing.T) {
	t.Parallel()
	api, c := certstest.NewAPIServer(t), certstest.NewClock()
	label := `"labels":{"gatehouse.dev/certificates":"ca"}`
	api.Put(leasePath+"empty", `{"metadata":{`+label+`}}`)
	api.Put(leasePath+"eternal", `{"metadata":{`+label+`,"annotations":{"gatehouse.dev/issuer":"`+issuerA+`","gatehouse.dev/not-after":"9999-12-31T23:59:59Z"}},
		"spec":{"holderIdentity":"eternal","renewTime":"9999-12-31T23:59:59.000000Z"}}`)
	api.Put(leasePath+"other", `{"metadata":{"labels":{"gatehouse.dev/certificates":"another"}}}`)
	list := mustList(t, leasesIn(api, "one", c))
	if namesOf(list) != "empty eternal" {
		t.Fatalf("got %+v", list)
	}
	for _, r := range list {
		if !r.Seen.Equal(certstest.Noon) || !r.NotAfter.Equal(certstest.Noon.Add(certstest.Week)) {
			t.Errorf("%s: heard of at %s, waited for until %s", r.Replica, r.Seen, r.NotAfter)
		}
	}
}

// Leases of replicas that are gone for good go too, whoever lists, if it is a
// replica and may do so.
func TestLeasesAreTidied(t *testing.T) {
	t.Parallel()
	api, c := certstest.NewAPIServer(t), certstest.NewClock()
	alive := leasesIn(api, "alive", c)
	mustReport(t, alive, "alive")
	mustReport(t, leasesIn(api, "gone", c), "gone")
	c.Advance(5*24*time.Hour + time.Second)
	api.Mu.Lock()
	api.Now = c.Now
	api.Mu.Unlock()
	if err := alive.Report(t.Context(), reportOf("alive")); err != nil {
		t.Fatal(err)
	}
	for _, onlooker := range []bool{true, false} {
		api.Set(nil)
		who := leasesIn(api, "", c)
		if !onlooker {
			who = alive
			api.Set(certstest.Refuses(403, "no", "delete"))
		}
		if names := namesOf(mustList(t, who)); names != "alive" {
			t.Errorf("got %s", names)
		}
		if len(api.Paths()) != 2 {
			t.Errorf("removed: %s", api.Paths())
		}
	}
	api.Set(nil)
	if mustList(t, alive); len(api.Paths()) != 1 || !strings.Contains(api.Paths()[0], "alive") {
		t.Errorf("there is %s", api.Paths())
	}
}

// A replica that comes back while another one lists keeps its Lease.
func TestLeasesTidiedWhileOneComesBack(t *testing.T) {
	t.Parallel()
	api, c := certstest.NewAPIServer(t), certstest.NewClock()
	back := leasesIn(api, "back", c)
	if err := back.Report(t.Context(), reportOf("back")); err != nil {
		t.Fatal(err)
	}
	c.Advance(30 * 24 * time.Hour)
	api.Set(func(verb string, _ *http.Request) (*http.Response, error) {
		if verb == "delete" {
			api.Set(nil)
			if err := back.Report(context.Background(), reportOf("back")); err != nil {
				t.Error(err)
			}
		}
		return nil, nil
	})
	mustList(t, leasesIn(api, "one", c))
	if api.Requests("delete") != 1 || len(api.Paths()) != 1 {
		t.Errorf("%d deletions, and there is %s", api.Requests("delete"), api.Paths())
	}
}

// An API server that hangs holds nobody up.
func TestLeasesHang(t *testing.T) {
	t.Parallel()
	api := certstest.NewAPIServer(t)
	api.Set(certstest.Hang)
	l := leasesIn(api, "one", certstest.NewClock())
	l.timeout = 50 * time.Millisecond
	_, listed := l.List(t.Context())
	for verb, err := range map[string]error{"patch": l.Report(t.Context(), reportOf("one")), "list": listed, "delete": l.Leave(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), "the API server did not answer in time when asked to "+verb+" it") {
			t.Errorf("%s: got %v", verb, err)
		}
	}
}

func TestLeasesErrors(t *testing.T) {
	t.Parallel()
	forbidden := `leases is forbidden: User "system:serviceaccount:system:gatehouse" cannot %s resource "leases" in API group "coordination.k8s.io" in the namespace "system"`
	hint := ` (hint: a Role in namespace "system" must allow list, create, patch and delete of leases in coordination.k8s.io)`
	for _, c := range []struct {
		name, verb, denied string
		call               func(l *Leases) error
		want               string
	}{
		{"report", "patch", "patch", func(l *Leases) error { return l.Report(t.Context(), reportOf("one")) }, `Lease system/NAME: user "system:serviceaccount:system:gatehouse" may not "patch" leases` + hint},
		{"first report", "patch", "create", func(l *Leases) error { return l.Report(t.Context(), reportOf("one")) }, `Lease system/NAME: user "system:serviceaccount:system:gatehouse" may not "create" leases` + hint},
		{"list", "list", "list", func(l *Leases) error { _, err := l.List(t.Context()); return err }, `Leases of "ca" in namespace "system": user "system:serviceaccount:system:gatehouse" may not "list" leases` + hint},
		{"leave", "delete", "delete", func(l *Leases) error { return l.Leave(t.Context()) }, `Lease system/NAME: user "system:serviceaccount:system:gatehouse" may not "delete" leases` + hint},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			api := certstest.NewAPIServer(t)
			api.Set(certstest.Refuses(403, fmt.Sprintf(forbidden, c.denied), c.verb))
			l := leasesIn(api, "one", certstest.NewClock())
			want := strings.Replace(c.want, "NAME", l.name, 1)
			if err := c.call(l); err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
}

// A Lease's name is recognised, and is its own for every process.
func TestLeaseNames(t *testing.T) {
	t.Parallel()
	for _, names := range [][2]string{{"ca", "gatehouse-7d9c8-x2x4k"}, {strings.Repeat("g", 253), strings.Repeat("r", 253)}} {
		cfg := LeasesConfig{Group: names[0], Replica: names[1]}
		one, another := NewLeases(cfg).name, NewLeases(cfg).name
		if problems := validation.IsDNS1123Subdomain(one); len(problems) > 0 || one == another {
			t.Errorf("%q and %q: %v", one, another, problems)
		}
		if want := names[0][:2] + "-" + names[1][:2]; len(names[0]) == 2 && !strings.HasPrefix(one, want) {
			t.Errorf("nobody recognises %q", one)
		}
	}
}

// testStaleReports is what every Replicas that is shared does with the report of a process
// that was killed: its successor of the same name removes it. It removes no other.
func testStaleReports(t *testing.T, start func(t *testing.T) (open func(replica string) Replicas, age func(Replicas, time.Duration), c *certstest.Clock)) {
	t.Helper()
	for _, row := range []struct {
		name string
		// before is how long before the successor begins the other was last seen.
		before time.Duration
		other  string
		// lives reports whether the other writes once more after that, and late whether it
		// begins after the successor.
		lives, late bool
		first, last string
	}{
		{"killed a moment ago", 5 * time.Second, "one", false, false, "one one", "one"},
		{"killed in the same second", 0, "one", false, false, "one one", "one"},
		{"killed a minute ago", time.Minute, "one", false, false, "one", "one"},
		{"lives beside", 5 * time.Second, "one", true, false, "one one", "one one"},
		{"begins later and is isolated at once", 0, "one", false, true, "one one", "one one"},
		{"another name", time.Hour, "two", false, false, "one two", "one two"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			open, age, c := start(t)
			other, one := open(row.other), open("one")
			if row.late {
				mustReport(t, one, "one")
			}
			mustReport(t, other, row.other)
			age(other, row.before)
			mustReport(t, one, "one")
			if names := namesOf(mustList(t, one)); names != row.first {
				t.Errorf("got %s at the beginning", names)
			}
			if row.lives {
				c.Advance(time.Second)
				mustReport(t, other, row.other)
				age(other, 0)
			}
			for range 5 {
				c.Advance(ReportInterval)
				mustReport(t, one, "one")
			}
			if names := namesOf(mustList(t, one)); names != row.last {
				t.Errorf("got %s in the end", names)
			}
		})
	}
}

func TestLeasesOfEarlierProcesses(t *testing.T) {
	t.Parallel()
	testStaleReports(t, func(t *testing.T) (func(string) Replicas, func(Replicas, time.Duration), *certstest.Clock) {
		api, c := certstest.NewAPIServer(t), certstest.NewClock()
		api.Now = c.Now
		return func(replica string) Replicas { return leasesIn(api, replica, c) }, func(_ Replicas, d time.Duration) { c.Advance(d) }, c
	})
}

func TestLeasesThatMayNotBeRemoved(t *testing.T) {
	t.Parallel()
	api, c := certstest.NewAPIServer(t), certstest.NewClock()
	api.Now = c.Now
	api.Set(certstest.Refuses(403, "no", "delete"))
	mustReport(t, leasesIn(api, "one", c), "one")
	c.Advance(time.Minute)
	one := leasesIn(api, "one", c)
	mustReport(t, one, "one")
	if names := namesOf(mustList(t, one)); names != "one one" {
		t.Errorf("got %s", names)
	}
}

// Nobody whose clock is wrong is taken for dead.
func TestLeasesOfPredecessorsByAnotherClock(t *testing.T) {
	t.Parallel()
	api, c, behind := certstest.NewAPIServer(t), certstest.NewClock(), certstest.NewClock()
	behind.Advance(-2 * time.Hour)
	mustReport(t, leasesIn(api, "one", behind), "one")
	mustReport(t, leasesIn(api, "one", c), "one")
	if api.Requests("delete") > 0 || len(api.Paths()) != 2 {
		t.Errorf("there is %s", api.Paths())
	}
}

// A container that is killed again and again leaves no more than can have lived
// within a minute.
func TestLeasesOfACrashLoop(t *testing.T) {
	t.Parallel()
	api, c := certstest.NewAPIServer(t), certstest.NewClock()
	api.Now = c.Now
	for range 100 {
		mustReport(t, leasesIn(api, "one", c), "one")
		c.Advance(20 * time.Second)
	}
	if n := len(api.Paths()); n > 4 {
		t.Errorf("there are %d Leases", n)
	}
}

// Leases are read in pages, and not without end.
func TestLeasesInPages(t *testing.T) {
	t.Parallel()
	api, c := certstest.NewAPIServer(t), certstest.NewClock()
	put := func(from, to int) {
		for i := from; i < to; i++ {
			api.Put(fmt.Sprintf("%sx-%05d", leasePath, i), `{"metadata":{"labels":{"gatehouse.dev/certificates":"ca"}}}`)
		}
	}
	l := leasesIn(api, "one", c)
	l.timeout = time.Hour // the fake is slow with so many, and more so on a busy machine
	for _, step := range []struct{ from, to, pages int }{{0, 250, 1}, {250, 501, 3}, {501, 5000, 20}} {
		put(step.from, step.to)
		before := api.Requests("list")
		if list := mustList(t, l); len(list) != step.to || api.Requests("list")-before != step.pages {
			t.Errorf("got %d reports of %d in %d pages", len(list), step.to, api.Requests("list")-before)
		}
	}
	put(5000, 5001)
	want := `Leases of "ca" in namespace "system": there are more than 5000, the others are ignored (hint: delete those of pods that do not exist any more: kubectl -n system get leases -l gatehouse.dev/certificates=ca)`
	if list, err := l.List(t.Context()); err == nil || err.Error() != want || list != nil {
		t.Errorf("got %d reports and %v, want %s", len(list), err, want)
	}
}

// A replica that issues for an hour knows nothing of how long others do.
func TestLeasesOfALongerLife(t *testing.T) {
	t.Parallel()
	api, c := certstest.NewAPIServer(t), certstest.NewClock()
	mustReport(t, leasesIn(api, "old", c), "old")
	short := NewLeases(LeasesConfig{Client: api.Client(), Namespace: "system", Group: "ca", Replica: "new", LeafLife: time.Hour, Now: c.Now})
	if got := mustList(t, short)[0].NotAfter; !got.Equal(reportOf("old").NotAfter) {
		t.Errorf("waited for until %s", got)
	}
}
