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
	all := []error{err}
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		all = several.Unwrap()
	}
	var names []string
	for _, err := range all {
		if host, ok := errors.AsType[x509.HostnameError](err); ok {
			if name := fmt.Sprintf("%.255q", host.Host); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return certs.Enumerate(names)
}
