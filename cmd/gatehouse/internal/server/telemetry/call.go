package telemetry

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// Call is a finished call of /login, /whoami or /logout. It holds no password and no token.
type Call struct {
	// Path is "/login", "/whoami" or "/logout".
	Path string
	// Decision is how it ended: Shed is one that was not evaluated because it came
	// too soon or because there were too many, and Refused one that was no request
	// that can be answered.
	Decision review.Decision
	// Reason is the Reason of the answer: a word of authn.Reason, or one of package
	// login.
	Reason string
	// Detail is what an operator needs to know beyond it. It never reaches the
	// caller.
	Detail string
	// Client is the address of the caller, as limits know it.
	Client string

	// Directory is the name of the directory, and Renewal reports whether a login
	// token was to be renewed. They are about logins alone.
	Directory string
	Renewal   bool
	// User is the canonical name of the user: for a yes, and for an identity that
	// the guard refused.
	User string
	// Backend and Source are those of the token, for whoami and logout alone.
	Backend authn.Backend
	Source  string
	// TokenID is the public id of the token that was issued or asked about.
	TokenID string

	// Started is when the request's header had been read.
	Started time.Time
	// Took is the time from Started to the end of the answer.
	Took time.Duration
}
