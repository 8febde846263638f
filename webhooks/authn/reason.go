package authn

import (
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
	"github.com/gatehouse-dev/gatehouse/webhooks/authz"
)

// Outcome is one of the three answers to a token.
type Outcome string

const (
	// Yes means that the token proves the identity in the status.
	Yes Outcome = "yes"
	// No means that the token proves nothing, now and later.
	No Outcome = "no"
	// Unknown means that the token cannot be decided on; a retry may help.
	Unknown Outcome = "unknown"
)

// Backend is an authenticator.
type Backend string

// The authenticators.
const (
	AccessTokens Backend = "access-token"
	LoginTokens  Backend = "login-token"
	JWTs         Backend = "jwt"
)

// shape describes how tokens of a backend are recognized.
func (b Backend) shape() string {
	switch b {
	case AccessTokens:
		return "an access token, by the prefix " + tokenPrefix
	case LoginTokens:
		return "a login token, by the prefix " + loginPrefix
	case JWTs:
		return "a JWT, by its three parts"
	default:
		return string(b)
	}
}

// Reason is why a token had its outcome. The set of reasons is bounded, so that a metric
// can have it as a label, and none depends on the content of a token. Every jwt.Reason is
// one.
type Reason string

const (
	// ReasonOK is the reason of every Yes.
	ReasonOK Reason = "ok"
	// ReasonForeign is a token whose shape belongs to no backend, such as an
	// expired service account token: every bearer token that no other
	// authenticator of the API server accepted arrives here.
	ReasonForeign = Reason(jwt.Foreign)
	// ReasonMalformed is a token that begins as an access token and is not one: cut
	// off, mistyped, wrong check.
	ReasonMalformed = Reason(jwt.Malformed)
	// ReasonUnknownID is a well-formed access token whose id is not known here.
	ReasonUnknownID Reason = "unknown-id"
	// ReasonWrongSecret is an access token of a known id and another hash.
	ReasonWrongSecret Reason = "wrong-secret"
	// ReasonExpired is an access token past its expiresAt.
	ReasonExpired = Reason(jwt.Expired)
	// ReasonAudience is a token that is good for other audiences only.
	ReasonAudience = Reason(jwt.Audience)
	// ReasonGuard is an identity that the guard refused.
	ReasonGuard Reason = "guard"
	// ReasonRevoked is a token that a TokenRevocation ends.
	ReasonRevoked Reason = "revoked"
	// ReasonUnknownKey is a login token that is signed with a key that is not known
	// here, or a JWT with a key id that its issuer does not have.
	ReasonUnknownKey = Reason(jwt.UnknownKey)
	// ReasonSignature is a token with an invalid signature.
	ReasonSignature = Reason(jwt.Signature)
	// ReasonAlgorithm is a JWT signed with an algorithm that is not accepted.
	ReasonAlgorithm = Reason(jwt.Algorithm)
	// ReasonNotYetValid is a JWT before its nbf.
	ReasonNotYetValid = Reason(jwt.NotYetValid)
	// ReasonClaims is a JWT whose claims do not pass the configuration's mappings
	// and rules.
	ReasonClaims = Reason(jwt.Claims)
	// ReasonKeys is a JWT of an issuer whose keys are unavailable.
	ReasonKeys Reason = "keys"
	// ReasonGroups is a JWT whose user has groups in a source that does not answer.
	ReasonGroups Reason = "groups"
	// ReasonDeadline is a JWT for which there was no time: its keys took too long, or
	// its rules did.
	ReasonDeadline Reason = "deadline"
	// ReasonVersion is a login token that another version of Gatehouse has issued.
	ReasonVersion Reason = "version"
	// ReasonSourceGone is a login token of a directory or an issuer that is not configured here, or not
	// yet.
	ReasonSourceGone Reason = "source-gone"
	// ReasonTooLarge is a token that is larger than Gatehouse reads, or a login whose
	// identity does not fit into a token.
	ReasonTooLarge Reason = "too-large"
	// ReasonScopeNotEnforced is a token with a scope where the API server is not known to ask about scopes.
	ReasonScopeNotEnforced Reason = "scope-not-enforced"
	// ReasonUnknownScope is a token with a named scope that is not configured here, or not yet.
	ReasonUnknownScope = Reason(authz.ReasonUnknownScope)

	// The reasons of logins alone.

	// ReasonCredentials is a wrong name or password; answers do not say which.
	ReasonCredentials Reason = "credentials"
	// ReasonInput is an invalid request: no name, no password, an unknown directory.
	ReasonInput Reason = "input"
	// ReasonSession is a token whose session has ended.
	ReasonSession Reason = "session"
	// ReasonDirectory is a directory that is unavailable.
	ReasonDirectory Reason = "directory"
)

// The annotations of a response. The reason and the backend are of bounded sets, and the
// token's id is public: the name of an AccessToken, or a JWT's jti. Package review reads
// these annotations by the same names.
const (
	reasonAnnotation  = "gatehouse.dev/reason"
	tokenIDAnnotation = "gatehouse.dev/token-id"
	backendAnnotation = "gatehouse.dev/backend"
	sourceAnnotation  = "gatehouse.dev/source"
	userAnnotation    = "gatehouse.dev/user" // of a Yes
	detailAnnotation  = "gatehouse.dev/detail"
)
