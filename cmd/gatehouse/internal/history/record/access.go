package record

import (
	"encoding/json"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// access is a SubjectAccessReview as it is recorded: with who asks for what, and by which scope.
type access struct {
	Kind       string     `json:"kind"`
	APIVersion string     `json:"apiVersion"`
	Spec       accessSpec `json:"spec"`
}

type accessSpec struct {
	User                  string                                 `json:"user"`
	Extra                 map[string]authorizationv1.ExtraValue  `json:"extra,omitempty"`
	ResourceAttributes    *authorizationv1.ResourceAttributes    `json:"resourceAttributes,omitempty"`
	NonResourceAttributes *authorizationv1.NonResourceAttributes `json:"nonResourceAttributes,omitempty"`
}

// appendAccess appends of a SubjectAccessReview what a decision reads, and the name of the user. Groups, selectors and other values of
// the user's extra are left out.
func appendAccess(dst, body []byte) ([]byte, error) {
	spec, apiVersion, err := review.DecodeAccess(body)
	if err != nil {
		return dst, fmt.Errorf("decode an access review: %w", err) // one that was decided on has none
	}
	out := access{Kind: "SubjectAccessReview", APIVersion: apiVersion, Spec: accessSpec{
		User: spec.User, ResourceAttributes: spec.ResourceAttributes, NonResourceAttributes: spec.NonResourceAttributes,
	}}
	if scope, scoped := spec.Extra[v1alpha1.ScopeExtraKey]; scoped {
		out.Spec.Extra = map[string]authorizationv1.ExtraValue{v1alpha1.ScopeExtraKey: scope}
	}
	text, err := json.Marshal(&out)
	if err != nil {
		return dst, fmt.Errorf("encode an access review: %w", err)
	}
	return append(dst, text...), nil
}
