package ldapconfig

import (
	"strings"
	"testing"

	"github.com/go-ldap/ldap/v3"
)

// FuzzParseFilter reads filters of configurations. Those that are accepted can be
// filled with anything.
func FuzzParseFilter(f *testing.F) {
	for _, seed := range []string{"(uid={})", "(&(a=b)(uid={}))", "(!(uid={}))", "(uid={}*)", "({}={})", "(a:dn:1.2:={})", "(:dn:caseExactMatch:={})", "((uid={}))", "(uid={}", `(uid=\7b\7d{})`, "(&)", "(|)", "(a=)"} {
		f.Add(seed, "*)(uid=*")
	}
	f.Fuzz(func(t *testing.T, filter, value string) {
		use, err := parseFilter(filter)
		if err != nil {
			return
		}
		if use.values == 0 || use.values != strings.Count(filter, placeholder) {
			t.Errorf("%q is accepted with %d values", filter, use.values)
		}
		_, err = ldap.CompileFilter(FillFilter(filter, value))
		if err != nil {
			t.Errorf("%q is broken by %q: %v", filter, value, err)
		}
	})
}
