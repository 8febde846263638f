package source

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/certs"
)

// summary returns the errors of Trust.Verify on one line.
func summary(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// namesNotServed returns the names that registrations call and that the certificate lacks,
// "" if it has all of them. The argument is what Trust.Verify returned.
func namesNotServed(err error) string {
	var names []string
	callers := map[string][]string{}
	for _, err := range joined(err) {
		host, ok := errors.AsType[x509.HostnameError](err)
		if !ok {
			continue
		}
		caller := "a registration"
		if d, ok := errors.AsType[*certs.DistrustError](err); ok {
			caller = d.Registration
		}
		if !slices.Contains(names, host.Host) {
			names = append(names, host.Host)
		}
		if !slices.Contains(callers[host.Host], caller) {
			callers[host.Host] = append(callers[host.Host], caller)
		}
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("the name %.255q that is called by %s", name, certs.Enumerate(callers[name]))
	}
	return certs.Enumerate(names)
}

// joined returns the errors that errors.Join joined, or the one that there is.
func joined(err error) []error {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		return several.Unwrap()
	}
	return []error{err}
}
