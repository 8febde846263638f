package status

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// announce writes Events of what changed with a write: what the status said before,
// written by whichever replica, was told before.
func (w *writer) announce(ctx context.Context, v *view, o *outcome, before *fields, after []metav1.Condition) {
	object := reference(&o.Object)
	was, is := conditionOf(before.Conditions, v1alpha1.CompiledCondition), conditionOf(after, v1alpha1.CompiledCondition)
	switch {
	case is.Status == metav1.ConditionFalse && (was.Status != is.Status || was.Message != is.Message || was.ObservedGeneration != is.ObservedGeneration):
		w.c.cfg.Record(object, true, v1alpha1.InvalidReason, is.Message)
	case is.Status == metav1.ConditionTrue && was.Status == metav1.ConditionFalse:
		w.c.cfg.Record(object, false, v1alpha1.CompiledReason, "The object can be used again: "+is.Message)
	}
	was, is = conditionOf(before.Conditions, v1alpha1.DegradedCondition), conditionOf(after, v1alpha1.DegradedCondition)
	if was.Message == is.Message {
		return
	}
	if o.Use == Previous && was.Reason != v1alpha1.PreviousVersionReason {
		w.c.cfg.Record(object, true, v1alpha1.PreviousVersionReason, "The last version without errors is used, in place of the object as it is now.")
	}
	if text := joinRemarks(o.NotSent); text != "" && !strings.Contains(was.Message, text) {
		w.c.cfg.Record(object, true, v1alpha1.NotSentReason, text)
	}
	if text := joinRemarks(changedRules(o, before)); text != "" && !strings.Contains(was.Message, text) {
		w.c.cfg.Record(object, true, v1alpha1.RuleChangedReason, text)
	}
	if text := v.outdated[o.Kind]; text != "" && w.outdated[o.Kind] != text {
		w.outdated[o.Kind] = text
		w.c.cfg.Record(w.definition(ctx, o.Kind), true, v1alpha1.OutdatedReason, text)
	}
}

func conditionOf(all []metav1.Condition, kind string) metav1.Condition {
	if found := find(all, kind); found != nil {
		return *found
	}
	return metav1.Condition{}
}

// definition is the CustomResourceDefinition of a kind. Its UID is needed for kubectl
// describe to show Events about it, and for nothing else.
func (w *writer) definition(ctx context.Context, kind string) corev1.ObjectReference {
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	reference := corev1.ObjectReference{
		APIVersion: definitions.GroupVersion().String(), Kind: "CustomResourceDefinition", Name: resourceOf(kind) + "." + v1alpha1.GroupVersion.Group,
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if found, err := w.c.cfg.Client.Resource(definitions).Get(ctx, reference.Name, metav1.GetOptions{}); err == nil {
		reference.UID = found.GetUID()
	}
	return reference
}
