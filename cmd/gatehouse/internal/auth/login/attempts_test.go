package login_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/auth/login"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

const victim = "corp/uid=jane,ou=people"

func newAttempts() *login.Attempts { return login.NewAttempts(time.Now) }

// try makes one attempt by one name of an account and returns how long to wait if it
// may not be made.
func try(a *login.Attempts, account, client string, outcome authn.Outcome) time.Duration {
	return tryAs(a, account, account, client, outcome)
}

// tryAs is try with a name that is typed.
func tryAs(a *login.Attempts, name, account, client string, outcome authn.Outcome) time.Duration {
	endName, wait := a.BeginName("corp", name, client)
	if wait > 0 {
		return wait
	}
	end, wait := a.Begin(account, client)
	if wait > 0 {
		endName(authn.No)
		return wait
	}
	end(outcome)
	endName(outcome)
	return 0
}

// clients are n addresses.
func clients(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("192.0.%d.%d", 2+i/256, i%256)
	}
	return names
}

// guess lets clients guess the victim's password as fast as they may, for so long,
// and counts the guesses.
func guess(a *login.Attempts, from []string, duration time.Duration) int {
	guesses := 0
	for end := time.Now().Add(duration); time.Now().Before(end); {
		next := time.Hour
		for _, client := range from {
			wait := try(a, victim, client, authn.No)
			if wait == 0 {
				guesses++
			}
			next = min(next, wait)
		}
		time.Sleep(next)
	}
	return guesses
}

// TestGuessesInADay measures how many passwords of one account can be tried in a
// day, and in the day after.
func TestGuessesInADay(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name          string
		clients       int
		familiar      int // how many of them have logged in before
		first, second int // the most guesses in the first and in the second day
	}{
		{"one client", 1, 0, 187, 180},
		{"one familiar client", 1, 1, 187, 180},
		{"a thousand clients", 1000, 0, 295, 288},
		{"a thousand clients and two familiar ones", 1002, 2, 295 + 2*187, 288 + 2*180},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, from := newAttempts(), clients(tc.clients)
				for _, client := range from[:tc.familiar] {
					try(a, victim, client, authn.Yes)
				}
				for day, most := range []int{tc.first, tc.second} {
					if n := guess(a, from, 24*time.Hour); n > most || n < most-3 {
						t.Errorf("%d guesses on day %d, want %d or a little less", n, day+1, most)
					}
				}
			})
		})
	}
}

// TestToStopDoesNotHelp measures the guesses of a client that stops for as long as
// it takes to be forgotten.
func TestToStopDoesNotHelp(t *testing.T) {
	t.Parallel()
	for burst := 3; burst <= 12; burst++ {
		synctest.Test(t, func(t *testing.T) {
			a, guesses := newAttempts(), 0
			for end := time.Now().Add(24 * time.Hour); time.Now().Before(end); time.Sleep(time.Hour) {
				for range burst {
					time.Sleep(try(a, victim, "192.0.2.1", authn.Unknown)) // until it may
					try(a, victim, "192.0.2.1", authn.No)
					guesses++
				}
			}
			if guesses > 187 {
				t.Errorf("with bursts of %d there are %d guesses in a day", burst, guesses)
			}
		})
	}
}

// TestTenMinutes wants fewer than ten guesses by strangers in any ten minutes,
// however they are spread: directories lock accounts.
func TestTenMinutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, from := newAttempts(), clients(100)
		for range 20 {
			if n := guess(a, from, 10*time.Minute); n > 9 {
				t.Errorf("%d guesses in ten minutes", n)
			}
			time.Sleep(7 * time.Minute)
		}
	})
}

// TestOneClientKeepsNobodyOut has one client guess for a day, while others log in
// to the account from addresses that nobody has seen.
func TestOneClientKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempts()
		go guess(a, []string{"198.51.100.1"}, 24*time.Hour)
		for i := range 24 * 60 {
			synctest.Wait()
			if wait := try(a, victim, fmt.Sprintf("2001:db8:%x::/64", i), authn.Yes); wait > 0 {
				t.Fatalf("after %d minutes the user has to wait for %s", i, wait)
			}
			time.Sleep(time.Minute)
		}
		time.Sleep(time.Hour)
	})
}

// TestManyClientsKeepOutStrangersAlone has a thousand clients guess: the address
// that the user logs in from, other accounts and other users are not concerned.
func TestManyClientsKeepOutStrangersAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, bad := newAttempts(), clients(1000)
		try(a, victim, "198.51.100.1", authn.Yes)
		for range 100 {
			time.Sleep(time.Minute)
			for _, client := range bad {
				try(a, victim, client, authn.No)
			}
			if wait := try(a, victim, "198.51.100.1", authn.Yes); wait > 0 {
				t.Fatalf("the user has to wait for %s", wait)
			}
		}
		if wait := try(a, victim, "198.51.100.2", authn.Yes); wait == 0 {
			t.Error("a stranger is not slowed down")
		}
		if wait := try(a, "corp/uid=joe", "198.51.100.2", authn.Yes); wait > 0 {
			t.Errorf("another user has to wait for %s", wait)
		}
		time.Sleep(31 * 24 * time.Hour)
		for _, client := range bad {
			try(a, victim, client, authn.No)
		}
		if wait := try(a, victim, "198.51.100.1", authn.Yes); wait == 0 {
			t.Error("a client is familiar for ever")
		}
	})
}

// TestManyAccounts has strangers try one password for many accounts: those who are
// known pass, and are bounded by themselves.
func TestManyAccounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, guesses := newAttempts(), 0
		try(a, "corp/uid=insider", "198.51.100.1", authn.Yes)
		for i := range 60 {
			for k, client := range clients(500) {
				if try(a, fmt.Sprintf("corp/uid=u%d.%d", i, k), client, authn.No) == 0 {
					guesses++
				}
			}
			time.Sleep(time.Second)
		}
		if guesses < 650 || guesses > 700 {
			t.Errorf("strangers guess %d times in a minute, want 100 and 10 in a second", guesses)
		}
		if a.Familiar("192.0.2.1") || !a.Familiar("198.51.100.1") {
			t.Error("the wrong clients are familiar")
		}
		for _, client := range clients(500) {
			try(a, victim+client, client, authn.No) // what there is left
		}
		for i := range 30 {
			if wait := try(a, fmt.Sprintf("corp/uid=v%d", i), "198.51.100.1", authn.No); wait > 0 {
				t.Fatalf("after %d failures of its own a familiar client has to wait for %s", i, wait)
			}
		}
		if wait := try(a, "corp/uid=w", "198.51.100.1", authn.No); wait == 0 {
			t.Error("a familiar client may try passwords of as many accounts as it likes")
		}
	})
}

// TestHowItWent checks what an attempt leaves behind.
func TestHowItWent(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		before []authn.Outcome
		wait   time.Duration
	}{
		{"nothing", nil, 0},
		{"two failures", []authn.Outcome{authn.No, authn.No}, 0},
		{"three failures", []authn.Outcome{authn.No, authn.No, authn.No}, 30 * time.Second},
		{"success does not show", []authn.Outcome{authn.No, authn.No, authn.Yes, authn.No}, 30 * time.Second},
		{"cannot decide is neither", []authn.Outcome{authn.No, authn.No, authn.Unknown, authn.Unknown, authn.Unknown, authn.Unknown, authn.Unknown, authn.Unknown}, 0},
		{"cannot decide does not forgive", []authn.Outcome{authn.No, authn.No, authn.Unknown, authn.No}, 30 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := newAttempts()
				for i, outcome := range tc.before {
					if wait := try(a, victim, "192.0.2.1", outcome); wait > 0 {
						t.Fatalf("attempt %d has to wait for %s", i, wait)
					}
				}
				if wait := try(a, victim, "192.0.2.1", authn.Unknown); wait != tc.wait {
					t.Errorf("the next has to wait for %s, want %s", wait, tc.wait)
				}
			})
		})
	}
}

// TestWaits checks that the wait doubles, that to try meanwhile changes nothing,
// and that an hour forgets.
func TestWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempts()
		for range 3 {
			try(a, victim, "192.0.2.1", authn.No)
		}
		for i, want := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 8 * time.Minute} {
			if wait := try(a, victim, "192.0.2.1", authn.No); wait != want {
				t.Errorf("wait %d is %s, want %s", i, wait, want)
			}
			time.Sleep(want - time.Second)
			if wait := try(a, victim, "192.0.2.1", authn.No); wait != time.Second {
				t.Errorf("a second before its end, wait %d is %s", i, wait)
			}
			time.Sleep(time.Second)
			if wait := try(a, victim, "192.0.2.1", authn.No); wait != 0 {
				t.Errorf("after its end, wait %d is %s", i, wait)
			}
		}
		time.Sleep(time.Hour)
		for range 3 {
			if wait := try(a, victim, "192.0.2.1", authn.No); wait != 0 {
				t.Errorf("after an hour, the wait is %s", wait)
			}
		}
	})
}

// TestAtOnce checks that attempts at the same time do not pass what attempts in
// turn would not.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name            string
		account, client func(i int) string
		most            int
	}{
		{"one client at one account", func(int) string { return victim }, func(int) string { return "192.0.2.1" }, 3},
		{"one client", func(i int) string { return fmt.Sprint("a", i) }, func(int) string { return "192.0.2.1" }, 4},
		{"one account", func(int) string { return victim }, func(i int) string { return fmt.Sprint("c", i) }, 7},
		{"strangers", func(i int) string { return fmt.Sprint("a", i) }, func(i int) string { return fmt.Sprint("c", i) }, 16},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := newAttempts()
				try(a, "other", "familiar", authn.Yes)
				var ends []func(authn.Outcome)
				for i := range 100 {
					end, wait := a.BeginName("corp", tc.account(i), tc.client(i))
					if end == nil {
						if wait <= 0 {
							t.Errorf("refused, and the wait is %s", wait)
						}
						continue
					}
					ends = append(ends, end)
				}
				if len(ends) != tc.most {
					t.Errorf("%d at one time, want %d", len(ends), tc.most)
				}
				if wait := try(a, "other", "familiar", authn.Yes); wait > 0 {
					t.Errorf("a familiar client has to wait for %s", wait)
				}
				for _, end := range ends {
					end(authn.Unknown)
					end(authn.No) // is not heard
				}
				for i := range ends {
					if wait := try(a, tc.account(i), tc.client(i), authn.Unknown); wait > 0 {
						t.Errorf("after all have ended, the wait is %s", wait)
					}
				}
			})
		})
	}
}

// TestFloodForgetsNothing fails as often as strangers can for an hour, with names
// that are made up: what was known before is known after.
func TestFloodForgetsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempts()
		try(a, "corp/uid=jane", "198.51.100.7", authn.Yes)
		guess(a, []string{"198.51.100.1"}, 40*time.Minute)
		start, failed := time.Now(), 0
		for i := 0; time.Since(start) < 50*time.Minute; i++ {
			wait := try(a, fmt.Sprint("corp/made-up-", i), fmt.Sprint("c", i), authn.No)
			if wait == 0 {
				failed++
			}
			time.Sleep(wait)
		}
		if failed < 30_000 {
			t.Fatalf("only %d failures", failed)
		}
		for try(a, victim, "198.51.100.1", authn.No) > 0 {
			time.Sleep(time.Second)
		}
		if wait := try(a, victim, "198.51.100.1", authn.No); wait != 8*time.Minute {
			t.Errorf("after the flood, the wait is %s", wait)
		}
		if !a.Familiar("198.51.100.7") {
			t.Error("after the flood, the user's address is not familiar")
		}
	})
}

// TestOneUserDrivesOutNobody logs in to one account from many addresses.
func TestOneUserDrivesOutNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempts()
		try(a, victim, "198.51.100.1", authn.Yes)
		for i := range 30_000 {
			try(a, "corp/uid=insider", fmt.Sprint("c", i), authn.Yes)
		}
		if !a.Familiar("198.51.100.1") || !a.Familiar("c29999") || a.Familiar("c0") {
			t.Error("the wrong clients are familiar")
		}
	})
}
