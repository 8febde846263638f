package authn_test

import (
	"cmp"
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
)

// logoutEvents are the claim events of a logout token.
func logoutEvents() map[string]any {
	return map[string]any{"http://schemas.openid.net/event/backchannel-logout": map[string]any{}}
}

// logout returns the claims of a logout token with edits: pairs of a name and a value.
func logoutClaims(edits ...any) map[string]any {
	claims := map[string]any{"events": logoutEvents(), "groups": nil, "sid": "s-1", "exp": noon.Add(2 * time.Minute).Unix()}
	for i := 0; i < len(edits); i += 2 {
		claims[edits[i].(string)] = edits[i+1] //nolint:forcetypeassert // it is a name
	}
	return claims
}

func TestLogoutTokens(t *testing.T) {
	t.Parallel()
	s, stranger := newSigner(t), newSigner(t)
	one := issuer()
	one.Keys = s.keys()
	set, err := authn.Compile(authn.Spec{Issuers: []authn.Issuer{one}, Now: atNoon})
	if err != nil {
		t.Fatal(err)
	}
	one.Keys = noKeys{jwt.ErrNoKeys}
	away, err := authn.Compile(authn.Spec{Issuers: []authn.Issuer{one}, Now: atNoon})
	if err != nil {
		t.Fatal(err)
	}
	session := v1alpha1.TokenRevocationSpec{Issuer: issuerURL, SessionID: "s-1", Reason: "logged out at the issuer"}
	subject := session
	subject.SessionID, subject.Subject, subject.IssuedBefore = "", "jane", metav1.NewTime(noon.Add(-time.Minute+time.Second).Local())
	longSession, longSubject := session, subject
	longSession.SessionID, longSubject.Subject = strings.Repeat("s", 1024), strings.Repeat("j", 255)
	good := s.sign(t, logoutClaims())
	forged := func(part int, text string) string {
		parts := strings.Split(good, ".")
		parts[part] = text
		return strings.Join(parts, ".")
	}
	for name, test := range map[string]struct {
		set    *authn.Set
		token  string
		reason authn.Reason
		spec   v1alpha1.TokenRevocationSpec
	}{
		"sid and sub":              {set, good, authn.ReasonOK, session},
		"sid":                      {set, s.sign(t, logoutClaims("sub", nil)), authn.ReasonOK, session},
		"sub":                      {set, s.sign(t, logoutClaims("sid", nil)), authn.ReasonOK, subject},
		"a sid of 1,024 bytes":     {set, s.sign(t, logoutClaims("sid", longSession.SessionID)), authn.ReasonOK, longSession},
		"a sub of 255 characters":  {set, s.sign(t, logoutClaims("sid", nil, "sub", longSubject.Subject)), authn.ReasonOK, longSubject},
		"for another audience too": {set, s.sign(t, logoutClaims("aud", []string{"other", "kubernetes"})), authn.ReasonOK, session},

		"neither sid nor sub":     {set, s.sign(t, logoutClaims("sid", nil, "sub", nil)), authn.ReasonClaims, v1alpha1.TokenRevocationSpec{}},
		"sid that is no string":   {set, s.sign(t, logoutClaims("sid", 1, "sub", nil)), authn.ReasonClaims, v1alpha1.TokenRevocationSpec{}},
		"such a sid beside a sub": {set, s.sign(t, logoutClaims("sid", 1)), authn.ReasonClaims, v1alpha1.TokenRevocationSpec{}},
		"a sid that is a list":    {set, s.sign(t, logoutClaims("sid", []string{"s-1"})), authn.ReasonClaims, v1alpha1.TokenRevocationSpec{}},
		"a sid that is empty":     {set, s.sign(t, logoutClaims("sid", "")), authn.ReasonClaims, v1alpha1.TokenRevocationSpec{}},
		"no events: an ID token":  {set, s.sign(t, map[string]any{"sid": "s-1"}), authn.ReasonClaims, v1alpha1.TokenRevocationSpec{}},
		"another event":           {set, s.sign(t, logoutClaims("events", map[string]any{"http://schemas.openid.net/event/other": map[string]any{}})), authn.ReasonClaims, v1alpha1.TokenRevocationSpec{}},
		"an event of no object":   {set, s.sign(t, logoutClaims("events", map[string]any{"http://schemas.openid.net/event/backchannel-logout": true})), authn.ReasonClaims, v1alpha1.TokenRevocationSpec{}},
		"events of no object":     {set, s.sign(t, logoutClaims("events", "http://schemas.openid.net/event/backchannel-logout")), authn.ReasonClaims, v1alpha1.TokenRevocationSpec{}},
		"a nonce":                 {set, s.sign(t, logoutClaims("nonce", "n")), authn.ReasonClaims, v1alpha1.TokenRevocationSpec{}},
		"an empty nonce":          {set, s.sign(t, logoutClaims("nonce", "")), authn.ReasonClaims, v1alpha1.TokenRevocationSpec{}},
		"no jti":                  {set, s.sign(t, logoutClaims("jti", nil)), authn.ReasonClaims, v1alpha1.TokenRevocationSpec{}},
		"no iat":                  {set, s.sign(t, logoutClaims("iat", nil)), authn.ReasonClaims, v1alpha1.TokenRevocationSpec{}},
		"issued in the future":    {set, s.sign(t, logoutClaims("iat", noon.Add(time.Hour).Unix())), authn.ReasonNotYetValid, v1alpha1.TokenRevocationSpec{}},
		"no exp":                  {set, s.sign(t, logoutClaims("exp", nil)), authn.ReasonExpired, v1alpha1.TokenRevocationSpec{}},
		"expired":                 {set, s.sign(t, logoutClaims("exp", noon.Add(-time.Second).Unix())), authn.ReasonExpired, v1alpha1.TokenRevocationSpec{}},
		"another audience":        {set, s.sign(t, logoutClaims("aud", "other")), authn.ReasonAudience, v1alpha1.TokenRevocationSpec{}},
		"another issuer":          {set, s.sign(t, logoutClaims("iss", "https://other.example")), authn.ReasonForeign, v1alpha1.TokenRevocationSpec{}},
		"another key":             {set, stranger.sign(t, logoutClaims()), authn.ReasonSignature, v1alpha1.TokenRevocationSpec{}},
		"an unknown key":          {set, forged(0, "eyJhbGciOiJFUzI1NiIsImtpZCI6InR3byJ9"), authn.ReasonUnknownKey, v1alpha1.TokenRevocationSpec{}},
		"no algorithm":            {set, forged(0, "eyJhbGciOiJub25lIn0"), authn.ReasonAlgorithm, v1alpha1.TokenRevocationSpec{}},
		"no signature":            {set, forged(2, ""), authn.ReasonSignature, v1alpha1.TokenRevocationSpec{}},
		"a member twice":          {set, s.sign(t, logoutClaims("x", json.RawMessage(`{"a":1,"a":2}`))), authn.ReasonMalformed, v1alpha1.TokenRevocationSpec{}},
		"not a JWT":               {set, "logout", authn.ReasonMalformed, v1alpha1.TokenRevocationSpec{}},
		"dots":                    {set, strings.Repeat(".", 1000), authn.ReasonMalformed, v1alpha1.TokenRevocationSpec{}},
		"large":                   {set, "e" + strings.Repeat("y", 16<<10), authn.ReasonTooLarge, v1alpha1.TokenRevocationSpec{}},
		"keys are not available":  {away, good, authn.ReasonKeys, v1alpha1.TokenRevocationSpec{}},
		"no issuer is configured": {&authn.Set{}, good, authn.ReasonForeign, v1alpha1.TokenRevocationSpec{}},
	} {
		spec, d := test.set.Logout(t.Context(), test.token)
		if d.Reason != test.reason || spec != test.spec || (d.Outcome == authn.Yes) != (test.reason == authn.ReasonOK) {
			t.Errorf("%s: got %s %s (%s), %+v", name, d.Outcome, d.Reason, d.Detail, spec)
		}
		if d.Reason == authn.ReasonOK && (d.Source != issuerURL || d.TokenID != "token-1") {
			t.Errorf("%s: got %+v", name, d)
		}
	}
	if d := away.Decide(t.Context(), authn.Input{Token: good}); d.Outcome != authn.No {
		t.Errorf("a logout token logs in: %+v", d)
	}
	// What a logout token asks for rejects the tokens of the session, or of the subject up to then.
	for name, revoked := range map[string]v1alpha1.TokenRevocationSpec{"sid": session, "sub": subject, "a long sid": longSession, "a long sub": longSubject} {
		after := set.Withdraw(nil, nil, []authn.Revocation{{TokenRevocation: v1alpha1.TokenRevocation{Spec: revoked}}})
		claims := map[string]any{"sid": cmp.Or(revoked.SessionID, "s-1")}
		if revoked.Subject != "" {
			claims["sub"] = revoked.Subject
		}
		if d := after.Decide(t.Context(), authn.Input{Token: s.sign(t, claims)}); d.Reason != authn.ReasonRevoked {
			t.Errorf("%s: got %+v", name, d)
		}
		if d := after.Decide(t.Context(), authn.Input{Token: s.sign(t, map[string]any{"sid": "s-2", "iat": noon.Unix()})}); d.Reason != authn.ReasonOK {
			t.Errorf("%s: the next session: got %+v", name, d)
		}
	}
}
