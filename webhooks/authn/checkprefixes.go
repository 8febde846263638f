package authn

import (
	"fmt"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// named is a source whose user names all begin with a prefix.
type named struct {
	source, field, document string
	name, prefix            string
}

// checkPrefixes warns of sources that can give the same user name: a
// user who can choose a name in one of them can become a user of the other.
func checkPrefixes(spec *Spec) diagnostic.List {
	var all []named
	for i := range spec.Directories {
		d := &spec.Directories[i]
		all = append(all, named{"directory", d.Field + ".usernamePrefix", d.Source, d.Config.Name, d.Config.UsernamePrefix})
	}
	for i := range spec.Issuers {
		one := &spec.Issuers[i]
		// Names by an expression are not known.
		if m := one.Config.ClaimMappings.Username; m.Claim != "" && m.Prefix != nil {
			all = append(all, named{"issuer", one.Field + ".claimMappings.username.prefix", one.Source, one.Config.Issuer.URL, *m.Prefix})
		}
	}
	var found diagnostic.List
	for i, a := range all {
		for _, b := range all[:i] {
			if a.source == b.source && a.name == b.name {
				continue // An error of its own.
			}
			if !strings.HasPrefix(a.prefix, b.prefix) && !strings.HasPrefix(b.prefix, a.prefix) {
				continue
			}
			found = append(found, diagnostic.Diagnostic{
				Severity: diagnostic.Warning, Source: a.document, Object: authenticationConfiguration, Field: a.field, Code: "shared-names",
				Message: fmt.Sprintf("%s %s gives names that begin with %s, and %s %s names that begin with %s: two people can have the same user name",
					a.source, quote(a.name), quote(a.prefix), b.source, quote(b.name), quote(b.prefix)),
				Hint: "give each source a prefix that no other begins with, such as its name and a colon",
			})
		}
	}
	return found
}
