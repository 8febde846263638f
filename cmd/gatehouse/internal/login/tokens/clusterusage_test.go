package tokens

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gatehouse-dev/gatehouse/test/support/logbuffer"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// usageBubble is a ClusterUsage that runs in a bubble of virtual time.
type usageBubble struct {
	*ClusterUsage

	t      *testing.T
	client *fake.FakeDynamicClient
	log    *logbuffer.Buffer
}

// inUsageBubble runs a ClusterUsage of a cluster with tokens, by id, that were last used at these times. A zero time is
// never.
func inUsageBubble(t *testing.T, tokens func(now time.Time) map[string]time.Time, test func(u *usageBubble, now time.Time)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().UTC()
		client := newCluster()
		var known []authn.Token
		for id, last := range tokens(now) {
			status := "{}"
			if !last.IsZero() {
				status = `{lastUsed: "` + last.Format(time.RFC3339) + `"}`
			}
			known = append(known, clusterToken(id))
			if err := client.Tracker().Add(newObject(t, kind, "{metadata: {name: "+id+", uid: uid-"+id+"}, status: "+status+"}")); err != nil {
				t.Fatal(err)
			}
		}
		u := &usageBubble{t: t, client: client, log: &logbuffer.Buffer{}}
		u.ClusterUsage = newClusterUsage(client, slog.New(slog.NewTextHandler(u.log, nil)))
		u.Know(known)
		go u.Run(t.Context())
		test(u, now)
	})
}

// noted notes a use and waits until nothing is left to do.
func (u *usageBubble) noted(id string, at time.Time) {
	u.Note(id, at)
	synctest.Wait()
}

// used wants the time in the status of a token; the zero time is none.
func (u *usageBubble) used(id string, want time.Time) {
	u.t.Helper()
	object, err := u.client.Tracker().Get(v1alpha1.GroupVersion.WithResource(tokenResource), "", id)
	if err != nil {
		u.t.Fatal(err)
	}
	got := time.Time{}
	if last := statusOf(object.(*unstructured.Unstructured)).LastUsed; last != nil {
		got = last.Time
	}
	if !got.Equal(want) {
		u.t.Errorf("%s was used at %v, want %v", id, got, want)
	}
}

// asked wants a number of requests so far.
func (u *usageBubble) asked(gets, patches int) {
	u.t.Helper()
	count := map[string]int{}
	for _, action := range u.client.Actions() {
		count[action.GetVerb()+" "+action.GetSubresource()]++
	}
	if count["get "] != gets || count["patch status"] != patches {
		u.t.Errorf("requests %v, want %d gets and %d patches of the status", count, gets, patches)
	}
}

func TestClusterUsageNotesOnceAnHour(t *testing.T) {
	t.Parallel()
	inUsageBubble(t, func(now time.Time) map[string]time.Time {
		return map[string]time.Time{"a": {}, "b": now.Add(-30 * time.Minute), "c": {}}
	}, func(u *usageBubble, now time.Time) {
		time.Sleep(3 * time.Hour)
		u.Know([]authn.Token{clusterToken("a"), clusterToken("b"), {Source: "token-f.yaml", AccessToken: clusterToken("f").AccessToken}})
		for _, id := range []string{"a", "b", "c", "f", "nobody"} {
			u.noted(id, now)
		}
		u.used("a", now)
		u.asked(2, 1)
		// Within the hour nobody is asked; another replica's use counts as one.
		u.noted("a", now.Add(59*time.Minute))
		u.noted("b", now.Add(29*time.Minute))
		u.asked(2, 1)
		u.noted("b", now.Add(31*time.Minute))
		u.used("b", now.Add(31*time.Minute))
		u.noted("a", now.Add(time.Hour))
		u.used("a", now.Add(time.Hour))
		u.asked(4, 3)
	})
}

// What was noted of a token is not written to another of its name.
func TestClusterUsageOfAnotherToken(t *testing.T) {
	t.Parallel()
	inUsageBubble(t, func(time.Time) map[string]time.Time { return map[string]time.Time{"a": {}} }, func(u *usageBubble, now time.Time) {
		other := clusterToken("a")
		other.UID = "uid-of-before"
		u.Know([]authn.Token{other})
		u.noted("a", now)
		u.asked(1, 0)
		if u.log.Count("WARN") > 0 {
			t.Errorf("log:\n%s", u.log)
		}
	})
}

func TestClusterUsageFailures(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, body, says string
		wait             time.Duration
	}{
		{"no right", `{"reason":"Forbidden","code":403,"message":"User \"x\" cannot get resource"}`, "patch of accesstokens/status in gatehouse.dev", usageForbidden},
		{"no definition", `404 page not found`, "gatehouse manifests --crds", usageForbidden},
		{"an error", `{"reason":"InternalError","code":500,"message":"no leader"}`, "no leader", usageRetry},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			inUsageBubble(t, func(time.Time) map[string]time.Time { return map[string]time.Time{"a": {}, "b": {}, "c": {}} }, func(u *usageBubble, now time.Time) {
				failing := true
				u.client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
					return failing, nil, statusError(t, c.body)
				})
				u.noted("a", now)
				u.noted("b", now)
				if n := u.log.Count("WARN"); n != 1 || u.log.Count(c.says) != 1 {
					t.Errorf("%d warnings, want one with %q: %s", n, c.says, u.log)
				}
				failing = false
				u.noted("a", now.Add(c.wait-time.Second))
				u.used("a", time.Time{})
				u.noted("c", now)
				u.used("c", now)
				if u.log.Count("recovered") != 1 {
					t.Errorf("log:\n%s", u.log)
				}
				time.Sleep(c.wait)
				u.noted("a", time.Now())
				u.used("a", time.Now())
			})
		})
	}
}
