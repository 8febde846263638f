package compile

import (
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// The annotations and the label of compiled documents.
const (
	// FromAnnotation is the kind and name of the source.
	FromAnnotation = v1alpha1.CompiledFromAnnotation
	// HashAnnotation is the SHA-256 of the spec, as it was compiled.
	HashAnnotation = "gatehouse.dev/compiled-hash"
	// ExpiresAnnotation is when the first of the exceptions in the document ends, in RFC 3339. From then on it must be compiled again.
	ExpiresAnnotation = "gatehouse.dev/exceptions-expire-at"
	// ManagedByLabel has the value ManagedBy.
	ManagedByLabel = v1alpha1.ManagedByLabel
	ManagedBy      = v1alpha1.CompileManager
)

// Status is what becomes of a rule or exception.
type Status string

// The values of Status, from the best to the worst.
const (
	// Native is decided by the API server as by Gatehouse.
	Native Status = "native"
	// Differs is decided by the API server, with differences that are named.
	Differs Status = "differs"
	// Stays is decided by Gatehouse alone.
	Stays Status = "stays"
)

// Item is what becomes of one rule, or of an exception.
type Item struct {
	// Kind and Name are those of the policy or exception.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Rule is as in messages, "" for an exception.
	Rule   string `json:"rule,omitempty"`
	Status Status `json:"status"`
	// Reasons are the differences, or why it stays.
	Reasons []string `json:"reasons,omitempty"`
	// Notes are what else there is to know.
	Notes []string `json:"notes,omitempty"`
}

func (i *Item) add(status Status, reason string) {
	switch {
	case i.Status != Stays && status == Stays:
		i.Reasons = nil // how it would differ does not matter
	case i.Status == Stays && status != Stays:
		return
	}
	i.Status = status
	if !slices.Contains(i.Reasons, reason) {
		i.Reasons = append(i.Reasons, reason)
	}
}

func (i *Item) differ(reason string) { i.add(Differs, reason) }

func (i *Item) stay(reason string) { i.add(Stays, reason) }

func (i *Item) note(text string) { i.Notes = append(i.Notes, text) }

// Document is a compiled document. One of Policy, Binding, MutatingPolicy and MutatingBinding is set.
type Document struct {
	// From is the kind and name of the source.
	From string
	// Source is the name of the binding of the source that a binding was, "" for the actions of an AdmissionPolicy itself.
	Source string
	// Template is the path of the pod templates that the document is about, as in messages, "" for what the source matches itself.
	Template string
	// Rules are those of the source that the validations of the policy are, as in messages, in their order.
	Rules           []string
	Policy          *admissionregistrationv1.ValidatingAdmissionPolicy
	Binding         *admissionregistrationv1.ValidatingAdmissionPolicyBinding
	MutatingPolicy  *admissionregistrationv1.MutatingAdmissionPolicy
	MutatingBinding *admissionregistrationv1.MutatingAdmissionPolicyBinding
}

// Object returns the document itself.
func (d *Document) Object() metav1.Object {
	switch {
	case d.Policy != nil:
		return d.Policy
	case d.Binding != nil:
		return d.Binding
	case d.MutatingPolicy != nil:
		return d.MutatingPolicy
	default:
		return d.MutatingBinding
	}
}

// PolicyName returns the name of the policy, or of the one that a binding is for.
func (d *Document) PolicyName() string {
	switch {
	case d.Binding != nil:
		return d.Binding.Spec.PolicyName
	case d.MutatingBinding != nil:
		return d.MutatingBinding.Spec.PolicyName
	default:
		return d.Object().GetName()
	}
}

// Output is what Compile makes.
type Output struct {
	// Documents are in a fixed order: policies and then bindings, by their sources.
	Documents []Document
	// Items are the rules by their policies, and then the exceptions.
	Items []*Item
	// Expires is when the first exception in the documents ends, zero for never.
	Expires time.Time
	// mutating is what the documents that mutate were verified with.
	mutating *mutation.Set

	// allows is true if a document allows what was violated before an update, excepts if one has an exception, and unchecked if one is about
	// templates that the API server does not check.
	allows, excepts, unchecked bool
}

// General returns the differences that policies of the documents have in general, and that are not those of one rule.
func (o *Output) General() []string {
	if len(o.Documents) == 0 {
		return []string{}
	}
	out := []string{
		"a refusal names only the first violation",
		"audit annotations of rules begin with the name of the compiled policy, and there are none about exceptions and violations that existed before",
		"objects with so many elements that Gatehouse refuses them are judged by the rules alone",
	}
	if o.allows {
		out = append(out,
			"nobody is warned of violations that existed before an update",
			"while an object violates a rule as before, an update is refused that takes elements from a list in which others are alike and are renamed, or that changes an object with hundreds of elements in a list",
			"where a rule cannot be evaluated for an object as before, although for another reason, an update is allowed",
			"where a policy cannot be evaluated, an update is refused that changes nothing but finalizers",
		)
	}
	if o.excepts {
		out = append(out,
			"where a match condition of an exception cannot be evaluated, a refusal says so in place of the rule's message",
			"an exception does not help where a match condition of the policy cannot be evaluated, or its params are missing",
		)
	}
	if o.unchecked {
		out = append(out, "objects of workloads in PolicyConfiguration are refused if parts of them are of other types than those of a template")
	}
	return out
}

// Worst returns the worst status.
func (o *Output) Worst() Status {
	worst := Native
	for _, i := range o.Items {
		if i.Status == Stays || i.Status == Differs && worst == Native {
			worst = i.Status
		}
	}
	return worst
}

// Spec returns the documents that validate as the input of policy.Compile.
func (o *Output) Spec(kubernetes string) policy.Spec {
	spec := policy.Spec{Configuration: &policy.Configuration{PolicyConfiguration: v1alpha1.PolicyConfiguration{CELCompatibilityVersion: kubernetes}}}
	for i := range o.Documents {
		switch d := &o.Documents[i]; {
		case d.Policy != nil:
			spec.Policies = append(spec.Policies, policy.Policy{Source: d.Policy.Name, ValidatingAdmissionPolicy: *d.Policy})
		case d.Binding != nil:
			spec.Bindings = append(spec.Bindings, policy.Binding{Source: d.Binding.Name, ValidatingAdmissionPolicyBinding: *d.Binding})
		}
	}
	return spec
}
