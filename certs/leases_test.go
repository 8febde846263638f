package certs

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

const leasePath = "/apis/coordination.k8s.io/v1/namespaces/system/leases/"

func (a *kubeAPI) leases(replica string, c *clock) *Leases {
	return NewLeases(LeasesConfig{Client: a.client(), Namespace: "system", Group: "ca", Replica: replica, LeafLife: week, Now: c.Now})
}

func reportOf(replica string) *rotation.Report {
	return &rotation.Report{Replica: replica, Issuer: issuerA, SHA256: leafA, NotAfter: noon.Add(5 * 24 * time.Hour), Version: "1.2.3"}
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
func testReplicas(t *testing.T, open func(replica string, c *clock) Replicas) {
	t.Helper()
	c := newClock()
	if list := mustList(t, open("one", c)); len(list) != 0 {
		t.Fatalf("got %+v of nobody", list)
	}
	if err := open("one", c).Leave(t.Context()); err != nil {
		t.Fatalf("left without having reported: %v", err)
	}
	two := open("two", c)
	for _, r := range []string{"two", "one", "Three.example.org"} {
		if err := open(r, c).Report(t.Context(), reportOf(r)); err != nil {
			t.Fatal(err)
		}
	}
	want := *reportOf("one")
	want.Seen = noon
	list := mustList(t, two)
	if namesOf(list) != "Three.example.org one two" || list[1] != want {
		t.Fatalf("got %+v", list)
	}

	c.advance(time.Hour)
	if err := two.Report(t.Context(), &rotation.Report{Replica: "two", Version: "1.2.4"}); err != nil {
		t.Fatal(err)
	}
	if got := mustList(t, two)[2]; got != (rotation.Report{Replica: "two", Version: "1.2.4", Seen: noon.Add(time.Hour)}) {
		t.Errorf("got %+v of one that serves nothing any more", got)
	}
	if err := open("one", c).Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	if names := namesOf(mustList(t, two)); names != "Three.example.org two" {
		t.Errorf("got %s after one left", names)
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
	api := newKubeAPI(t)
	testReplicas(t, func(replica string, c *clock) Replicas {
		api.mu.Lock()
		api.now = c.Now
		api.mu.Unlock()
		return api.leases(replica, c)
	})
	if api.requests("get")+api.requests("update")+api.requests("watch") > 0 {
		t.Error("asked for more rights than list, create, patch and delete")
	}
	lease := api.get(leasePath + shortName("ca", "r0", 253))
	if labels := fmt.Sprint(meta(lease)["labels"]); labels != "map[app.kubernetes.io/managed-by:gatehouse gatehouse.dev/certificates:ca]" {
		t.Errorf("got labels %s", labels)
	}
	if spec := fmt.Sprint(lease["spec"]); spec != "map[holderIdentity:r0 leaseDurationSeconds:60 renewTime:2026-11-20T13:00:00.000000Z]" {
		t.Errorf("got spec %s", spec)
	}
}

// Groups share a namespace and see nothing of each other.
func TestLeasesOfGroups(t *testing.T) {
	t.Parallel()
	api := newKubeAPI(t)
	long := strings.Repeat("g", 253)
	for _, group := range []string{"ca", "ca-x", long} {
		l := NewLeases(LeasesConfig{Client: api.client(), Namespace: "system", Group: group, Replica: "one", Now: newClock().Now})
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
	api, c := newKubeAPI(t), newClock()
	label := `"labels":{"gatehouse.dev/certificates":"ca"}`
	api.put(leasePath+"empty", `{"metadata":{`+label+`}}`)
	api.put(leasePath+"eternal", `{"metadata":{`+label+`,"annotations":{"gatehouse.dev/issuer":"`+issuerA+`","gatehouse.dev/not-after":"9999-12-31T23:59:59Z"}},
		"spec":{"holderIdentity":"eternal","renewTime":"9999-12-31T23:59:59.000000Z"}}`)
	api.put(leasePath+"other", `{"metadata":{"labels":{"gatehouse.dev/certificates":"another"}}}`)
	list := mustList(t, api.leases("one", c))
	if namesOf(list) != "empty eternal" {
		t.Fatalf("got %+v", list)
	}
	for _, r := range list {
		if !r.Seen.Equal(noon) || !r.NotAfter.Equal(noon.Add(week)) {
			t.Errorf("%s: heard of at %s, waited for until %s", r.Replica, r.Seen, r.NotAfter)
		}
	}
}

// Leases of replicas that are gone for good go too, whoever lists, if it is a
// replica and may do so.
func TestLeasesAreTidied(t *testing.T) {
	t.Parallel()
	api, c := newKubeAPI(t), newClock()
	for _, r := range []string{"gone", "alive"} {
		if err := api.leases(r, c).Report(t.Context(), reportOf(r)); err != nil {
			t.Fatal(err)
		}
	}
	c.advance(5*24*time.Hour + time.Second)
	alive := api.leases("alive", c)
	api.mu.Lock()
	api.now = c.Now
	api.mu.Unlock()
	if err := alive.Report(t.Context(), reportOf("alive")); err != nil {
		t.Fatal(err)
	}
	for _, onlooker := range []bool{true, false} {
		api.set(nil)
		who := api.leases("", c)
		if !onlooker {
			who = alive
			api.set(refuses("delete", 403, "Forbidden", "no"))
		}
		if names := namesOf(mustList(t, who)); names != "alive" {
			t.Errorf("got %s", names)
		}
		if len(api.paths()) != 2 {
			t.Errorf("removed: %s", api.paths())
		}
	}
	api.set(nil)
	if mustList(t, alive); len(api.paths()) != 1 || !strings.Contains(api.paths()[0], "alive") {
		t.Errorf("there is %s", api.paths())
	}
}

// A replica that comes back while another one lists keeps its Lease.
func TestLeasesTidiedWhileOneComesBack(t *testing.T) {
	t.Parallel()
	api, c := newKubeAPI(t), newClock()
	back := api.leases("back", c)
	if err := back.Report(t.Context(), reportOf("back")); err != nil {
		t.Fatal(err)
	}
	c.advance(30 * 24 * time.Hour)
	api.set(func(_ http.ResponseWriter, _ *http.Request, verb string) bool {
		if verb == "delete" {
			api.set(nil)
			if err := back.Report(context.Background(), reportOf("back")); err != nil {
				t.Error(err)
			}
		}
		return false
	})
	mustList(t, api.leases("one", c))
	if api.requests("delete") != 1 || len(api.paths()) != 1 {
		t.Errorf("%d deletions, and there is %s", api.requests("delete"), api.paths())
	}
}

// An API server that hangs holds nobody up.
func TestLeasesHang(t *testing.T) {
	t.Parallel()
	api := newKubeAPI(t)
	api.set(hang)
	l := api.leases("one", newClock())
	l.patience = 50 * time.Millisecond
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
	name := shortName("ca", "one", 253)
	for _, c := range []struct {
		name, verb, denied string
		call               func(l *Leases) error
		want               string
	}{
		{"report", "patch", "patch", func(l *Leases) error { return l.Report(t.Context(), reportOf("one")) }, `Lease system/` + name + `: user "system:serviceaccount:system:gatehouse" may not "patch" leases` + hint},
		{"first report", "patch", "create", func(l *Leases) error { return l.Report(t.Context(), reportOf("one")) }, `Lease system/` + name + `: user "system:serviceaccount:system:gatehouse" may not "create" leases` + hint},
		{"list", "list", "list", func(l *Leases) error { _, err := l.List(t.Context()); return err }, `Leases of "ca" in namespace "system": user "system:serviceaccount:system:gatehouse" may not "list" leases` + hint},
		{"leave", "delete", "delete", func(l *Leases) error { return l.Leave(t.Context()) }, `Lease system/` + name + `: user "system:serviceaccount:system:gatehouse" may not "delete" leases` + hint},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			api := newKubeAPI(t)
			api.set(refuses(c.verb, 403, "Forbidden", fmt.Sprintf(forbidden, c.denied)))
			if err := c.call(api.leases("one", newClock())); err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}
