package background

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit/openreports"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

const (
	admissionPolicy = "AdmissionPolicy"
	// maxReason bounds one reason in a status, in bytes.
	maxReason = 300
)

// policyAudits returns the status of each AdmissionPolicy.
func policyAudits(active *Active, counts map[openreports.Policy]openreports.Counts, outcome *audit.Outcome, at time.Time) map[string]v1alpha1.PolicyAudit {
	skipped := map[string][]string{}
	for _, s := range outcome.Skipped {
		if s.Kind == admissionPolicy {
			text := s.Reason
			if s.Rule != "" {
				text = s.Rule + ": " + text
			}
			skipped[s.Policy] = append(skipped[s.Policy], text)
		}
	}
	all := map[string]v1alpha1.PolicyAudit{}
	for _, p := range active.Policies {
		if p.Kind != admissionPolicy {
			continue
		}
		n := counts[p]
		reasons := skipped[p.Name]
		for i := range outcome.Coverage {
			if one := &outcome.Coverage[i]; !one.Complete && slices.Contains(one.Policies, p.Name) {
				reasons = append(reasons, openreports.Unread(one))
			}
		}
		all[p.Name] = v1alpha1.PolicyAudit{
			Violations: n.Fail, Warnings: n.Warn, Errors: n.Error, Exempted: n.Skip, NotAudited: few(reasons), AuditedAt: metav1.NewTime(at.Truncate(time.Second)),
		}
	}
	return all
}

// few returns as many reasons as a status has, bounded.
func few(reasons []string) []string {
	if more := len(reasons) - v1alpha1.MaxNotAudited + 1; more > 1 {
		reasons = append(reasons[:v1alpha1.MaxNotAudited-1:v1alpha1.MaxNotAudited-1], fmt.Sprintf("and %d more", more))
	}
	var all []string
	for _, reason := range reasons {
		all = append(all, truncate.Bytes(diagnostic.OneLine(reason), maxReason))
	}
	return all
}

// findings are those of an audit, with the numbers of pods of the active profiles: anybody can write the names of others into a pod.
type findings struct {
	*openreports.Findings
	pods map[string]v1alpha1.SidecarPodCounts
}

func newFindings(active *Active) *findings {
	f := &findings{openreports.New(), map[string]v1alpha1.SidecarPodCounts{}}
	for _, p := range active.Policies {
		if p.Kind == admit.InjectionKind {
			f.pods[p.Name] = v1alpha1.SidecarPodCounts{}
		}
	}
	return f
}

// Injection implements audit.Sink.
func (f *findings) Injection(_ audit.Object, profile string, state audit.Injection) {
	n, isActive := f.pods[profile]
	if !isActive {
		return
	}
	if state == audit.Current || state == audit.Stale || state == audit.Missing {
		n.Matched++
	}
	if state == audit.Current || state == audit.Stale || state == audit.Extra {
		n.Injected++
	}
	if state == audit.Stale {
		n.Stale++
	}
	f.pods[profile] = n
}

// podCounts returns the numbers of pods, nil if not all pods were read.
func (f *findings) podCounts(outcome *audit.Outcome, at time.Time) map[string]v1alpha1.SidecarPodCounts {
	if !slices.ContainsFunc(outcome.Coverage, func(c audit.Coverage) bool {
		return c.GroupResource() == schema.GroupResource{Resource: "pods"} && c.Complete
	}) {
		return nil
	}
	for name, n := range f.pods {
		n.CountedAt = metav1.NewTime(at)
		f.pods[name] = n
	}
	return f.pods
}
