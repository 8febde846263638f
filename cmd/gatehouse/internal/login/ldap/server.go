package ldap

import (
	"cmp"
	"context"
	"crypto/tls"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn/ldapconfig"
)

// passOver is for how long a server that failed is asked only if all others
// fail too. Then one request tries it, before all the others do.
const passOver = 15 * time.Second

// server is one server of a directory.
type server struct {
	address  ldapconfig.Server
	tls      *tls.Config
	open     atomic.Int64
	failures atomic.Uint64
	// until is when the server is tried again after a failure, in nanoseconds of
	// Unix time, or 0.
	until atomic.Int64
}

// order returns the servers in the order in which to ask them: as configured,
// but those that failed a moment ago behind the others, first that which has had
// the most time since.
func order(servers []*server, now time.Time) []*server {
	var good, failed []*server
	untils := map[*server]int64{}
	for _, s := range servers {
		until := s.until.Load()
		switch {
		case until == 0:
			good = append(good, s)
		case until <= now.UnixNano() && s.until.CompareAndSwap(until, now.Add(passOver).UnixNano()):
			// This request tries it; others go on passing it over until it is known.
			good = append(good, s)
		default:
			failed = append(failed, s)
			untils[s] = until
		}
	}
	slices.SortStableFunc(failed, func(a, b *server) int { return cmp.Compare(untils[a], untils[b]) })
	return append(good, failed...)
}

func (s *server) failed(now time.Time) {
	s.failures.Add(1)
	s.until.Store(now.Add(passOver).UnixNano())
}

func (s *server) answered() { s.until.Store(0) }

// share returns the time that one of several servers gets: half of what there is,
// because another one may have to do the same, and the rest of a login is still
// to come. The last one gets all.
func share(ctx context.Context, last bool) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if last || !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)/2)
}
