package authn_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

const issuerURL = "https://issuer.example"

// issuer is one whose users are "oidc:…" and whose groups have no prefix.
func issuer() authn.Issuer {
	user, groups := "oidc:", ""
	config := &apiserver.JWTAuthenticator{
		Issuer: apiserver.Issuer{URL: issuerURL, Audiences: []string{"kubernetes"}},
		ClaimMappings: apiserver.ClaimMappings{
			Username: apiserver.PrefixedClaimOrExpression{Claim: "sub", Prefix: &user},
			Groups:   apiserver.PrefixedClaimOrExpression{Claim: "groups", Prefix: &groups},
		},
	}
	return authn.Issuer{Source: "oidc.yaml", Field: "jwt[0]", Config: config}
}

func TestCompileConfiguration(t *testing.T) {
	t.Parallel()
	minutes := func(n int) *metav1.Duration { return &metav1.Duration{Duration: time.Duration(n) * time.Minute} }
	named := func(p string) *string { return &p }
	for name, test := range map[string]struct {
		edit func(*authn.Spec)
		want []string // severity field: what the message holds
	}{
		"as it should be": {edit: func(*authn.Spec) {}},
		"no login keys": {
			edit: func(s *authn.Spec) { s.Configuration.Login.Keys, s.LoginKeys = nil, nil },
			want: []string{"error login.keys: is empty"},
		},
		"no login for the directories": {
			edit: func(s *authn.Spec) { s.Configuration.Login = nil },
			want: []string{"error login: is missing"},
		},
		"a short key": {
			edit: func(s *authn.Spec) { s.LoginKeys[0].Secret = []byte("short") },
			want: []string{"error login.keys[0].file: contains a key of 5 bytes"},
		},
		"one key twice": {
			edit: func(s *authn.Spec) {
				s.Configuration.Login.Keys = append(s.Configuration.Login.Keys, v1alpha1.LoginKey{Name: "first", File: "x"})
				s.LoginKeys = append(s.LoginKeys, s.LoginKeys[0])
			},
			want: []string{"error login.keys[1].file: the same key", `error login.keys[1].name: "first" is already the name of another key`},
		},
		"a key's name that does not fit into a token": {
			edit: func(s *authn.Spec) { s.Configuration.Login.Keys[0].Name = "my_key" },
			want: []string{`error login.keys[0].name: "my_key" is not a DNS-1123 label`},
		},
		"times out of bounds": {
			edit: func(s *authn.Spec) {
				s.Configuration.Login.TokenTTL, s.Configuration.Login.SessionTTL = minutes(25*60), minutes(0)
				s.Configuration.JWT.KeyRefreshInterval, s.Configuration.JWT.MaxKeyAge = minutes(0), minutes(24*60*31)
			},
			want: []string{
				"error jwt.keyRefreshInterval: must be from 30s", "error jwt.maxKeyAge: must be from",
				`error login.sessionTTL: "0s" must be from 1m0s`, "error login.sessionTTL: less than tokenTTL", "error login.tokenTTL: must be from 1m0s to 24h",
			},
		},
		"keys too old before they are fetched anew": {
			edit: func(s *authn.Spec) {
				s.Configuration.JWT.KeyRefreshInterval, s.Configuration.JWT.MaxKeyAge = minutes(20), minutes(10)
			},
			want: []string{"error jwt.maxKeyAge: less than keyRefreshInterval"},
		},
		"an issuer that there is not": {
			edit: func(s *authn.Spec) {
				s.Configuration.JWT.Issuers = []v1alpha1.JWTIssuer{{URL: "https://other.example", KeysFile: "keys.json"}}
			},
			want: []string{`error jwt.issuers[0].url: "https://other.example" is not the URL of a configured issuer`},
		},
		"sources that there are not": {
			edit: func(s *authn.Spec) {
				s.Configuration.Guard.Prefixes = []v1alpha1.RequiredPrefix{{Source: "corps", Username: "x:"}}
				s.Configuration.Guard.AllowedGroups = []v1alpha1.AllowedGroup{{Name: "system:monitoring", Sources: []string{"acces-tokens"}}, {Name: "system:monitoring"}}
			},
			want: []string{
				`error guard.allowedGroups[0].sources[0]: "acces-tokens" is not a source`, "error guard.allowedGroups[1].sources: is empty",
				`error guard.prefixes[0].source: "corps" is not a source`,
			},
		},
		"groups that nobody may allow": {
			edit: func(s *authn.Spec) {
				for _, name := range []string{"system:authenticated", "dev", " system:masters", "System:masters", "system:masters", "", "gatehouse.dev:break-glass"} {
					s.Configuration.Guard.AllowedGroups = append(s.Configuration.Guard.AllowedGroups, v1alpha1.AllowedGroup{Name: name, Sources: []string{"corp"}})
				}
			},
			want: []string{
				"error guard.allowedGroups[0].name: is given by the API server itself", "warning guard.allowedGroups[1].name: is not reserved",
				"error guard.allowedGroups[2].name: not the name of a reserved group", "error guard.allowedGroups[3].name: not the name of a reserved group",
				"warning guard.allowedGroups[4].name: bypasses authorization", "error guard.allowedGroups[5].name: not the name of a reserved group",
				`error guard.allowedGroups[6].name: "gatehouse.dev:break-glass" cannot be given by a source of identities`,
			},
		},
		"prefixes that lock everybody out": {
			edit: func(s *authn.Spec) {
				s.Configuration.Guard.Prefixes = []v1alpha1.RequiredPrefix{
					{Source: "corp", Username: "ldap:", Groups: "g:eng"},
					{Source: issuerURL, Username: "sso:", Groups: "any:"},
					{Source: "access-tokens", Username: "system:"},
				}
			},
			want: []string{
				`error guard.prefixes[0].username: "ldap:" is required, but every name of this source begins with "corp:": nobody could log in`,
				`error guard.prefixes[1].username: "sso:" is required, but every name of this source begins with "oidc:"`,
				`error guard.prefixes[2].username: "system:": the identity guard rejects every name`,
			},
		},
		"a mapping that locks everybody out": {
			edit: func(s *authn.Spec) {
				s.Issuers[0].Config.ClaimMappings.Username.Prefix = named("system:")
				s.Directories[0].Config.UsernamePrefix, s.Directories[0].Config.GroupsPrefix = "System:node:", "\x00"
			},
			want: []string{
				"error directories[0].groupsPrefix: control or invisible", `error directories[0].usernamePrefix: "System:node:": the identity guard rejects`,
				`error jwt[0].claimMappings.username.prefix: "system:": the identity guard rejects`,
			},
		},
		"an issuer without audience, twice": {
			edit: func(s *authn.Spec) {
				s.Issuers = append(s.Issuers, issuer())
				s.Issuers[1].Field = "jwt[1]"
				s.Issuers[0].Config.Issuer.Audiences = nil
			},
			want: []string{"error jwt[0].issuer.audiences: equired"},
		},
		"one issuer twice": {
			edit: func(s *authn.Spec) {
				s.Issuers = append(s.Issuers, issuer())
				s.Issuers[1].Field = "jwt[1]"
			},
			want: []string{`error jwt[1].issuer.url: "https://issuer.example" is already the URL of another issuer`},
		},
		"a password in an issuer's url": {
			edit: func(s *authn.Spec) { s.Issuers[0].Config.Issuer.URL = "https://jane:hunter2@issuer.example" },
			want: []string{`error jwt[0].issuer.url: is not shown, because what stands before its "@" may be a password: URL must not contain a username or password`},
		},
		"a password, and more is wrong": {
			edit: func(s *authn.Spec) { s.Issuers[0].Config.Issuer.URL = "http://jane:hunter2@issuer.example" },
			want: []string{`error jwt[0].issuer.url: may be a password: URL scheme must be https`, `error jwt[0].issuer.url: must not contain a username or password`},
		},
		"a password in what is no url": {
			edit: func(s *authn.Spec) { s.Issuers[0].Config.Issuer.URL = "https://jane:hunter2%zz@issuer.example" },
			want: []string{`error jwt[0].issuer.url: may be a password: it is not a URL`},
		},
		"a password in a discovery url": {
			edit: func(s *authn.Spec) { s.Issuers[0].Config.Issuer.DiscoveryURL = "https://jane:hunter2@issuer.example" },
			want: []string{`error jwt[0].issuer.discoveryURL: is not shown`},
		},
		"another mistake in a url": {
			edit: func(s *authn.Spec) { s.Issuers[0].Config.Issuer.URL = "http://issuer.example" },
			want: []string{`error jwt[0].issuer.url: Invalid value: "http://issuer.example": URL scheme must be https`},
		},
		"names of directories": {
			edit: func(s *authn.Spec) {
				s.Directories = append(s.Directories,
					authn.NamedDirectory{Field: "directories[1]", Config: &v1alpha1.Directory{Name: "corp", UsernamePrefix: "corp:"}},
					authn.NamedDirectory{Field: "directories[2]", Config: &v1alpha1.Directory{Name: "access-tokens", UsernamePrefix: "a:"}},
					authn.NamedDirectory{Field: "directories[3]", Config: &v1alpha1.Directory{Name: "https://x", UsernamePrefix: "x:"}})
			},
			want: []string{
				"error directories[1].name: already the name of another directory", "error directories[2].name: the source of access tokens", "error directories[3].name: not a DNS-1123 label",
			},
		},
		"names that two sources give": {
			edit: func(s *authn.Spec) {
				s.Directories[0].Config.UsernamePrefix = "oidc:corp:"
				s.Directories = append(s.Directories, authn.NamedDirectory{Field: "directories[1]", Config: &v1alpha1.Directory{Name: "other", UsernamePrefix: "other:"}})
			},
			want: []string{`warning jwt[0].claimMappings.username.prefix: issuer "https://issuer.example" gives names that begin with "oidc:", and directory "corp" names that begin with "oidc:corp:"`},
		},
		"extra keys that are reserved": {
			edit: func(s *authn.Spec) {
				s.Directories[0].Config.UserSearch.Extra = []v1alpha1.ExtraAttribute{{Key: "example.org/room", Attribute: "a"}, {Key: "authentication.kubernetes.io/pod-name", Attribute: "a"}}
			},
			want: []string{`error directories[0].userSearch.extra[1].key: "authentication.kubernetes.io/pod-name" is reserved`},
		},
		"revocations": {
			edit: func(s *authn.Spec) {
				s.Revocations = []authn.Revocation{revoke("", noon), revoke("corp:jane", time.Time{}), revoke("corp:joe", noon.Add(48*time.Hour))}
			},
			want: []string{"warning spec.issuedBefore: in the future", "error spec.issuedBefore: is missing", "error spec.user: is missing"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := newGate().spec
			spec.Issuers = []authn.Issuer{issuer()}
			test.edit(&spec)
			set, err := authn.Compile(spec)
			var found diagnostic.List
			if err == nil {
				found = set.Warnings()
			} else if !errors.As(err, &found) {
				t.Fatal(err)
			}
			found = slices.DeleteFunc(slices.Clone(found), func(f diagnostic.Diagnostic) bool {
				return f.Severity == diagnostic.Warning && strings.HasPrefix(f.Field, "jwt[") && f.Code == "" // of package jwt
			})
			var shown []string
			for _, f := range found {
				shown = append(shown, string(f.Severity)+" "+f.Field+": "+f.Message)
			}
			for _, want := range test.want {
				head, text, _ := strings.Cut(want, ": ")
				if !slices.ContainsFunc(shown, func(s string) bool { return strings.HasPrefix(s, head+": ") && strings.Contains(s, text) }) {
					t.Errorf("nothing says %q", want)
				}
			}
			if strings.Contains(strings.Join(shown, "\n"), "hunter2") {
				t.Error("a password is in the findings")
			}
			if len(shown) != len(test.want) {
				t.Errorf("%d findings, want %d", len(shown), len(test.want))
			}
			if t.Failed() {
				t.Log("\n" + strings.Join(shown, "\n"))
			}
		})
	}
}

func TestGuardOfTheConfiguration(t *testing.T) {
	t.Parallel()
	text, token := issue("ci", 1, func(s *v1alpha1.AccessTokenSpec) { s.User.Groups = []string{"bot:dev", "system:monitoring"} })
	compileWith := func(c v1alpha1.GuardConfiguration) (*authn.Set, error) {
		return authn.Compile(authn.Spec{
			Tokens: []authn.Token{token}, Now: atNoon,
			Configuration: &authn.Configuration{AuthenticationConfiguration: v1alpha1.AuthenticationConfiguration{Guard: c}},
		})
	}
	allowed := []v1alpha1.AllowedGroup{{Name: "system:monitoring", Sources: []string{"access-tokens"}}}
	for name, test := range map[string]struct {
		guard v1alpha1.GuardConfiguration
		good  bool
	}{
		"a reserved group":               {v1alpha1.GuardConfiguration{}, false},
		"allowed":                        {v1alpha1.GuardConfiguration{AllowedGroups: allowed}, true},
		"another group is allowed":       {v1alpha1.GuardConfiguration{AllowedGroups: []v1alpha1.AllowedGroup{{Name: "system:nodes", Sources: []string{"access-tokens"}}}}, false},
		"allowed, and the prefix is had": {v1alpha1.GuardConfiguration{AllowedGroups: allowed, Prefixes: []v1alpha1.RequiredPrefix{{Source: "access-tokens", Username: "ja", Groups: "bot:"}}}, true},
		"allowed, and no group's prefix": {v1alpha1.GuardConfiguration{AllowedGroups: allowed, Prefixes: []v1alpha1.RequiredPrefix{{Source: "access-tokens", Groups: "robot:"}}}, false},
		"allowed, and no user's prefix":  {v1alpha1.GuardConfiguration{AllowedGroups: allowed, Prefixes: []v1alpha1.RequiredPrefix{{Source: "access-tokens", Username: "bot:"}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, err := compileWith(test.guard)
			if (err == nil) != test.good {
				t.Fatal(err)
			}
			if err == nil && set.Decide(t.Context(), authn.Input{Token: text}).Outcome != authn.Yes {
				t.Error("what was compiled is refused")
			}
		})
	}
	t.Run("of another source", func(t *testing.T) {
		t.Parallel()
		g := newGate()
		g.spec.Directories[0].Config.GroupsPrefix = ""
		g.corp.groups = []string{"system:monitoring"}
		g.spec.Configuration.Guard.AllowedGroups = allowed
		if d := g.login(t, "jane", "Secret1!"); d.Reason != authn.ReasonGuard {
			t.Errorf("%+v", d)
		}
		g.spec.Configuration.Guard.AllowedGroups = []v1alpha1.AllowedGroup{{Name: "system:monitoring", Sources: []string{"corp"}}}
		token := g.token(t)
		if d := g.set(t).Decide(t.Context(), authn.Input{Token: token}); d.Outcome != authn.Yes {
			t.Errorf("%+v", d)
		}
		// What a token was given before the configuration changed does not count.
		g.spec.Configuration.Guard.AllowedGroups = nil
		if d := g.set(t).Decide(t.Context(), authn.Input{Token: token}); d.Reason != authn.ReasonGuard {
			t.Errorf("%+v", d)
		}
	})
}

func TestRevocationOfAccessTokens(t *testing.T) {
	t.Parallel()
	at := func(hours int) metav1.Time { return metav1.NewTime(noon.Add(time.Duration(hours) * time.Hour)) }
	before, beforeDoc := issue("before", 1)
	beforeDoc.CreationTimestamp = at(-2)
	after, afterDoc := issue("after", 2)
	afterDoc.CreationTimestamp = at(0)
	undated, undatedDoc := issue("undated", 3)
	other, otherDoc := issue("other", 4, func(s *v1alpha1.AccessTokenSpec) { s.User = authenticationv1.UserInfo{Username: "joe"} })
	set, err := authn.Compile(authn.Spec{
		Tokens:      []authn.Token{beforeDoc, afterDoc, undatedDoc, otherDoc},
		Revocations: []authn.Revocation{revoke("jane", noon.Add(-time.Hour)), revoke("jane", noon.Add(-3*time.Hour))},
		Now:         atNoon,
	})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]authn.Reason{before: authn.ReasonRevoked, after: authn.ReasonOK, undated: authn.ReasonRevoked, other: authn.ReasonOK} {
		if d := set.Decide(t.Context(), authn.Input{Token: text}); d.Reason != want {
			t.Errorf("%s: %+v", d.TokenID, d)
		}
	}
}

func TestWithdraw(t *testing.T) {
	t.Parallel()
	one, oneDoc := issue("one", 1)
	two, twoDoc := issue("two", 2)
	three, threeDoc := issue("three", 3, func(s *v1alpha1.AccessTokenSpec) { s.User.Username = "joe" })
	set := compile(t, oneDoc, twoDoc, threeDoc)
	next := set.Withdraw([]string{"one", "never"}, nil, []authn.Revocation{revoke("joe", noon), revoke("", noon), {}})
	last := next.Withdraw([]string{"two"}, nil, nil)
	for _, test := range []struct {
		name string
		set  *authn.Set
		want [3]authn.Reason
	}{
		{"as compiled", set, [3]authn.Reason{authn.ReasonOK, authn.ReasonOK, authn.ReasonOK}},
		{"one withdrawn", next, [3]authn.Reason{authn.ReasonUnknownID, authn.ReasonOK, authn.ReasonRevoked}},
		{"two withdrawn", last, [3]authn.Reason{authn.ReasonUnknownID, authn.ReasonUnknownID, authn.ReasonRevoked}},
	} {
		for i, text := range []string{one, two, three} {
			if d := test.set.Decide(t.Context(), authn.Input{Token: text, Audiences: []string{"a"}}); d.Reason != test.want[i] || (d.Reason == authn.ReasonUnknownID && (d.Status.Error == "" || len(d.Status.Audiences) != 1)) {
				t.Errorf("%s: token %d: %+v", test.name, i+1, d)
			}
		}
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	g := newGate()
	login := g.token(t)
	access, doc := issue("ci", 1)
	g.spec.Tokens = []authn.Token{doc}
	g.spec.Issuers = []authn.Issuer{issuer()}
	set := g.set(t)
	for name, token := range map[string]string{"login": login, "access": access, "foreign": "abc", "jwt": "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIn0.c2ln"} {
		d := set.Decide(t.Context(), authn.Input{Token: token, Explain: true})
		if want := set.Decide(t.Context(), authn.Input{Token: token}); d.Outcome != want.Outcome || d.Reason != want.Reason {
			t.Errorf("%s: explained as %s, decided as %s", name, d.Reason, want.Reason)
		}
		if len(d.Steps) == 0 || d.Steps[0].Name != "shape" {
			t.Errorf("%s: steps %+v", name, d.Steps)
		}
		for _, step := range d.Steps {
			if name != "foreign" && strings.Contains(step.Found, token[max(0, len(token)-20):]) {
				t.Errorf("%s: a step holds the secret: %s", name, step.Found)
			}
		}
	}
}
