package cabundle

import (
	"context"
	"crypto/x509"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/certs"
)

func (p *Publisher) notify(e certs.Event) {
	if p.cfg.Notify != nil {
		e.Subject = Subject
		p.cfg.Notify(e)
	}
}

// fail reports why a configuration is not written, unless that is what was
// reported last, and returns the failure.
func (p *Publisher) fail(ctx context.Context, r *record, about corev1.ObjectReference, failure *problem) *problem {
	if ctx.Err() != nil {
		return failure
	}
	p.failed.Add(1)
	if r.class != failure.class {
		r.class = failure.class
		p.notify(certs.Event{Reason: certs.ReasonPublishFailed, Object: about, Err: failure.err})
	}
	return failure
}

// reportInjector reports a configuration that cainjector writes into. A second writer would
// conflict with it.
func (p *Publisher) reportInjector(r *record, o *object) {
	if r.class == classInjector {
		return
	}
	r.class = classInjector
	p.failed.Add(1)
	p.notify(certs.Event{
		Reason: certs.ReasonPublishFailed, Object: o.reference(),
		Err: fmt.Errorf("%s: its caBundle is left to cert-manager's cainjector, because of the annotation %s: remove that annotation, or run with --publish-ca-bundle=false", o, o.injector),
	})
}

// reportWritten reports a bundle that was written. That another client overwrites it is
// reported at most once in an interval.
func (p *Publisher) reportWritten(r *record, before *object, list []*x509.Certificate, changed []string, overwritten bool) {
	event := certs.EventOf(Subject, list...)
	event.Object = before.reference()
	webhooks := "webhook"
	if len(changed) > 1 {
		webhooks = "webhooks"
	}
	webhooks += fmt.Sprintf(" %q", changed[0])
	for _, name := range changed[1:] {
		webhooks += fmt.Sprintf(", %q", name)
	}
	if !overwritten {
		event.Reason = certs.ReasonPublished
		event.Message = fmt.Sprintf("%s: wrote the caBundle of %s: %s", before, webhooks, subjects(list))
		p.notify(event)
		return
	}
	p.overwritten.Add(1)
	now := time.Now()
	if !r.reported.IsZero() && now.Sub(r.reported) < interval {
		return // Stats counts every time
	}
	r.reported = now
	who := "another client"
	if m, ok := before.foreignManager(changed[0]); ok {
		who = fmt.Sprintf("%q (%s)", m.Name, m.Operation)
	}
	event.Reason = certs.ReasonOverwritten
	event.Message = fmt.Sprintf("%s: %s changed the caBundle of %s, and Gatehouse restored it: remove that field from what it applies", before, who, webhooks)
	p.notify(event)
}

func subjects(list []*x509.Certificate) string {
	var names []string
	for _, cert := range list {
		names = append(names, fmt.Sprintf("%q until %s", cert.Subject, cert.NotAfter.UTC().Format(time.RFC3339)))
	}
	return strings.Join(names, ", ")
}
