package ldap

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-ldap/ldap/v3"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn/ldapconfig"
)

// failure is an answer that a server did not give. It is for the operator: it
// names the server and shows no password.
type failure struct {
	// server is its URL, and doing what it was asked.
	server, doing string
	// err says what happened.
	err error
	// down reports whether the server is to blame: another one may do better.
	down bool
	// final means that it must not be tried again all the same.
	final bool
}

func (f *failure) Error() string { return fmt.Sprintf("%s: %s: %v", f.server, f.doing, f.err) }

func (f *failure) Unwrap() error { return f.err }

// failures are those of several servers, one after the other.
type failures []error

func (f failures) Error() string {
	texts := make([]string, len(f))
	for i, err := range f {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (f failures) Unwrap() []error { return f }

var (
	errNoAnswer  = errors.New("no answer in time")
	errReferral  = errors.New("the server returned a referral, which is not followed; hint: configure the server that has the entries")
	errNotHere   = errors.New("the server has no such base; hint: see baseDN")
	errMayNot    = errors.New("the account of bindDN is not allowed to search; hint: see bindDN and bindPasswordFile")
	errSizeLimit = errors.New("the server returns only some of the entries; hint: raise its size limit for the account of bindDN")
)

// failure says what an error of the library means.
func (s *server) failure(ctx context.Context, doing string, err error) *failure {
	f := &failure{server: s.address.URL, doing: doing, err: err, down: true}
	code, answered := resultCode(err)
	switch {
	case ctx.Err() != nil:
		// The context's end closed the connection, whatever the library made of it.
		f.err = fmt.Errorf("%w: %w", errNoAnswer, context.Cause(ctx))
	case answered:
		f.err, f.down = resultError(err, code), isDown(code)
	}
	return f
}

// resultCode returns the code of a server's answer, if an error is one. Other
// errors are of a connection that broke, or of an answer that is none.
func resultCode(err error) (code uint16, answered bool) {
	var result *ldap.Error
	if !errors.As(err, &result) || result.ResultCode >= ldap.ErrorNetwork {
		return 0, false
	}
	return result.ResultCode, true
}

// isDown reports whether a server says that it is the one to blame.
func isDown(code uint16) bool {
	return code == ldap.LDAPResultBusy || code == ldap.LDAPResultUnavailable
}

// resultError says what a result code means for a search.
func resultError(err error, code uint16) error {
	text := codeText(code)
	var result *ldap.Error
	if errors.As(err, &result) && result.Err != nil && result.Err.Error() != "" {
		text += ", the server says " + ldapconfig.Quote(strings.TrimRight(result.Err.Error(), "\x00"))
	}
	switch code {
	case ldap.LDAPResultReferral:
		return errReferral
	case ldap.LDAPResultNoSuchObject:
		return fmt.Errorf("%w: %s", errNotHere, text)
	case ldap.LDAPResultInsufficientAccessRights, ldap.LDAPResultInappropriateAuthentication, ldap.LDAPResultStrongAuthRequired,
		ldap.LDAPResultOperationsError, ldap.LDAPResultInvalidCredentials:
		// Active Directory answers an anonymous search with operationsError.
		return fmt.Errorf("%w: %s", errMayNot, text)
	case ldap.LDAPResultSizeLimitExceeded, ldap.LDAPResultAdminLimitExceeded:
		return fmt.Errorf("%w: %s", errSizeLimit, text)
	default:
		return errors.New(text)
	}
}

func codeText(code uint16) string {
	name := ldap.LDAPResultCodeMap[code]
	if name == "" {
		return fmt.Sprintf("result %d", code)
	}
	return fmt.Sprintf("result %d (%s)", code, name)
}

// IsUnavailable reports whether an error of a Directory is that of its servers, and not of
// what was asked.
func IsUnavailable(err error) bool {
	var f *failure
	return errors.As(err, &f)
}

// isServerFailure reports whether an error is a server's failure, and whether to ask
// somewhere else for it.
func isServerFailure(err error) (down, elsewhere bool) {
	var f *failure
	if !errors.As(err, &f) {
		return false, false
	}
	return f.down, f.down && !f.final
}
