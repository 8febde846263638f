package lint_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/lint"
)

// TestTokenScopes: one note says what scopes need, unless an API server has it.
func TestTokenScopes(t *testing.T) {
	t.Parallel()
	const (
		scopes = `apiVersion: gatehouse.dev/v1alpha1
kind: AuthenticationConfiguration
scopes: [{name: a, rules: [{apiGroups: [apps], resources: [deployments], verbs: [get]}]}]
`
		login = `apiVersion: gatehouse.dev/v1alpha1
kind: AuthenticationConfiguration
login: {tokenTTL: 1h}
`
		token = `apiVersion: gatehouse.dev/v1alpha1
kind: AccessToken
metadata: {name: ci}
spec: {sha256: "0000000000000000000000000000000000000000000000000000000000000000", user: {username: ci}}
`
		asked   = "tokens with a scope are rejected as long as the API server is not known to enforce scopes: "
		unasked = "tokens with a scope are rejected until the API server asks Gatehouse about their requests (hint: gatehouse manifests --authorization "
	)
	scoped := strings.Replace(token, "spec: {", "spec: {scope: {name: view}, ", 1)
	ignored := strings.Replace(scoped, "{name: ci}", "{name: ci, annotations: {gatehouse.dev/lint-ignore: token-scope}}", 1)
	enforced, not := func() error { return nil }, func() error { return errors.New("it does not (hint: mend it)") }
	for name, c := range map[string]struct {
		documents string
		ask       func() error
		want      string
	}{
		"scopes":                                 {scopes, nil, "AuthenticationConfiguration: scopes: " + unasked},
		"scopes and a token":                     {scopes + "---\n" + scoped, nil, "AuthenticationConfiguration: scopes: " + unasked},
		"a token":                                {scoped, nil, "AccessToken/ci: spec.scope: " + unasked},
		"a token that ignores it":                {ignored, nil, ""},
		"a token without a scope":                {token, not, ""},
		"logins":                                 {login, nil, ""},
		"scopes that are enforced":               {scopes, enforced, ""},
		"scopes that are not enforced":           {scopes, not, "AuthenticationConfiguration: scopes: " + asked + "it does not (hint: mend it) [token-scope]"},
		"a token's scope that is not enforced":   {scoped, not, "AccessToken/ci: spec.scope: " + asked},
		"logins, and scopes that are not":        {login, not, "AuthenticationConfiguration: login: " + asked},
		"logins, and scopes that are enforced":   {login, enforced, ""},
		"no tokens, and nothing is asked for it": {"apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n", func() error { panic("asked") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := read(t, c.documents)
			in.ScopesEnforced = c.ask
			found, err := lint.Lint(in)
			must(t, err)
			text := ""
			for _, one := range found {
				if one.Severity != "note" {
					t.Errorf("severity %q", one.Severity)
				}
				one.Source = ""
				text += one.String()
			}
			if !strings.HasPrefix(text, c.want) || (text == "") != (c.want == "") {
				t.Errorf("got %q, want %q", text, c.want)
			}
		})
	}
}
