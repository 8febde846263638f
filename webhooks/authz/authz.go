// Package authz narrows what a token may do: it is the authorization endpoint as a pure function from a
// SubjectAccessReview to a decision.
//
// It never allows. A request of a token with a scope is denied if it is outside of that scope; inside, and for every
// other request, there is no opinion, so that the API server's other authorizers decide by the rights of the user. The
// scope travels in the extra of the user, which package authn sets, as strings that Values writes and Decide reads.
//
// There are three outcomes. A scope whose name is not known here cannot be decided on: another replica may have loaded
// it. Everything else that cannot be understood is denied.
package authz

import (
	"cmp"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// Outcome is one of the three answers to a request.
type Outcome string

// The outcomes.
const (
	// NoOpinion leaves the decision to the API server's other authorizers.
	NoOpinion Outcome = "no-opinion"
	// Denied ends the request.
	Denied Outcome = "denied"
	// Unknown means that the request cannot be decided on.
	Unknown Outcome = "unknown"
)

// Reason is why a request had its outcome. The set of reasons is bounded, so that a metric can have it as a label.
type Reason string

// The reasons.
const (
	// ReasonUnscoped is a request of a user whose token has no scope.
	ReasonUnscoped Reason = "unscoped"
	// ReasonAlways is a request that every scope includes: discovery, and reviews of the user itself.
	ReasonAlways Reason = "always"
	// ReasonRule is a request that a rule of the scope includes.
	ReasonRule Reason = "rule"
	// ReasonOutside is a request outside of the scope.
	ReasonOutside Reason = "outside-scope"
	// ReasonMalformed is a scope that cannot be read: it is not of this version of Gatehouse.
	ReasonMalformed Reason = "malformed-scope"
	// ReasonUnknownScope is a scope whose name is not configured here, or not yet.
	ReasonUnknownScope Reason = "unknown-scope"
	// ReasonProbe is a request that asks whether scopes are enforced.
	ReasonProbe Reason = "probe"
)

// The values of the scope of a probe: no request of them is in scope. An API server that enforces scopes denies the first with
// ProbeMessage, and denies the second, on which Gatehouse cannot decide, because of its failurePolicy.
const (
	ProbeDenied    = "probe/denied"
	ProbeUndecided = "probe/undecided"
	ProbeMessage   = "the API server asks Gatehouse about the scopes of tokens"
)

// Spec is what Compile makes a Set from. The zero Spec has Gatehouse's own scopes.
type Spec struct {
	// Source is the place of the document that defines Scopes.
	Source string
	Scopes []v1alpha1.NamedScope
}

// Set is a compiled Spec. It is immutable and safe for concurrent use. A nil Set has Gatehouse's own scopes.
type Set struct {
	named map[string][]v1alpha1.ScopeRule
}

// Compile compiles the named scopes. An error is a diagnostic.List with every problem in a fixed order.
func Compile(spec Spec) (*Set, error) {
	s := &Set{named: make(map[string][]v1alpha1.ScopeRule, len(spec.Scopes))}
	if found := CheckNamed(spec.Source, spec.Scopes); len(found) > 0 {
		return nil, found
	}
	for i := range spec.Scopes {
		s.named[spec.Scopes[i].Name] = spec.Scopes[i].DeepCopy().Rules
	}
	return s, nil
}

// Rules returns the rules of a named scope, and whether there is such a scope. The caller must not write to them.
func (s *Set) Rules(name string) ([]v1alpha1.ScopeRule, bool) {
	if rules, own := builtin()[name]; own || s == nil {
		return rules, own
	}
	rules, known := s.named[name]
	return rules, known
}

// Decision is the outcome for one request, with the reasons for the operator.
type Decision struct {
	Outcome Outcome
	Reason  Reason
	// Scope describes the scope of the token, as ScopeText does.
	Scope string
	// Rule is the rule that includes the request, for ReasonRule.
	Rule *v1alpha1.ScopeRule
	// Message is for the person whose request is denied. It names the scope, and nothing that exists.
	Message string
}

// Status returns the answer to the API server. An evaluationError is for a codec, which must answer with an HTTP error in place of it.
func (d Decision) Status() authorizationv1.SubjectAccessReviewStatus {
	switch d.Outcome {
	case NoOpinion:
		return authorizationv1.SubjectAccessReviewStatus{}
	case Denied:
		return authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: d.Message}
	case Unknown:
	}
	return authorizationv1.SubjectAccessReviewStatus{EvaluationError: cmp.Or(d.Message, "the request cannot be decided on")}
}

// Decide decides on a request, by the scope of its user alone.
func (s *Set) Decide(r *authorizationv1.SubjectAccessReviewSpec) Decision {
	values, scoped := r.Extra[v1alpha1.ScopeExtraKey]
	if !scoped {
		return Decision{Outcome: NoOpinion, Reason: ReasonUnscoped}
	}
	if len(values) == 1 {
		switch values[0] {
		case ProbeDenied:
			return Decision{Outcome: Denied, Reason: ReasonProbe, Message: ProbeMessage}
		case ProbeUndecided:
			return Decision{Outcome: Unknown, Reason: ReasonProbe, Message: "a probe asks what happens when Gatehouse cannot decide"}
		}
	}
	scope, err := parse(values)
	if err != nil {
		return Decision{Outcome: Denied, Reason: ReasonMalformed, Message: "the scope of this token cannot be read: " + err.Error()}
	}
	return s.DecideScope(scope, r)
}

// DecideScope is Decide for a scope that is at hand.
func (s *Set) DecideScope(scope *v1alpha1.TokenScope, r *authorizationv1.SubjectAccessReviewSpec) Decision {
	d := Decision{Outcome: NoOpinion, Reason: ReasonAlways, Scope: ScopeText(scope)}
	rules := scope.Rules
	if scope.Name != "" {
		var known bool
		if rules, known = s.Rules(scope.Name); !known {
			d.Outcome, d.Reason = Unknown, ReasonUnknownScope
			d.Message = fmt.Sprintf("the scope %q of this token is not configured", scope.Name)
			return d
		}
	}
	if isAlwaysIncluded(r) {
		return d
	}
	for i := range rules {
		if includes(&rules[i], scope.Namespaces, r) {
			d.Reason, d.Rule = ReasonRule, &rules[i]
			return d
		}
	}
	d.Outcome, d.Reason = Denied, ReasonOutside
	d.Message = "outside of the scope of this token: " + d.Scope
	return d
}

// ScopeOf describes the scope of the user of a request as ScopeText does: "" for a user without a scope, or with one that cannot be read.
func ScopeOf(r *authorizationv1.SubjectAccessReviewSpec) string {
	scope, err := parse(r.Extra[v1alpha1.ScopeExtraKey])
	if err != nil {
		return ""
	}
	return ScopeText(scope)
}

// ScopeText describes a scope on one line: "view in namespaces shop, web", or "3 rules".
func ScopeText(scope *v1alpha1.TokenScope) string {
	text := scope.Name
	if text == "" {
		text = diagnostic.Count(len(scope.Rules), "rule")
	}
	switch len(scope.Namespaces) {
	case 0:
		return text
	case 1:
		return text + " in namespace " + scope.Namespaces[0]
	default:
		return text + " in namespaces " + strings.Join(scope.Namespaces, ", ")
	}
}
