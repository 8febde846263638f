package groups

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/auth/ldap"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/groupsource"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// newAsker returns what asks the service of a checked configuration.
func newAsker(configured *config.GroupSource, directory authn.Directory, agent string) (asker, error) {
	c := configured.Config
	connections := cmp.Or(c.MaxRequests, groupsource.DefaultMaxRequests)
	switch {
	case c.LDAP != nil && directory == nil:
		return nil, fmt.Errorf("the directory %q does not exist", c.LDAP.Directory)
	case c.LDAP != nil:
		return &ldapAsker{directory}, nil
	case c.UserInfo != nil:
		return newUserInfoAsker(configured, connections, agent)
	case c.Graph != nil:
		return newGraphAsker(configured, connections, agent)
	case c.HTTP != nil:
		return newHTTPAsker(configured, connections, agent)
	default:
		return nil, errors.New("one of userInfo, ldap, graph and http is required")
	}
}

// ldapAsker asks a directory.
type ldapAsker struct{ directory authn.Directory }

func (a *ldapAsker) ask(ctx context.Context, q *authn.GroupQuery, _ int) ([]string, error) {
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

// userInfoAsker asks a UserInfo endpoint.
type userInfoAsker struct {
	client  *client
	url     string
	mapping *groupsource.Mapping
}

func newUserInfoAsker(configured *config.GroupSource, connections int, agent string) (asker, error) {
	c := configured.Config.UserInfo
	a := &userInfoAsker{url: c.URL}
	var err error
	if a.mapping, err = groupsource.CompileMapping(cmp.Or(c.Groups, groupsource.DefaultClaims)); err != nil {
		return nil, fmt.Errorf("userInfo.groups: %w", err)
	}
	a.client, err = newClient(c.CertificateAuthority, nil, connections, agent)
	return a, err
}

func (a *userInfoAsker) ask(ctx context.Context, q *authn.GroupQuery, limit int) ([]string, error) {
	reply, err := a.client.do(ctx, http.MethodGet, a.url, bearer(q.Token), http.NoBody)
	switch {
	case err != nil:
		return nil, err
	case reply.status == http.StatusUnauthorized || reply.status == http.StatusForbidden:
		return nil, fmt.Errorf("status %d: the UserInfo endpoint does not accept the token", reply.status)
	case reply.status != http.StatusOK:
		return nil, reply.failure()
	}
	names, subject, err := a.mapping.Names(ctx, reply.body, limit)
	if err == nil && subject != q.Subject {
		// OpenID Connect Core, 5.3.2: otherwise the answer must not be used.
		return nil, errors.New("the answer is about another subject than the token")
	}
	return names, err //nolint:wrapcheck // it says that the answer is invalid
}

// httpAsker asks a service of the operator.
type httpAsker struct {
	client      *client
	url, method string
	header      http.Header
	mapping     *groupsource.Mapping
}

func newHTTPAsker(configured *config.GroupSource, connections int, agent string) (asker, error) {
	c := configured.Config.HTTP
	a := &httpAsker{url: c.URL, method: cmp.Or(c.Method, http.MethodGet), header: http.Header{}}
	if len(configured.Secret) > 0 {
		a.header = bearer(string(configured.Secret))
	}
	if a.method == http.MethodPost {
		a.header.Set("Content-Type", "application/json")
	}
	var certificate *tls.Certificate
	if c.ClientCertificateFile != "" {
		pair, err := tls.X509KeyPair(configured.Certificate, configured.Key)
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		certificate = &pair
	}
	var err error
	if a.mapping, err = groupsource.CompileMapping(cmp.Or(c.Groups, groupsource.DefaultGroups)); err != nil {
		return nil, fmt.Errorf("http.groups: %w", err)
	}
	a.client, err = newClient(c.CertificateAuthority, certificate, connections, agent)
	return a, err
}

func (a *httpAsker) ask(ctx context.Context, q *authn.GroupQuery, limit int) ([]string, error) {
	to, body := a.url, io.Reader(http.NoBody)
	if a.method == http.MethodPost {
		text, err := json.Marshal(map[string]string{"issuer": q.Issuer, "subject": q.Subject, "user": q.User})
		if err != nil {
			return nil, errors.New("the request cannot be written")
		}
		body = bytes.NewReader(text)
	} else {
		to += "?" + url.Values{"issuer": {q.Issuer}, "subject": {q.Subject}, "user": {q.User}}.Encode()
	}
	reply, err := a.client.do(ctx, a.method, to, a.header, body)
	switch {
	case err != nil:
		return nil, err
	case reply.status == http.StatusNotFound || reply.status == http.StatusNoContent:
		return nil, nil
	case reply.status != http.StatusOK:
		return nil, reply.failure()
	}
	names, _, err := a.mapping.Names(ctx, reply.body, limit)
	return names, err //nolint:wrapcheck // it says that the answer is invalid
}
