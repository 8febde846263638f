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

// inUsageBubble runs a ClusterUsage of a cluster with tokens.
func inUsageBubble(t *testing.T, tokens []string, test func(u *usageBubble, now time.Time)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().UTC()
		client := newCluster()
		var known []authn.Token
		for _, id := range tokens {
			known = append(known, clusterToken(id))
			if err := client.Tracker().Add(newObject(t, kind, "{metadata: {name: "+id+", uid: uid-"+id+"}, status: {}}")); err != nil {
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

// asked wants a number of patches of the status so far.
func (u *usageBubble) asked(patches int) {
	u.t.Helper()
	if actions := u.client.Actions(); len(actions) != patches {
		u.t.Errorf("requests %v, want %d", actions, patches)
	}
}

func TestClusterUsageNotesOnceAnHour(t *testing.T) {
	t.Parallel()
	inUsageBubble(t, []string{"a", "b", "c"}, func(u *usageBubble, now time.Time) {
		u.Know([]authn.Token{clusterToken("a"), clusterToken("b"), {Source: "token-f.yaml", AccessToken: clusterToken("f").AccessToken}})
		for _, id := range []string{"a", "c", "f", "nobody"} {
			u.noted(id, now)
		}
		u.used("a", now)
		u.noted("a", now.Add(59*time.Minute))
		u.Know([]authn.Token{clusterToken("a")})
		u.noted("a", now.Add(59*time.Minute))
		u.asked(1)
		u.noted("a", now.Add(time.Hour))
		u.used("a", now.Add(time.Hour))
		u.asked(2)
	})
}

func TestClusterUsageFailures(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, body, says string
	}{
		{"no right", `{"reason":"Forbidden","code":403,"message":"User \"x\" cannot get resource"}`, "patch of accesstokens/status in gatehouse.dev"},
		{"no definition", `404 page not found`, "gatehouse manifests --crds"},
		{"an error", `{"reason":"InternalError","code":500,"message":"no leader"}`, "no leader"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			inUsageBubble(t, []string{"a", "b", "c"}, func(u *usageBubble, now time.Time) {
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
				u.noted("a", now.Add(usageRetry-time.Second))
				u.used("a", time.Time{})
				u.noted("c", now)
				u.used("c", now)
				if u.log.Count("recovered") != 1 {
					t.Errorf("log:\n%s", u.log)
				}
				time.Sleep(usageRetry)
				u.noted("a", time.Now())
				u.used("a", time.Now())
			})
		})
	}
}
