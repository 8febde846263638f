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
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// reservedNames are the names that Kubernetes gives a meaning to, wherever they
// come from, and names that read like them.
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

// backends are, for every way to get in, what becomes of somebody who would be
// this identity: each as if nothing before the guard had refused it.
func backends(t *testing.T, identity authenticationv1.UserInfo) map[string]func() (Outcome, Reason) {
	t.Helper()
	now := func() time.Time { return time.Unix(1000, 0) }
	by := func(b backend, token string) (Outcome, Reason) {
		d := (&Set{backends: []backend{b}}).Decide(t.Context(), token, nil)
		if d.Outcome != Yes && (d.Status.Authenticated || !reflect.DeepEqual(d.Status.User, authenticationv1.UserInfo{})) {
			t.Errorf("the answer to %s holds an identity: %+v", b.name, d.Status)
		}
		return d.Outcome, d.Reason
	}
	keys := []LoginKey{{Name: "first", Secret: make([]byte, 32)}}
	directory := []NamedDirectory{{Config: &v1alpha1.Directory{Name: "corp"}, Directory: fakeDirectory{identity}}}
	return map[string]func() (Outcome, Reason){
		"access token": func() (Outcome, Reason) {
			text, _ := NewToken("ci", [25]byte{1})
			known := &accessToken{id: "ci", digest: sha256.Sum256([]byte(text)), expiresAt: time.Unix(2000, 0), identity: newSharing().identity(&identity)}
			tokens := accessTokens{byID: map[string]*accessToken{"ci": known}, now: now}
			return by(backend{AccessTokens, isAccessToken, tokens.authenticate}, text)
		},
		"login token": func() (Outcome, Reason) {
			tokens := loginTokens{keys: keys, now: now, sources: map[string]*NamedDirectory{"corp": &directory[0]}}
			text, err := tokens.sign(&loginClaims{ID: "x", Source: "corp", User: identity, Expires: 2000})
			if err != nil {
				t.Fatal(err)
			}
			return by(backend{LoginTokens, isLoginToken, tokens.authenticate}, text)
		},
		"JWT": func() (Outcome, Reason) {
			return by(backend{JWTs, func(string) bool { return true }, func(context.Context, string, []string, *trail) verdict {
				return verdict{outcome: Yes, reason: ReasonOK, identity: &identity}
			}}, "a.b.c")
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
			if name == "JWT" && strings.Contains(what, user.CredentialIDKey) {
				continue // Upstream's own, and checked below.
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
				if what == "credential id" && name != "JWT" {
					want = No
				}
				if outcome, reason := decide(); outcome != want {
					t.Errorf("got %s, %s", outcome, reason)
				}
			})
		}
	}
}

// breakGlassNames are the group of emergencies and names that read like it.
func breakGlassNames() []string {
	return []string{
		"gatehouse.dev:break-glass", "Gatehouse.dev:Break-Glass", " gatehouse.dev:break-glass", "gatehouse.dev:break-glass ",
		"gatehouse.dev:\u200bbreak-glass", "gatehouse.dev: break-glass", "gatehouse.dev:break-glass-team",
	}
}

// No source gives the group of emergencies, not even one that the configuration would allow it, and every other group
// that begins alike is an ordinary one.
func TestNobodyIsGivenTheGroupOfEmergencies(t *testing.T) {
	for _, name := range breakGlassNames() {
		identity := authenticationv1.UserInfo{Username: "jane", Groups: []string{"dev", name}}
		for backend, decide := range backends(t, identity) {
			t.Run(backend+"/"+name, func(t *testing.T) {
				if outcome, reason := decide(); outcome != No || reason != ReasonGuard {
					t.Errorf("got %s, %s", outcome, reason)
				}
			})
		}
		found := violations(&identity, JWTs, &guardRules{allowed: []string{name}})
		if len(found) != 1 || found[0].field != "groups[1]" || !strings.Contains(found[0].message, "given by impersonation alone") {
			t.Errorf("%q, allowed: got %+v", name, found)
		}
	}
	good := authenticationv1.UserInfo{Username: "gatehouse.dev:break-glass", Groups: []string{"gatehouse.dev", "gatehouse.dev:auditors", "break-glass"}}
	if found := violations(&good, AccessTokens, nil); len(found) > 0 {
		t.Errorf("refused: %+v", found)
	}
}

func TestGuardRules(t *testing.T) {
	named := func(name string) authenticationv1.UserInfo { return authenticationv1.UserInfo{Username: name} }
	extra := func(key string, values ...string) authenticationv1.UserInfo {
		return authenticationv1.UserInfo{Username: "jane", Extra: map[string]authenticationv1.ExtraValue{key: values}}
	}
	long := strings.Repeat("x", 1024)
	cases := []struct {
		name  string
		user  authenticationv1.UserInfo
		field string
		says  string
	}{
		{"plain", named("jane"), "", ""},
		{"mail address", named("jane@example.org"), "", ""},
		{"LDAP name", named("uid=jane,ou=people,dc=example,dc=org"), "", ""},
		{"prefix of an issuer", named("oidc:jane"), "", ""},
		{"words in between", named("Jane van der Berg"), "", ""},
		{"beyond ASCII", named("ヤン・É"), "", ""},
		{"joiner that is spelling", named("می\u200cخواهم"), "", ""},
		{"system without a colon", named("system"), "", ""},
		{"system later on", named("ops:system:masters"), "", ""},
		{"longer word", named("systemd:x"), "", ""},
		{"other separator", named("system-masters"), "", ""},
		{"1024 bytes", named(long), "", ""},
		{"1025 bytes", named(long + "x"), "username", `must not be longer than 1024 bytes`},
		{"empty", named(""), "username", `"" must not be empty`},
		{"white space alone", named(" "), "username", `" " must not begin or end with white space`},
		{"space behind, another user to LDAP and the same to a reader", named("jane "), "username", `"jane " must not begin or end`},
		{"no-break space in front", named("\u00a0jane"), "username", `"\u00a0jane" must not begin or end`},
		{"line feed, a second log line", named("jane\nlevel=info"), "username", `"jane\nlevel=info" must not hold control`},
		{"NUL", named("jane\x00"), "username", `must not hold control`},
		{"escape sequence", named("\x1b[2Jjane"), "username", `must not hold control`},
		{"delete", named("jane\x7f"), "username", `must not hold control`},
		{"C1 control", named("jane\u0085x"), "username", `must not hold control`},
		{"right to left override", named("jane\u202e"), "username", `"jane\u202e" must not hold control`},
		{"filler", named("ad\u115fmin"), "username", `must not hold control`},
		{"empty braille", named("admin\u2800x"), "username", `must not hold control`},
		{"zero width space", named("ja\u200bne"), "username", `must not hold control`},
		{"line separator", named("jane\u2028x"), "username", `must not hold control`},
		{"invalid UTF-8", named("jane\xff"), "username", `"jane\xff" must be valid UTF-8`},
		{"surrogate half", named("jane\xed\xa0\x80"), "username", `must be valid UTF-8`},
		{"reserved before too spacious", named(" system:masters"), "username", `" system:masters" is reserved`},

		{"uid may be absent", authenticationv1.UserInfo{Username: "jane", UID: ""}, "", ""},
		{"uid with a control", authenticationv1.UserInfo{Username: "jane", UID: "4\t2"}, "uid", `"4\t2" must not hold control`},
		{"uid too long", authenticationv1.UserInfo{Username: "jane", UID: long + "x"}, "uid", `… (1025 bytes) must not be longer`},
		{"empty group", authenticationv1.UserInfo{Username: "jane", Groups: []string{"dev", ""}}, "groups[1]", `"" must not be empty`},

		{"extra of an own domain", extra("example.org/team", "blue", ""), "", ""},
		{"extra without values", extra("example.org/team"), "", ""},
		{"extra without a slash", extra("scopes.authorization.example.org", "user:full"), "", ""},
		{"extra that names the domain later", extra("example.org/kubernetes.io", "x"), "", ""},
		{"extra of a domain that ends alike", extra("notk8s.io/team", "x"), "", ""},
		{"extra key empty", extra("", "x"), `extra[""]`, `must not be empty`},
		{"extra kubernetes.io", extra("kubernetes.io/a", "x"), `extra["kubernetes.io/a"]`, `"kubernetes.io/a" is reserved`},
		{"extra k8s.io", extra("k8s.io/a", "x"), `extra["k8s.io/a"]`, `is reserved`},
		{"extra deep under k8s.io", extra("a.b.x-k8s.io.k8s.io/a", "x"), `extra["a.b.x-k8s.io.k8s.io/a"]`, `is reserved`},
		{"extra domain alone", extra("kubernetes.io", "x"), `extra["kubernetes.io"]`, `is reserved`},
		{"extra in another case", extra("Authentication.Kubernetes.io/Pod-Name", "x"), `extra["Authentication.Kubernetes.io/Pod-Name"]`, `is reserved`},
		{"extra with a space in front", extra(" k8s.io/a", "x"), `extra[" k8s.io/a"]`, `is reserved`},
		{"extra with a root dot", extra("k8s.io./a", "x"), `extra["k8s.io./a"]`, `is reserved`},
		{"extra upper case", extra("example.org/Team", "x"), `extra["example.org/Team"]`, `must be lower case`},
		{"extra with white space", extra("example.org/my team", "x"), `extra["example.org/my team"]`, `must not hold white space`},
		{"extra value with a control", extra("example.org/team", "blue", "a\rb"), `extra["example.org/team"][1]`, `"a\rb" must not hold control`},
		{"extra value not UTF-8", extra("example.org/team", "\xc3\x28"), `extra["example.org/team"][0]`, `must be valid UTF-8`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			found := violations(&c.user, AccessTokens, nil)
			if c.field == "" {
				if len(found) > 0 {
					t.Errorf("refused: %+v", found)
				}
				return
			}
			if len(found) != 1 || found[0].field != c.field || !strings.Contains(found[0].message, c.says) {
				t.Errorf("got %+v, want one for %s with %q", found, c.field, c.says)
			}
		})
	}
}

func TestGuardReportsEverythingInOrder(t *testing.T) {
	bad := authenticationv1.UserInfo{
		Username: "system:anonymous", UID: "\x01", Groups: []string{"", "ok", "system:nodes"},
		Extra: map[string]authenticationv1.ExtraValue{
			"z.k8s.io/a": {"\x01"}, "a.example.org/ok": {"x"}, "B": {"ok", "\xff"}, "m.kubernetes.io/b": nil, "n.example.org/c": {"\n"},
		},
	}
	want := []string{
		"username", "uid", "groups[0]", "groups[2]",
		`extra["B"]`, `extra["B"][1]`, `extra["m.kubernetes.io/b"]`, `extra["n.example.org/c"][0]`, `extra["z.k8s.io/a"]`, `extra["z.k8s.io/a"][0]`,
	}
	for range 20 { // often enough for the order of a map to show
		var got []string
		for _, v := range violations(&bad, AccessTokens, nil) {
			got = append(got, v.field)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %q\nwant %q", got, want)
		}
	}
}

// Every identity that the guard refuses is refused when the configuration is
// read, at the field that holds it, so that nobody finds out at log-in.
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

// A backend that forgets part of its answer must not become a yes.
func TestBrokenVerdictsFailClosed(t *testing.T) {
	for name, c := range map[string]struct {
		verdict verdict
		want    Decision
	}{
		"zero":                  {verdict{}, Decision{Outcome: Unknown, Status: authenticationv1.TokenReviewStatus{Error: "token could not be checked"}}},
		"yes without identity":  {verdict{outcome: Yes, reason: ReasonOK}, Decision{Outcome: No, Reason: ReasonGuard}},
		"unknown without words": {verdict{outcome: Unknown, reason: ReasonUnknownID}, Decision{Outcome: Unknown, Reason: ReasonUnknownID, Status: authenticationv1.TokenReviewStatus{Error: "token could not be checked"}}},
		"no with identity":      {verdict{outcome: No, reason: ReasonExpired, identity: &authenticationv1.UserInfo{Username: "jane"}}, Decision{Outcome: No, Reason: ReasonExpired}},
	} {
		if got := (&Set{}).conclude("", c.verdict, nil, nil); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

// Each token is shown to one backend: to the first whose shape it has.
func TestTokensAreDispatchedByShape(t *testing.T) {
	var asked []string
	fake := func(name, prefix string) backend {
		return backend{
			owns: func(token string) bool { return strings.HasPrefix(token, prefix) },
			authenticate: func(_ context.Context, token string, _ []string, _ *trail) verdict {
				asked = append(asked, name+" saw "+token)
				return verdict{outcome: No, reason: ReasonUnknownID}
			},
		}
	}
	set := &Set{backends: []backend{fake("one", "a"), fake("two", "b"), fake("three", "b")}}
	for _, token := range []string{"b1", "a1", "c1"} {
		set.Decide(t.Context(), token, nil)
	}
	if want := []string{"two saw b1", "one saw a1"}; !reflect.DeepEqual(asked, want) {
		t.Errorf("got %q, want %q", asked, want)
	}
}
