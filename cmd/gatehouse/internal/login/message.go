package login

import "github.com/gatehouse-dev/gatehouse/webhooks/authn"

// sentence says to who holds a token what a reason means and what to do about it.
// It says nothing of the configuration.
func sentence(r authn.Reason) string {
	switch r {
	case authn.ReasonOK:
		return "the token is valid"
	case authn.ReasonForeign:
		return "this server does not know such a token: it is neither an access token, nor a login token, nor a JWT of a configured issuer (hint: check whether it is for another cluster)"
	case authn.ReasonMalformed:
		return "the token is damaged: truncated or mistyped (hint: copy it again, or get a new one)"
	case authn.ReasonUnknownID:
		return "unknown access token: it was revoked or replaced, is for another server, or was issued a moment ago (hint: try again in ten seconds, then ask for a new one)"
	case authn.ReasonWrongSecret:
		return sentence(authn.ReasonUnknownID)
	case authn.ReasonExpired:
		return "the token has expired (hint: log in again, or ask for a new one)"
	case authn.ReasonAudience:
		return "the token is for other audiences than the requested ones (hint: log in with the client ID that the administrator names, or ask for another token)"
	case authn.ReasonGuard:
		return "the token has a name or group that is reserved for Kubernetes or that the configuration rejects (hint: ask the administrator)"
	case authn.ReasonRevoked:
		return "the token was revoked (hint: log in again, or ask for a new one)"
	case authn.ReasonUnknownKey:
		return "the token is signed with an unknown key (hint: try again in a minute, then log in again)"
	case authn.ReasonSignature:
		return "the signature is invalid: the token is damaged or forged (hint: log in again)"
	case authn.ReasonAlgorithm:
		return "the token is signed with an algorithm that is not accepted (hint: ask the administrator)"
	case authn.ReasonNotYetValid:
		return "the token is not valid yet (hint: check the clocks)"
	case authn.ReasonClaims:
		return "the claims of the token do not meet the rules of the configuration (hint: ask the administrator)"
	case authn.ReasonKeys:
		return "the keys of the token's issuer are not available (hint: try again in a minute)"
	case authn.ReasonGroups:
		return "your groups cannot be looked up: the service that knows them does not answer (hint: try again in a minute)"
	case authn.ReasonDeadline:
		return "there was not enough time to verify the token (hint: try again in a minute)"
	case authn.ReasonSourceGone:
		return "the directory or issuer of the token is not configured (hint: try again in a minute, then log in again)"
	case authn.ReasonVersion:
		return "the token was issued by another version of Gatehouse (hint: try again in a minute, then log in again)"
	case authn.ReasonScopeNotEnforced:
		return "the token has a scope, and the API server is not known to enforce scopes (hint: try again in a minute, then ask the administrator)"
	case authn.ReasonUnknownScope:
		return "the scope of the token is not configured (hint: try again in a minute, then ask the administrator)"
	case authn.ReasonSession:
		return "the session has ended (hint: log in again)"
	case authn.ReasonCredentials:
		return "wrong user name or password"
	case authn.ReasonInput:
		return "invalid request"
	case authn.ReasonDirectory:
		return "the directory is not available (hint: try again in a minute)"
	case authn.ReasonTooLarge:
		return "the token is too large (hint: ask for one with fewer groups, or fewer claims)"
	default:
		return "reason " + string(r)
	}
}

// loginSentence is sentence for who logs in.
func loginSentence(r authn.Reason) string {
	if r == authn.ReasonGuard {
		return "the account has a name or group that is reserved for Kubernetes or that the configuration rejects (hint: ask the administrator)"
	}
	return sentence(r)
}

// isProven reports whether a token that is refused for the reason was shown by
// somebody who holds it, rather than forged: such a one may know the details.
func isProven(r authn.Reason) bool {
	switch r { //nolint:exhaustive // all others may be forged
	case authn.ReasonExpired, authn.ReasonNotYetValid, authn.ReasonClaims, authn.ReasonGuard,
		authn.ReasonRevoked, authn.ReasonSession, authn.ReasonSourceGone:
		return true
	default:
		return false
	}
}
