package cabundle

import (
	"context"
	"fmt"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

const (
	// firstPause and longestPause bound how long the caBundle of another Gatehouse is left
	// in place. The pause doubles with each conflict.
	firstPause   = time.Second
	longestPause = time.Minute
	// calmTime is after how long without a conflict the pause is the first again. It is
	// longer than both publishers pause together.
	calmTime = 5 * time.Minute
)

// conflicting returns the first of our entries that another Gatehouse with another
// CA has overwritten, false if there is none or if anything else is wrong as well:
// that is corrected at once.
//
// The manager of such an entry is a Publisher, and its caBundle is not the desired one,
// although the desired one was there before. A replica of ours with newer authorities
// cannot be the writer, because the authorities were read after the object.
func (p *Publisher) conflicting(r *record, o *object) (first entry, ok bool) {
	for _, e := range p.cfg.Watcher.ours(o) {
		switch {
		case e.raw == string(p.desired):
		case r.seen[e.name] != string(p.desired) || !o.isPublished(e.name):
			return entry{}, false
		case !ok:
			first, ok = e, true
		}
	}
	return first, ok
}

// conflict reports another Gatehouse that publishes into the same configuration, and
// sets when its caBundle is overwritten. Both pause longer each time, so that a lasting
// conflict does not overload the API server and its watchers.
func (p *Publisher) conflict(ctx context.Context, r *record, o *object, theirs entry) *problem {
	now := time.Now()
	if now.Sub(r.lastConflict) > calmTime {
		r.pauses = growing(firstPause, longestPause)
	}
	r.lastConflict = now
	failure := p.fail(ctx, r, o.reference(), &problem{classPublisher, fmt.Errorf("%s: another Gatehouse with another CA publishes into this configuration: "+
		"use one Secret for all replicas, or separate webhook configurations for each installation (it wrote the caBundle of webhook %q%s)", o, theirs.name, p.otherCA(theirs))})
	r.retry = now.Add(r.pauses.Step())
	return failure
}

// otherCA names a CA in the caBundle of an entry that is not desired, "" if there is none.
func (p *Publisher) otherCA(theirs entry) string {
	desired := parseBundle(string(p.desired))
	for _, cert := range theirs.bundle.certs {
		if !desired.has(cert) {
			return fmt.Sprintf(", with the CA %s, SHA-256 %s", quote(cert.Subject.String()), rotation.ID(cert))
		}
	}
	return ""
}
