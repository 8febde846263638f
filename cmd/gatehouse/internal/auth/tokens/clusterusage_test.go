package tokens

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// tokenServer is as much of an API server as tokens need. It keeps what is asked of it.
type tokenServer struct {
	mu sync.Mutex
	// uses are status.lastUsed by id, of tokens that are there with the uid "uid-ID".
	uses map[string]string
	// fail, if it is not 0, is the answer to everything, with this body.
	fail  int
	body  string
	asked []string
}

func (s *tokenServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r.Method+" "+r.URL.RequestURI()+" "+string(body))
	w.Header().Set("Content-Type", "application/json")
	if s.fail != 0 {
		w.WriteHeader(s.fail)
		_, _ = io.WriteString(w, s.body)
		return
	}
	id := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/apis/gatehouse.dev/v1alpha1/accesstokens/"), "/status")
	last, there := s.uses[id]
	if !there {
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"accesstokens.gatehouse.dev %q not found"}`, id)
		return
	}
	if r.Method == http.MethodPatch {
		var patch struct {
			Status struct{ LastUsed string }
		}
		_ = json.Unmarshal(body, &patch)
		last = patch.Status.LastUsed
		s.uses[id] = last
	}
	status := ""
	if last != "" {
		status = fmt.Sprintf(`,"status":{"lastUsed":%q}`, last)
	}
	_, _ = fmt.Fprintf(w, `{"apiVersion":"gatehouse.dev/v1alpha1","kind":"AccessToken","metadata":{"name":%q,"uid":"uid-%s"}%s}`, id, id, status)
}

// count is how many requests began so.
func (s *tokenServer) count(prefix string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, one := range s.asked {
		if strings.HasPrefix(one, prefix) {
			n++
		}
	}
	return n
}

func (s *tokenServer) used(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.uses[id]
}

func (s *tokenServer) start(t *testing.T) *rest.Config {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

// clusterToken is a token of the cluster as servers know it.
func clusterToken(id string) authn.Token {
	return authn.Token{Source: config.ClusterSource, AccessToken: v1alpha1.AccessToken{ObjectMeta: metav1.ObjectMeta{Name: id, UID: types.UID("uid-" + id)}}}
}

// lines is a log that is read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

func startUsage(t *testing.T, s *tokenServer, ids ...string) (*ClusterUsage, *lines) {
	t.Helper()
	log := &lines{}
	u, err := NewClusterUsage(s.start(t), slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	var known []authn.Token
	for _, id := range ids {
		known = append(known, clusterToken(id))
	}
	u.Know(known)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		u.Run(t.Context())
	}()
	t.Cleanup(func() { <-ended })
	return u, log
}

func comesTrue(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what + " has not come about")
		}
	}
}

func TestClusterUsageNotesOnceAnHour(t *testing.T) {
	t.Parallel()
	then := time.Now().UTC().Add(-3 * time.Hour).Truncate(time.Second)
	stamp := func(after time.Duration) string { return then.Add(after).Format(time.RFC3339) }
	s := &tokenServer{uses: map[string]string{"a": "", "b": stamp(-30 * time.Minute), "c": ""}}
	u, _ := startUsage(t, s, "a", "b")
	u.Know([]authn.Token{clusterToken("a"), clusterToken("b"), {Source: "token-f.yaml", AccessToken: v1alpha1.AccessToken{ObjectMeta: metav1.ObjectMeta{Name: "f", UID: "x"}}}})
	for _, id := range []string{"a", "b", "f", "nobody"} {
		u.Note(id, then)
	}
	comesTrue(t, "the use of a", func() bool { return s.used("a") == stamp(0) })
	comesTrue(t, "the look at b", func() bool { return s.count("GET") == 2 })
	// Within the hour nobody is asked; another replica's use counts as one.
	comesTrue(t, "b is done", func() bool {
		use := (*u.known.Load())["b"]
		return !use.waits.Load() && use.next.Load() == then.Add(30*time.Minute).Unix()
	})
	u.Note("a", then.Add(59*time.Minute))
	u.Note("b", then.Add(29*time.Minute))
	u.Note("b", then.Add(31*time.Minute))
	comesTrue(t, "the use of b", func() bool { return s.used("b") == stamp(31*time.Minute) })
	if asked := s.count(""); asked != 5 {
		t.Errorf("%d requests, want 5: %q", asked, s.asked)
	}
	if s.count("PATCH /apis/gatehouse.dev/v1alpha1/accesstokens/a/status?fieldManager=gatehouse-tokens ") != 1 {
		t.Errorf("%q", s.asked)
	}
	u.Note("a", then.Add(time.Hour))
	comesTrue(t, "the next use of a", func() bool { return s.used("a") == stamp(time.Hour) })
}

// A clock that was ahead, here or where another replica runs, keeps no use from being
// noted once it is right.
func TestClusterUsageAfterAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	stamp := func(after time.Duration) string { return now.Add(after).Format(time.RFC3339) }
	s := &tokenServer{uses: map[string]string{"a": stamp(7 * 24 * time.Hour), "b": stamp(30 * time.Minute), "c": ""}}
	u, _ := startUsage(t, s, "a", "b", "c")
	u.Note("a", now)
	comesTrue(t, "the use of a", func() bool { return s.used("a") == stamp(0) })
	// A little ahead is of the hour.
	u.Note("b", now)
	comesTrue(t, "b is done", func() bool {
		use := (*u.known.Load())["b"]
		next := use.next.Load() - now.Unix()
		return !use.waits.Load() && next >= grainSeconds && next < grainSeconds+1800
	})
	if used := s.used("b"); used != stamp(30*time.Minute) {
		t.Errorf("b was used %s", used)
	}
	(*u.known.Load())["c"].next.Store(now.Add(7 * 24 * time.Hour).Unix())
	u.Note("c", now)
	comesTrue(t, "the use of c", func() bool { return s.used("c") == stamp(0) })
}

// A use that waited for long does not take the place of a later one.
func TestClusterUsageThatWaited(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	last := now.Add(-time.Hour).Format(time.RFC3339)
	s := &tokenServer{uses: map[string]string{"a": last}}
	u, _ := startUsage(t, s, "a")
	u.Note("a", now.Add(-5*time.Hour))
	comesTrue(t, "a is done", func() bool { return !(*u.known.Load())["a"].waits.Load() })
	if used := s.used("a"); used != last {
		t.Errorf("a was used %s, want %s", used, last)
	}
}

// What was noted of a token is not written to another of its name.
func TestClusterUsageOfAnotherToken(t *testing.T) {
	t.Parallel()
	s := &tokenServer{uses: map[string]string{"a": ""}}
	u, log := startUsage(t, s)
	other := clusterToken("a")
	other.UID = "uid-of-before"
	u.Know([]authn.Token{other})
	u.Note("a", time.Now())
	comesTrue(t, "the look", func() bool { return s.count("GET") == 1 && !(*u.known.Load())["a"].waits.Load() })
	if s.count("PATCH") > 0 || log.count("WARN") > 0 {
		t.Errorf("%q", s.asked)
	}
}

func TestClusterUsageTrouble(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, body, says string
		code             int
		wait             time.Duration
	}{
		{"no right", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"User \"x\" cannot get resource"}`, "patch of accesstokens/status in gatehouse.dev", 403, usageForbidden},
		{"no definition", `404 page not found`, "gatehouse manifests --crds", 404, usageForbidden},
		{"an error", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500,"message":"no leader"}`, "no leader", 500, usageRetry},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &tokenServer{uses: map[string]string{"a": "", "b": "", "c": ""}, fail: c.code, body: c.body}
			u, log := startUsage(t, s, "a", "b", "c")
			began := time.Now()
			for _, id := range []string{"a", "b"} {
				u.Note(id, began)
			}
			comesTrue(t, "both tries", func() bool {
				known := *u.known.Load()
				return known["a"].next.Load() > 0 && known["b"].next.Load() > 0 && !known["b"].waits.Load()
			})
			if n := log.count("WARN"); n != 1 || log.count(c.says) != 1 {
				t.Errorf("%d warnings, want one with %q: %s", n, c.says, &log.text)
			}
			asked := s.count("")
			u.Note("a", began.Add(c.wait-time.Second))
			s.mu.Lock()
			s.fail = 0
			s.mu.Unlock()
			u.Note("c", began)
			comesTrue(t, "the use of c", func() bool { return s.used("c") != "" && log.count("recovered") == 1 })
			if now := s.count(""); now != asked+2 {
				t.Errorf("%d requests after %d, want two more", now, asked)
			}
			u.Note("a", began.Add(c.wait+2*time.Second))
			comesTrue(t, "the next use of a", func() bool { return s.used("a") != "" })
		})
	}
}

func TestClusterErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, body string
		code       int
		is         error
		says       string
	}{
		{"taken", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"AlreadyExists","code":409,"message":"exists"}`, 409, ErrExists, "AccessToken/a exists already"},
		{"no right", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"accesstokens is forbidden: User \"x\" cannot create resource \"accesstokens\""}`, 403, ErrForbidden, "(hint: a ClusterRole must allow create of accesstokens in gatehouse.dev)"},
		{"denied by somebody else", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"denied by\u001b[2J a policy"}`, 403, ErrRefused, "denied by[2J a policy"},
		{"invalid", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422,"message":"x","details":{"causes":[{"field":"spec.user.groups[0]","message":"\"system:masters\" is reserved"},{"field":"spec.x","message":"gatehouse_ci_aaaqeayeaudaocajbifqydiob4ibceqtcqkrmfyyxyccrrq"}]}}`, 422, ErrRefused, "cluster: AccessToken/a: spec.user.groups[0]: \"system:masters\" is reserved\ncluster: AccessToken/a: spec.x: gatehouse_…"},
		{"no definition", "404 page not found", 404, nil, "(hint: apply the definitions: gatehouse manifests --crds | kubectl apply --server-side -f -)"},
		{"no credentials", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401,"message":"Unauthorized"}`, 401, nil, "does not take the credentials"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &tokenServer{fail: c.code, body: c.body}
			client, err := dynamic.NewForConfig(s.start(t))
			if err != nil {
				t.Fatal(err)
			}
			token := clusterToken("a").AccessToken
			_, err = NewCluster(client).Create(t.Context(), &token)
			if err == nil || !strings.Contains(err.Error(), c.says) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}
