// Package session is the user's side of logins. A Session gets a token from an OpenID Connect issuer or from Gatehouse's
// /login, or from the second in exchange for that of the first, stores it in a cache that only the user can read, and renews it without asking for as long as possible.
//
// If several programs need the same token at the same time, one of them logs in, and the others wait for it and use its
// token.
package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// Identity is all that tells one login from another: logins of equal Identity
// share a credential. It holds no secret.
type Identity struct {
	// Method is "oidc" or "password".
	Method string `json:"method"`
	// Issuer, ClientID and Scopes are for oidc. Scopes are sorted, each once.
	Issuer   string   `json:"issuer,omitempty"`
	ClientID string   `json:"clientID,omitempty"`
	Scopes   []string `json:"scopes,omitempty"`
	// Account is for oidc, one of several at the issuer.
	Account string `json:"account,omitempty"`
	// Server, Directory and Username are for password. The user name is empty if
	// it is asked for. Server is also for oidc with a Scope.
	Server    string `json:"server,omitempty"`
	Directory string `json:"directory,omitempty"`
	Username  string `json:"username,omitempty"`
	// Scope is the name of the scope that narrows the session.
	Scope string `json:"scope,omitempty"`
}

// Credential is what a login gives. Token and RefreshToken are secrets.
type Credential struct {
	// Token is the bearer token for the API server.
	Token string `json:"token"`
	// ObtainedAt and ExpiresAt bound the token's life.
	ObtainedAt time.Time `json:"obtainedAt"`
	ExpiresAt  time.Time `json:"expiresAt"`
	// RefreshToken renews a credential of an issuer.
	RefreshToken string `json:"refreshToken,omitempty"`
	// AtIssuer reports whether the issuer renews the login that a credential of Gatehouse depends on.
	AtIssuer bool `json:"atIssuer,omitempty"`
	// SessionEnds is until when a credential of Gatehouse can be renewed.
	SessionEnds time.Time `json:"sessionEnds,omitzero"`
	// Subject is the claim sub of an issuer's token: a renewed token is for the
	// same.
	Subject string `json:"subject,omitempty"`
	// User is who logged in, for people: what the issuer or Gatehouse calls them.
	User string `json:"user"`
	// Source is where the login was, for people: the URL of the issuer or of
	// Gatehouse.
	Source string `json:"source"`
}

// UsableUntil returns the time from which the token is renewed: somewhat before its
// end, so that a request that is under way arrives in time and clocks may differ
// a little, but never more than a tenth of its life.
func (c *Credential) UsableUntil() time.Time {
	const most = 30 * time.Second
	return c.ExpiresAt.Add(-max(0, min(most, c.ExpiresAt.Sub(c.ObtainedAt)/10)))
}

func (c *Credential) usable(now time.Time) bool {
	return c.Token != "" && now.Before(c.UsableUntil())
}

// Method is a way to log in. Implementations are used by one goroutine at a time.
type Method interface {
	// Identity is the same for the life of the Method.
	Identity() Identity
	// Login asks a person.
	Login(ctx context.Context) (*Credential, error)
	// Renew makes a new credential out of an old one without asking anybody. An
	// error that is ErrEnded means that only Login can help, every other that it
	// could not be decided.
	Renew(ctx context.Context, old *Credential) (*Credential, error)
}

// ErrEnded means that a credential cannot be renewed any more.
var ErrEnded = errors.New("the session has ended")

// ErrNeedsPerson means that the user has to log in, and that the program cannot ask.
var ErrNeedsPerson = errors.New("you have to log in, and there is no terminal here to ask you")

// RefusedError is a definite no to a login.
type RefusedError struct {
	// Reason is a word for programs, and Message a sentence for people. Neither
	// holds a secret, and both can be shown on a terminal.
	Reason, Message string
}

func (e *RefusedError) Error() string { return e.Message + " (reason " + e.Reason + ")" }

// Session gets credentials of one Method through a Cache.
type Session struct {
	Method Method
	Cache  *Cache
	// Interactive says that there is a person to ask.
	Interactive bool
	// Anew asks for a login whatever is in the cache, and takes its place.
	Anew bool
	// Renew renews what is in the cache, also while it is good. A server that rejects the
	// renewal, because the login was revoked, makes a person log in again.
	Renew bool
	// LockTimeout is how long another login is waited for. It must be longer than
	// a Login may take.
	LockTimeout time.Duration
	// Remarks is where progress goes.
	Remarks io.Writer
	Now     func() time.Time
}

// Get returns a valid credential: from the cache, renewed, or from a new login. The error wraps ErrNeedsPerson if there is
// no terminal to ask on, and a *RefusedError if the login or the renewal was rejected; it can wrap both. Any other error
// means that the server gave no answer.
func (s *Session) Get(ctx context.Context) (*Credential, error) {
	if s.Cache.Store == StoreNone {
		return s.obtain(ctx, nil)
	}
	entry := s.Cache.entry(s.Method.Identity())
	old, err := entry.read()
	if err != nil {
		return nil, err
	}
	if old != nil && old.usable(s.Now()) && !s.Anew && !s.Renew {
		return old, nil
	}
	if err := s.Cache.unreadable; err != nil {
		s.remark("the stored login cannot be read: %s", err)
	}
	unlock, err := entry.lock(ctx, s.LockTimeout, func() {
		s.remark("waiting for another login to finish, at most %s", s.LockTimeout)
	})
	if err != nil {
		return nil, err
	}
	defer unlock()
	// Another process may have logged in during the wait.
	if old, err = entry.read(); err != nil {
		return nil, err
	}
	if old != nil && old.usable(s.Now()) && !s.Anew && !s.Renew {
		return old, nil
	}
	c, err := s.obtain(ctx, old)
	if err != nil || c == old {
		return c, err
	}
	if err := entry.write(c); err != nil {
		s.remark("the login is not stored: %s", err)
	}
	return c, nil
}

// obtain gets a credential that is not in the cache.
func (s *Session) obtain(ctx context.Context, old *Credential) (*Credential, error) {
	needsPerson := ErrNeedsPerson
	if old != nil && !s.Anew {
		c, err := s.Method.Renew(ctx, old)
		refused, ok := errors.AsType[*RefusedError](err)
		switch {
		case err == nil:
			return c, nil
		case ok && s.Interactive:
			s.remark("the login could not be renewed: %s", refused)
		case ok:
			needsPerson = fmt.Errorf("%w: the login could not be renewed: %w", ErrNeedsPerson, refused)
		case errors.Is(err, ErrEnded):
		case s.Now().Before(old.ExpiresAt):
			s.remark("the token could not be renewed and is used until it expires: %s", err)
			return old, nil
		default:
			return nil, fmt.Errorf("the login cannot be renewed: %w", err)
		}
	}
	if !s.Interactive {
		return nil, needsPerson
	}
	return s.Method.Login(ctx)
}

// remark is for people; that nobody reads it is no error.
func (s *Session) remark(format string, args ...any) {
	_, _ = fmt.Fprintf(s.Remarks, "gatehouse: "+format+"\n", args...)
}

// checkToken refuses a token that could not be sent, or would be refused at once.
func checkToken(token string, expires, now time.Time) error {
	const most = 64 << 10
	if token == "" || len(token) > most {
		return fmt.Errorf("the response has a token of %d bytes, allowed are 1 to %d", len(token), most)
	}
	for i := range len(token) {
		if token[i] <= ' ' || token[i] > '~' {
			return errors.New("the response has a token with characters that are not allowed in an HTTP header")
		}
	}
	if !now.Before(expires) {
		return fmt.Errorf("the new token expired at %s, and the time here is %s (hint: check the clock of this machine)",
			expires.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}

// printable returns a text from elsewhere as it may be shown on a terminal.
func printable(text string) string {
	const most = 300
	text = strict.Cut(text, most)
	for _, r := range text {
		if !strconv.IsPrint(r) {
			return strconv.Quote(text)
		}
	}
	return text
}
