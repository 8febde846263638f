package session

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// Prompter asks a person for a name and a password. The parameter who names the server.
type Prompter interface {
	// Username asks for the user name.
	Username(ctx context.Context, who string) (string, error)
	// Password asks for the password without showing it.
	Password(ctx context.Context, who string) (string, error)
	// Again says why a password was refused, and reports whether it can be asked
	// for once more.
	Again(why string) bool
}

// Password logs in at Gatehouse's login endpoint.
type Password struct {
	// Server is "https://host:port".
	Server string
	// Roots verify the server's certificate; nil are the system's.
	Roots *x509.CertPool
	// Directory may be empty, and so may Username: then it is Name, or asked for if
	// that is empty too.
	Directory, Username string
	// Scope is the name of a scope that narrows the session, "" for none.
	Scope string
	// Name says who logs in this time. It makes no other Identity: of those who log
	// in one after the other, the last one's credential is kept.
	Name     string
	Prompter Prompter
	Now      func() time.Time
}

// Identity implements Method.
func (p *Password) Identity() Identity {
	return Identity{Method: "password", Server: p.Server, Directory: p.Directory, Username: p.Username, Scope: p.Scope}
}

// Login implements Method. Nobody is asked for anything before the server has shown
// that it is a Gatehouse.
func (p *Password) Login(ctx context.Context) (*Credential, error) {
	client := newClient(p.Roots)
	if err := checkIsGatehouse(ctx, client, p.Server); err != nil {
		return nil, err
	}
	name := cmp.Or(p.Username, p.Name)
	if name == "" {
		var err error
		if name, err = p.Prompter.Username(ctx, p.Server); err != nil {
			return nil, err
		}
		if name == "" {
			return nil, errors.New("the user name is empty")
		}
	}
	const most = 3
	for tried := 1; ; tried++ {
		password, err := p.Prompter.Password(ctx, printable(name)+" at "+p.Server)
		if err != nil {
			return nil, err
		}
		if password == "" {
			return nil, errors.New("the password is empty")
		}
		c, err := ask(ctx, client, p.Server, p.Now, login.Request{Directory: p.Directory, Username: name, Password: password, Scope: p.Scope})
		refused, ok := errors.AsType[*RefusedError](err)
		if !ok || refused.Reason != string(authn.ReasonCredentials) || tried == most || !p.Prompter.Again(refused.Message) {
			return c, err
		}
	}
}

// Renew implements Method: a token is renewed with itself, also when it has
// expired.
func (p *Password) Renew(ctx context.Context, old *Credential) (*Credential, error) {
	if !p.Now().Before(old.SessionEnds) {
		return nil, ErrEnded
	}
	c, err := ask(ctx, newClient(p.Roots), p.Server, p.Now, login.Request{Directory: p.Directory, Token: old.Token, Scope: p.Scope})
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return nil, fmt.Errorf("%w: %w", ErrEnded, refused)
	}
	return c, err
}

// ask asks the login endpoint of a server.
func ask(ctx context.Context, client *http.Client, server string, now func() time.Time, request login.Request) (*Credential, error) {
	body, err := json.Marshal(request) //nolint:gosec // the password goes to the server and nowhere else
	if err != nil {
		return nil, err
	}
	status, answer, err := post(ctx, client, server+login.Path, "", body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", server, err)
	}
	if status != http.StatusOK {
		return nil, failed(server, status, answer)
	}
	var issued login.Issued
	if err := json.Unmarshal(answer, &issued); err != nil {
		return nil, fmt.Errorf("%s: the response is not from Gatehouse (hint: check the address of Gatehouse)", server)
	}
	at := now()
	if err := checkToken(issued.Token, issued.ExpiresAt, at); err != nil {
		return nil, fmt.Errorf("%s: %w", server, err)
	}
	return &Credential{
		Token: issued.Token, ObtainedAt: at, ExpiresAt: issued.ExpiresAt, SessionEnds: issued.SessionEnds,
		User: issued.User.Username, Source: server,
	}, nil
}

// post sends a body and returns the answer, whatever its status is.
func post(ctx context.Context, client *http.Client, url, bearer string, body []byte) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	status, _, answer, err = send(client, req)
	return status, answer, err
}

// send sends a request and reads the answer.
func send(client *http.Client, req *http.Request) (status int, header http.Header, answer []byte, err error) {
	resp, err := client.Do(req)
	if err != nil {
		if ctx := req.Context(); ctx.Err() != nil {
			return 0, nil, nil, context.Cause(ctx)
		}
		return 0, nil, nil, transportError(err)
	}
	answer, err = io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return 0, nil, nil, transportError(err)
	}
	return resp.StatusCode, resp.Header, answer, nil
}

// failed returns the error for an answer that is a login.Failure, or ought to be. Only
// a reason that is known to be definite makes a RefusedError: a person is not
// asked for a password because a server is down.
func failed(server string, status int, answer []byte) error {
	var f login.Failure
	if json.Unmarshal(answer, &f) != nil || f.Reason == "" {
		return fmt.Errorf("%s: responds with %d %s (hint: check the address of Gatehouse, and that logins are configured there)", server, status, http.StatusText(status))
	}
	message := printable(f.Message)
	if message == "" {
		message = "the login was refused"
	}
	definite := []authn.Reason{
		authn.ReasonCredentials, authn.ReasonInput, authn.ReasonSession, authn.ReasonRevoked, authn.ReasonExpired,
		authn.ReasonGuard, authn.ReasonSourceGone, authn.ReasonUnknownKey, authn.ReasonSignature, authn.ReasonMalformed,
		authn.ReasonForeign, authn.ReasonTooLarge, authn.ReasonAudience, authn.ReasonClaims, authn.ReasonAlgorithm,
	}
	if slices.Contains(definite, authn.Reason(f.Reason)) {
		return &RefusedError{Reason: f.Reason, Message: message}
	}
	if f.RetryAfterSeconds > 0 && !strings.Contains(message, "try again in") {
		message += fmt.Sprintf("; try again in %d s", f.RetryAfterSeconds)
	}
	return fmt.Errorf("%s: %s (reason %s)", server, message, printable(f.Reason))
}

// checkIsGatehouse sends a request that only a Gatehouse answers in this way. The
// certificate proves who owns the server; this proves that it is not another server of
// the same owner, which would log a password or a token that it does not understand. A redirect
// is an answer, and the wrong one.
func checkIsGatehouse(ctx context.Context, client *http.Client, server string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+login.Path, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	asking := *client
	asking.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	status, header, answer, err := send(&asking, req)
	if err != nil {
		return fmt.Errorf("%s: %w", server, err)
	}
	media, _, mediaErr := mime.ParseMediaType(header.Get("Content-Type"))
	var f login.Failure
	if status != http.StatusMethodNotAllowed || header.Get("Allow") != http.MethodPost ||
		mediaErr != nil || media != "application/json" || json.Unmarshal(answer, &f) != nil || f.Reason != login.ReasonMethod {
		return fmt.Errorf("%s: is not a Gatehouse with logins, so no secret was sent: it responds with %d %s (hint: check the address of Gatehouse)",
			server, status, http.StatusText(status))
	}
	return nil
}

// Whoami returns what the Gatehouse at the server, "https://host:port", answers about a
// token. Strings of the answer are as they came.
func Whoami(ctx context.Context, server string, roots *x509.CertPool, token string) (*login.Answer, error) {
	status, text, err := post(ctx, newClient(roots), server+login.WhoamiPath, token, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", server, err)
	}
	if status != http.StatusOK {
		return nil, failed(server, status, text)
	}
	var answer login.Answer
	if err := json.Unmarshal(text, &answer); err != nil || answer.Outcome == "" {
		return nil, fmt.Errorf("%s: the response is not from Gatehouse (hint: check the address of Gatehouse)", server)
	}
	return &answer, nil
}
