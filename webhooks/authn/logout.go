package authn

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
)

// Logout verifies a logout token of a JWT issuer, and returns the revocation that it asks
// for: of a session, or without the claim sid of all tokens of a subject. The Status of the
// Decision is empty.
func (s *Set) Logout(ctx context.Context, token string) (v1alpha1.TokenRevocationSpec, Decision) {
	none := v1alpha1.TokenRevocationSpec{}
	no := func(v verdict) (v1alpha1.TokenRevocationSpec, Decision) {
		return none, Decision{Outcome: v.outcome, Reason: v.reason, Backend: JWTs, Source: v.source, TokenID: v.tokenID, Detail: v.detail}
	}
	if len(token) > maxTokenBytes {
		return no(verdict{outcome: No, reason: ReasonTooLarge})
	}
	parsed, err := jwt.Parse(token)
	if err != nil {
		return no(refused(err))
	}
	known := s.issuers.find(parsed.Issuer())
	if known == nil {
		return no(verdict{outcome: No, reason: ReasonForeign})
	}
	proof, err := known.authenticator.VerifyLogout(ctx, parsed, s.issuers.now())
	if err != nil {
		v := refused(err)
		v.source, v.tokenID = known.url, digestID(token)
		return no(v)
	}
	spec := v1alpha1.TokenRevocationSpec{Issuer: known.url, SessionID: proof.Session, Reason: "logged out at the issuer"}
	if proof.Session == "" {
		// Times of tokens are whole seconds: tokens of the same second are revoked too.
		spec.Subject, spec.IssuedBefore = proof.Subject, metav1.NewTime(proof.IssuedAt.Add(time.Second))
	}
	_, d := no(verdict{outcome: Yes, reason: ReasonOK, source: known.url, tokenID: proof.ID})
	return spec, d
}
