package authn

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// reservedNames are the names that have a meaning in Kubernetes, and names that read like
// them.
func reservedNames() []string {
	names := []string{
		user.SystemPrivilegedGroup, user.NodesGroup, user.MonitoringGroup, user.AllUnauthenticated, user.AllAuthenticated,
		user.Anonymous, user.APIServerUser, user.KubeProxy, user.KubeControllerManager, user.KubeScheduler,
		"system:node:worker-1",
		serviceaccount.AllServiceAccountsGroup,
		serviceaccount.ServiceAccountGroupPrefix + "kube-system",
		serviceaccount.ServiceAccountUsernamePrefix + "kube-system:default",
		"system:bootstrap:07401b", "system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token",
		"system:unsecured",
		"system:",
		"system:anything-of-a-later-version",
	}
	return append(names,
		"System:masters", "SYSTEM:MASTERS", "sYsTeM:masters", "\u017fystem:masters",
		" system:masters", "\tsystem:masters", "\nsystem:masters", "\u00a0system:masters", "\u3000system:masters",
		"system :masters", "sys tem:masters", "system: masters",
		"\u200bsystem:masters", "\ufeffsystem:masters", "\u3164system:masters", "\u034fsystem:masters", "sys\ufe0ftem:masters", "\u2800system:masters", "sys\u00adtem:masters", "\u202esystem:masters", "\x00system:masters",
	)
}

// ofIssuer is the URL of an issuer.
const ofIssuer = "https://issuer.example"

// backends returns, for every way to authenticate, the outcome for an identity that only
// the guard can reject.
func backends(t *testing.T, identity authenticationv1.UserInfo) map[string]func() (Outcome, Reason) {
	t.Helper()
	now := func() time.Time { return time.Unix(1000, 0) }
	by := func(b backend, token string) (Outcome, Reason) {
		d := (&Set{backends: []backend{b}, issuers: &issuers{byURL: map[string]*issuer{ofIssuer: {}}}}).Decide(t.Context(), Input{Token: token})
		if d.Outcome != Yes && (d.Status.Authenticated || !reflect.DeepEqual(d.Status.User, authenticationv1.UserInfo{})) {
			t.Errorf("the answer to %s holds an identity: %+v", b.name, d.Status)
		}
		return d.Outcome, d.Reason
	}
	keys := []LoginKey{{Name: "first", Secret: make([]byte, 32)}}
	loginToken := func(claims loginClaims) (Outcome, Reason) {
		tokens := loginTokens{keys: keys, now: now, sources: sets.New("corp", ofIssuer)}
		claims.ID, claims.User, claims.Expires = "x", identity, 2000
		text, err := tokens.sign(&claims)
		if err != nil {
			t.Fatal(err)
		}
		return by(backend{LoginTokens, isLoginToken, tokens.authenticate}, text)
	}
	directory := []NamedDirectory{{Config: &v1alpha1.Directory{Name: "corp"}, Directory: fakeDirectory{identity}}}
	return map[string]func() (Outcome, Reason){
		"access token": func() (Outcome, Reason) {
			text, _ := NewToken("ci", [25]byte{1})
			known := &accessToken{id: "ci", digest: sha256.Sum256([]byte(text)), expiresAt: time.Unix(2000, 0), user: identity}
			tokens := accessTokens{byID: map[string]*accessToken{"ci": known}, now: now}
			return by(backend{AccessTokens, isAccessToken, tokens.authenticate}, text)
		},
		"login token":           func() (Outcome, Reason) { return loginToken(loginClaims{Source: "corp"}) },
		"login token for a JWT": func() (Outcome, Reason) { return loginToken(loginClaims{Source: ofIssuer, JWT: &exchanged{ID: "1"}}) },
		"JWT": func() (Outcome, Reason) {
			b := fixedSet(verdict{outcome: Yes, reason: ReasonOK, source: ofIssuer, identity: &identity}).backends[0]
			b.name = JWTs
			return by(b, "a.b.c")
		},
		"login with a password": func() (Outcome, Reason) {
			spec := &Spec{
				Directories: directory, LoginKeys: keys, Random: rand.Reader, Now: now,
				Configuration: &Configuration{AuthenticationConfiguration: v1alpha1.AuthenticationConfiguration{Login: &v1alpha1.LoginConfiguration{}}},
			}
			set := &Set{logins: newLogins(spec, newLoginTokens(spec))}
			d := set.Login(t.Context(), LoginRequest{Username: "typed", Password: "right"})
			if (d.Outcome == Yes) != (d.Token != "") {
				t.Errorf("outcome %s, and a token of %d bytes", d.Outcome, len(d.Token))
			}
			return d.Outcome, d.Reason
		},
	}
}

// fakeDirectory has one account, with the identity, for any name.
type fakeDirectory struct{ identity authenticationv1.UserInfo }

func (f fakeDirectory) Find(context.Context, string) (*Account, error) {
	user := f.identity
	user.Groups = nil
	return &Account{Key: "cn=one", DN: "cn=one", User: user}, nil
}

func (f fakeDirectory) Verify(_ context.Context, _ *Account, password string) error {
	if password != "right" {
		return ErrWrongPassword
	}
	return nil
}

func (f fakeDirectory) Groups(context.Context, *Account) ([]string, error) {
	return f.identity.Groups, nil
}

func TestGuardStandsBehindEveryBackend(t *testing.T) {
	type identity = authenticationv1.UserInfo
	identities := map[string]identity{"empty user": {}, "empty user with groups": {Groups: []string{"dev"}}}
	for _, name := range []string{"gatehouse.dev:break-glass", " gatehouse.dev:break-glass", "gatehouse.dev:\u200bbreak-glass"} {
		identities[fmt.Sprintf("group %q", name)] = identity{Username: "jane", Groups: []string{"dev", name}}
	}
	for _, name := range reservedNames() {
		identities[fmt.Sprintf("user %q", name)] = identity{Username: name}
		identities[fmt.Sprintf("group %q", name)] = identity{Username: "jane", Groups: []string{name}}
		identities[fmt.Sprintf("last group %q", name)] = identity{Username: "jane", Groups: []string{"dev", "eng", name}}
	}
	for _, key := range []string{
		serviceaccount.NodeNameKey, serviceaccount.NodeUIDKey, serviceaccount.PodNameKey, serviceaccount.PodUIDKey, user.CredentialIDKey,
	} {
		identities["extra "+key] = identity{Username: "jane", Extra: map[string]authenticationv1.ExtraValue{"example.org/a": {"b"}, key: {"x"}}}
	}
	for what, refused := range identities {
		for name, decide := range backends(t, refused) {
			if strings.HasSuffix(name, "JWT") && strings.Contains(what, user.CredentialIDKey) {
				continue // set by upstream itself, and checked below
			}
			t.Run(name+"/"+what, func(t *testing.T) {
				if outcome, reason := decide(); outcome != No || reason != ReasonGuard {
					t.Errorf("got %s, %s", outcome, reason)
				}
			})
		}
	}
	for what, good := range map[string]identity{
		"ordinary":      {Username: "jane", Groups: []string{"dev"}},
		"credential id": {Username: "jane", Extra: map[string]authenticationv1.ExtraValue{user.CredentialIDKey: {"JTI=1"}}},
	} {
		for name, decide := range backends(t, good) {
			t.Run(name+"/"+what, func(t *testing.T) {
				want := Yes
				if what == "credential id" && !strings.HasSuffix(name, "JWT") {
					want = No
				}
				if outcome, reason := decide(); outcome != want {
					t.Errorf("got %s, %s", outcome, reason)
				}
			})
		}
	}
}

// Every identity that the guard rejects is rejected when the configuration is compiled, at
// its field.
func TestCompileRefusesWhatTheGuardRefuses(t *testing.T) {
	_, hash := NewToken("ci", [25]byte{1})
	for _, name := range reservedNames() {
		token := Token{Source: "tokens/ci.yaml"}
		token.Name = "ci"
		token.Spec.SHA256 = hash
		token.Spec.ExpiresAt = metav1.NewTime(time.Unix(2, 0))
		token.Spec.User = authenticationv1.UserInfo{Username: name, Groups: []string{"dev", name}}
		_, err := Compile(Spec{Tokens: []Token{token}, Now: func() time.Time { return time.Unix(1, 0) }})
		var list diagnostic.List
		if !errors.As(err, &list) {
			t.Fatalf("%q: error %v is not a list of findings", name, err)
		}
		var fields []string
		for _, f := range list {
			fields = append(fields, f.Field)
		}
		if want := []string{"spec.user.groups[1]", "spec.user.username"}; !reflect.DeepEqual(fields, want) {
			t.Errorf("%q: findings at %q, want %q", name, fields, want)
		}
	}
}

// fixedSet has one backend with this verdict.
func fixedSet(v verdict) *Set {
	return &Set{backends: []backend{{
		matches:      func(string) bool { return true },
		authenticate: func(context.Context, *Input, *explanation) verdict { return v },
	}}}
}

// An incomplete verdict of a backend must not become a yes.
func TestBrokenVerdictsFailClosed(t *testing.T) {
	for name, c := range map[string]struct {
		verdict verdict
		want    Decision
	}{
		"zero":                  {verdict{}, Decision{Outcome: Unknown, Status: authenticationv1.TokenReviewStatus{Error: "the token cannot be verified"}}},
		"yes without identity":  {verdict{outcome: Yes, reason: ReasonOK}, Decision{Outcome: No, Reason: ReasonGuard}},
		"unknown without words": {verdict{outcome: Unknown, reason: ReasonUnknownID}, Decision{Outcome: Unknown, Reason: ReasonUnknownID, Status: authenticationv1.TokenReviewStatus{Error: "the token cannot be verified"}}},
		"no with identity":      {verdict{outcome: No, reason: ReasonExpired, identity: &authenticationv1.UserInfo{Username: "jane"}}, Decision{Outcome: No, Reason: ReasonExpired}},
	} {
		if got := fixedSet(c.verdict).Decide(t.Context(), Input{Token: ""}); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

// Each token is shown to one backend: to the first whose shape it has.
func TestTokensAreDispatchedByShape(t *testing.T) {
	var asked []string
	fake := func(name, prefix string) backend {
		return backend{
			matches: func(token string) bool { return strings.HasPrefix(token, prefix) },
			authenticate: func(_ context.Context, in *Input, _ *explanation) verdict {
				asked = append(asked, name+" saw "+in.Token)
				return verdict{outcome: No, reason: ReasonUnknownID}
			},
		}
	}
	set := &Set{backends: []backend{fake("one", "a"), fake("two", "b"), fake("three", "b")}}
	for _, token := range []string{"b1", "a1", "c1"} {
		set.Decide(t.Context(), Input{Token: token})
	}
	if want := []string{"two saw b1", "one saw a1"}; !reflect.DeepEqual(asked, want) {
		t.Errorf("got %q, want %q", asked, want)
	}
}
