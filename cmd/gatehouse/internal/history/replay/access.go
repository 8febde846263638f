package replay

import (
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/authz"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// ScopeKind is the kind of the Rule of an access review, whose name describes the scope of the token.
const ScopeKind = "Scope"

// authorize decides an access review. The scope of the token is that of the request, and what a named scope includes is of the
// configuration.
func authorize(s *webhooks.Snapshot, item *Item) answer {
	d := s.Authn.Scopes().Decide(&item.access)
	out := answer{scope: d.Scope}
	switch d.Outcome {
	case authz.NoOpinion:
		out.decision = review.NoOpinion
	case authz.Denied:
		out.decision, out.reason = review.Denied, d.Message
	case authz.Unknown:
		out.decision, out.failure = review.Unknown, d.Message
	}
	return out
}

// recordedAccess returns the answer that was recorded to an access review.
func (i *Item) recordedAccess() answer {
	out := answer{decision: review.Unknown, failure: i.Review.Reason, scope: authz.ScopeOf(&i.access)}
	status := rawjson.Value(i.Review.Response).Get("status")
	switch denied := status.Get("denied").IsTrue(); {
	case status.Kind() != rawjson.Object:
	case i.Review.Decision == review.NoOpinion && !denied:
		out.decision = review.NoOpinion
	case i.Review.Decision == review.Denied && denied:
		out.decision, out.reason = review.Denied, status.Get("reason").Text()
	}
	return out
}

// setAccess sets what an access review is about. Its kind is the resource.
func (s *Subject) setAccess(i *Item) {
	s.User = short(i.access.User)
	if a := i.access.ResourceAttributes; a != nil {
		s.Operation, s.Kind, s.SubResource, s.Namespace, s.Name = short(a.Verb), short(a.Resource), short(a.Subresource), short(a.Namespace), short(a.Name)
		if a.Group != "" {
			s.Kind = short(a.Resource + "." + a.Group)
		}
	}
	if a := i.access.NonResourceAttributes; a != nil {
		s.Operation, s.Name = short(a.Verb), short(a.Path)
	}
}
