package authn_test

import (
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// newExchange is a gate of one issuer and no directory, where scopes are enforced.
func newExchange(s signer) *gate {
	g := &gate{now: noon}
	one := issuer()
	one.Keys = s.keys()
	g.spec = authn.Spec{
		Issuers: []authn.Issuer{one}, Configuration: configuration(),
		LoginKeys: []authn.LoginKey{{Name: "first", Secret: bytes.Repeat([]byte{1}, 32)}},
		Random:    rand.NewChaCha8([32]byte{}), ScopesEnforced: enforced, Now: func() time.Time { return g.now },
	}
	g.spec.Configuration.Login = &v1alpha1.LoginConfiguration{Keys: []v1alpha1.LoginKey{{Name: "first", File: "first.key"}}, Audiences: []string{"vault"}}
	return g
}

// TestExchange: the token that a JWT is exchanged for has the identity of the JWT with the scope, and ends with it at the latest.
func TestExchange(t *testing.T) {
	t.Parallel()
	s := newSigner(t)
	for name, test := range map[string]struct {
		claims  map[string]any
		expires time.Duration
	}{
		"for the usual time":      {nil, 15 * time.Minute},
		"the JWT ends before":     {map[string]any{"exp": noon.Add(5 * time.Minute).Unix()}, 5 * time.Minute},
		"without jti, iat or sid": {map[string]any{"jti": nil, "iat": nil}, 15 * time.Minute},
		"the JWT never ends":      {map[string]any{"exp": 1 << 60}, 15 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newExchange(s)
			g.spec.Grants = []authn.Grant{newGrant("a", func(one *authn.Grant) { one.Spec.Subject.User = "oidc:jane" })}
			set, token := g.set(t), s.sign(t, test.claims)
			if warnings := set.Warnings().Error(); strings.Contains(warnings, "login") {
				t.Errorf("warns of %s", warnings)
			}
			plain := set.Decide(t.Context(), authn.Input{Token: token, Audiences: []string{apiServer}})
			ends := plain.ExpiresAt
			if latest := noon.Add(720 * time.Hour); ends.After(latest) {
				ends = latest
			}
			first := set.Login(t.Context(), authn.LoginRequest{Token: token, Scope: "deployer"})
			if first.Outcome != authn.Yes || first.Directory != issuerURL || first.Failed || !first.ExpiresAt.Equal(noon.Add(test.expires)) || !first.SessionEnds.Equal(ends) ||
				!strings.Contains(first.Detail, `the scope "deployer" for the JWT "`+plain.TokenID+`"`) {
				t.Fatalf("%+v", first)
			}
			// Another replica, and the API server's own audiences.
			d := g.set(t).Decide(t.Context(), authn.Input{Token: first.Token, Audiences: []string{apiServer}})
			want := plain.Status
			want.User.Extra = maps.Clone(want.User.Extra)
			want.User.Extra[v1alpha1.ScopeExtraKey] = []string{"deployer"}
			if d.Outcome != authn.Yes || d.Backend != authn.LoginTokens || d.Source != issuerURL || !reflect.DeepEqual(d.Status, want) || !d.IssuedAt.Equal(plain.IssuedAt) {
				t.Errorf("%+v\nwant %+v", d, want)
			}
			if len(d.Grants) != 1 || len(d.Status.User.Groups) < 2 {
				t.Errorf("the Grant counts for the JWT only: %+v", d.Status.User)
			}
			// Replayed, it gives nothing that lasts longer.
			g.now = g.now.Add(time.Minute)
			second := g.set(t).Login(t.Context(), authn.LoginRequest{Token: token, Scope: "view"})
			if second.Outcome != authn.Yes || second.TokenID == first.TokenID || second.SessionEnds.After(plain.ExpiresAt) || second.ExpiresAt.After(plain.ExpiresAt) {
				t.Errorf("%+v", second)
			}
			g.now = noon.Add(test.expires)
			if d := g.set(t).Decide(t.Context(), authn.Input{Token: first.Token}); d.Reason != authn.ReasonExpired || d.Status.Authenticated {
				t.Errorf("at its end: %+v", d)
			}
		})
	}
}

// TestExchangeRefused: nothing but a valid JWT of an issuer's user becomes a token, and only a narrower one.
func TestExchangeRefused(t *testing.T) {
	t.Parallel()
	s := newSigner(t)
	good := s.sign(t, map[string]any{"sid": "s-1"})
	access, known := issue("ci", 1, scoped(v1alpha1.TokenScope{Name: "view"}))
	revoked := func(spec v1alpha1.TokenRevocationSpec) func(*gate) {
		return func(g *gate) {
			g.spec.Revocations = []authn.Revocation{{TokenRevocation: v1alpha1.TokenRevocation{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: spec}}}
		}
	}
	now := metav1.NewTime(noon)
	session := newExchange(s).set(t).Login(t.Context(), authn.LoginRequest{Token: good, Scope: "view"}).Token
	for name, test := range map[string]struct {
		token, scope string
		prepare      func(*gate)
		reason       authn.Reason
		says         string
	}{
		"wider: a session with a scope":         {token: session, scope: "edit", reason: authn.ReasonInput, says: "is exchanged again in place of a renewal"},
		"the same: a session with a scope":      {token: session, scope: "view", reason: authn.ReasonInput, says: "is exchanged again in place of a renewal"},
		"wider: a session to one without":       {token: session, reason: authn.ReasonInput, says: "is exchanged again in place of a renewal"},
		"beside a directory, too":               {token: session, scope: "edit", prepare: func(g *gate) { g.spec.Directories = newGate().spec.Directories }, reason: authn.ReasonInput, says: "is exchanged again in place of a renewal"},
		"an access token with a scope":          {token: access, scope: "edit", reason: authn.ReasonInput, says: "is set when it is issued"},
		"a JWT without a scope":                 {token: good, reason: authn.ReasonInput, says: "only for a token with a scope"},
		"expired":                               {token: s.sign(t, map[string]any{"exp": noon.Unix() - 1}), scope: "view", reason: authn.ReasonExpired},
		"wrong audience":                        {token: s.sign(t, map[string]any{"aud": "vault"}), scope: "view", reason: authn.ReasonAudience},
		"wrong issuer":                          {token: s.sign(t, map[string]any{"iss": "https://kubernetes.default.svc"}), scope: "view", reason: authn.ReasonForeign},
		"signed by another":                     {token: newSigner(t).sign(t, nil), scope: "view", reason: authn.ReasonSignature},
		"a logout token":                        {token: s.sign(t, logoutClaims()), scope: "view", reason: authn.ReasonClaims},
		"a service account of another cluster":  {token: s.sign(t, map[string]any{"sub": "system:serviceaccount:shop:ci"}), scope: "view", reason: authn.ReasonInput, says: "service account is not exchanged"},
		"a service account with another prefix": {token: s.sign(t, map[string]any{"sub": "system:serviceaccount:"}), scope: "view", reason: authn.ReasonInput, says: "service account"},
		"a reserved group":                      {token: s.sign(t, map[string]any{"groups": "system:masters"}), scope: "view", reason: authn.ReasonGuard},
		"too many groups":                       {token: s.sign(t, map[string]any{"groups": strings.Split(strings.Repeat("a-group,", 1200), ",")[:1200]}), scope: "view", reason: authn.ReasonTooLarge},
		"a large token":                         {token: "eyJ" + strings.Repeat("a", 16<<10) + ".a.a", scope: "view", reason: authn.ReasonTooLarge},
		"dots":                                  {token: "ey" + strings.Repeat(".", 15<<10), scope: "view", reason: authn.ReasonInput},
		"two dots":                              {token: "ey..", scope: "view", reason: authn.ReasonMalformed},
		"scope unknown":                         {token: good, scope: "veiw", reason: authn.ReasonInput, says: "the scopes are view, edit, deployer"},
		"enforcement missing":                   {token: good, scope: "view", prepare: func(g *gate) { g.spec.ScopesEnforced = nil }, reason: authn.ReasonInput, says: "does not enforce scopes"},
		"no key":                                {token: good, scope: "view", prepare: func(g *gate) { g.spec.Configuration.Login, g.spec.LoginKeys = nil, nil }, reason: authn.ReasonInput, says: "adds login.keys"},
		"no issuer":                             {token: good, scope: "view", prepare: func(g *gate) { g.spec.Issuers = nil }, reason: authn.ReasonInput, says: "adds login.keys"},
		"keys are not available":                {token: good, scope: "view", prepare: func(g *gate) { g.spec.Issuers[0].Keys = noKeys{errors.New("one.example is down")} }, reason: authn.ReasonKeys},
		"revoked by jti":                        {token: good, scope: "view", prepare: revoked(v1alpha1.TokenRevocationSpec{Issuer: issuerURL, TokenID: "token-1"}), reason: authn.ReasonRevoked},
		"revoked by sid":                        {token: good, scope: "view", prepare: revoked(v1alpha1.TokenRevocationSpec{Issuer: issuerURL, SessionID: "s-1"}), reason: authn.ReasonRevoked},
		"revoked by sub":                        {token: good, scope: "view", prepare: revoked(v1alpha1.TokenRevocationSpec{Issuer: issuerURL, Subject: "jane", IssuedBefore: now}), reason: authn.ReasonRevoked},
		"revoked by user":                       {token: good, scope: "view", prepare: revoked(v1alpha1.TokenRevocationSpec{User: "oidc:jane", IssuedBefore: now}), reason: authn.ReasonRevoked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newExchange(s)
			g.spec.Tokens = []authn.Token{known}
			if test.prepare != nil {
				test.prepare(g)
			}
			set := g.set(t)
			d := set.Login(t.Context(), authn.LoginRequest{Token: test.token, Scope: test.scope})
			if d.Outcome == authn.Yes || (d.Outcome == authn.Unknown) != (test.reason == authn.ReasonKeys) || d.Reason != test.reason || d.Token != "" || d.Failed {
				t.Errorf("%s %s %q %q", d.Outcome, d.Reason, d.Message, d.Detail)
			}
			if !strings.Contains(d.Message, test.says) || strings.Contains(d.Message, "one.example") {
				t.Errorf("says %q", d.Message)
			}
			// A session from before ends as the JWT does.
			if test.reason == authn.ReasonRevoked {
				if d := set.Decide(t.Context(), authn.Input{Token: session}); d.Reason != authn.ReasonRevoked || d.Status.Authenticated {
					t.Errorf("the session: %+v", d)
				}
			}
		})
	}
}

// TestExchangedElsewhere: where the issuer, the key, the scope or the enforcement is missing, the token cannot be decided on.
func TestExchangedElsewhere(t *testing.T) {
	t.Parallel()
	s := newSigner(t)
	token := newExchange(s).set(t).Login(t.Context(), authn.LoginRequest{Token: s.sign(t, nil), Scope: "deployer"}).Token
	for name, test := range map[string]struct {
		prepare func(*gate)
		reason  authn.Reason
	}{
		"no issuer":      {func(g *gate) { g.spec.Issuers = nil }, authn.ReasonSourceGone},
		"another issuer": {func(g *gate) { g.spec.Issuers[0].Config.Issuer.URL = "https://other.example" }, authn.ReasonSourceGone},
		"another key":    {func(g *gate) { g.spec.Configuration.Login.Keys[0].Name, g.spec.LoginKeys[0].Name = "second", "second" }, authn.ReasonUnknownKey},
		"no scope":       {func(g *gate) { g.spec.Configuration.Scopes = nil }, authn.ReasonUnknownScope},
		"not enforced":   {func(g *gate) { g.spec.ScopesEnforced = nil }, authn.ReasonScopeNotEnforced},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newExchange(s)
			test.prepare(g)
			if d := g.set(t).Decide(t.Context(), authn.Input{Token: token}); d.Outcome != authn.Unknown || d.Reason != test.reason || d.Status.Authenticated || d.Status.User.Username != "" {
				t.Errorf("%+v", d)
			}
		})
	}
}
