package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config/resolve"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

const (
	// grace is how long replicas may differ before a condition says so.
	grace = 3 * time.Second
	// maxMessage bounds the message of a condition, in bytes, and maxRemark one remark
	// in it.
	maxMessage, maxRemark = 2 << 10, 1 << 10
	// maxNamed is how many replicas a message names.
	maxNamed = 5
)

// view is the state that conditions depend on besides the object.
type view struct {
	*current

	// others are the other replicas that are alive, by name.
	others []*replica
	now    time.Time
}

// conditions returns those of an object with this status, without their
// lastTransitionTime. While it is too early to decide, it returns nil and when to try again.
func (v *view) conditions(o *outcome) ([]metav1.Condition, time.Time) {
	ready, again := v.ready(o)
	if !again.IsZero() {
		return nil, again
	}
	all := []metav1.Condition{compiled(o), ready, v.degraded(o)}
	for i := range all {
		all[i].ObservedGeneration = o.Generation
	}
	return all, time.Time{}
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

func compiled(o *outcome) metav1.Condition {
	switch {
	case !o.isUsable():
		return condition(v1alpha1.CompiledCondition, metav1.ConditionFalse, v1alpha1.InvalidReason, joinRemarks(o.findings()))
	case len(o.Findings) > 0:
		return condition(v1alpha1.CompiledCondition, metav1.ConditionTrue, v1alpha1.WarningsReason, joinRemarks(o.findings()))
	default:
		return condition(v1alpha1.CompiledCondition, metav1.ConditionTrue, v1alpha1.CompiledReason, "There are no errors.")
	}
}

// isUsable reports whether the object as it was read has no errors.
func (o *outcome) isUsable() bool { return o.Use == resolve.Current && o.Findings.Err() == nil }

// findings returns the diagnostics of the object without their source, errors first.
func (o *outcome) findings() []string {
	var errors, warnings []string
	for _, f := range o.Findings {
		f.Source = ""
		if f.Object == o.Kind+"/"+o.Name || f.Object == o.Kind+"/"+o.Namespace+"/"+o.Name {
			f.Object = ""
		}
		if f.Severity == diagnostic.Error {
			errors = append(errors, f.String())
		} else {
			warnings = append(warnings, "warning: "+f.String())
		}
	}
	return append(errors, warnings...)
}

// ready returns the condition Ready, or when to try again.
func (v *view) ready(o *outcome) (metav1.Condition, time.Time) {
	switch o.Use {
	case resolve.Unused:
		return condition(v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.NotUsedReason,
			"The object has errors, see the condition Compiled. Gatehouse does not use it, because there is no earlier version without errors."), time.Time{}
	case resolve.Previous:
		return condition(v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.PreviousVersionReason,
			"The object has errors, see the condition Compiled. Gatehouse uses the last version without errors."), time.Time{}
	case resolve.Current:
	}
	var waiting []string
	var again time.Time
	for _, one := range v.others {
		if one.differs.IsZero() || one.agreed.After(o.since) {
			continue
		}
		from := o.since
		if one.differs.After(from) {
			from = one.differs
		}
		if soon := from.Add(grace); v.now.Before(soon) {
			if again.IsZero() || soon.Before(again) {
				again = soon
			}
			continue
		}
		waiting = append(waiting, one.name)
	}
	switch {
	case len(waiting) > 0:
		return condition(v1alpha1.ReadyCondition, metav1.ConditionUnknown, v1alpha1.WaitingReason, waitingMessage(waiting)), time.Time{}
	case !again.IsZero():
		return metav1.Condition{}, again
	}
	if v.now.Before(o.Begins) {
		return condition(v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.NoEffectReason, "It begins at "+o.Begins.UTC().Format(time.RFC3339)+"."), time.Time{}
	}
	if !o.Expires.IsZero() && !v.now.Before(o.Expires) {
		return condition(v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.NoEffectReason, "It expired at "+o.Expires.UTC().Format(time.RFC3339)+"."), time.Time{}
	}
	for _, f := range o.Findings {
		if f.NoEffect {
			f.Source, f.Object = "", ""
			return condition(v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.NoEffectReason, joinRemarks([]string{f.String()})), time.Time{}
		}
	}
	return condition(v1alpha1.ReadyCondition, metav1.ConditionTrue, v1alpha1.InUseReason, "Every replica uses the object."), time.Time{}
}

func waitingMessage(names []string) string {
	more := ""
	if n := len(names) - maxNamed; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
		names = names[:maxNamed]
	}
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = fmt.Sprintf("%q", truncate.Bytes(name, 100))
	}
	return "These replicas have not reported that they use the current version: " + strings.Join(quoted, ", ") + more + "."
}

func (v *view) degraded(o *outcome) metav1.Condition {
	var reasons, remarks []string
	if o.Use == resolve.Previous {
		reasons = append(reasons, v1alpha1.PreviousVersionReason)
		remarks = append(remarks, "Gatehouse uses the last version without errors in place of the current one")
	}
	if len(o.NoParams) > 0 {
		reasons = append(reasons, v1alpha1.ParamsNotFoundReason)
		remarks = append(remarks, o.NoParams...)
	}
	if v.Rejected != "" {
		reasons = append(reasons, v1alpha1.ConfigurationRejectedReason)
		remarks = append(remarks, v.Rejected)
	}
	if len(o.NotSent) > 0 {
		reasons = append(reasons, v1alpha1.NotSentReason)
		remarks = append(remarks, o.NotSent...)
	}
	if warnings := slices.Concat(o.Warnings, o.findings()); o.isUsable() && len(warnings) > 0 {
		reasons = append(reasons, v1alpha1.WarningsReason)
		remarks = append(remarks, warnings...)
	}
	switch {
	case len(reasons) > 0:
		return condition(v1alpha1.DegradedCondition, metav1.ConditionTrue, reasons[0], joinRemarks(remarks))
	case o.Use == resolve.Unused:
		return condition(v1alpha1.DegradedCondition, metav1.ConditionFalse, v1alpha1.NotUsedReason, "Gatehouse does not use the object, see the condition Ready.")
	default:
		return condition(v1alpha1.DegradedCondition, metav1.ConditionFalse, v1alpha1.HealthyReason, "There are no problems.")
	}
}

// joinRemarks joins as many remarks as fit into a message, one a line.
func joinRemarks(remarks []string) string {
	const room = len("\nand 1000000 more")
	var b strings.Builder
	for i, remark := range remarks {
		remark = truncate.Bytes(strings.ToValidUTF8(remark, "?"), maxRemark)
		if i > 0 && b.Len()+1+len(remark) > maxMessage-room {
			fmt.Fprintf(&b, "\nand %d more", len(remarks)-i)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(remark)
	}
	return b.String()
}

// find returns the condition of a type, the zero one if there is none.
func find(all []metav1.Condition, kind string) metav1.Condition {
	if found := meta.FindStatusCondition(all, kind); found != nil {
		return *found
	}
	return metav1.Condition{}
}

// stamp returns a time with the precision of a status.
func stamp(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }
