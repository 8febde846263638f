package cabundle

import (
	"context"
	"crypto/tls"
	"errors"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
)

// distrustTime is how long a configuration may distrust the serving certificate
// before that is reported: a repair may be in progress.
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
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-time.After(w.untilReady(cert)):
		}
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
	for _, v := range w.Verdicts(cert, w.cfg.Now().Round(0)) {
		t := target{kind(v.Kind), v.Name}
		d := known[t]
		event := certs.Event{Subject: Subject, Reason: certs.ReasonUntrusted, Err: v.err, Object: t.reference()}
		switch {
		case errors.Is(v.err, certs.ErrUnread):
		case v.Trusted && d == nil:
		case v.Trusted:
			delete(known, t)
			if d.reported != "" {
				event.Reason, event.Message = certs.ReasonTrusted, "the serving certificate is trusted again"
				w.cfg.Notify(event)
			}
		case d == nil:
			known[t] = &distrusted{since: time.Now()}
		case time.Since(d.since) >= distrustTime && d.reported != v.err.Error():
			d.reported = v.err.Error()
			w.cfg.Notify(event)
		}
	}
}
