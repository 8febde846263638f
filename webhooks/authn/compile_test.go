package authn_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

func TestCompileFindings(t *testing.T) {
	doc := func(id string, b byte, edit ...func(*v1alpha1.AccessTokenSpec)) authn.Token {
		_, token := issue(id, b, edit...)
		return token
	}
	sha := func(text string) func(*v1alpha1.AccessTokenSpec) {
		return func(s *v1alpha1.AccessTokenSpec) { s.SHA256 = text }
	}
	from := func(source string, token authn.Token) authn.Token { token.Source = source; return token }
	good := doc("ci", 1).Spec.SHA256
	cases := []struct {
		name   string
		tokens []authn.Token
		want   []string
	}{
		{"name in upper case", []authn.Token{doc("CI", 1)}, []string{`tokens/CI.yaml: AccessToken/CI: metadata.name: "CI" must be a DNS-1123 label, because it is the token's id: 1 to 63 lower-case letters, digits and "-", with a letter or a digit at both ends`}},
		{"no name", []authn.Token{doc("", 1)}, []string{`tokens/.yaml: AccessToken/: metadata.name: "" must be a DNS-1123 label`}},
		{"id taken, in two files, both named", []authn.Token{from("a.yaml", doc("ci", 1)), from("b.yaml#2", doc("ci", 2))}, []string{`b.yaml#2: AccessToken/ci: metadata.name: "ci" is already the id of the token in a.yaml (hint: issue one of the two tokens again with another id)`}},
		{"id taken, without sources", []authn.Token{from("", doc("ci", 1)), from("", doc("ci", 2))}, []string{`AccessToken/ci: metadata.name: "ci" is already the id of the token in another document`}},
		{"hash taken", []authn.Token{doc("ci", 1), doc("cd", 2, sha(good))}, []string{`tokens/cd.yaml: AccessToken/cd: spec.sha256: is already the hash of AccessToken/ci in tokens/ci.yaml (hint: a token contains its id`}},
		{"hash taken by a token of the directory, which who writes to the cluster need not know", []authn.Token{doc("ci", 1), from("cluster", doc("cd", 2, sha(good)))}, []string{`cluster: AccessToken/cd: spec.sha256: is already the hash of another token, in the directory (hint: a token contains its id`}},
		{
			"hash taken by a token of the cluster, for the directory and the cluster",
			[]authn.Token{from("cluster", doc("ci", 1)), from("cluster", doc("cd", 2, sha(good))), doc("ce", 2, sha(good))},
			[]string{
				`cluster: AccessToken/cd: spec.sha256: is already the hash of AccessToken/ci in cluster (hint`,
				`tokens/ce.yaml: AccessToken/ce: spec.sha256: is already the hash of AccessToken/ci in cluster (hint`,
			},
		},
		{"the whole document twice", []authn.Token{doc("ci", 1), doc("ci", 1)}, []string{`metadata.name: "ci" is already the id`, `spec.sha256: is already the hash of AccessToken/ci`}},
		{"no hash", []authn.Token{doc("ci", 1, sha(""))}, []string{`spec.sha256: is missing: the SHA-256 of the token, 64 lower-case hexadecimal digits (hint: gatehouse token issue writes it)`}},
		{"hash in upper case", []authn.Token{doc("ci", 1, sha(strings.ToUpper(good)))}, []string{`spec.sha256: "` + strings.ToUpper(good) + `" is not 64 lower-case hexadecimal digits`}},
		{"hash too short", []authn.Token{doc("ci", 1, sha(good[:63]))}, []string{`spec.sha256: "` + good[:63] + `" is not 64 lower-case hexadecimal digits`}},
		{"the secret itself, which is not repeated", []authn.Token{doc("ci", 1, sha(goldenToken))}, []string{`spec.sha256: contains a token, and must contain its hash: 64 lower-case hexadecimal digits (hint: anyone who can read this document has the token: delete it and issue a new one)`}},
		{"another secret, which is not repeated", []authn.Token{doc("ci", 1, sha("hunter2"))}, []string{`spec.sha256: must be 64 lower-case hexadecimal digits, and has 7 bytes of other text`}},
		{"no end", []authn.Token{doc("ci", 1, expires(time.Time{}))}, []string{`spec.expiresAt: is missing: every access token must expire (hint: for example "2027-01-31T00:00:00Z")`}},
		{"empty audience", []authn.Token{doc("ci", 1, audiences("vault", ""))}, []string{`spec.audiences[1]: "" must not be empty (hint: without audiences, the token is valid for the API server's own)`}},
		{
			"reserved group and foreign extra key",
			[]authn.Token{doc("ci", 1, func(s *v1alpha1.AccessTokenSpec) {
				s.User.Groups = []string{"dev", "system:masters"}
				s.User.Extra["authentication.kubernetes.io/node-name"] = []string{"n1"}
			})},
			[]string{
				`spec.user.extra["authentication.kubernetes.io/node-name"]: "authentication.kubernetes.io/node-name" is reserved: extra keys under`,
				`spec.user.groups[1]: "system:masters" is reserved: names that begin with "system:" belong to Kubernetes itself`,
			},
		},
		{
			"everything at once, in the order of source, object and field",
			[]authn.Token{
				from("z.yaml", doc("Z", 1, sha("x"))),
				from("a.yaml", doc("b", 2, expires(time.Time{}), audiences(""), func(s *v1alpha1.AccessTokenSpec) { s.User.Username = "" })),
				from("a.yaml", doc("a", 3, sha(""), expires(noon))),
			},
			[]string{
				`a.yaml: AccessToken/a: spec.expiresAt: "2026-11-20T12:00:00Z" is in the past`,
				`a.yaml: AccessToken/a: spec.sha256: is missing`,
				`a.yaml: AccessToken/b: spec.audiences[0]:`,
				`a.yaml: AccessToken/b: spec.expiresAt: is missing`,
				`a.yaml: AccessToken/b: spec.user.username: "" must not be empty`,
				`z.yaml: AccessToken/Z: metadata.name: "Z"`,
				`z.yaml: AccessToken/Z: spec.sha256: must be 64`,
			},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			set, err := authn.Compile(authn.Spec{Tokens: c.tokens, Now: atNoon})
			var list diagnostic.List
			if set != nil || !errors.As(err, &list) {
				t.Fatalf("got %v, %v, want a list of findings alone", set, err)
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(c.want) {
				t.Fatalf("got %d findings, want %d:\n%v", len(lines), len(c.want), err)
			}
			for i, want := range c.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("finding %d:\n got %s\nwant %s", i, lines[i], want)
				}
			}
			if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), goldenToken[20:]) {
				t.Errorf("a secret is repeated: %v", err)
			}
		})
	}
}

func TestCompileWarnings(t *testing.T) {
	_, old := issue("old", 1, expires(noon.In(time.FixedZone("", 3600)))) // shown in UTC
	_, good := issue("good", 2, func(s *v1alpha1.AccessTokenSpec) { s.User.Groups = nil })
	list := compile(t, old, good).Warnings()
	if len(list) != 1 {
		t.Fatalf("got %v, want one warning", list)
	}
	want := diagnostic.Diagnostic{
		Severity: diagnostic.Warning, Source: "tokens/old.yaml", Object: "AccessToken/old", Field: "spec.expiresAt",
		Message: `"2026-11-20T12:00:00Z" is in the past: the token is rejected`, Hint: "delete the document, or issue a new token",
	}
	if list[0] != want {
		t.Errorf("got %+v", list[0])
	}
}

func TestCompileNeedsAClockForTokens(t *testing.T) {
	_, token := issue("ci", 1)
	set, err := authn.Compile(authn.Spec{Tokens: []authn.Token{token}})
	if set != nil || err == nil || !strings.Contains(err.Error(), "Spec.Now is nil") {
		t.Errorf("got %v, %v", set, err)
	}
}
