package cabundle

import (
	"context"
	"crypto/tls"
	"errors"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
)

// distrustTime is how long a configuration may distrust the serving certificate
// before that is reported: somebody may be about to repair it.
const distrustTime = 5 * time.Second

// MonitorTrust reports each configuration that does not trust the serving certificate,
// with ReasonUntrusted, and when it trusts it again, until the context ends. serving
// returns the serving certificate, nil if there is none: then nothing is reported.
//
// It evaluates Ready too, so that the first probe gets the final answer.
func (w *Watcher) MonitorTrust(ctx context.Context, serving func() *tls.Certificate) error {
	known := map[target]*distrusted{}
	for {
		changed := w.Changed()
		cert := serving()
		w.reportUntrusted(known, cert)
		again := time.NewTimer(w.untilReady(cert))
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

// untilReady evaluates Ready, and returns when to evaluate it again: at the end of the
// time that API servers are given to notice, and before that starts as often as that,
// because the serving certificate may change without a sign.
func (w *Watcher) untilReady(cert *tls.Certificate) time.Duration {
	if w.Ready(cert) == nil {
		return distrustTime
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.verified.IsZero() {
		return noticeTime
	}
	return noticeTime - time.Since(w.verified)
}

// distrusted is a configuration that does not trust the serving certificate.
type distrusted struct {
	since    time.Time
	reported string
}

func (w *Watcher) reportUntrusted(known map[target]*distrusted, cert *tls.Certificate) {
	if cert == nil || w.cfg.Notify == nil {
		return
	}
	w.reporting.Lock()
	defer w.reporting.Unlock()
	for _, j := range w.judgements(cert, w.cfg.Now().Round(0)) {
		d := known[j.target]
		event := certs.Event{Subject: Subject, Reason: certs.ReasonUntrusted, Err: j.err, Object: j.target.reference()}
		switch {
		case errors.Is(j.err, certs.ErrUnread):
		case j.err == nil && d == nil:
		case j.err == nil:
			delete(known, j.target)
			if d.reported != "" {
				event.Reason, event.Message = certs.ReasonTrusted, "the serving certificate is trusted again"
				w.cfg.Notify(event)
			}
		case d == nil:
			known[j.target] = &distrusted{since: time.Now()}
		case time.Since(d.since) >= distrustTime && d.reported != j.err.Error():
			d.reported = j.err.Error()
			w.cfg.Notify(event)
		}
	}
}
