package login

import (
	"crypto/sha256"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// The limits on guessing passwords. They apply twice, with the same numbers.
//
// Once by the name that is typed (BeginName). Callers see this limit: they have to
// wait. It depends on nothing but the names and addresses of earlier attempts that
// failed, so it is the same whether or not an account has the name. Success does
// not reset it, or callers at the user's address would see that there is a user.
//
// And once by the account that the directory finds (Begin), which is one whatever
// alias of its name is typed. Callers do not see this limit: the password is
// refused without being tried. So the numbers of guesses below hold for an account
// by all of its names together.
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
// further ones are the user's own, or shared with somebody who guesses. At one
// typed name, this limit is for clients that have logged in to no account.
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

// accountRate returns how often strangers may fail at one account, and at one name.
func accountRate() Rate { return Rate{Burst: 7, Every: 5 * time.Minute} }

// clientRate returns how often one client may fail at all accounts together, familiar
// or not: an office behind one address has people who mistype.
func clientRate() Rate { return Rate{Burst: 30, Every: 10 * time.Second} }

// strangersRate returns how often all clients that are familiar to no account may fail
// at all accounts together.
func strangersRate() Rate { return Rate{Burst: 100, Every: 100 * time.Millisecond} }

// The sizes of the tables. An entry is there for failures alone, and strangers can
// fail 36,100 times in the hour for which a pair is kept, 21,100 times in the 35
// minutes for which an account is and 3,100 times in the 5 minutes for which a
// client is: they cannot drive out an entry of theirs before it is over.
// All tables full take 48 MiB (measured).
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

// pairKey is a client at an account, or at a typed name.
type pairKey struct{ account, client digest }

// pair is what became of a client's attempts at an account or a name.
type pair struct {
	failed  int
	last    time.Time
	pending int
}

// wait returns how long the client has to wait. A nil pair has none.
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

// pause returns the wait after so many failures.
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

// Attempts bound guessing, and implement authn.Attempts. They are safe for
// concurrent use. There is one for the process, so that a new configuration
// forgets nothing.
type Attempts struct {
	now func() time.Time

	mu sync.Mutex
	// names are the attempts by typed name, and accounts those by account.
	names, accounts attemptTables
	clients         tallies
	// strangers has one entry, of the zero key.
	strangers tallies
	// familiar are the clients that are familiar to an account, the last one first.
	familiar table[digest, []address]
	// known counts the accounts that a client is familiar to.
	known map[digest]int
}

// attemptTables count the attempts at accounts, or at names.
type attemptTables struct {
	pairs table[pairKey, pair]
	all   tallies
}

type tallies = table[digest, tally]

// NewAttempts makes Attempts that know of nothing, with this clock.
func NewAttempts(now func() time.Time) *Attempts {
	a := &Attempts{now: now, known: make(map[digest]int)}
	a.names, a.accounts = a.newTables(), a.newTables()
	a.clients, a.strangers = a.newTallies(mostClients), a.newTallies(1)
	a.familiar = table[digest, []address]{
		most: mostFamiliar,
		used: func(*[]address) bool { return false },
		over: func(known *[]address) bool { return len(*known) == 0 || a.now().Sub((*known)[0].last) >= familiarFor },
		gone: func(_ digest, known *[]address) { a.removeFamiliar(*known) },
	}
	return a
}

func (a *Attempts) newTables() attemptTables {
	return attemptTables{
		pairs: table[pairKey, pair]{
			most: mostPairs,
			used: func(p *pair) bool { return p.pending > 0 },
			over: func(p *pair) bool { return p.failed == 0 || a.now().Sub(p.last) >= forgetAfter },
		},
		all: a.newTallies(mostAccounts),
	}
}

func (a *Attempts) newTallies(most int) tallies {
	return tallies{
		most: most,
		used: func(t *tally) bool { return t.pending > 0 },
		over: func(t *tally) bool { return t.bucket.idle(a.now()) },
	}
}

// BeginName asks whether a login with a typed name may be tried now. If it may not,
// wait is positive and end is nil; the attempt is not counted and makes no wait
// longer. If it may, end must be called, once, when the answer is sent, with how it
// went.
func (a *Attempts) BeginName(directory, name, client string) (end func(authn.Outcome), wait time.Duration) {
	k := pairKey{account: digestOf(directory + " " + foldName(name)), client: digestOf(client)}
	a.mu.Lock()
	defer a.mu.Unlock()
	limits := []limit{{&a.clients, k.client, clientRate(), clientAtOnce}}
	if a.known[k.client] == 0 {
		limits = append(limits,
			limit{&a.names.all, k.account, accountRate(), accountRate().Burst},
			limit{&a.strangers, digest{}, strangersRate(), strangersAtOnce})
	}
	p, wait := a.begin(&a.names.pairs, k, limits)
	if wait > 0 {
		return nil, wait
	}
	return a.once(func(outcome authn.Outcome) { a.end(&a.names.pairs, k, p, limits, outcome) }), 0
}

// Begin implements authn.Attempts. An attempt that may not be made is not counted
// and makes no wait longer. Success forgives what the same client has failed at the
// same account, and makes it familiar. An attempt with an unknown result counts as
// neither.
func (a *Attempts) Begin(account, client string) (end func(authn.Outcome), wait time.Duration) {
	k := pairKey{account: digestOf(account), client: digestOf(client)}
	a.mu.Lock()
	defer a.mu.Unlock()
	var limits []limit
	if !a.isFamiliar(k, a.now()) {
		limits = append(limits, limit{&a.accounts.all, k.account, accountRate(), accountRate().Burst})
	}
	p, wait := a.begin(&a.accounts.pairs, k, limits)
	if wait > 0 {
		return nil, wait
	}
	return a.once(func(outcome authn.Outcome) {
		if outcome == authn.Yes {
			p.failed = 0
			a.addFamiliar(k, a.now())
		}
		a.end(&a.accounts.pairs, k, p, limits, outcome)
	}), 0
}

// limit is a tally in which an attempt counts, and what bounds it.
type limit struct {
	in     *tallies
	key    digest
	rate   Rate
	atOnce int
}

// begin counts an attempt as a failure, until it is known how it went, so that
// attempts at the same time do not pass what attempts in turn would not. If a limit
// is reached, nothing is counted and wait is positive.
func (a *Attempts) begin(pairs *table[pairKey, pair], k pairKey, limits []limit) (p *pair, wait time.Duration) {
	now := a.now()
	p = pairs.get(k)
	if p != nil && p.pending == 0 && pairs.over(p) {
		pairs.remove(k)
		p = nil
	}
	wait = p.wait(now)
	for _, l := range limits {
		wait = max(wait, l.in.get(l.key).wait(now, l.rate, l.atOnce))
	}
	if wait > 0 {
		return nil, wait
	}
	p = pairs.use(k)
	p.pending++
	for _, l := range limits {
		t := l.in.use(l.key)
		t.pending++
		t.bucket.take(now, l.rate)
	}
	return p, 0
}

// end records how an attempt went. Entries that are in use have stayed in their
// tables.
func (a *Attempts) end(pairs *table[pairKey, pair], k pairKey, p *pair, limits []limit, outcome authn.Outcome) {
	p.pending--
	if outcome == authn.No {
		p.failed++
		p.last = a.now()
	}
	pairs.tidy(k)
	for _, l := range limits {
		t := l.in.get(l.key)
		t.pending--
		if outcome != authn.No {
			t.bucket.give(l.rate)
		}
		l.in.tidy(l.key)
	}
}

// once returns a function that calls end the first time that it is called, with the
// lock held.
func (a *Attempts) once(end func(authn.Outcome)) func(authn.Outcome) {
	ended := false
	return func(outcome authn.Outcome) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if !ended {
			ended = true
			end(outcome)
		}
	}
}

// foldName returns the same text for names that differ only in case, in
// compatibility forms of characters (NFKC) or in white space.
func foldName(name string) string {
	name = strings.ToLower(strings.ToUpper(norm.NFKC.String(name)))
	return strings.Join(strings.FieldsFunc(norm.NFKC.String(name), unicode.IsSpace), " ")
}

// Familiar reports whether a client has logged in to any account recently.
func (a *Attempts) Familiar(client string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known[digestOf(client)] > 0
}

// isFamiliar reports whether the client has logged in to the account recently.
func (a *Attempts) isFamiliar(k pairKey, now time.Time) bool {
	known := a.familiar.get(k.account)
	return known != nil && slices.ContainsFunc(*known, func(x address) bool {
		return x.client == k.client && now.Sub(x.last) < familiarFor
	})
}

// addFamiliar makes the client familiar to the account. Those that have not been seen
// for long go, and the one that was seen first if there are many.
func (a *Attempts) addFamiliar(k pairKey, now time.Time) {
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
	a.removeFamiliar(before)
}

// removeFamiliar records that the clients are no longer familiar to an account.
func (a *Attempts) removeFamiliar(clients []address) {
	for _, x := range clients {
		if a.known[x.client]--; a.known[x.client] == 0 {
			delete(a.known, x.client)
		}
	}
}
