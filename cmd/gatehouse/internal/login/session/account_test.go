package session

import (
	"errors"
	"strings"
	"testing"
)

// TestAccount asks an issuer for one of several accounts, and takes no other one.
func TestAccount(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		account string
		claims  func(map[string]any)
		refused bool
	}{
		"any":                       {},
		"by its address":            {account: "Jane@example.org"},
		"by its name":               {account: "jane"},
		"another":                   {account: "admin@example.org", refused: true},
		"a part of the name":        {account: "jan", refused: true},
		"a token without a name":    {account: "admin", claims: func(c map[string]any) { c["email"], c["preferred_username"] = nil, nil }},
		"a token without a mailbox": {account: "admin", claims: func(c map[string]any) { c["email"] = nil }, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newIssuer(t)
			i.claims = c.claims
			o, _ := i.login(t, i.visitor().open, func(o *OIDC) { o.Account = c.account })
			got, err := o.Login(t.Context())
			refused, isRefused := errors.AsType[*RefusedError](err)
			if isRefused != c.refused || c.refused && !strings.Contains(refused.Message, `you logged in as "jane`) || !c.refused && (err != nil || got.Token == "") {
				t.Errorf("got %v", err)
			}
			i.mu.Lock()
			defer i.mu.Unlock()
			hint, prompt := i.authorized.Get("login_hint"), i.authorized.Get("prompt")
			if hint != c.account || (prompt == "select_account") != (c.account != "") {
				t.Errorf("the issuer was asked for %q with %q", hint, prompt)
			}
		})
	}
	for _, text := range []string{"a b", "a\nb", "\u202ea", strings.Repeat("a", 300)} {
		if ParseAccount(text) == nil {
			t.Errorf("%q is an account", text)
		}
	}
}
