package authn_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

func scoped(scope v1alpha1.TokenScope) func(*v1alpha1.AccessTokenSpec) {
	return func(s *v1alpha1.AccessTokenSpec) { s.Scope = &scope }
}

func enforced() error { return nil }

// configuration has a named scope.
func configuration() *authn.Configuration {
	return &authn.Configuration{Source: "auth.yaml", AuthenticationConfiguration: v1alpha1.AuthenticationConfiguration{
		Scopes: []v1alpha1.NamedScope{{Name: "deployer", Rules: []v1alpha1.ScopeRule{{Verbs: []string{"get"}, APIGroups: []string{"apps"}, Resources: []string{"deployments"}}}}},
	}}
}

// TestScopeIsEnforcedOrRejected: a token with a scope is a yes only with its scope, and only while scopes are enforced.
func TestScopeIsEnforcedOrRejected(t *testing.T) {
	t.Parallel()
	text, token := issue("ci", 1, scoped(v1alpha1.TokenScope{Name: "deployer", Namespaces: []string{"shop"}}))
	plainText, plain := issue("plain", 2)
	for name, c := range map[string]struct {
		enforced func() error
		detail   string
	}{
		"not asked":     {nil, "serve --authorize"},
		"not enforced":  {func() error { return errors.New("the API server does not ask") }, "the API server does not ask"},
		"enforced":      {enforced, ""},
		"no more asked": {func() error { return errors.New("unknown since noon") }, "unknown since noon"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, err := authn.Compile(authn.Spec{Tokens: []authn.Token{token, plain}, Configuration: configuration(), ScopesEnforced: c.enforced, Now: atNoon})
			if err != nil {
				t.Fatal(err)
			}
			if d := set.Decide(t.Context(), authn.Input{Token: plainText}); d.Outcome != authn.Yes || d.Status.User.Extra[v1alpha1.ScopeExtraKey] != nil {
				t.Errorf("a token without a scope: %+v", d)
			}
			d := set.Decide(t.Context(), authn.Input{Token: text, Explain: true})
			if c.detail != "" {
				if d.Outcome != authn.Unknown || d.Reason != authn.ReasonScopeNotEnforced || d.Status.Authenticated || d.Status.User.Username != "" ||
					!strings.Contains(d.Detail, c.detail) || strings.Contains(d.Status.Error, c.detail) || d.TokenID != "ci" {
					t.Errorf("%+v", d)
				}
				return
			}
			want := map[string][]string{"example.org/team": {"blue", "green"}, v1alpha1.ScopeExtraKey: {"deployer", "namespace=shop"}}
			got := map[string][]string{}
			for key, values := range d.Status.User.Extra {
				got[key] = values
			}
			if d.Outcome != authn.Yes || !reflect.DeepEqual(got, want) {
				t.Errorf("%+v", d)
			}
			if last := d.Steps[len(d.Steps)-1]; last.Name != "scope" || last.Found != "deployer in namespace shop" {
				t.Errorf("%+v", d.Steps)
			}
			// The identity that tokens share has no scope.
			if token.Spec.User.Extra[v1alpha1.ScopeExtraKey] != nil {
				t.Error("the document has the scope in its user")
			}
		})
	}
}

// TestScopeOfDocuments: a scope that cannot be enforced as it is written makes the token invalid, and no source can write the extra key.
func TestScopeOfDocuments(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit func(*v1alpha1.AccessTokenSpec)
		want string
	}{
		"unknown name":  {scoped(v1alpha1.TokenScope{Name: "deploy"}), `tokens/ci.yaml: AccessToken/ci: spec.scope.name: "deploy" is not the name of a scope (hint: did you mean "deployer"?)`},
		"empty":         {scoped(v1alpha1.TokenScope{}), "spec.scope: has neither a name nor rules"},
		"an empty rule": {scoped(v1alpha1.TokenScope{Rules: []v1alpha1.ScopeRule{{Verbs: []string{"get"}}}}), "spec.scope.rules[0].apiGroups: is empty"},
		"in the extra": {
			func(s *v1alpha1.AccessTokenSpec) { s.User.Extra["gatehouse.dev/scope"] = []string{"edit"} },
			`spec.user.extra["gatehouse.dev/scope"]: "gatehouse.dev/scope" is reserved`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, token := issue("ci", 1, c.edit)
			_, err := authn.Compile(authn.Spec{Tokens: []authn.Token{token}, Configuration: configuration(), ScopesEnforced: enforced, Now: atNoon})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	broken := configuration()
	broken.Scopes[0].Name = "edit"
	if _, err := authn.Compile(authn.Spec{Configuration: broken, Now: atNoon}); err == nil || !strings.Contains(err.Error(), `auth.yaml: AuthenticationConfiguration: scopes[0].name: "edit" is a scope of Gatehouse itself`) {
		t.Errorf("got %v", err)
	}
}

// TestScopeOfSession: a session is narrowed at the login or at a renewal, and stays so.
func TestScopeOfSession(t *testing.T) {
	t.Parallel()
	g := newGate()
	g.spec.Configuration.Scopes = configuration().Scopes
	login := func(request authn.LoginRequest) authn.LoginDecision {
		t.Helper()
		if request.Token == "" {
			request.Username, request.Password = "jane", "Secret1!"
		}
		return g.set(t).Login(t.Context(), request)
	}
	if d := login(authn.LoginRequest{Scope: "view"}); d.Outcome != authn.No || d.Reason != authn.ReasonInput || !strings.Contains(d.Message, "does not enforce scopes") {
		t.Errorf("where nobody enforces scopes: %+v", d)
	}
	g.spec.ScopesEnforced = enforced
	if d := login(authn.LoginRequest{Scope: "veiw"}); d.Outcome != authn.No || d.Reason != authn.ReasonInput || !strings.Contains(d.Message, "the scopes are view, edit, deployer") {
		t.Errorf("an unknown scope: %+v", d)
	}
	if len(g.corp.asked) > 0 {
		t.Errorf("the directory was asked about a password: %v", g.corp.asked)
	}
	scopeOf := func(d authn.LoginDecision) string {
		t.Helper()
		got := g.set(t).Decide(t.Context(), authn.Input{Token: d.Token})
		if d.Outcome != authn.Yes || got.Outcome != authn.Yes {
			t.Fatalf("%+v, %+v", d, got)
		}
		return strings.Join(got.Status.User.Extra[v1alpha1.ScopeExtraKey], " ")
	}
	narrow := login(authn.LoginRequest{Scope: "deployer"})
	if got := scopeOf(narrow); got != "deployer" {
		t.Errorf("logged in with the scope %q", got)
	}
	if d := login(authn.LoginRequest{Token: narrow.Token, Scope: "edit"}); d.Outcome != authn.No || d.Reason != authn.ReasonInput {
		t.Errorf("the renewal has another scope: %+v", d)
	}
	g.now = g.now.Add(time.Minute)
	for _, scope := range []string{"", "deployer"} {
		if got := scopeOf(login(authn.LoginRequest{Token: narrow.Token, Scope: scope})); got != "deployer" {
			t.Errorf("renewed with the scope %q", got)
		}
	}
	wide := login(authn.LoginRequest{})
	if got := scopeOf(wide); got != "" {
		t.Errorf("a session without a scope has %q", got)
	}
	if got := scopeOf(login(authn.LoginRequest{Token: wide.Token, Scope: "view"})); got != "view" {
		t.Errorf("narrowed to %q", got)
	}
	// A scope that is not configured any more, or not yet.
	g.spec.Configuration.Scopes = nil
	if d := g.set(t).Decide(t.Context(), authn.Input{Token: narrow.Token}); d.Outcome != authn.Unknown || d.Reason != authn.ReasonUnknownScope || d.Status.Authenticated {
		t.Errorf("an unknown scope: %+v", d)
	}
}
