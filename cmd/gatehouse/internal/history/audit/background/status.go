package background

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit/openreports"
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
			if one := &outcome.Coverage[i]; !one.Complete && active.Concerns(p.Name, one) {
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
