package login

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/text/unicode/norm"
	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

// ClientOf returns what identifies a caller: the address from which the connection comes, and of an IPv6 address the /64,
// because one machine has at least that many addresses. Headers such as X-Forwarded-For are ignored, because any caller
// can set them. All callers without such an address count as one.
func ClientOf(remoteAddr string) netip.Prefix {
	from, err := netip.ParseAddrPort(remoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	address := from.Addr().Unmap().WithZone("")
	bits := address.BitLen()
	if address.Is6() {
		bits = 64
	}
	prefix, _ := address.Prefix(bits) // the address is valid and has that many bits
	return prefix
}

// clientName returns the name of a client: an address, or a prefix of IPv6.
func clientName(client netip.Prefix) string {
	switch {
	case !client.IsValid():
		return "unknown"
	case client.IsSingleIP():
		return client.Addr().String()
	default:
		return client.String()
	}
}

// Rate is how often something may happen: Burst times at once, and once in Every
// from then on.
type Rate struct {
	Burst int
	Every time.Duration
}

func (r Rate) limiter() *rate.Limiter { return rate.NewLimiter(rate.Every(r.Every), r.Burst) }

// take takes one from a limiter, or returns how long it is until there is one.
func take(l *rate.Limiter, now time.Time) (wait time.Duration) {
	if l.AllowN(now, 1) {
		return 0
	}
	return max(1, time.Duration((1-l.TokensAt(now))/float64(l.Limit())*float64(time.Second)))
}

// giveBack gives back one that was taken. A limiter never has more than its burst.
func giveBack(l *rate.Limiter, now time.Time) { l.AllowN(now, -1) }

// limiters have a limiter of one rate for each key that was used lately. They are
// safe for concurrent use.
type limiters struct {
	rate Rate

	mu    sync.Mutex
	known *lru.Cache
}

func newLimiters(r Rate, most int) *limiters { return &limiters{rate: r, known: lru.New(most)} }

// of returns the limiter of a key, which is comparable.
func (l *limiters) of(key any) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.known.Get(key); ok {
		return known.(*rate.Limiter) //nolint:forcetypeassert // all entries are
	}
	one := l.rate.limiter()
	l.known.Add(key, one)
	return one
}

const (
	// mostAddresses bounds the tables about clients, and mostNames those about typed
	// names. Strangers fail at most 24,100 times in the 40 minutes for which an entry
	// counts: they cannot drive out an entry of theirs before that.
	mostAddresses = 1 << 14
	mostNames     = 1 << 15
	// knownFor is for how long a client is known after somebody has logged in from it.
	knownFor = 30 * 24 * time.Hour
)

// guesses bound how often passwords can be tried, by the name that is typed and by the
// client, before a directory is asked: limits are the same whether or not an account has
// the name, and a success changes nothing about those of the name. A name is what is left
// of it without case, accents, compatibility forms and white space, which directories
// ignore; one that an account has besides has limits of its own.
//
// One client at one name has 185 guesses in the first day, and 180 in each further one.
// All clients together have 295 and 288; clients from which somebody has logged in share
// as many again, so that strangers keep nobody out who has logged in before. One client
// alone never uses up what all have. In any ten minutes there are at most 9 guesses by
// strangers: a directory that locks accounts after fewer lets them lock accounts.
//
// All of that is of one process: replicas count each by itself, and a restart forgets.
// Guesses are safe for concurrent use.
type guesses struct {
	pairs, names, clients *limiters
	// strangers is for all clients that are not known, at all names together.
	strangers *rate.Limiter
	// known has the time of the last login of each client that somebody has logged in from.
	known *lru.Cache
}

func newGuesses() *guesses {
	return &guesses{
		pairs: newLimiters(Rate{Burst: 5, Every: 8 * time.Minute}, mostNames),
		names: newLimiters(Rate{Burst: 7, Every: 5 * time.Minute}, mostNames),
		// An office behind one address has people who mistype.
		clients:   newLimiters(Rate{Burst: 30, Every: 10 * time.Second}, mostAddresses),
		strangers: Rate{Burst: 100, Every: 100 * time.Millisecond}.limiter(),
		known:     lru.New(mostAddresses),
	}
}

// nameKey is the hash of a name at a directory, which may be long, and of whose limit it is.
type nameKey [sha256.Size]byte

func keyOf(directory, name, of string) nameKey {
	return sha256.Sum256(fmt.Appendf(nil, "%q %q %q", directory, name, of))
}

// begin counts a guess, or returns how long the caller has to wait: then nothing is
// counted. Otherwise end must be called, once, when the answer is sent: what did not fail is
// not counted. Until then it is, so that guesses at the same time do not pass what guesses
// in turn would not.
func (g *guesses) begin(directory, name, client string, now time.Time) (end func(now time.Time, failed bool), wait time.Duration) {
	name = foldName(name)
	limits := []*rate.Limiter{g.pairs.of(keyOf(directory, name, client)), g.clients.of(client)}
	if g.isKnown(client, now) {
		limits = append(limits, g.names.of(keyOf(directory, name, "known clients")))
	} else {
		limits = append(limits, g.names.of(keyOf(directory, name, "strangers")), g.strangers)
	}
	var taken []*rate.Limiter
	for _, l := range limits {
		if one := take(l, now); one > 0 {
			wait = max(wait, one)
		} else {
			taken = append(taken, l)
		}
	}
	end = func(now time.Time, failed bool) {
		if failed {
			return
		}
		for _, l := range taken {
			giveBack(l, now)
		}
	}
	if wait > 0 {
		end(now, false)
		return nil, wait
	}
	return end, 0
}

// loggedIn notes that somebody has logged in from a client.
func (g *guesses) loggedIn(client string, now time.Time) { g.known.Add(client, now) }

// isKnown reports whether somebody has logged in from the client recently.
func (g *guesses) isKnown(client string, now time.Time) bool {
	last, ok := g.known.Get(client)
	return ok && now.Sub(last.(time.Time)) < knownFor //nolint:forcetypeassert // all entries are
}

// foldName returns the same text for names that differ in nothing but what directories
// ignore.
func foldName(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, norm.NFKD.String(name))
	name = strings.ToLower(strings.ToUpper(name))
	return strings.Join(strings.FieldsFunc(norm.NFKC.String(name), unicode.IsSpace), " ")
}

// turns bound how many calls are under way at one time: those of clients that are known,
// and those of others.
type turns struct{ known, others chan struct{} }

func newTurns(n int) *turns {
	return &turns{known: make(chan struct{}, n), others: make(chan struct{}, n)}
}

// enter waits for a turn, turnTime at most, and returns how to leave, or nil if
// there was none.
func (t *turns) enter(ctx context.Context, known bool) (leave func()) {
	of := t.others
	if known {
		of = t.known
	}
	leave = func() { <-of }
	select {
	case of <- struct{}{}:
		return leave
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, turnTime)
	defer cancel()
	select {
	case of <- struct{}{}:
		return leave
	case <-ctx.Done():
		return nil
	}
}
