package session

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// Exchange logs in at an issuer, and exchanges the ID token at Gatehouse's login endpoint for a token with a scope. The login at the
// issuer is one of its own in the cache, so that all scopes of a user share it.
type Exchange struct {
	// At gets ID tokens: it is the Session of an OIDC.
	At *Session
	// Server is "https://host:port".
	Server string
	// Roots verify the server's certificate; nil are the system's.
	Roots *x509.CertPool
	// Scope is the name of the scope.
	Scope string
	Now   func() time.Time
}

// Identity implements Method.
func (e *Exchange) Identity() Identity {
	id := e.At.Method.Identity()
	id.Server, id.Scope = e.Server, e.Scope
	return id
}

// Login implements Method. A person is asked only if no ID token is stored that can be used or renewed, and the token is sent only to a
// server that has shown that it is a Gatehouse.
func (e *Exchange) Login(ctx context.Context) (*Credential, error) { return e.exchange(ctx, true) }

// Renew implements Method: the same or a renewed ID token is exchanged again.
func (e *Exchange) Renew(ctx context.Context, _ *Credential) (*Credential, error) {
	c, err := e.exchange(ctx, false)
	if _, refused := errors.AsType[*RefusedError](err); refused || errors.Is(err, ErrNeedsPerson) {
		return nil, fmt.Errorf("%w: %w", ErrEnded, err)
	}
	return c, err
}

// exchange gets an ID token and exchanges it. If Gatehouse rejects a stored one, because its session was ended for example, that one is
// renewed or replaced by a new login, once.
func (e *Exchange) exchange(ctx context.Context, interactive bool) (*Credential, error) {
	client := newClient(e.Roots)
	if interactive {
		if err := checkIsGatehouse(ctx, client, e.Server); err != nil {
			return nil, err
		}
	}
	at := *e.At
	at.Interactive = interactive
	began := e.Now()
	id, err := at.Get(ctx)
	if err != nil {
		return nil, err
	}
	c, err := e.ask(ctx, client, id)
	refused, ok := errors.AsType[*RefusedError](err)
	if isNew := !id.ObtainedAt.Before(began); !ok || isNew || refused.Reason == string(authn.ReasonInput) {
		return c, err
	}
	at.Renew = true
	if id, err = at.Get(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", err, refused)
	}
	return e.ask(ctx, client, id)
}

func (e *Exchange) ask(ctx context.Context, client *http.Client, id *Credential) (*Credential, error) {
	c, err := ask(ctx, client, e.Server, e.Now, login.Request{Token: id.Token, Scope: e.Scope})
	if err != nil {
		return nil, err
	}
	c.AtIssuer = id.RefreshToken != ""
	return c, nil
}
