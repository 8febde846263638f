package status

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config/resolve"
)

// auditAge is how old the time of an audit may be in a status whose numbers stay the same.
const auditAge = 24 * time.Hour

// grantKind is the kind of Grants.
const grantKind = "Grant"

// fields are the fields of a status that are ours. A kind has some of them.
type fields struct {
	v1alpha1.ObjectStatus `json:",inline"`

	Audit   *v1alpha1.PolicyAudit      `json:"audit,omitempty"`
	Pods    *v1alpha1.SidecarPodCounts `json:"pods,omitempty"`
	Phase   v1alpha1.GrantPhase        `json:"phase,omitempty"`
	Entries *int32                     `json:"entries,omitempty"`
}

// version identifies a version of an object.
type version struct {
	uid        types.UID
	generation int64
}

// entry is an object in the cluster as it was last read.
type entry struct {
	version

	resourceVersion string
	fields          fields
	// stale is true if the object may have changed since.
	stale bool
	// readFor is the version of the object that it was read for.
	readFor version
}

// versionOf returns the version that an outcome is of.
func versionOf(o *outcome) version { return version{o.UID, o.Generation} }

// mustRead reports whether the object may have become what the outcome is of since it
// was read. One that is newer than the outcome is not read again.
func (e *entry) mustRead(o *outcome) bool {
	return e.stale || (e.uid != o.UID || e.generation < o.Generation) && e.readFor != versionOf(o)
}

// observe stores an object as it is in the cluster. A status that cannot be decoded counts
// as none.
func (e *entry) observe(object *unstructured.Unstructured) {
	e.version, e.resourceVersion = version{object.GetUID(), object.GetGeneration()}, object.GetResourceVersion()
	e.stale, e.fields = false, fields{}
	status, ok := object.Object["status"].(map[string]any)
	if !ok {
		return
	}
	var f fields
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(status, &f); err != nil {
		return
	}
	// Conditions of other types are not ours.
	var own []metav1.Condition
	for _, kind := range []string{v1alpha1.CompiledCondition, v1alpha1.ReadyCondition, v1alpha1.DegradedCondition, v1alpha1.NativeCondition} {
		if c := find(f.Conditions, kind); c.Type != "" {
			own = append(own, c)
		}
	}
	f.Conditions = own
	e.fields = f
}

// wanted returns the status that an object should have. While it is too early to decide, it returns nil and
// when to try again.
func (w *writer) wanted(v *view, o *outcome, found *fields) (*fields, time.Time) {
	conditions, again := v.conditions(o)
	if !again.IsZero() {
		return nil, again
	}
	f := &fields{ObjectStatus: v1alpha1.ObjectStatus{ObservedGeneration: o.Generation, Conditions: slices.Clone(found.Conditions)}}
	if n := o.Native; n != nil && n.Type == "" {
		meta.RemoveStatusCondition(&f.Conditions, v1alpha1.NativeCondition)
	} else if n != nil && (n.Status != metav1.ConditionUnknown || find(f.Conditions, n.Type).Type != "") {
		conditions = append(conditions, condition(n.Type, n.Status, n.Reason, joinRemarks([]string{n.Message})))
		conditions[len(conditions)-1].ObservedGeneration = o.Generation
	}
	for _, c := range conditions {
		c.LastTransitionTime = stamp(v.now)
		meta.SetStatusCondition(&f.Conditions, c)
	}
	switch o.Kind {
	case "AdmissionPolicy":
		f.Audit = w.audit(o.Name, found.Audit)
	case "SidecarProfile":
		f.Pods = w.pods(o.Name, found.Pods)
	case "PolicyBaseline":
		f.Entries = new(int32(o.Entries)) //nolint:gosec // a document has at most baseline.MaxEntries
	case grantKind:
		if o.Use == resolve.Current {
			f.Phase = (&v1alpha1.GrantSpec{NotBefore: metav1.NewTime(o.Begins), ExpiresAt: metav1.NewTime(o.Expires)}).PhaseAt(v.now)
		}
	}
	return f, time.Time{}
}

// audit returns the result of the last audit: the one in the cluster if it has the same numbers and is not old.
func (w *writer) audit(name string, found *v1alpha1.PolicyAudit) *v1alpha1.PolicyAudit {
	if w.c.cfg.Audits == nil {
		return nil
	}
	last, audited := w.c.cfg.Audits.Counts()[name]
	if !audited {
		return found
	}
	if found != nil {
		same := *found
		same.AuditedAt = last.AuditedAt
		if equality.Semantic.DeepEqual(same, last) && last.AuditedAt.Sub(found.AuditedAt.Time) < auditAge {
			return found
		}
	}
	return &last
}

// pods returns the counts of pods: those in the cluster if they are the same.
func (w *writer) pods(name string, found *v1alpha1.SidecarPodCounts) *v1alpha1.SidecarPodCounts {
	if w.c.cfg.Audits == nil {
		return nil
	}
	count, counted := w.c.cfg.Audits.Pods()[name]
	if !counted || found != nil && found.Matched == count.Matched && found.Injected == count.Injected && found.Stale == count.Stale {
		return found
	}
	count.CountedAt = stamp(count.CountedAt.Time)
	return &count
}

// isWritten reports whether the cluster has a status.
func (f *fields) isWritten(found *fields) bool {
	return f.ObservedGeneration == found.ObservedGeneration && equality.Semantic.DeepEqual(f.Conditions, found.Conditions) &&
		equality.Semantic.DeepEqual(f.Audit, found.Audit) && equality.Semantic.DeepEqual(f.Pods, found.Pods) && f.Phase == found.Phase &&
		equality.Semantic.DeepEqual(f.Entries, found.Entries)
}

// apply writes our fields of a status, if the object is still as it was read. It takes fields from other
// managers, as every controller of a status does.
func (w *writer) apply(ctx context.Context, o *outcome, e *entry, f *fields) (*unstructured.Unstructured, error) {
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(f)
	if err != nil {
		return nil, err
	}
	metadata := map[string]any{"name": o.Name, "resourceVersion": e.resourceVersion}
	if o.Namespace != "" {
		metadata["namespace"] = o.Namespace
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": o.Kind, "metadata": metadata, "status": status,
	}}
	return w.resource(o.Kind, o.Namespace).ApplyStatus(ctx, o.Name, object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
}
