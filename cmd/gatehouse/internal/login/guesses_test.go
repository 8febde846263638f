package login

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// clients are n addresses.
func clients(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("192.0.%d.%d", 2+i/256, i%256)
	}
	return names
}

// try makes one guess and returns how long to wait if it may not be made.
func try(g *guesses, name, client string, failed bool) time.Duration {
	end, wait := g.begin("corp", name, client, time.Now())
	if wait == 0 {
		end(time.Now(), failed)
	}
	return wait
}

// guess lets clients guess jane's password as fast as they may, for so long, and counts
// the guesses.
func guess(g *guesses, from []string, duration time.Duration) int {
	n := 0
	for end := time.Now().Add(duration); time.Now().Before(end); {
		next := time.Hour
		for _, client := range from {
			wait := try(g, "jane", client, true)
			if wait == 0 {
				n++
			}
			next = min(next, wait)
		}
		time.Sleep(next)
	}
	return n
}

// TestGuessesInADay measures how many passwords can be tried by one name in a day, and in
// the day after.
func TestGuessesInADay(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name          string
		clients       int
		known         int // how many of them somebody has logged in from
		first, second int
	}{
		{"one client", 1, 0, 185, 180},
		{"one known client", 1, 1, 185, 180},
		{"two hundred clients", 200, 0, 295, 288},
		{"two hundred clients, ten of them known", 200, 10, 2 * 295, 2 * 288},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, from := newGuesses(), clients(tc.clients)
				for _, client := range from[:tc.known] {
					g.loggedIn(client, time.Now())
				}
				for day, most := range []int{tc.first, tc.second} {
					if n := guess(g, from, 24*time.Hour); n > most || n < most-4 {
						t.Errorf("%d guesses on day %d, want %d or a little less", n, day+1, most)
					}
				}
			})
		})
	}
}

// TestTenMinutes wants fewer than ten guesses by strangers in any ten minutes,
// however they are spread: directories lock accounts.
func TestTenMinutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, from := newGuesses(), clients(100)
		for range 20 {
			if n := guess(g, from, 10*time.Minute); n > 9 {
				t.Errorf("%d guesses in ten minutes", n)
			}
			time.Sleep(7 * time.Minute)
		}
	})
}

// TestNobodyIsKeptOut has one client guess for a day, and then many: others can log in from
// addresses that nobody has seen as long as it is one, and from known ones in any case.
func TestNobodyIsKeptOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGuesses()
		try(g, "jane", "203.0.113.1", false)
		g.loggedIn("203.0.113.1", time.Now())
		guess(g, []string{"198.51.100.1"}, 24*time.Hour)
		if wait := try(g, "jane", "203.0.113.7", false); wait > 0 {
			t.Errorf("because of one client, another has to wait for %s", wait)
		}
		guess(g, clients(50), 24*time.Hour)
		for _, client := range clients(50) {
			try(g, "jane", client, true)
		}
		if wait := try(g, "jane", "203.0.113.7", false); wait == 0 {
			t.Error("many clients bring more guesses with each")
		}
		if wait := try(g, "jane", "203.0.113.1", false); wait > 0 {
			t.Errorf("a known client has to wait for %s", wait)
		}
		time.Sleep(knownFor)
		if g.isKnown("203.0.113.1", time.Now()) {
			t.Error("a client is known for ever")
		}
	})
}

// TestWhatIsCounted: what did not fail is not, what is in progress is, and what is refused
// makes no wait longer.
func TestWhatIsCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, client := newGuesses(), "192.0.2.1"
		for range 1000 {
			if try(g, "jane", client, false) > 0 {
				t.Fatal("somebody with the right password has to wait")
			}
		}
		var ends []func(time.Time, bool)
		for {
			end, wait := g.begin("corp", "jane", client, time.Now())
			if wait > 0 {
				break
			}
			ends = append(ends, end)
		}
		if len(ends) != 5 {
			t.Errorf("%d guesses at one time", len(ends))
		}
		for _, end := range ends {
			end(time.Now(), true)
		}
		wait := try(g, "jane", client, true)
		if wait != 8*time.Minute || try(g, "jane", client, true) != wait {
			t.Errorf("the wait is %s, want 8m, also after another attempt", wait)
		}
		if try(g, "joe", client, true) > 0 {
			t.Error("another name has to wait, too")
		}
		time.Sleep(wait)
		if more := try(g, "jane", client, true); more > time.Microsecond {
			t.Errorf("after the wait there is another of %s", more)
		}
	})
}

// TestManyNames bounds the guesses of one client, and of all, at names together.
func TestManyNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, n := newGuesses(), 0
		for try(g, fmt.Sprint("one", n), "192.0.2.1", true) == 0 {
			n++
		}
		if n != 30 {
			t.Errorf("one client guesses at %d names", n)
		}
		time.Sleep(time.Hour)
		n = 0
		for try(g, fmt.Sprint("all", n), fmt.Sprint("client", n), true) == 0 {
			n++
		}
		if n != 100 {
			t.Errorf("all strangers guess at %d names", n)
		}
	})
}

// TestFloodForgetsNothing: as many names as strangers can try do not drive out one
// of the first.
func TestFloodForgetsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGuesses()
		for wait := time.Duration(0); wait == 0; {
			wait = try(g, "jane", "192.0.2.1", true)
		}
		for i := range 24100 {
			g.pairs.of(i)
			g.names.of(i)
		}
		if try(g, "jane", "192.0.2.1", true) == 0 {
			t.Error("a flood makes a limit be forgotten")
		}
	})
}

// Names that directories take for one are one.
func TestFoldName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"jane doe", "JANE DOE", " Jane\t Doe ", "ｊａｎｅ　doe", "jané doe", "jane\u0301 doe", "JANÉ  DOE"} {
		if got := foldName(name); got != "jane doe" {
			t.Errorf("%q is %q", name, got)
		}
	}
	if foldName("jane") == foldName("janet") {
		t.Error("other names are one, or one is two")
	}
}
