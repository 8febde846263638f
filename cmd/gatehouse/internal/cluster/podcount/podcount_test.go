package podcount_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/podcount"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// shipper adds a container to every pod with a label.
const shipper = `
metadata: {name: %s}
spec:
  injection: OptOut
  match: {objectSelector: {matchLabels: {app: %s}}}
  template: {spec: {containers: [{name: %s, image: 'example/shipper:%d'}]}}
`

// profiles returns two, for the applications shop and bank; the one for shop has a
// version.
func profiles(t testing.TB, version int) *sidecar.Set {
	t.Helper()
	var spec sidecar.Spec
	for _, text := range []string{fmt.Sprintf(shipper, "shop", "shop", "shipper", version), fmt.Sprintf(shipper, "bank", "bank", "auditor", 1)} {
		var p sidecar.Profile
		if err := yaml.UnmarshalStrict([]byte(text), &p.SidecarProfile); err != nil {
			t.Fatal(err)
		}
		spec.Profiles = append(spec.Profiles, p)
	}
	set, err := sidecar.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// pod returns a pod as the API server lists it. Its status annotation names the profile
// with the revision, if there is one.
func pod(namespace, app, phase, profile, revision string) map[string]any {
	annotations := map[string]string{}
	if profile != "" {
		annotations[v1alpha1.StatusAnnotation] = fmt.Sprintf(`{"profiles":[{"name":%q,"revision":%q}]}`, profile, revision)
	}
	return map[string]any{
		"metadata": map[string]any{"name": "x", "namespace": namespace, "labels": map[string]string{"app": app}, "annotations": annotations},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "app", "image": "app"}}},
		"status":   map[string]any{"phase": phase},
	}
}

// revision returns that of the profile for shop in a set, as it is put into pods.
func revision(t testing.TB, set *sidecar.Set) string {
	t.Helper()
	text, err := json.Marshal(pod("default", "shop", "", "", ""))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range set.Decide(t.Context(), sidecar.ForPod("default", text)).Verdicts {
		if v.Profile == "shop" {
			return v.Revision
		}
	}
	t.Fatal("no verdict")
	return ""
}

// server answers lists of pods, in a transport of its own, so that time can be that
// of synctest.
type server struct {
	mu   sync.Mutex
	pods []map[string]any
	// failure, if it is not nil, is the answer instead; expires is how many pages
	// are answered before a list is forgotten.
	failure *metav1.Status
	expires int
	// late is how long a page takes.
	late time.Duration
	// asked are the pages, as "limit continue".
	asked []string
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	time.Sleep(s.late)
	query := r.URL.Query()
	s.asked = append(s.asked, query.Get("limit")+" "+query.Get("continue"))
	answer := func(code int, body any) (*http.Response, error) {
		text, err := json.Marshal(body)
		return &http.Response{
			StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)), Request: r,
		}, err
	}
	if r.URL.Path != "/api/v1/pods" || r.Header.Get("Accept") != "application/json" || query.Get("fieldSelector") != "status.phase!=Succeeded,status.phase!=Failed" || query.Has("resourceVersion") {
		return answer(http.StatusBadRequest, metav1.Status{Status: metav1.StatusFailure, Message: "not as expected: " + r.URL.String()})
	}
	if s.failure != nil {
		return answer(int(s.failure.Code), s.failure)
	}
	from, _ := strconv.Atoi(strings.TrimPrefix(query.Get("continue"), "again-"))
	if s.expires > 0 && len(s.asked) > s.expires && from > 0 {
		s.expires = 0
		status := metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonExpired, Code: http.StatusGone,
		}
		status.Continue = "again-" + strconv.Itoa(from)
		return answer(http.StatusGone, status)
	}
	limit, _ := strconv.Atoi(query.Get("limit"))
	to, next := min(from+limit, len(s.pods)), ""
	if to < len(s.pods) {
		next = strconv.Itoa(to)
	}
	return answer(http.StatusOK, map[string]any{
		"kind": "PodList", "apiVersion": "v1", "metadata": map[string]any{"continue": next}, "items": s.pods[from:to],
	})
}

func client(t testing.TB, transport http.RoundTripper) rest.Interface {
	t.Helper()
	all, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: "http://api.example", QPS: -1}, &http.Client{Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return all.CoreV1().RESTClient()
}

// counter is a Counter whose changes are received.
type counter struct {
	*podcount.Counter

	changed chan struct{}
	log     bytes.Buffer
}

func newCounter(t *testing.T, transport http.RoundTripper, config podcount.Config) *counter {
	t.Helper()
	c := &counter{changed: make(chan struct{}, 10)}
	config.Client, config.Log = client(t, transport), slog.New(slog.NewTextHandler(&c.log, nil))
	config.Changed = func() { c.changed <- struct{}{} }
	if config.Left == nil {
		config.Left = func(string) bool { return false }
	}
	config.Every = cmp.Or(config.Every, time.Minute)
	c.Counter = podcount.New(config)
	return c
}

// TestCounts counts pods over several pages: what matches, what is injected and what
// is stale, and leaves out pods that have ended and namespaces that are never sent.
func TestCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set := profiles(t, 2)
		current, stale := revision(t, set), revision(t, profiles(t, 1))
		s := &server{expires: 2, pods: []map[string]any{
			pod("default", "shop", "Running", "", ""), pod("default", "shop", "Running", "shop", current),
			pod("default", "shop", "Pending", "shop", stale), pod("default", "other", "Running", "shop", stale),
			pod("default", "shop", "Succeeded", "shop", current), pod("default", "shop", "Failed", "", ""),
			pod("kube-system", "shop", "Running", "shop", stale), pod("default", "other", "Running", "", ""),
			pod("default", "other", "Running", "gone", "1"),
		}}
		c := newCounter(t, s, podcount.Config{
			Set: func() *sidecar.Set { return set }, Page: 2,
			Left: func(namespace string) bool { return namespace == "kube-system" },
		})
		if c.Counts() != nil {
			t.Error("there are counts before the first one")
		}
		ctx, stop := context.WithCancel(t.Context())
		go c.Run(ctx)
		<-c.changed
		at := metav1.NewTime(time.Now())
		got := c.Counts()
		if want := (v1alpha1.SidecarPodCounts{Matched: 3, Injected: 3, Stale: 2, CountedAt: at}); got["shop"] != want {
			t.Errorf("shop: %+v, want %+v", got["shop"], want)
		}
		if want := (v1alpha1.SidecarPodCounts{CountedAt: at}); got["bank"] != want || len(got) != 2 {
			t.Errorf("all: %+v, want bank %+v and no others", got, want)
		}
		if want := []string{"2 ", "2 2", "2 4", "2 again-4", "2 6", "2 8"}; !slices.Equal(s.asked, want) {
			t.Errorf("asked for %q, want %q", s.asked, want)
		}
		stop()
		synctest.Wait()
	})
}

// TestFailure keeps the counts while pods cannot be listed, says so once, with what
// to do, and counts again when they can.
func TestFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set := profiles(t, 1)
		s := &server{pods: []map[string]any{pod("default", "shop", "Running", "", "")}}
		c := newCounter(t, s, podcount.Config{
			Set: func() *sidecar.Set { return set },
		})
		ctx, stop := context.WithCancel(t.Context())
		go c.Run(ctx)
		<-c.changed
		for range 2 {
			s.mu.Lock()
			s.failure = &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: "pods is forbidden"}
			s.mu.Unlock()
			time.Sleep(3 * time.Minute)
			synctest.Wait()
			if got := c.Counts()["shop"].Matched; got != 1 || len(c.changed) > 0 {
				t.Errorf("%d matched, and %d changes", got, len(c.changed))
			}
			s.mu.Lock()
			s.failure, s.pods = nil, append(s.pods[:1:1], s.pods[0])
			s.mu.Unlock()
			<-c.changed
			if got := c.Counts()["shop"].Matched; got != 2 {
				t.Errorf("%d matched after it, want 2", got)
			}
			s.mu.Lock()
			s.pods = s.pods[:1]
			s.mu.Unlock()
			<-c.changed
		}
		stop()
		synctest.Wait()
		text := c.log.String()
		if strings.Count(text, "level=WARN") != 2 || strings.Count(text, "level=INFO") != 2 || !strings.Contains(text, "right to list pods") {
			t.Errorf("it logged %s", text)
		}
	})
}

// TestUntold counts a pod of which it cannot be decided what it would get only by what it
// has.
func TestUntold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		told := profiles(t, 1)
		var unknowing sidecar.Profile // asks for labels of a namespace that it does not know
		if err := yaml.UnmarshalStrict([]byte(fmt.Sprintf(shipper, "shop", "shop", "shipper", 1)), &unknowing.SidecarProfile); err != nil {
			t.Fatal(err)
		}
		unknowing.Spec.Match.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		untold, err := sidecar.Compile(sidecar.Spec{Profiles: []sidecar.Profile{unknowing}})
		if err != nil {
			t.Fatal(err)
		}
		var set atomic.Pointer[sidecar.Set]
		set.Store(untold)
		s := &server{pods: []map[string]any{
			pod("default", "shop", "Running", "", ""), pod("default", "shop", "Running", "shop", revision(t, told)),
		}}
		c := newCounter(t, s, podcount.Config{
			Set: set.Load,
		})
		ctx, stop := context.WithCancel(t.Context())
		go c.Run(ctx)
		for _, now := range []struct {
			set     *sidecar.Set
			matched int
		}{{untold, 0}, {told, 2}, {untold, 0}} {
			set.Store(now.set)
			<-c.changed
			if got := c.Counts()["shop"]; int(got.Matched) != now.matched || got.Injected != 1 {
				t.Errorf("the counts are %+v, want %d matched and 1 injected", got, now.matched)
			}
		}
		stop()
		synctest.Wait()
	})
}

// TestRests wants pages with pauses between them, so that counting takes a tenth of
// the time unless that would be long, and an end at once when the context ends in one.
func TestRests(t *testing.T) {
	t.Parallel()
	for late, each := range map[time.Duration]time.Duration{10 * time.Millisecond: 100 * time.Millisecond, time.Second: 6 * time.Second} {
		t.Run(late.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				set := profiles(t, 1)
				s := &server{late: late}
				for range 20 {
					s.pods = append(s.pods, pod("default", "shop", "Running", "", ""))
				}
				c := newCounter(t, s, podcount.Config{Set: func() *sidecar.Set { return set }, Page: 1, Every: 5 * time.Minute})
				ctx, stop := context.WithCancel(t.Context())
				start := time.Now()
				go c.Run(ctx)
				<-c.changed
				if took := time.Since(start); took != 19*each+late {
					t.Errorf("it took %s", took)
				}
				time.Sleep(5*time.Minute + 2*late) // within the first pause of the next count
				stop()
				synctest.Wait()
				if asked := len(s.asked); asked != 21 || c.log.Len() > 0 {
					t.Errorf("asked %d times, and logged %s", asked, &c.log)
				}
			})
		})
	}
}

// TestNothingToCount sends no request while there are no profiles.
func TestNothingToCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		none, err := sidecar.Compile(sidecar.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		var set atomic.Pointer[sidecar.Set]
		s := new(server)
		c := newCounter(t, s, podcount.Config{Set: set.Load})
		ctx, stop := context.WithCancel(t.Context())
		go c.Run(ctx)
		synctest.Wait()
		if c.Counts() != nil {
			t.Error("counts without a set")
		}
		set.Store(none)
		<-c.changed
		stop()
		synctest.Wait()
		if counts := c.Counts(); counts == nil || len(counts) > 0 || len(s.asked) > 0 {
			t.Errorf("counts %v, asked %q", counts, s.asked)
		}
	})
}
