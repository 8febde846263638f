package attack

import (
	"context"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	// duration is how long each attack goes on once every worker has reached the server, or has had establishing to do so.
	duration     = 3 * time.Second
	establishing = 20 * time.Second
	// maxLog bounds what an attack can have written to the log.
	maxLog = 256 << 10
)

// attack is what a client without a certificate does.
type attack struct {
	name string
	// workers run at one time. Each does one thing again and again until the context ends, at most as often as times says.
	workers, times int
	// do returns when it is done, or with the context. It counts what has reached the server. An error is no failure: the
	// server may refuse, and close connections.
	do func(ctx context.Context, t *target, reached *atomic.Int64) error
}

// run attacks for a bounded time and returns how much has reached the server.
func (a *attack) run(ctx context.Context, t *target) (reached int64, last error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var count atomic.Int64
	var mu sync.Mutex
	var workers sync.WaitGroup
	for range a.workers {
		workers.Go(func() {
			for range a.times {
				err := a.do(ctx, t, &count)
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					mu.Lock()
					last = err
					mu.Unlock()
					wait(ctx, 20*time.Millisecond) // not to use the processor for nothing else
				}
			}
		})
	}
	for began := time.Now(); count.Load() < int64(a.workers) && time.Since(began) < establishing; {
		wait(ctx, 10*time.Millisecond)
	}
	wait(ctx, duration)
	cancel()
	workers.Wait()
	return count.Load(), last
}

func wait(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// With the memory limit of the chart, each attack by a client without a certificate leaves ordinary reviews alone: none is
// refused, the server stays within its memory, says that it is ready, logs little, and drains.
func TestAttacks(t *testing.T) {
	s := newSite(t)
	idle := s.measureIdle(t)
	t.Logf("without an attack: 99%% of reviews within %s", idle.Round(100*time.Microsecond))
	for _, a := range attacks() {
		t.Run(a.name, func(t *testing.T) {
			server := s.start(t)
			callers := server.callers()
			reached, last := server.during(t, callers, func(ctx context.Context) (int64, error) { return a.run(ctx, server) })
			p99 := percentile(callers, 0.99)
			memory := server.check(t, callers)
			t.Logf("%d reached the server (last error: %v); 99%% of reviews within %s (%.1f times idle); peak memory %d MiB",
				reached, last, p99.Round(100*time.Microsecond), float64(p99)/float64(idle), memory>>20)
			if reached == 0 {
				t.Error("nothing reached the server")
			}
		})
	}
}

// measureIdle is the 99th percentile without an attack.
func (s *site) measureIdle(t *testing.T) time.Duration {
	t.Helper()
	server := s.start(t)
	callers := server.callers()
	_, _ = server.during(t, callers, func(ctx context.Context) (int64, error) {
		wait(ctx, duration)
		return 0, nil
	})
	server.check(t, callers)
	return percentile(callers, 0.99)
}

// during makes ordinary calls, and asks whether the server is ready, during an attack of a bounded duration.
func (t *target) during(tb testing.TB, callers []*caller, attack func(context.Context) (int64, error)) (reached int64, last error) {
	tb.Helper()
	ctx := tb.Context()
	done := make(chan struct{})
	var ordinary sync.WaitGroup
	for _, c := range callers {
		ordinary.Go(func() { c.run(ctx, done) })
	}
	ordinary.Go(func() {
		ticker := time.NewTicker(500 * time.Millisecond)
		defer ticker.Stop()
		for {
			asking, stop := context.WithTimeout(ctx, callTimeout)
			code, text, err := t.Get(asking, "/readyz")
			stop()
			if err != nil || code != http.StatusOK {
				tb.Errorf("/readyz: %d %q %v", code, text, err)
			}
			select {
			case <-done:
				return
			case <-ticker.C:
			}
		}
	})
	reached, last = attack(ctx)
	close(done)
	ordinary.Wait()
	return reached, last
}

// check asserts what must hold after every attack, stops the server, and returns the most memory that it had.
func (t *target) check(tb testing.TB, callers []*caller) int64 {
	tb.Helper()
	for _, c := range callers {
		for failure, n := range c.failures {
			tb.Errorf("%s: %d of %d reviews: %s", c.name, n, len(c.took), failure)
		}
	}
	select {
	case <-t.Exited():
		tb.Fatalf("the server has ended; its log ends with\n%s", t.logged(tb))
	default:
	}
	memory, err := t.PeakMemory()
	must(tb, err)
	if memory > t.memory {
		tb.Errorf("%d MiB of memory were used, the limit of the chart is %d", memory>>20, t.memory>>20)
	}
	must(tb, t.Signal(syscall.SIGTERM))
	ctx, cancel := context.WithTimeout(tb.Context(), 50*time.Second) // calls in progress may take 40
	defer cancel()
	code, err := t.Wait(ctx)
	if err != nil || code != 0 {
		tb.Errorf("SIGTERM: exit code %d, %v; its log ends with\n%s", code, err, t.logged(tb))
	}
	info, err := os.Stat(t.Log())
	must(tb, err)
	if info.Size() > maxLog {
		tb.Errorf("the log has %d KiB, want at most %d", info.Size()>>10, maxLog>>10)
	}
	return memory
}

// logged is the end of the log.
func (t *target) logged(tb testing.TB) string {
	tb.Helper()
	text, err := os.ReadFile(t.Log())
	must(tb, err)
	const most = 4 << 10
	return string(text[max(0, len(text)-most):])
}
