package cabundle

import (
	"context"
	"crypto/tls"
	"errors"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
)

// doubtTime is how long a configuration may not trust what is served before that
// is reported: somebody may be about to mend it.
const doubtTime = 5 * time.Second

// Doubt reports, until the context ends, each configuration that does not trust
// what is served, with ReasonUntrusted, and when it does again. The function gives
// what is served, nil if nothing is. Nothing is reported before something is.
//
// It looks for Ready too, so that the first who asks is told what is true by then
// and has not to ask twice.
func (w *Watcher) Doubt(ctx context.Context, serving func() *tls.Certificate) error {
	doubts := map[target]*doubt{}
	for {
		changed := w.Changed()
		cert := serving()
		w.doubt(doubts, cert)
		again := time.NewTimer(w.settle(cert))
		select {
		case <-ctx.Done():
			again.Stop()
			return nil
		case <-changed:
		case <-again.C:
		}
		again.Stop()
	}
}

// settle looks for Ready, and says when to look again: at the end of the time that
// API servers are given to notice, and until there is something for them to notice
// as often as that, because what is served may change without a sign.
func (w *Watcher) settle(cert *tls.Certificate) time.Duration {
	if w.Ready(cert) == nil {
		return doubtTime
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.verified.IsZero() {
		return noticeTime
	}
	return noticeTime - time.Since(w.verified)
}

// doubt is a configuration that does not trust what is served.
type doubt struct {
	since time.Time
	told  string
}

func (w *Watcher) doubt(doubts map[target]*doubt, cert *tls.Certificate) {
	if cert == nil || w.cfg.Notify == nil {
		return
	}
	w.reporting.Lock()
	defer w.reporting.Unlock()
	for _, j := range w.judge(cert, w.cfg.Now().Round(0)) {
		d := doubts[j.target]
		event := certs.Event{Subject: Subject, Reason: certs.ReasonUntrusted, Err: j.err, Object: j.target.reference()}
		switch {
		case errors.Is(j.err, certs.ErrUnread):
		case j.err == nil && d == nil:
		case j.err == nil:
			delete(doubts, j.target)
			if d.told != "" {
				event.Reason, event.Message = certs.ReasonTrusted, "the serving certificate is trusted again"
				w.cfg.Notify(event)
			}
		case d == nil:
			doubts[j.target] = &doubt{since: time.Now()}
		case time.Since(d.since) >= doubtTime && d.told != j.err.Error():
			d.told = j.err.Error()
			w.cfg.Notify(event)
		}
	}
}
