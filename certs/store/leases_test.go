package store

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/certs/internal/clock"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/test/support/certstest"
)

const leasePath = "/apis/coordination.k8s.io/v1/namespaces/system/leases/"

func leasesIn(a *certstest.APIServer, replica string, c *certstest.Clock) *Leases {
	return NewLeases(LeasesConfig{Client: a.Client(), Namespace: "system", Group: "ca", Replica: replica, LeafLife: certstest.Week, Now: c.Now})
}

func reported(replica string) *rotation.Report {
	return &rotation.Report{Replica: replica, Issuer: issuerA, SHA256: leafA, NotAfter: certstest.Noon.Add(5 * 24 * time.Hour), Version: "1.2.3"}
}

func mustReport(t testing.TB, r Replicas, replica string) {
	t.Helper()
	if err := r.Report(t.Context(), reported(replica)); err != nil {
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

func TestLeases(t *testing.T) {
	t.Parallel()
	api, c := certstest.NewAPIServer(t), certstest.NewClock()
	api.Now = c.Now
	one, two := leasesIn(api, "one", c), leasesIn(api, "two", c)
	if list := mustList(t, one); len(list) != 0 {
		t.Fatalf("got %+v without a report", list)
	}
	if err := one.Leave(t.Context()); err != nil {
		t.Fatalf("left without having reported: %v", err)
	}
	for name, r := range map[string]Replicas{"two": two, "one": one, "Three.example.org": leasesIn(api, "Three.example.org", c)} {
		mustReport(t, r, name)
	}
	want := *reported("one")
	want.Seen, want.Lease = certstest.Noon, one.name
	if list := mustList(t, two); namesOf(list) != "Three.example.org one two" || list[1] != want || !strings.HasPrefix(want.Lease, "ca-one-") {
		t.Fatalf("got %+v", list)
	}
	lease := api.Get(leasePath + one.name)
	if labels := fmt.Sprint(certstest.Meta(lease)["labels"]); labels != "map[app.kubernetes.io/managed-by:gatehouse gatehouse.dev/certificates:ca]" {
		t.Errorf("got labels %s", labels)
	}
	if spec := fmt.Sprint(lease["spec"]); spec != "map[holderIdentity:one leaseDurationSeconds:60 renewTime:2026-11-20T12:00:00.000000Z]" {
		t.Errorf("got spec %s", spec)
	}
	c.Advance(time.Hour)
	if err := two.Report(t.Context(), &rotation.Report{Replica: "two", Version: "1.2.4"}); err != nil {
		t.Fatal(err)
	}
	if got := mustList(t, two)[2]; got != (rotation.Report{Replica: "two", Version: "1.2.4", Seen: certstest.Noon.Add(time.Hour), Lease: two.name}) {
		t.Errorf("got %+v of one that serves nothing any more", got)
	}
	// A container that restarts takes over the Lease, however often.
	for range 10 {
		mustReport(t, leasesIn(api, "one", c), "one")
	}
	if names := namesOf(mustList(t, two)); names != "Three.example.org one two" || len(api.Paths()) != 3 {
		t.Errorf("got %s after restarts, in %s", names, api.Paths())
	}
	if err := one.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	if names := namesOf(mustList(t, two)); names != "Three.example.org two" {
		t.Errorf("got %s after one left", names)
	}
	if api.Requests("get")+api.Requests("update")+api.Requests("watch") > 0 {
		t.Error("asked for more rights than list, create, patch and delete")
	}
}

// Groups share a namespace and see nothing of each other.
func TestLeasesOfGroups(t *testing.T) {
	t.Parallel()
	api := certstest.NewAPIServer(t)
	long := strings.Repeat("g", 253)
	for _, group := range []string{"ca", "ca-x", long} {
		l := NewLeases(LeasesConfig{Client: api.Client(), Namespace: "system", Group: group, Replica: "one", Now: certstest.NewClock().Now})
		if err := l.Report(t.Context(), reported("one")); err != nil {
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
	if err := alive.Report(t.Context(), reported("alive")); err != nil {
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
	if err := back.Report(t.Context(), reported("back")); err != nil {
		t.Fatal(err)
	}
	c.Advance(30 * 24 * time.Hour)
	api.Set(func(verb string, _ *http.Request) (*http.Response, error) {
		if verb == "delete" {
			api.Set(nil)
			if err := back.Report(context.Background(), reported("back")); err != nil {
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

// An API server that does not answer is waited for no longer than the timeout.
func TestLeasesHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := certstest.NewAPIServer(t)
		api.Set(certstest.Hang)
		l := leasesIn(api, "one", certstest.NewClock())
		_, listed := l.List(t.Context())
		for verb, err := range map[string]error{"patch": l.Report(t.Context(), reported("one")), "list": listed, "delete": l.Leave(t.Context())} {
			if err == nil || !strings.Contains(err.Error(), "the API server did not answer in time when asked to "+verb+" it") {
				t.Errorf("%s: got %v", verb, err)
			}
		}
	})
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
		{"report", "patch", "patch", func(l *Leases) error { return l.Report(t.Context(), reported("one")) }, `Lease system/NAME: user "system:serviceaccount:system:gatehouse" may not "patch" leases` + hint},
		{"first report", "patch", "create", func(l *Leases) error { return l.Report(t.Context(), reported("one")) }, `Lease system/NAME: user "system:serviceaccount:system:gatehouse" may not "create" leases` + hint},
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

// At most 5000 Leases are read.
func TestLeasesWithoutEnd(t *testing.T) {
	t.Parallel()
	api, c := certstest.NewAPIServer(t), certstest.NewClock()
	api.Set(func(string, *http.Request) (*http.Response, error) {
		return certstest.Reply(200, map[string]any{"kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1", "metadata": map[string]any{"continue": "x"}, "items": []any{}}), nil
	})
	want := `Leases of "ca" in namespace "system": there are more than 5000, the others are ignored (hint: delete those of pods that do not exist any more: kubectl -n system get leases -l gatehouse.dev/certificates=ca)`
	if list, err := leasesIn(api, "one", c).List(t.Context()); err == nil || err.Error() != want || list != nil {
		t.Errorf("got %d reports and %v, want %s", len(list), err, want)
	}
}

var (
	issuerA = strings.Repeat("a1", 32)
	leafA   = strings.Repeat("b2", 32)
)

// at is a time that is so long after noon, as texts in reports are.
func at(d time.Duration) string { return clock.Stamp(certstest.Noon.Add(d)) }

// leaseOf returns a Lease with a report.
func leaseOf(change func(*coordinationv1.Lease)) *coordinationv1.Lease {
	renewed := metav1.NewMicroTime(certstest.Noon)
	holder := "one"
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "ca-one-0", CreationTimestamp: metav1.NewTime(certstest.Noon), Annotations: map[string]string{
			issuerAnnotation: issuerA, sha256Annotation: leafA, notAfterAnnotation: at(5 * 24 * time.Hour), versionAnnotation: "1.2.3",
		}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &renewed},
	}
	change(lease)
	return lease
}

func TestReportIsVerified(t *testing.T) {
	t.Parallel()
	set := func(key, value string) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) { l.Annotations[key] = value }
	}
	remove := func(key string) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) { delete(l.Annotations, key) }
	}
	renewed := func(at time.Time, end string) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) {
			time := metav1.NewMicroTime(at)
			l.Spec.RenewTime, l.Annotations[notAfterAnnotation] = &time, end
		}
	}
	const day = 24 * time.Hour
	for _, c := range []struct {
		name   string
		change func(*coordinationv1.Lease)
		issuer string
		// until is for how long the replica is waited for.
		until, seen time.Duration
	}{
		{"good", func(*coordinationv1.Lease) {}, issuerA, 5 * day, 0},
		{"serves nothing", set(issuerAnnotation, ""), "", -1, 0},
		{"no issuer", remove(issuerAnnotation), UnreadableIssuer, 5 * day, 0},
		{"issuer of odd length", set(issuerAnnotation, "abc"), UnreadableIssuer, 5 * day, 0},
		{"issuer in upper case", set(issuerAnnotation, strings.ToUpper(issuerA)), UnreadableIssuer, 5 * day, 0},
		{"issuer too long", set(issuerAnnotation, issuerA+"00"), UnreadableIssuer, 5 * day, 0},
		{"no end", remove(notAfterAnnotation), issuerA, certstest.Week, 0},
		{"end that is no time", set(notAfterAnnotation, "soon"), issuerA, certstest.Week, 0},
		{"end in a thousand years", set(notAfterAnnotation, "3026-11-20T12:00:00Z"), issuerA, certstest.Week, 0},
		{"ended", set(notAfterAnnotation, at(-time.Hour)), issuerA, -time.Hour, 0},
		{"away, and may still serve", func(l *coordinationv1.Lease) {
			l.CreationTimestamp = metav1.NewTime(certstest.Noon.Add(-2 * day))
			renewed(certstest.Noon.Add(-2*day), "9999-12-31T23:59:59Z")(l)
		}, issuerA, 5 * day, -2 * day},
		{"clock an hour ahead", renewed(certstest.Noon.Add(time.Hour), at(certstest.Week+time.Hour)), issuerA, certstest.Week + time.Hour, 0},
		{"clock an hour behind", renewed(certstest.Noon.Add(-time.Hour), at(certstest.Week-time.Hour)), issuerA, certstest.Week - time.Hour, -time.Hour},
		{"seen in a thousand years", renewed(certstest.Noon.AddDate(1000, 0, 0), "3026-12-20T12:00:00Z"), issuerA, certstest.Week, 0},
		{"seen long before it was written", renewed(certstest.Noon.AddDate(-1, 0, 0), at(5*day)), issuerA, 5 * day, 0},
		{"never seen", func(l *coordinationv1.Lease) { l.Spec.RenewTime = nil }, issuerA, 5 * day, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, over := reportOf(leaseOf(c.change), certstest.Noon, certstest.Week)
			if got.Issuer != c.issuer || !got.Seen.Equal(certstest.Noon.Add(c.seen)) || over {
				t.Errorf("got %+v, over: %t", got, over)
			}
			if want := certstest.Noon.Add(c.until); c.until != -1 && !got.NotAfter.Equal(want) || c.until == -1 && !got.NotAfter.IsZero() {
				t.Errorf("waited for until %s, want %s", got.NotAfter, want)
			}
		})
	}
	// Names are of other programs.
	name := "\x1b[31m" + strings.Repeat("é", 1000) + "\n"
	got, _ := reportOf(leaseOf(func(l *coordinationv1.Lease) {
		l.Spec.HolderIdentity, l.Annotations[versionAnnotation], l.Annotations[sha256Annotation] = &name, strings.Repeat("9", 1000), "no"
	}), certstest.Noon, certstest.Week)
	if want := "[31m" + strings.Repeat("é", longestName-5) + "…"; got.Replica != want || len(got.Version) > 70 || got.SHA256 != "" {
		t.Errorf("got %+v", got)
	}
}

// A report is removed a day after its replica was seen, and not before its certificate
// has ended.
func TestReportIsOver(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, c := range []struct {
		name, issuer, end string
		life, over        time.Duration
	}{
		{"serves nothing", "", "", certstest.Week, day},
		{"ends within the day", issuerA, at(time.Hour), certstest.Week, day},
		{"ends later", issuerA, at(3 * day), certstest.Week, 3 * day},
		{"never ends", issuerA, at(3000 * day), certstest.Week, certstest.Week},
		{"cannot be read", "?", "?", certstest.Week, certstest.Week},
		{"one that ends after a shorter life than usual", issuerA, at(certstest.Week), time.Hour, certstest.Week},
		{"never ends, where lives are longer", issuerA, at(3000 * day), 30 * day, 30 * day},
		{"where it is unknown how long certificates last", "?", "?", 0, longestLeafLife},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			lease := leaseOf(func(l *coordinationv1.Lease) {
				l.Annotations[issuerAnnotation], l.Annotations[notAfterAnnotation] = c.issuer, c.end
			})
			if _, over := reportOf(lease, certstest.Noon.Add(c.over), c.life); over {
				t.Error("over too soon")
			}
			if _, over := reportOf(lease, certstest.Noon.Add(c.over+time.Second), c.life); !over {
				t.Error("not over")
			}
		})
	}
}

func TestShortName(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300)
	pairs := [][2]string{
		{"ca", "gatehouse-7d9c8-x2x4k"},
		{"a", "b-c"},
		{"a-b", "c"},
		{"", ""},
		{"ca", ""},
		{"", "ca"},
		{"ca", "Host.Example.ORG"},
		{"ca", "host.example.org"},
		{"ca", "ä/../.."},
		{"-", "-"},
		{long, long},
		{long, long + "y"},
		{"ca", "a_b"},
		{"ca", "a-b"},
		{"ca", strings.Repeat("-", 200)},
	}
	seen := map[string][2]string{}
	for _, p := range pairs {
		for _, most := range []int{validation.DNS1123SubdomainMaxLength, validation.LabelValueMaxLength} {
			name := shortName(p[0], p[1], most)
			if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 || len(name) > most {
				t.Errorf("%q of %d characters: %v", name, len(name), problems)
			}
			if most != validation.LabelValueMaxLength {
				continue
			}
			if problems := validation.IsValidLabelValue(name); len(problems) > 0 {
				t.Errorf("%q: %v", name, problems)
			}
			if other, taken := seen[name]; taken {
				t.Errorf("%q is the name of %q and %q", name, p, other)
			}
			seen[name] = p
		}
	}
	if got := shortName("ca", "gatehouse-7d9c8-x2x4k", 253); !strings.HasPrefix(got, "ca-gatehouse-7d9c8-x2x4k-") {
		t.Errorf("the names are not in %q", got)
	}
}

func FuzzLease(f *testing.F) {
	f.Add("one", issuerA, leafA, at(certstest.Week), "1.2.3", certstest.Noon.Unix())
	f.Add("", "", "", "", "", int64(0))
	f.Add("\x00", "unreadable", "x", "9999-12-31T23:59:59Z", "\n", int64(1)<<40)
	f.Fuzz(func(t *testing.T, holder, issuer, sha256, notAfter, version string, renewed int64) {
		renew := metav1.NewMicroTime(time.Unix(renewed%(1<<40), 0))
		got, over := reportOf(leaseOf(func(l *coordinationv1.Lease) {
			l.Annotations = map[string]string{issuerAnnotation: issuer, sha256Annotation: sha256, notAfterAnnotation: notAfter, versionAnnotation: version}
			l.Spec = coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &renew}
		}), certstest.Noon, certstest.Week)
		switch {
		case got.Seen.After(certstest.Noon):
			t.Errorf("seen in the future: %+v", got)
		case got.NotAfter.After(certstest.Noon.Add(clockTolerance + certstest.Week)):
			t.Errorf("waited for until %s", got.NotAfter)
		case got.Issuer != "" && got.Issuer != UnreadableIssuer && !isFingerprint(got.Issuer):
			t.Errorf("issuer %q", got.Issuer)
		case len([]rune(got.Replica)) > longestName || len([]rune(got.Version)) > 64 || printable(got.Replica) != got.Replica && len([]rune(got.Replica)) <= longestName:
			t.Errorf("names %q and %q", got.Replica, got.Version)
		case over:
			t.Error("removed before it was written")
		}
	})
}
