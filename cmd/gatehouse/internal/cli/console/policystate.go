package console

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// state is the status of a policy, profile or exception.
type state struct {
	// Class is "good", "notice" or "bad", and Text says it in few words.
	Class, Text string
	// Conditions are those of a custom resource, and Findings what is wrong with the document.
	Conditions []metav1.Condition
	Findings   diagnostic.List
	// owner is the owner of a custom resource. Configurations have no annotations of these.
	owner string
}

// states are the status of all objects of a configuration.
type states struct {
	loaded   *loaded
	statuses map[objectKey]*withStatus
	findings map[string]diagnostic.List
	// errs say what could not be read.
	errs []error
}

// readStates returns the status of all objects: custom resources have conditions, and documents diagnostics.
func (c *console) readStates(ctx context.Context, l *loaded) *states {
	s := &states{loaded: l, findings: map[string]diagnostic.List{}}
	for _, d := range l.Found {
		s.findings[d.Object] = append(s.findings[d.Object], d)
	}
	if !c.isOffline() {
		s.statuses, s.errs = c.statuses(ctx)
	}
	return s
}

// leftOut returns the exceptions of the cluster that are not active, because they have errors.
func (s *states) leftOut() (all []*policy.Exception) {
	active := map[objectKey]bool{}
	for _, e := range allExceptions(s.loaded) {
		active[objectKey{exceptionKind, e.Namespace, e.Name}] = isFromCluster(e.Source)
	}
	for key, o := range s.statuses {
		if key.kind == exceptionKind && !active[key] && s.findings[key.kind+"/"+key.namespace+"/"+key.name].Err() != nil {
			e := &policy.Exception{Source: config.ClusterSource}
			e.Namespace, e.Name = key.namespace, key.name
			e.Spec.Reason, e.Spec.ExpiresAt, e.Spec.Policies = o.Spec.Reason, o.Spec.ExpiresAt, o.Spec.Policies
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *policy.Exception) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return all
}

// of returns the status of an object. Source is where it is defined.
func (s *states) of(kind, namespace, name, source string) state {
	object := kind + "/" + name
	if namespace != "" {
		object = kind + "/" + namespace + "/" + name
	}
	out := state{Findings: s.findings[object]}
	if namespace != "" {
		out.Findings = slices.Concat(out.Findings, s.findings[kind+"/"+name])
	}
	if !isFromCluster(source) {
		out.Class, out.Text = "good", "valid"
		if len(out.Findings) > 0 {
			out.Class, out.Text = "notice", diagnostic.Count(len(out.Findings), "warning")
		}
		if out.Findings.Err() != nil {
			out.Class, out.Text = "bad", "has errors"
		}
		return out
	}
	found := s.statuses[objectKey{kind, namespace, name}]
	if found != nil {
		out.Conditions, out.owner = found.Status.Conditions, ownerOf(found.Annotations)
	}
	switch {
	case slices.Contains(s.loaded.LeftOut, object), out.Findings.Err() != nil:
		out.Class, out.Text = "bad", "has errors"
	case kind == nativePolicyKind, kind == admit.MutationKind:
		out.Text = "the API server evaluates it"
	case len(out.Conditions) == 0:
		out.Text = "no status"
	default:
		out.Class, out.Text = conditionsState(out.Conditions)
	}
	return out
}

// conditionsState returns the class and the text of conditions: what is wrong goes before what is good.
func conditionsState(conditions []metav1.Condition) (class, text string) {
	for _, of := range []struct {
		kind        string
		status      metav1.ConditionStatus
		class, what string
	}{
		{v1alpha1.CompiledCondition, metav1.ConditionFalse, "bad", "not valid: "},
		{v1alpha1.ReadyCondition, metav1.ConditionFalse, "bad", "not ready: "},
		{v1alpha1.DegradedCondition, metav1.ConditionTrue, "notice", "degraded: "},
	} {
		if c := meta.FindStatusCondition(conditions, of.kind); c != nil && c.Status == of.status {
			return of.class, of.what + c.Reason
		}
	}
	if meta.IsStatusConditionTrue(conditions, v1alpha1.ReadyCondition) {
		return "good", "ready"
	}
	return "", "no status"
}
