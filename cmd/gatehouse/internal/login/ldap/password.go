package ldap

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/go-ldap/ldap/v3"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// isPassword reports whether a password may be sent. A bind with an empty one
// succeeds on many servers, without proof of anything (RFC 4513, section 5.1.2),
// and servers that end texts at NUL take a password that begins with one for
// empty.
func isPassword(password string) bool {
	return password != "" && !strings.Contains(password, "\x00")
}

// bindFailure says what a failed bind for a password means: that it is wrong, or
// that it cannot be decided. The server's own words are left out, because
// they are about the password.
//
// Every answer about the password is a wrong password, with the result's name for
// the operator: servers give some results only for an entry that exists, such as
// unwillingToPerform for a locked one, and others only for a DN that no entry has.
// An error that callers can tell from a wrong password would show which.
func (s *server) bindFailure(ctx context.Context, err error) error {
	const doing = "check a password"
	code, answered := resultCode(err)
	if ctx.Err() != nil || !answered {
		f := s.failure(ctx, doing, err)
		if ctx.Err() == nil {
			f.err = errBroken
		}
		// It may have been counted. A second try would be a second failure of one who
		// typed it once.
		f.final = true
		f.err = fmt.Errorf("%w: %w", authn.ErrPasswordSent, f.err)
		return f
	}
	if isDown(code) {
		// The server says that it has not evaluated it.
		return &failure{server: s.address.URL, doing: doing, err: errors.New(codeText(code)), down: true}
	}
	why := codeText(code)
	if code == ldap.LDAPResultInvalidCredentials {
		why = activeDirectoryReason(err)
	}
	if why == "" {
		return authn.ErrWrongPassword
	}
	return fmt.Errorf("%w: %s", authn.ErrWrongPassword, why)
}

var errBroken = errors.New("the connection was closed before the response")

// activeDirectoryData finds the Windows error code in a diagnostic message such as
//
//	80090308: LdapErr: DSID-0C09042F, comment: AcceptSecurityContext error, data 533, v2580
var activeDirectoryData = regexp.MustCompile(`AcceptSecurityContext error, data ([0-9a-fA-F]{1,8}),`)

// activeDirectoryReason returns Active Directory's code for a refused bind, which it documents, "" for a
// wrong password.
func activeDirectoryReason(err error) string {
	found := activeDirectoryData.FindStringSubmatch(err.Error())
	if found == nil || strings.EqualFold(found[1], "52e") {
		return ""
	}
	return "Active Directory says data " + strings.ToLower(found[1])
}

// changeAfterReset is an error of the password policy's control
// (draft-behera-ldap-password-policy-10, section 6.2) that comes with a
// success: all that the bind is good for is a new password.
const changeAfterReset = 2

// restricted reports whether a successful bind is not good for a login.
func restricted(result *ldap.SimpleBindResult) error {
	control, ok := ldap.FindControl(result.Controls, ldap.ControlTypeBeheraPasswordPolicy).(*ldap.ControlBeheraPasswordPolicy)
	if ok && control.Error == changeAfterReset {
		return fmt.Errorf("%w: the password must be changed first", authn.ErrWrongPassword)
	}
	return nil
}
