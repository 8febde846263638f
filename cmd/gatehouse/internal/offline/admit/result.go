package admit

import (
	"bytes"
	"context"
	"regexp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// ResultRule is the rule of a violation by which the API server refuses what a mutating policy or injection makes of an object. Its
// policy is the one that made it.
const ResultRule = "result"

// Result returns what the API server refuses of an object that has changed since its request was sent, and the violations for what it
// does not refuse of the object as it was sent. Changed is false for an object that it need not look at.
func Result(ctx context.Context, resources *request.Resources, set *mutation.Set, sent, now *admission.Request) (invalid diagnostic.List, made []policy.Violation, changed bool) {
	writes := now.Operation == admissionv1.Create || now.Operation == admissionv1.Update
	if resources == nil || !writes || now.SubResource != "" || bytes.Equal(sent.Object.Raw, now.Object.Raw) {
		return nil, nil, false
	}
	invalid = resources.Invalid(ctx, now)
	if len(invalid) == 0 {
		return nil, nil, true
	}
	before := resources.Invalid(ctx, sent)
	var last []mutation.LastChange
	if set != nil {
		explained := set.Decide(ctx, mutation.Input{Request: *sent, Explain: true})
		last = explained.LastChanges()
	}
	for i := range invalid {
		if d := &invalid[i]; !Has(before, d) {
			made = append(made, resultViolation(d, last))
		}
	}
	return invalid, made, true
}

// elements matches the indices of a field path.
var elements = regexp.MustCompile(`\[\d+\]`)

// Has reports whether a list has a diagnostic, which may be about another element: what is added to a list moves the others.
func Has(list diagnostic.List, d *diagnostic.Diagnostic) bool {
	field := elements.ReplaceAllString(d.Field, "[]")
	return slices.ContainsFunc(list, func(other diagnostic.Diagnostic) bool {
		return other.Message == d.Message && elements.ReplaceAllString(other.Field, "[]") == field
	})
}

// resultViolation returns the violation for what is wrong with a field, of the policy that changed it last, or else of injection.
func resultViolation(d *diagnostic.Diagnostic, last []mutation.LastChange) policy.Violation {
	v := policy.Violation{
		Kind: InjectionKind, Rule: ResultRule, Message: "the API server refuses it: " + d.String(), Reason: metav1.StatusReasonInvalid,
		Outcome: policy.Violated, Actions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
	}
	field := pointer(d.Field)
	for _, c := range slices.Backward(last) {
		if path := c.Path + "/"; strings.HasPrefix(field, path) || strings.HasPrefix(path, field) {
			v.Kind, v.Policy, v.Binding = MutationKind, c.Policy, c.Binding
			break
		}
	}
	return v
}

// pointer returns a field path as a JSON pointer with a slash at the end.
func pointer(field string) string {
	var out strings.Builder
	out.WriteByte('/')
	for _, step := range strict.Steps(field) {
		out.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(step) + "/")
	}
	return out.String()
}

// addResult adds what the API server refuses of the object of a request since it was sent, or of the pod of the template at a path.
func (d *Decider) addResult(ctx context.Context, out *Decision, sent, now *admission.Request, template string) {
	invalid, made, changed := Result(ctx, d.Resources, d.Snapshot.Mutation, sent, now)
	if template == "" {
		out.Changed, out.Invalid = changed, invalid
	}
	for i := range made {
		made[i].Template, out.Refused = template, true
	}
	out.Violations, out.Beside = append(out.Violations, made...), append(out.Beside, made...)
}
