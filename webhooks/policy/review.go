package policy

import (
	"context"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Review decides on one request.
//
// The answer names every violation of every policy, ordered by the names of
// policy, binding and param and by the place of the rule. It is "could not
// tell", code 500, if the request cannot be read, or if the context ends while
// policies are evaluated. It keeps nothing of the request.
func (s *Set) Review(ctx context.Context, req admission.Request) admission.Response {
	return newRequest(s, req).review(ctx)
}

// ReviewChecked is Review for a caller whose codec has checked that the objects
// are JSON, as webhooks/review does: they are not checked again, which is a tenth
// of what a review with one policy takes.
func (s *Set) ReviewChecked(ctx context.Context, req admission.Request) admission.Response {
	r := newRequest(s, req)
	r.object.checked, r.oldObject.checked = true, true
	return r.review(ctx)
}

func (r *request) review(ctx context.Context) admission.Response {
	if exempt(r) {
		return r.response(r)
	}
	for _, n := range r.set.index.candidates(r) {
		r.evaluate(ctx, r.set.policies[n])
		if r.err != nil {
			return admission.Errored(500, r.err)
		}
	}
	return r.response(r)
}

// evaluate adds what one policy says to the answer.
func (r *request) evaluate(ctx context.Context, p *compiledPolicy) {
	matches, err := p.match.matches(r, true)
	switch {
	case r.err != nil:
		return
	case err != nil:
		r.misconfigured(p, nil, err)
		return
	case !matches:
		return
	}
	for i := range p.bindings {
		b := &p.bindings[i]
		if b.match != nil {
			matches, err := b.match.matches(r, false)
			if r.err != nil {
				return
			}
			if err != nil {
				r.misconfigured(p, b, err)
				continue
			}
			if !matches {
				continue
			}
		}
		found, err := b.params.find(r.set.objects, r.Namespace)
		if err != nil {
			r.misconfigured(p, b, err)
			continue
		}
		if len(found) == 0 {
			continue
		}
		namespace, known := r.namespace()
		if !known && p.looksAtNamespace {
			r.misconfigured(p, b, fmt.Errorf("namespace %q is not known, and namespaceObject is used", r.Namespace))
			continue
		}
		for _, param := range found {
			r.run(ctx, p, b, namespace, param)
			if err := context.Cause(ctx); err != nil {
				r.fail(fmt.Errorf("no decision in time: %w", err))
			}
			if r.err != nil {
				return
			}
		}
	}
}

// misconfigured denies a request that a policy is about but cannot be evaluated
// for, unless its failure policy is Ignore. As upstream, it does so whatever the
// binding's actions are.
func (r *request) misconfigured(p *compiledPolicy, b *binding, err error) {
	if p.failurePolicy == admissionregistrationv1.Ignore {
		return
	}
	if b == nil || b.name == "" {
		r.deny(p, "", "failed to configure policy: "+err.Error(), "")
		return
	}
	r.deny(p, b.name, "failed to configure binding: "+err.Error(), "")
}

// run evaluates one policy for one binding and one param.
func (r *request) run(ctx context.Context, p *compiledPolicy, b *binding, namespace *corev1.Namespace, param runtime.Object) {
	versioned, err := r.evaluable(p.looksAtObject)
	if err != nil {
		r.fail(err)
		return
	}
	var result validating.ValidateResult
	if p.podSecurity != nil {
		if p.conditions != nil {
			switch match := p.conditions.Match(ctx, versioned, param, nil); {
			case match.Error != nil: // never with failurePolicy Ignore
				r.violated(p, b, -1, match.Error.Error(), "")
				return
			case !match.Matches:
				return
			}
		}
		texts, err := p.podSecurity.violations(r)
		if err != nil {
			r.fail(err)
			return
		}
		for _, text := range texts {
			r.violated(p, b, -1, text, metav1.StatusReasonForbidden)
		}
	}
	if p.validator != nil {
		result = p.validator.Validate(ctx, schema.GroupVersionResource(r.Resource), versioned, param, namespace, celconfig.RuntimeCELCostBudget, nil)
	}
	for i, decision := range result.Decisions {
		if decision.Action == validating.ActionDeny {
			r.violated(p, b, i, decision.Message, decision.Reason)
		}
	}
	for _, note := range result.AuditAnnotations {
		switch note.Action {
		case validating.AuditAnnotationActionPublish:
			r.annotate(p.auditKeys[note.Key], note.Value)
		case validating.AuditAnnotationActionError: // never with failurePolicy Ignore
			r.deny(p, b.name, note.Error, "")
		case validating.AuditAnnotationActionExclude:
		default:
			r.fail(errors.New("unknown action for an audit annotation: " + string(note.Action)))
		}
	}
}

// violated does with a violation what the binding says. The rule is its place
// in the policy's validations, or -1 for podSecurity.
func (r *request) violated(p *compiledPolicy, b *binding, rule int, message string, reason metav1.StatusReason) {
	for _, action := range b.actions {
		switch action {
		case admissionregistrationv1.Deny:
			r.deny(p, b.name, message, reason)
		case admissionregistrationv1.Warn:
			r.warn(p, b.name, message)
		case admissionregistrationv1.Audit:
			r.failures = append(r.failures, validating.ValidationFailureValue{
				ExpressionIndex: rule, Message: message, ValidationActions: b.actions, Binding: b.name, Policy: p.name,
			})
		}
	}
}
