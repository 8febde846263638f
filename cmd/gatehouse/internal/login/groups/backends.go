package groups

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/ldap"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/groupsource"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// newBackend returns what asks the service of a checked configuration with defaults.
func newBackend(configured *config.GroupSource, directory authn.Directory, agent string) (backend, error) {
	c := configured.Config
	switch {
	case c.LDAP != nil && directory == nil:
		return nil, fmt.Errorf("the directory %q does not exist", c.LDAP.Directory)
	case c.LDAP != nil:
		return &ldapBackend{directory}, nil
	case c.Graph == nil && c.UserInfo == nil && c.HTTP == nil:
		return nil, errors.New("one of userInfo, ldap, graph and http is required")
	}
	client, err := newClient(configured, agent)
	switch {
	case err != nil:
		return nil, err
	case c.Graph != nil:
		return newGraphBackend(configured, client)
	default:
		return newHTTPBackend(configured, client)
	}
}

// ldapBackend asks a directory.
type ldapBackend struct{ directory authn.Directory }

func (a *ldapBackend) ask(ctx context.Context, q *authn.GroupQuery, _ int) ([]string, error) {
	account, err := a.directory.Find(ctx, q.User)
	if errors.Is(err, authn.ErrNoAccount) {
		return nil, nil
	}
	var names []string
	if err == nil {
		names, err = a.directory.Groups(ctx, account)
	}
	if err != nil && ldap.IsUnavailable(err) {
		return nil, &outageError{cause: err}
	}
	return names, err //nolint:wrapcheck // it names the directory
}

// httpBackend asks a UserInfo endpoint, or a service of the operator.
type httpBackend struct {
	client *client
	// url is the service, and post reports whether its requests are JSON objects.
	url  string
	post bool
	// userInfo reports whether the token of the user is the credential, and header has
	// another one.
	userInfo bool
	header   http.Header
	mapping  *groupsource.Mapping
}

func newHTTPBackend(configured *config.GroupSource, client *client) (backend, error) {
	a := &httpBackend{client: client, header: http.Header{}}
	if c := configured.Config.HTTP; c != nil {
		a.url, a.post = c.URL, c.Method == http.MethodPost
	} else {
		a.url, a.userInfo = configured.Config.UserInfo.URL, true
	}
	if len(configured.Secret) > 0 {
		a.header = bearer(string(configured.Secret))
	}
	var err error
	if a.mapping, err = groupsource.CompileMapping(configured.Config.Groups); err != nil {
		return nil, fmt.Errorf("groups: %w", err)
	}
	return a, nil
}

// call asks the service about a user.
func (a *httpBackend) call(ctx context.Context, q *authn.GroupQuery) (*reply, error) {
	switch {
	case a.userInfo:
		return a.client.do(ctx, http.MethodGet, a.url, bearer(q.Token), http.NoBody)
	case !a.post:
		query := url.Values{"issuer": {q.Issuer}, "subject": {q.Subject}, "user": {q.User}}
		return a.client.do(ctx, http.MethodGet, a.url+"?"+query.Encode(), a.header, http.NoBody)
	}
	text, err := json.Marshal(map[string]string{"issuer": q.Issuer, "subject": q.Subject, "user": q.User})
	if err != nil {
		return nil, errors.New("the request cannot be written")
	}
	header := a.header.Clone()
	header.Set("Content-Type", "application/json")
	return a.client.do(ctx, http.MethodPost, a.url, header, bytes.NewReader(text))
}

func (a *httpBackend) ask(ctx context.Context, q *authn.GroupQuery, limit int) ([]string, error) {
	reply, err := a.call(ctx, q)
	switch {
	case err != nil:
		return nil, err
	case a.userInfo && (reply.status == http.StatusUnauthorized || reply.status == http.StatusForbidden):
		return nil, fmt.Errorf("status %d: %w", reply.status, errNotAccepted)
	case !a.userInfo && (reply.status == http.StatusNotFound || reply.status == http.StatusNoContent):
		return nil, nil
	case reply.status != http.StatusOK:
		return nil, reply.failure()
	}
	names, subject, err := a.mapping.Names(ctx, reply.body, limit)
	if err == nil && a.userInfo && subject != q.Subject {
		// OpenID Connect Core, 5.3.2: otherwise the answer must not be used.
		return nil, errors.New("the answer is about another subject than the token")
	}
	return names, err //nolint:wrapcheck // it says that the answer is invalid
}
