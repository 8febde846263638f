package groups

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support/logbuffer"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/groupsource"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answering is a service that takes some time and then answers.
type answering struct {
	takes time.Duration
	// asked counts, and most is the largest number of look-ups at a time.
	asked, now, most atomic.Int64

	mu    sync.Mutex
	names []string
	err   error
}

func (a *answering) ask(ctx context.Context, _ *authn.GroupQuery, _ int) ([]string, error) {
	a.asked.Add(1)
	now := a.now.Add(1)
	defer a.now.Add(-1)
	a.mu.Lock()
	a.most.Store(max(a.most.Load(), now))
	a.mu.Unlock()
	select {
	case <-time.After(a.takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.names), a.err
}

func (a *answering) answer(err error, names ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.names, a.err = names, err
}

// testSource returns a source that asks, named corp, and what it logs.
func testSource(t *testing.T, ask backend, edit ...func(*v1alpha1.GroupSource)) (*source, *logbuffer.Buffer) {
	t.Helper()
	log := &logbuffer.Buffer{}
	g := New(slog.New(slog.NewTextHandler(log, nil)), "")
	t.Cleanup(g.Close)
	c := &v1alpha1.GroupSource{Name: "corp"}
	for _, one := range edit {
		one(c)
	}
	of := g.newSource(&config.GroupSource{Issuer: "https://issuer.example", Config: groupsource.Complete(c), Prefix: "corp:"}, ask)
	g.known = append(g.known, of)
	return of, log
}

func user(name string) *authn.GroupQuery {
	return &authn.GroupQuery{Issuer: "https://issuer.example", Subject: name, User: name}
}

// has compares the answer about jane: its groups and "stale", or the error.
func has(t *testing.T, s *source, want string) {
	t.Helper()
	got := ""
	answer, ok := s.Cached(user("jane"))
	var err error
	if !ok {
		answer, err = s.Lookup(t.Context(), user("jane"))
	}
	if got = strings.Join(answer.Groups, " "); err != nil {
		got = err.Error()
	}
	if answer.Stale {
		got += " stale"
	}
	if !strings.Contains(got, want) || want == "" && got != "" || answer.Stale != strings.Contains(want, "stale") {
		t.Errorf("after %s: %q, want %q", time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)), got, want)
	}
}

func TestLifetimes(t *testing.T) {
	t.Parallel()
	down := &outageError{cause: errors.New("refused")}
	synctest.Test(t, func(t *testing.T) {
		service := &answering{takes: 500 * time.Millisecond}
		s, _ := testSource(t, service)
		service.answer(nil, "b", "a", "a")
		has(t, s, "corp:a corp:b")
		service.answer(nil, "a")
		time.Sleep(4 * time.Minute)
		has(t, s, "corp:a corp:b")
		if n := service.asked.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		// A group that was withdrawn is gone after the first lifetime.
		time.Sleep(time.Minute)
		has(t, s, "corp:a")
		// In an outage, nobody has fewer groups before the second one has passed.
		service.answer(down)
		time.Sleep(6 * time.Minute)
		has(t, s, "corp:a stale")
		time.Sleep(50 * time.Minute)
		has(t, s, "corp:a stale")
		time.Sleep(5 * time.Minute)
		has(t, s, "refused")
		if n := testutil.ToFloat64(s.count.stale); n != 2 {
			t.Errorf("%v stale answers are counted, want 2", n)
		}
		// An answer of no use for one user is an outage for this user.
		service.answer(nil)
		time.Sleep(time.Minute)
		has(t, s, "")
		service.answer(errors.New("the answer is invalid"))
		has(t, s, "")
		time.Sleep(6 * time.Minute)
		has(t, s, " stale")
		// But not for a token that the issuer does not accept any more.
		service.answer(errNotAccepted)
		time.Sleep(time.Minute)
		has(t, s, errNotAccepted.Error())
	})
}

func TestBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := &answering{takes: time.Second}
		s, log := testSource(t, service)
		service.answer(&outageError{cause: errors.New("refused")})
		for range openAfter {
			has(t, s, "refused")
		}
		has(t, s, errOpen.Error())
		if text := log.String(); !strings.Contains(text, "does not answer") || strings.Count(text, "\n") != 1 {
			t.Errorf("the log has %s", text)
		}
		if n := testutil.CollectAndCount(s.groups); n == 0 {
			t.Error("no metrics")
		}
		if err := testutil.CollectAndCompare(s.groups, strings.NewReader(`# HELP gatehouse_group_source_open 1 while a group source is not asked because it failed again and again.
# TYPE gatehouse_group_source_open gauge
gatehouse_group_source_open{issuer="https://issuer.example",source="corp"} 1
`), "gatehouse_group_source_open"); err != nil {
			t.Error(err)
		}
		// One look-up at a time tries whether it answers again; every 30 s at most.
		asked := service.asked.Load()
		for range 60 {
			time.Sleep(10 * time.Second)
			for i := range 10 {
				go func() { _, _ = s.Lookup(context.Background(), user(fmt.Sprint("u", i))) }()
			}
			synctest.Wait()
		}
		if n := service.asked.Load() - asked; n < 14 || n > 16 {
			t.Errorf("asked %d times in ten minutes", n)
		}
		service.answer(nil, "a")
		time.Sleep(2 * time.Minute)
		has(t, s, "corp:a")
		if !strings.Contains(log.String(), "recovered") {
			t.Error("nobody is told that it answers again")
		}
		// Invalid answers, which may be about one user, do not open it.
		service.answer(errors.New("the answer is invalid"))
		for i := range 3 * openAfter {
			_, err := s.Lookup(t.Context(), user(fmt.Sprint("v", i)))
			if errors.Is(err, errOpen) {
				t.Fatal("invalid answers open the breaker")
			}
		}
	})
}

func TestLookupsAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := &answering{takes: time.Second}
		service.answer(nil, "a")
		s, _ := testSource(t, service, func(g *v1alpha1.GroupSource) { g.MaxRequests = 2 })
		var failed atomic.Int64
		ask := func(name string, n, of int) {
			for i := range n {
				go func() {
					ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
					defer cancel()
					if _, err := s.Lookup(ctx, user(fmt.Sprint(name, i%of))); err != nil {
						failed.Add(1)
					}
				}()
			}
		}
		ask("u", 100, 1)
		time.Sleep(2 * time.Second)
		if n := service.asked.Load(); n != 1 || failed.Load() > 0 {
			t.Errorf("asked %d times, %d failed", n, failed.Load())
		}
		// Users whose names look alike are several.
		before := service.asked.Load()
		for _, q := range []authn.GroupQuery{{Subject: "a", User: `"b`}, {Subject: `a"`, User: "b"}, {Subject: `a""b`}, {Subject: "a", User: "b"}} {
			go func() { _, _ = s.Lookup(context.Background(), &q) }()
		}
		time.Sleep(3 * time.Second)
		if n := service.asked.Load() - before; n != 4 {
			t.Errorf("asked %d times about four users", n)
		}
		// 32 may be in progress or wait; of these, 14 are asked in seven seconds.
		ask("v", 50, 50)
		synctest.Wait()
		if n := failed.Load(); n != 50-2*callsPerSlot {
			t.Errorf("%d failed at once", n)
		}
		time.Sleep(20 * time.Second)
		if n := service.most.Load(); n != 2 {
			t.Errorf("%d look-ups at a time", n)
		}
		if n := len(s.queue); n != 0 {
			t.Errorf("%d look-ups in progress", n)
		}
		// Who waits goes with its context; the answer is for the next.
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		if _, err := s.Lookup(ctx, user("jane")); !errors.Is(err, errTime) {
			t.Errorf("%v", err)
		}
		time.Sleep(time.Second)
		if _, ok := s.Cached(user("jane")); !ok {
			t.Error("the answer is not kept")
		}
	})
}

func TestSlowSource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := &answering{takes: time.Hour}
		s, _ := testSource(t, service, func(g *v1alpha1.GroupSource) { g.Timeout = &metav1.Duration{Duration: 2 * time.Second} })
		began := time.Now()
		has(t, s, "did not answer in time")
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("took %s", took)
		}
		for range openAfter {
			_, _ = s.Lookup(t.Context(), user("jane"))
		}
		has(t, s, errOpen.Error())
	})
}

func TestAnswersOfNoUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := &answering{}
		s, _ := testSource(t, service, func(g *v1alpha1.GroupSource) { g.MaxGroups = 3 })
		service.answer(nil, "a", "b", "c", "d")
		has(t, s, "more than 3 groups")
		service.answer(nil, "")
		if answer, err := s.Lookup(t.Context(), user("jane")); err != nil || !slices.Equal(answer.Groups, []string{""}) {
			t.Errorf("an empty name is %q, %v; the guard could not reject it", answer.Groups, err)
		}
	})
}

// TestManyLogins has 10,000 users log in within a minute, at a source that takes half a second.
func TestManyLogins(t *testing.T) {
	if testing.Short() {
		t.Skip("measures memory")
	}
	synctest.Test(t, func(t *testing.T) {
		const users = 10_000
		service := &answering{takes: 500 * time.Millisecond}
		names := make([]string, 20)
		for i := range names {
			names[i] = fmt.Sprintf("department-%02d-of-a-large-company", i)
		}
		service.answer(nil, names...)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		s, _ := testSource(t, service)
		var wg sync.WaitGroup
		var lost, peak atomic.Int64
		began := time.Now()
		for i := range users {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 7*time.Second)
				defer cancel()
				answer, err := s.Lookup(ctx, user(fmt.Sprint("user-", i)))
				if err != nil || len(answer.Groups) != 20 {
					lost.Add(1)
				}
			})
			time.Sleep(time.Minute / users)
			if i%1000 == 999 {
				runtime.GC()
				runtime.ReadMemStats(&after)
				peak.Store(max(peak.Load(), int64(after.HeapAlloc+after.StackInuse)-int64(before.HeapAlloc+before.StackInuse)))
			}
		}
		wg.Wait()
		if took := time.Since(began); took > 62*time.Second {
			t.Errorf("took %s", took)
		}
		entries, bytes := s.groups.cache.size()
		t.Logf("%d lost, at most %d at a time, %d entries of %d bytes, %d KiB more of heap and stacks", lost.Load(), service.most.Load(), entries, bytes, peak.Load()>>10)
		if lost.Load() > 0 || peak.Load() > 64<<20 || entries != users {
			t.Error("logins are lost, or they hold too much")
		}
	})
}
