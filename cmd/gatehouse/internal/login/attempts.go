package login

import (
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// The limits on guessing passwords. An account is one whatever was typed, and a
// client is an address, so that no alias of a name begins anew.
//
// One client at one account has freeFailures attempts, and waits for
// firstWait after the last of them, for twice as long after each further one, and
// for longestWait from there on: at most 187 guesses in the first day and 180 in
// each further one. To stop for forgetAfter, which forgets, is slower.
//
// All clients together have accountRate at one account: at most 295 guesses in
// the first day and 288 in each further one, however many addresses there are.
// One client alone never uses that up, so that it keeps nobody out. Many clients
// can; therefore a client that has logged in to the account in the last
// familiarFor passes this limit, and only the first one holds it. An account
// with n such addresses can so be guessed at 288 + 180n times a day at most: the
// further ones are the user's own, or shared with somebody who guesses.
//
// In any ten minutes there are at most 9 guesses by strangers. A directory that
// locks accounts after fewer lets strangers lock them, by whatever asks it.
//
// All of that is of one process: replicas count each by itself, so that the
// numbers are to be multiplied by theirs; and a restart forgets.
const (
	freeFailures = 3
	firstWait    = 30 * time.Second
	longestWait  = 8 * time.Minute
	forgetAfter  = time.Hour
	familiarFor  = 30 * 24 * time.Hour
	// clientAtOnce is how many passwords of one client are checked at one time.
	clientAtOnce = 4
	// strangersAtOnce is how many passwords of clients that are familiar to no
	// account are checked at one time.
	strangersAtOnce = 16
)

// accountRate is how often strangers may fail at one account.
func accountRate() Rate { return Rate{Burst: 7, Every: 5 * time.Minute} }

// clientRate is how often one client may fail at all accounts together, familiar
// or not: an office behind one address has people who mistype.
func clientRate() Rate { return Rate{Burst: 30, Every: 10 * time.Second} }

// strangersRate is how often all clients that are familiar to no account may fail
// at all accounts together.
func strangersRate() Rate { return Rate{Burst: 100, Every: 100 * time.Millisecond} }

// The sizes of the tables. An entry is there for failures alone, and strangers can
// fail 36,100 times in the hour for which a pair is kept, 21,100 times in the 35
// minutes for which an account is and 3,100 times in the 5 minutes for which a
// client is: they cannot drive out an entry of theirs before it is over.
// All tables full take 34 MiB (measured).
const (
	mostPairs    = 1 << 16
	mostAccounts = 1 << 15
	mostClients  = 1 << 13
	// mostFamiliar is how many accounts have familiar clients, and mostAddresses
	// how many of these each has: only a right password makes one, and those of
	// one user cannot drive out another's.
	mostFamiliar  = 1 << 14
	mostAddresses = 8
)

// digest stands for the name of an account or a client, which may be long.
type digest [16]byte

func digestOf(name string) digest {
	sum := sha256.Sum256([]byte(name))
	return digest(sum[:])
}

// pairKey is a client at an account.
type pairKey struct{ account, client digest }

// pair is what became of a client's attempts at an account.
type pair struct {
	failed  int
	last    time.Time
	pending int
}

// wait is how long the client has to wait. A nil pair has none.
func (p *pair) wait(now time.Time) time.Duration {
	switch {
	case p == nil:
		return 0
	case p.failed+p.pending < freeFailures:
		return 0
	case p.pending > 0:
		return max(busyWait, p.last.Add(pause(p.failed)).Sub(now))
	default:
		return max(0, p.last.Add(pause(p.failed)).Sub(now))
	}
}

// pause is the wait after so many failures.
func pause(failed int) time.Duration {
	if failed < freeFailures {
		return 0
	}
	wait := firstWait
	for range failed - freeFailures {
		if wait >= longestWait {
			break
		}
		wait *= 2
	}
	return min(wait, longestWait)
}

// address is a client that has logged in to an account.
type address struct {
	client digest
	last   time.Time
}

// Attempts slow down guessing, and implement authn.Attempts. Success forgives what
// the same client has failed at the same account, and makes it familiar. An
// attempt of which nothing could be told counts as neither. They are safe for
// concurrent use. There is one for the process, so that a new configuration
// forgets nothing.
type Attempts struct {
	now func() time.Time

	mu       sync.Mutex
	pairs    table[pairKey, pair]
	accounts table[digest, tally]
	clients  table[digest, tally]
	// familiar are the clients that are familiar to an account, the last one first.
	familiar table[digest, []address]
	// known counts the accounts that a client is familiar to.
	known     map[digest]int
	strangers tally
}

// AttemptsOptions is what NewAttempts needs.
type AttemptsOptions struct {
	// Now is the clock. Required.
	Now func() time.Time
}

// NewAttempts makes Attempts that know of nothing.
func NewAttempts(o AttemptsOptions) *Attempts {
	a := &Attempts{now: o.Now, known: make(map[digest]int)}
	a.pairs = table[pairKey, pair]{
		most: mostPairs,
		used: func(p *pair) bool { return p.pending > 0 },
		over: func(p *pair) bool { return p.failed == 0 || a.now().Sub(p.last) >= forgetAfter },
	}
	a.accounts = a.tallies(mostAccounts)
	a.clients = a.tallies(mostClients)
	a.familiar = table[digest, []address]{
		most: mostFamiliar,
		used: func(*[]address) bool { return false },
		over: func(known *[]address) bool { return len(*known) == 0 || a.now().Sub((*known)[0].last) >= familiarFor },
		gone: func(_ digest, known *[]address) { a.unknow(*known) },
	}
	return a
}

func (a *Attempts) tallies(most int) table[digest, tally] {
	return table[digest, tally]{
		most: most,
		used: func(t *tally) bool { return t.pending > 0 },
		over: func(t *tally) bool { return t.bucket.idle(a.now()) },
	}
}

// Begin implements authn.Attempts. An attempt that may not be made is not counted
// and makes no wait longer.
func (a *Attempts) Begin(account, client string) (end func(authn.Outcome), wait time.Duration) {
	k := pairKey{account: digestOf(account), client: digestOf(client)}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	p := a.pairs.get(k)
	if p != nil && p.pending == 0 && a.pairs.over(p) {
		a.pairs.remove(k)
		p = nil
	}
	atAccount, anywhere := a.isFamiliar(k, now), a.known[k.client] > 0
	wait = max(p.wait(now), a.clients.get(k.client).wait(now, clientRate(), clientAtOnce))
	if !atAccount {
		wait = max(wait, a.accounts.get(k.account).wait(now, accountRate(), accountRate().Burst))
	}
	if !anywhere {
		wait = max(wait, a.strangers.wait(now, strangersRate(), strangersAtOnce))
	}
	if wait > 0 {
		return nil, wait
	}
	// Until it is known how it went, it counts as a failure, so that attempts at
	// the same time do not pass what attempts in turn would not.
	p = a.pairs.use(k)
	p.pending++
	counted := []count{{a.clients.use(k.client), clientRate()}}
	if !atAccount {
		counted = append(counted, count{a.accounts.use(k.account), accountRate()})
	}
	if !anywhere {
		counted = append(counted, count{&a.strangers, strangersRate()})
	}
	for _, c := range counted {
		c.tally.pending++
		c.tally.bucket.take(now, c.rate)
	}
	ended := false
	return func(outcome authn.Outcome) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if ended {
			return
		}
		ended = true
		a.end(k, p, counted, outcome)
	}, 0
}

// count is a tally in which an attempt counts.
type count struct {
	tally *tally
	rate  Rate
}

// end notes how an attempt went. What is in use has stayed in its table.
func (a *Attempts) end(k pairKey, p *pair, counted []count, outcome authn.Outcome) {
	now := a.now()
	p.pending--
	for _, c := range counted {
		c.tally.pending--
		if outcome != authn.No {
			c.tally.bucket.give(c.rate)
		}
	}
	switch outcome {
	case authn.Yes:
		p.failed = 0
		a.meet(k, now)
	case authn.No:
		p.failed++
		p.last = now
	case authn.Unknown:
	}
	a.pairs.tidy(k)
	a.accounts.tidy(k.account)
	a.clients.tidy(k.client)
}

// Familiar tells whether a client has logged in to any account recently.
func (a *Attempts) Familiar(client string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known[digestOf(client)] > 0
}

// isFamiliar tells whether the client has logged in to the account recently.
func (a *Attempts) isFamiliar(k pairKey, now time.Time) bool {
	known := a.familiar.get(k.account)
	return known != nil && slices.ContainsFunc(*known, func(x address) bool {
		return x.client == k.client && now.Sub(x.last) < familiarFor
	})
}

// meet makes the client familiar to the account. Those that have not been seen
// for long go, and the one that was seen first if there are many.
func (a *Attempts) meet(k pairKey, now time.Time) {
	known := a.familiar.use(k.account)
	before := *known
	after := append(make([]address, 0, mostAddresses), address{client: k.client, last: now})
	for _, x := range before {
		if x.client != k.client && now.Sub(x.last) < familiarFor && len(after) < mostAddresses {
			after = append(after, x)
		}
	}
	*known = after
	for _, x := range after {
		a.known[x.client]++
	}
	a.unknow(before)
}

// unknow notes that the clients are not familiar to an account any more.
func (a *Attempts) unknow(clients []address) {
	for _, x := range clients {
		if a.known[x.client]--; a.known[x.client] == 0 {
			delete(a.known, x.client)
		}
	}
}
