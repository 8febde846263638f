package status

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// auditor is a PolicyAuditor.
type auditor struct {
	running atomic.Int32
	counts  atomic.Pointer[map[string]v1alpha1.PolicyAudit]
	changed chan struct{}
}

func (a *auditor) Run(ctx context.Context) {
	a.running.Add(1)
	<-ctx.Done()
	a.running.Add(-1)
}

func (a *auditor) Counts() map[string]v1alpha1.PolicyAudit {
	if counts := a.counts.Load(); counts != nil {
		return *counts
	}
	return nil
}

func (a *auditor) Changed() <-chan struct{} { return a.changed }

// ends is the end of an audit.
func (a *auditor) ends(violations int64, notAudited ...string) {
	a.counts.Store(&map[string]v1alpha1.PolicyAudit{"p": {Violations: violations, NotAudited: notAudited, AuditedAt: metav1.Now()}})
	poke(a.changed)
}

// TestAudits: the replica that is elected audits. What it finds is written once, and again only when it changes or is a day old. It
// is removed where there are no audits any more.
func TestAudits(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		policy, other := w.create("AdmissionPolicy", "p"), w.create("AdmissionPolicy", "other")
		audits := &auditor{changed: make(chan struct{}, 1)}
		a := w.start(t, "a", func(c *Config) { c.Audit = audits })
		a.Use(report("1", policy, other))
		elected()
		settle()
		writes := func(since time.Time) int {
			return len(w.requests(since, func(r *fakeapi.Request) bool { return isStatusWrite(r) && r.Resource == "admissionpolicies/status" }))
		}
		start := time.Now()
		for range 20 {
			audits.ends(7, "validations[0]: it reads request.userInfo")
			time.Sleep(time.Hour)
		}
		synctest.Wait()
		if n := writes(start); n != 1 {
			t.Errorf("%d writes by 20 audits that found the same", n)
		}
		if got := w.status(t, policy).Audit; got == nil || got.Violations != 7 || len(got.NotAudited) != 1 || got.AuditedAt.Sub(start) > time.Minute {
			t.Errorf("the audit is %+v", got)
		}
		if w.status(t, other).Audit != nil {
			t.Error("there is an audit of a policy that was not audited")
		}
		for range 10 {
			audits.ends(7, "validations[0]: it reads request.userInfo")
			time.Sleep(time.Hour)
		}
		if n := writes(start); n != 2 {
			t.Errorf("%d writes in 30 hours, want 2", n)
		}
		audits.ends(8)
		time.Sleep(2 * time.Minute)
		if got := w.status(t, policy).Audit; got.Violations != 8 || got.NotAudited != nil {
			t.Errorf("the audit is %+v", got)
		}
		// Conditions keep audits.
		policy = w.edit(policy)
		a.Use(report("2", policy, other))
		settle()
		if got := w.wantStatus(t, policy, "observed 2, "+healthy); got.Audit == nil || got.Audit.Violations != 8 {
			t.Errorf("the audit is %+v", got.Audit)
		}
		if audits.running.Load() != 1 {
			t.Errorf("%d audits run", audits.running.Load())
		}
		a.stop()
		if audits.running.Load() != 0 {
			t.Error("it audits after the end")
		}
		b := w.start(t, "b")
		b.Use(report("2", policy, other))
		elected()
		time.Sleep(3 * time.Minute)
		if got := w.status(t, policy).Audit; got != nil {
			t.Errorf("without audits it is %+v", got)
		}
		b.stop()
	})
}

// TestAuditsNeedTheirField: an outdated definition may lack the field, and then the API server would refuse the whole status.
func TestAuditsNeedTheirField(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		policy := w.create("AdmissionPolicy", "p")
		audits := &auditor{changed: make(chan struct{}, 1)}
		a := w.start(t, "a", func(c *Config) { c.Audit = audits })
		outdated := report("1", policy)
		outdated.Outdated = map[string]string{"AdmissionPolicy": "apply the definition"}
		a.Use(outdated)
		elected()
		settle()
		audits.ends(7)
		time.Sleep(3 * time.Minute)
		if got := w.status(t, policy).Audit; got != nil {
			t.Errorf("the audit is %+v", got)
		}
		a.stop()
	})
}
