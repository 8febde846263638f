package ldap

import (
	"testing"
	"unicode/utf8"

	"github.com/go-ldap/ldap/v3"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn/ldapconfig"
)

// TestNormalDN has spellings of a DN be one, and different DNs not.
func TestNormalDN(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		want      string
		spellings []string
	}{
		"plain": {"uid=jane,ou=people,dc=example,dc=org", []string{
			"uid=jane,ou=people,dc=example,dc=org", "UID=Jane,OU=People,DC=Example,DC=Org", "uid = jane , ou = people , dc = example , dc = org",
			`uid=\6aane,ou=people,dc=example,dc=org`, "uid=jane;ou=people;dc=example;dc=org",
		}},
		"two values": {"cn=jane+uid=j,o=x", []string{"cn=jane+uid=j,o=x", "UID=J+CN=Jane,o=x"}},
		"special":    {`cn=a\,b\+c\"d\\e,o=x`, []string{`cn=a\,b\+c\"d\\e,o=x`, `CN=A\2cB\2bC\22D\5cE,O=X`}},
		"accents":    {`cn=\c3\a4`, []string{"cn=ä", "cn=Ä", `cn=\C3\84`}},
		"sigma":      {`cn=\cf\83`, []string{"cn=σ", "cn=Σ"}},
		"binary":     {`cn=\ff\fe`, []string{`cn=\ff\fe`, `CN=\FF\FE`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, text := range test.spellings {
				got, err := ldapconfig.NormalDN(text)
				if err != nil || got != test.want {
					t.Errorf("%s is %s, %v, want %s", text, got, err, test.want)
				}
			}
		})
	}
	seen := map[string]string{}
	for _, text := range []string{
		"uid=jane,o=x", "uid=jane,o=y", "cn=jane,o=x", "o=x,uid=jane", "uid=jane", `uid=jane\,o=x`, "uid=jane+o=x", `uid=\ff`, `uid=\fe`, "uid=jané,o=x",
		`uid=ja\00ne,o=x`, "uid=ja ne,o=x", "cn=i", "cn=ı", "cn=İ", "cn=σ", "cn=ς", "cn=ß", "cn=ss", "cn=ja\u00adne",
	} {
		got, err := ldapconfig.NormalDN(text)
		if before, ok := seen[got]; err != nil || ok {
			t.Errorf("%s is %s as %s is, %v", text, got, before, err)
		}
		seen[got] = text
	}
	for _, text := range []string{"", " ", "jane", "=jane", "uid=jane,", "uid=jane,o", "uid", `uid=\`, `uid=\zz`, "1=x", "o u=x", "cn;lang-en=x"} {
		got, err := ldapconfig.NormalDN(text)
		if err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
}

// FuzzFill puts hostile values into filters. What the server gets is the filter
// that was configured, and the value as a value.
func FuzzFill(f *testing.F) {
	for _, seed := range []string{"jane", "*", "j*", "*)(uid=*", `\`, `\2a`, "\x00", "\xff", "{}", "ä", "(", ")", "&", "!", "\ufffd", " "} {
		f.Add(seed)
	}
	const filter = "(&(objectClass=person)(|(uid={})(mail={}@example.org)(member:1.2.840.113556.1.4.1941:={})))"
	f.Fuzz(func(t *testing.T, value string) {
		packet, err := ldap.CompileFilter(ldapconfig.FillFilter(filter, value))
		if err != nil {
			t.Fatalf("%q breaks the filter: %v", value, err)
		}
		if len(packet.Children) != 2 || len(packet.Children[1].Children) != 3 {
			t.Fatalf("%q changes the filter", value)
		}
		either := packet.Children[1].Children
		for i, want := range []string{value, value + "@example.org"} {
			if either[i].Tag != ldap.FilterEqualityMatch || either[i].Children[1].Data.String() != want {
				t.Errorf("%q is compared as %q", value, either[i].Children[1].Data)
			}
		}
		if either[2].Tag != ldap.FilterExtensibleMatch || either[2].Children[2].Data.String() != value {
			t.Errorf("%q is compared as %q", value, either[2].Children[2].Data)
		}
	})
}

// FuzzNormalDN has the normal form be normal.
func FuzzNormalDN(f *testing.F) {
	for _, seed := range []string{"uid=jane,o=x", "UID=J+CN=Jane,o=x", `cn=\20a  b\20`, `cn=\ff`, "cn=#0403666f6f", "cn=ſ", "cn=İ", "cn=ı", "cn=ΑΣ", "cn=W\u030a", "cn=I\u0307", "cn=ﬁ\u3000x", "cn=ϔ", "cn=\u00a8", "oid.1.2=x", "1.2.3=x", `cn=\,`, "cn=", "cn=a=b", "cn= ;o=x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		normal, err := ldapconfig.NormalDN(text)
		if err != nil {
			return
		}
		if !utf8.ValidString(normal) {
			t.Errorf("%q is %q, which is not UTF-8", text, normal)
		}
		again, err := ldapconfig.NormalDN(normal)
		if err != nil || again != normal {
			t.Errorf("%q is %q, and that is %q, %v", text, normal, again, err)
		}
	})
}
