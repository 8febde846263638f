package guard_test

import (
	"reflect"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/guard"
)

// TestBreakGlassGroup: the group and names that read like it are rejected, even if the
// configuration allows them. Other groups that begin alike are ordinary ones.
func TestBreakGlassGroup(t *testing.T) {
	for _, name := range []string{
		"gatehouse.dev:break-glass", "Gatehouse.dev:Break-Glass", " gatehouse.dev:break-glass", "gatehouse.dev:break-glass ",
		"gatehouse.dev:\u200bbreak-glass", "gatehouse.dev: break-glass", "gatehouse.dev:break-glass-team",
	} {
		g := guard.New(&v1alpha1.GuardConfiguration{AllowedGroups: []v1alpha1.AllowedGroup{{Name: name, Sources: []string{"corp"}}}})
		found := g.Violations("corp", &authenticationv1.UserInfo{Username: "jane", Groups: []string{"dev", name}})
		if len(found) != 1 || found[0].Field != "groups[1]" || !strings.Contains(found[0].Message, "only impersonation may give this group") {
			t.Errorf("%q, allowed: got %+v", name, found)
		}
	}
	good := authenticationv1.UserInfo{Username: "gatehouse.dev:break-glass", Groups: []string{"gatehouse.dev", "gatehouse.dev:auditors", "break-glass"}}
	if found := (guard.Guard{}).Violations("", &good); len(found) > 0 {
		t.Errorf("rejected: %+v", found)
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
		{"line feed, a second log line", named("jane\nlevel=info"), "username", `"jane\nlevel=info" must not contain control`},
		{"NUL", named("jane\x00"), "username", `must not contain control`},
		{"escape sequence", named("\x1b[2Jjane"), "username", `must not contain control`},
		{"delete", named("jane\x7f"), "username", `must not contain control`},
		{"C1 control", named("jane\u0085x"), "username", `must not contain control`},
		{"right to left override", named("jane\u202e"), "username", `"jane\u202e" must not contain control`},
		{"filler", named("ad\u115fmin"), "username", `must not contain control`},
		{"empty braille", named("admin\u2800x"), "username", `must not contain control`},
		{"zero width space", named("ja\u200bne"), "username", `must not contain control`},
		{"line separator", named("jane\u2028x"), "username", `must not contain control`},
		{"invalid UTF-8", named("jane\xff"), "username", `"jane\xff" must be valid UTF-8`},
		{"surrogate half", named("jane\xed\xa0\x80"), "username", `must be valid UTF-8`},
		{"reserved before too spacious", named(" system:masters"), "username", `" system:masters" is reserved`},

		{"uid may be absent", authenticationv1.UserInfo{Username: "jane", UID: ""}, "", ""},
		{"uid with a control", authenticationv1.UserInfo{Username: "jane", UID: "4\t2"}, "uid", `"4\t2" must not contain control`},
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
		{"extra of Gatehouse", extra("gatehouse.dev/scope", "view"), `extra["gatehouse.dev/scope"]`, `"gatehouse.dev/scope" is reserved: extra keys of gatehouse.dev`},
		{"extra of Gatehouse in another case", extra("GateHouse.dev/scope", "view"), `extra["GateHouse.dev/scope"]`, `is reserved`},
		{"extra of Gatehouse with a root dot", extra("gatehouse.dev./scope", "view"), `extra["gatehouse.dev./scope"]`, `is reserved`},
		{"extra upper case", extra("example.org/Team", "x"), `extra["example.org/Team"]`, `must be lower case`},
		{"extra with white space", extra("example.org/my team", "x"), `extra["example.org/my team"]`, `must not contain white space`},
		{"extra value with a control", extra("example.org/team", "blue", "a\rb"), `extra["example.org/team"][1]`, `"a\rb" must not contain control`},
		{"extra value not UTF-8", extra("example.org/team", "\xc3\x28"), `extra["example.org/team"][0]`, `must be valid UTF-8`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			found := guard.Guard{}.Violations("", &c.user)
			if c.field == "" {
				if len(found) > 0 {
					t.Errorf("refused: %+v", found)
				}
				return
			}
			if len(found) != 1 || found[0].Field != c.field || !strings.Contains(found[0].Message, c.says) {
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
		for _, v := range (guard.Guard{}).Violations("", &bad) {
			got = append(got, v.Field)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %q\nwant %q", got, want)
		}
	}
}
