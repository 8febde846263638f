package cabundle

import (
	"fmt"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

const (
	// firstYield and longestYield are how long the bundle of another Gatehouse is
	// left in place: the first time, and when it has come again and again.
	firstYield   = time.Second
	longestYield = time.Minute
	// peace is after how long without the other the first time is the first again.
	// It is longer than both together wait at most.
	peace = 5 * time.Minute
)

// rivalry is what a Publisher remembers of another Gatehouse, with another CA,
// that publishes into the same configuration. Neither can know which is
// meant to. So neither gives up, which is right if the other is on its way out, and
// both wait longer each time: what is not right must not wear out the API server
// and everybody who watches.
type rivalry struct {
	// until is when what the other wrote is overwritten, zero if nothing is there
	// that waits for it.
	until   time.Time
	backoff backoff
	// met is when the other was last found to have written, and told when that was
	// last reported.
	met, told time.Time
}

// rivals are the entries of ours that another Gatehouse has overwritten. There are
// none if anything else is wrong as well: that has no time.
//
// A Publisher wrote them, by the name of their manager, and not what is wanted,
// although what is wanted was there before. So it is none that knows something
// newer of the same authorities, if these were asked after the object was read.
func (p *Publisher) rivals(r *record, o *object) []entry {
	var list []entry
	for _, e := range p.ours(o) {
		switch {
		case e.raw == string(p.wanted):
		case r.seen[e.name] != string(p.wanted) || !o.published(e.name):
			return nil
		default:
			list = append(list, e)
		}
	}
	return list
}

// yield is a problem as long as what another Gatehouse wrote is left in place. It
// reports that, at most once in an interval.
func (p *Publisher) yield(r *record, o *object, theirs entry) *problem {
	now := time.Now()
	failure := &problem{classRival, fmt.Errorf("%s: another Gatehouse with another CA publishes into this configuration: "+
		"give all replicas one Secret, or each installation configurations of its own (it wrote the caBundle of webhook %q%s)", o, theirs.name, p.stranger(theirs))}
	if rival := &r.rivalry; rival.until.IsZero() {
		if now.Sub(rival.met) > peace {
			rival.backoff.reset()
		}
		rival.met, rival.until = now, now.Add(rival.backoff.between(firstYield, longestYield))
		p.failed.Add(1)
		if rival.told.IsZero() || now.Sub(rival.told) >= interval {
			rival.told = now
			p.notify(certs.Event{Reason: certs.ReasonPublishFailed, Object: o.reference(), Err: failure.err})
		}
	}
	if now.Before(r.rivalry.until) {
		return failure
	}
	return nil
}

// stranger names a CA in the bundle of an entry that is not wanted there, "" if
// there is none.
func (p *Publisher) stranger(theirs entry) string {
	wanted := parseBundle(string(p.wanted))
	for _, cert := range parseBundle(theirs.raw).certs {
		if !wanted.has(cert) {
			return fmt.Sprintf(", with the CA %s, SHA-256 %s", quote(cert.Subject.String()), rotation.ID(cert))
		}
	}
	return ""
}
