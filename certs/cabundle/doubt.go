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
func (w *Watcher) Doubt(ctx context.Context, serving func() *tls.Certificate) error {
	ticker := time.NewTicker(doubtTime)
	defer ticker.Stop()
	doubts := map[target]*doubt{}
	for {
		changed := w.Changed()
		w.doubt(doubts, serving())
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-ticker.C:
		}
	}
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
