package issuers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
)

const example = "https://issuer.example.com"

// allowed is how many fetches tokens may cause in a time, at most.
func allowed(d time.Duration) int { return askBurst + int(d/askEvery) }

// The built-in key set of the API server fetches once for each.
func TestForgedKeyIDs(t *testing.T) {
	t.Run("200 at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newProvider(example, signing("a"))
			i, logged := startAt(t, p)
			keys, _ := provide(t, i, specOf(at(example)))
			unsure := 0
			for n := range 200 {
				found, err := keys.Find(t.Context(), fmt.Sprintf("forged-%d", n))
				if len(found) > 0 {
					t.Fatal("a forged key id has a key")
				}
				if err != nil {
					unsure++
				}
			}
			n := p.fetches() - 1
			if n != askBurst || unsure != 200-askBurst {
				t.Errorf("%d fetches and %d times cannot decide, want %d and %d", n, unsure, askBurst, 200-askBurst)
			}
			if !finds(t, keys, "a") {
				t.Error("the good key is gone")
			}
			if logged.Count("forged") > 0 {
				t.Error("what is in a token is in the log")
			}
		})
	})
	t.Run("a flood for an hour", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p, _, keys := started(t, "a")
			for begin := time.Now(); time.Since(begin) < time.Hour; time.Sleep(200 * time.Millisecond) {
				if found, _ := keys.Find(t.Context(), "forged"); len(found) > 0 {
					t.Fatal("a forged key id has a key")
				}
			}
			background := int(time.Hour/(refreshInterval*9/10)) + 1
			if n := p.fetches(); n > allowed(time.Hour)+background {
				t.Errorf("%d fetches in an hour, want at most %d and %d in the background", n, allowed(time.Hour), background)
			}
		})
	})
}

func TestWithdrawnKeyStopsAtTheNextRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(example, signing("old"), signing("new"))
		i, logged := startAt(t, p)
		keys, _ := provide(t, i, every(specOf(at(example)), time.Minute, time.Hour))
		p.publish(signing("new"))
		time.Sleep(50 * time.Second)
		if !finds(t, keys, "old") {
			t.Error("the key is gone before the refresh, or was fetched too often")
		}
		time.Sleep(10 * time.Second)
		before := p.fetches()
		if keyless := ids(t, keys, ""); len(keyless) != 1 || keyless[0] != "new" {
			t.Errorf("a token without key id is compared with %v", keyless)
		}
		if n := p.fetches() - before; n != 0 {
			t.Errorf("a token without key id caused %d fetches", n)
		}
		if finds(t, keys, "old") {
			t.Error("a withdrawn key is still good after the refresh")
		}
		if logged.Count("new keys of an issuer") != 2 {
			t.Errorf("log:\n%s", logged)
		}
	})
}

// A flood of forged key ids delays a new key, and by no more than the bound.
func TestNewKeyDuringAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, keys := started(t, "old")
		for range 100 {
			_, _ = keys.Find(t.Context(), "forged")
		}
		p.publish(signing("old"), signing("new"))
		cannotTell(t, keys, "new", errRefused)
		time.Sleep(askEvery)
		if !finds(t, keys, "new") {
			t.Error("the new key is not found")
		}
	})
}

func TestOutage(t *testing.T) {
	for name, outage := range map[string]http.HandlerFunc{"down": down, "hangs": hang, "broken": away} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProvider(example, signing("a"))
				i, logged := startAt(t, p)
				keys, _ := provide(t, i, every(specOf(at(example)), 5*time.Minute, 2*time.Hour))
				begin := time.Now()
				p.lie(outage)

				time.Sleep(2*time.Hour - time.Since(begin))
				if !finds(t, keys, "a") {
					t.Error("the last good key is gone before its time")
				}
				if n := value(t, i, "gatehouse_issuer_keys", example); n != 1 {
					t.Errorf("metric counts %v keys, want 1", n)
				}
				if _, err := keys.Find(t.Context(), "b"); err == nil {
					t.Error("a no, of an issuer that is away")
				}

				time.Sleep(time.Minute)
				if _, err := keys.Find(t.Context(), "a"); err == nil {
					t.Error("a key is in use that is older than maxKeyAge")
				}
				if n := value(t, i, "gatehouse_issuer_keys", example); n != 0 {
					t.Errorf("metric counts %v keys, want 0", n)
				}
				if at := value(t, i, "gatehouse_issuer_keys_fetched_timestamp_seconds", example); at != float64(begin.Unix()) {
					t.Errorf("metric says %v, want %d", at, begin.Unix())
				}

				p.lie(nil)
				time.Sleep(time.Minute)
				before := p.calls()
				if !finds(t, keys, "a") {
					t.Error("the key is not found a minute after the recovery")
				}
				if n := p.calls() - before; n != 0 {
					t.Errorf("it was found by %d calls for a token, want by those in the background", n)
				}
				for text, want := range map[string]int{"cannot fetch the keys": 2, "until 2000-01-01T02:00:00Z the last valid keys are used": 1, "tokens of this issuer are rejected": 1, "new keys of an issuer": 1, "recovered": 1} {
					if n := logged.Count(text); n != want {
						t.Errorf("%q is in the log %d times, want %d:\n%s", text, n, want, logged)
					}
				}
			})
		})
	}
}

// The first token of a start waits for the keys.
func TestTokenBeforeTheFirstFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(example, signing("a"))
		i, _ := startAt(t, p)
		g := hold(p)
		spec := specOf(at(example))
		i.Provide(spec)
		time.AfterFunc(time.Second, func() { close(g.open) })
		if !finds(t, spec.Issuers[0].Keys, "a") {
			t.Error("the key is not found")
		}
		if n := p.fetches(); n != 1 {
			t.Errorf("%d fetches, want 1", n)
		}
	})
}

// Nobody waits for the background when the issuer is back.
func TestTokenFindsARecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(example, signing("a"))
		i, _ := startAt(t, p)
		p.lie(down)
		keys, _ := provide(t, i, specOf(at(example)))
		cannotTell(t, keys, "a", errUnreachable)
		p.lie(nil)
		if !finds(t, keys, "a") {
			t.Error("the key is not found")
		}
	})
}

// The monotonic clock does not know of the time that the machine slept.
func TestAgeIsByTheWallClock(t *testing.T) {
	t.Parallel() // in a bubble, no time has a monotonic clock
	_, server := served(t, signing("a"))
	i, _ := start(t)
	before := time.Now().Round(0)
	keys, _ := provide(t, i, specOf(trusting(server)))
	if s := keys.(*issuer).state.Load(); s.fetched != s.fetched.Round(0) || s.fetched.Before(before) {
		t.Errorf("fetched at %v, want a time after %v without a monotonic clock", s.fetched, before)
	}
}

// gate lets answers out when it is opened.
type gate struct {
	*provider
	arrived atomic.Int32
	open    chan struct{}
}

// hold makes answers that are composed now leave when the gate opens.
func hold(p *provider) *gate {
	g := &gate{provider: p, open: make(chan struct{})}
	p.lie(func(w http.ResponseWriter, r *http.Request) {
		recorder := httptest.NewRecorder()
		p.answer(recorder, r)
		g.arrived.Add(1)
		select {
		case <-g.open:
		case <-r.Context().Done():
		}
		_, _ = w.Write(recorder.Body.Bytes())
	})
	return g
}

func TestConcurrentUnknownKeysShareOneFetch(t *testing.T) {
	for name, c := range map[string]struct {
		id   func(int) string
		want int
	}{
		"a new key":      {func(int) string { return "new" }, 1},
		"forged key ids": {func(n int) string { return fmt.Sprintf("forged-%d", n) }, 2}, // one for who came first, one for those who came while it was in progress
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, _, keys := started(t, "old")
				p.publish(signing("old"), signing("new"))
				g := hold(p)
				before := p.fetches()
				var found, none atomic.Int32
				var group sync.WaitGroup
				for n := range 100 {
					group.Go(func() {
						all, err := keys.Find(t.Context(), c.id(n))
						switch {
						case err != nil:
							t.Errorf("cannot decide: %v", err)
						case len(all) > 0:
							found.Add(1)
						default:
							none.Add(1)
						}
					})
				}
				synctest.Wait() // all wait for the first call of one fetch
				if n := g.arrived.Load(); n != 1 {
					t.Errorf("%d calls in progress, want 1", n)
				}
				close(g.open)
				group.Wait()
				if n := p.fetches() - before; n != c.want {
					t.Errorf("%d fetches, want %d", n, c.want)
				}
				if found.Load()+none.Load() != 100 || (c.id(0) == "new") != (found.Load() == 100) {
					t.Errorf("%d found, %d not", found.Load(), none.Load())
				}
			})
		})
	}
}

// An answer that was under way when the key was made knows nothing of it.
func TestNoIsNeverFromAnEarlierAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, keys := started(t, "old")
		g := hold(p)
		forged := make(chan error, 1)
		go func() {
			_, err := keys.Find(t.Context(), "forged")
			forged <- err
		}()
		synctest.Wait()
		g.open <- struct{}{} // discovery
		synctest.Wait()      // the answer with the old key is composed
		p.publish(signing("old"), signing("new"))
		found := make(chan []jwt.Key, 1)
		go func() {
			all, err := keys.Find(t.Context(), "new")
			if err != nil {
				t.Error(err)
			}
			found <- all
		}()
		synctest.Wait()
		close(g.open)
		if err := <-forged; err != nil {
			t.Error(err)
		}
		if len(<-found) == 0 {
			t.Error("a definite no for a key that there is")
		}
	})
}

func TestWhoLeavesDoesNotEndTheFetchOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, keys := started(t, "old")
		p.publish(signing("new"))
		g := hold(p)
		ctx, leave := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() {
			_, err := keys.Find(ctx, "new")
			first <- err
		}()
		synctest.Wait()
		second := make(chan []jwt.Key, 1)
		go func() {
			all, err := keys.Find(t.Context(), "new")
			if err != nil {
				t.Error(err)
			}
			second <- all
		}()
		synctest.Wait()
		leave()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want that of the context", err)
		}
		close(g.open)
		if len(<-second) != 1 {
			t.Error("the other does not find the key")
		}
		if n := p.fetches(); n != 2 {
			t.Errorf("%d fetches, want 3", n)
		}
	})
}

func TestWaitIsWithinTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, keys := started(t, "a")
		p.lie(hang)
		begin := time.Now()
		_, err := keys.Find(within(t, 3*time.Second), "b")
		if d := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || d != 3*time.Second {
			t.Errorf("error %v after %s, want that of the context after 3s", err, d)
		}
		if !finds(t, keys, "a") {
			t.Error("a known key waits for a fetch")
		}
	})
}

// A URL is logged, so that one with a password in it must not be asked.
func TestPasswordInURL(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"https://jane:hunter2@issuer.example.com", "http://hunter2@issuer.example.com/x", "https://jane:hun%ter2@issuer", "//hunter2@x", "jane:hunter2@x"} {
		i, logged := start(t)
		spec := specOf(at(url))
		if err := i.Provide(spec).Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if spec.Issuers[0].Keys != nil || len(i.running) > 0 || logged.String() != "" {
			t.Errorf("%q is asked; log:\n%s", url, logged)
		}
	}
}

// What is said to who holds a token is not about the operator's network.
func TestErrorsOfFindNameNoAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(example)
		i, logged := startAt(t, p)
		p.lie(down)
		keys, _ := provide(t, i, specOf(at(example)))
		_, err := keys.Find(t.Context(), "secret-of-a-token")
		if err == nil || strings.Contains(err.Error(), "example.com") {
			t.Errorf("error %v", err)
		}
		if logged.Count("issuer.example.com/.well-known") != 1 || logged.Count("status 503") != 1 || logged.Count("secret-of-a-token") != 0 {
			t.Errorf("log:\n%s", logged)
		}
	})
}
