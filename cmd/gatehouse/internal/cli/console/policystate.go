package console

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
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
	loaded    *loaded
	isOffline bool
	statuses  map[objectKey]*withStatus
	findings  map[string]diagnostic.List
	// errs say what could not be read.
	errs []error
}

// readStates returns the status of all objects: custom resources have conditions, and documents diagnostics.
func (c *console) readStates(ctx context.Context, l *loaded) *states {
	s := &states{loaded: l, isOffline: c.isOffline(), findings: map[string]diagnostic.List{}}
	for _, d := range l.Found {
		s.findings[d.Object] = append(s.findings[d.Object], d)
	}
	if !s.isOffline {
		var errs []error
		s.statuses, errs = c.statuses(ctx)
		s.errs = append(s.errs, errs...)
	}
	return s
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
	case slices.Contains(s.loaded.LeftOut, object):
		out.Class, out.Text = "bad", "has errors"
	case kind == nativePolicyKind:
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
	find := func(kind string, status metav1.ConditionStatus) *metav1.Condition {
		for i := range conditions {
			if conditions[i].Type == kind && conditions[i].Status == status {
				return &conditions[i]
			}
		}
		return nil
	}
	if c := find(v1alpha1.CompiledCondition, metav1.ConditionFalse); c != nil {
		return "bad", "not valid: " + c.Reason
	}
	if c := find(v1alpha1.ReadyCondition, metav1.ConditionFalse); c != nil {
		return "bad", "not ready: " + c.Reason
	}
	if c := find(v1alpha1.DegradedCondition, metav1.ConditionTrue); c != nil {
		return "notice", "degraded: " + c.Reason
	}
	if find(v1alpha1.ReadyCondition, metav1.ConditionTrue) != nil {
		return "good", "ready"
	}
	return "", "no status"
}
