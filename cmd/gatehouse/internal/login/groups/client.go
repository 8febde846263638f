package groups

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/httpsclient"
	"github.com/gatehouse-dev/gatehouse/internal/pemcert"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// client calls a service. It follows no redirect, and sends what it is given to no other
// address.
type client struct {
	http  *http.Client
	agent string
}

// newClient returns a client that trusts the CAs of a source, the system's without any, and
// shows its client certificate, if it has one.
func newClient(configured *config.GroupSource, agent string) (*client, error) {
	of := configured.Config
	o := httpsclient.Options{
		MaxConnections: of.MaxRequests,
		CheckRedirect:  func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if of.CertificateAuthority != "" {
		var err error
		if o.Roots, err = pemcert.Pool([]byte(of.CertificateAuthority)); err != nil {
			return nil, fmt.Errorf("certificateAuthority: %w", err)
		}
	}
	if of.HTTP != nil && of.HTTP.ClientCertificateFile != "" {
		pair, err := tls.X509KeyPair(configured.Certificate, configured.Key)
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		o.Certificates = []tls.Certificate{pair}
	}
	return &client{http: httpsclient.New(o), agent: agent}, nil
}

// reply is the answer of a service.
type reply struct {
	status int
	body   []byte
}

// do makes a call. The error names neither the query nor the body.
func (c *client) do(ctx context.Context, method, to string, header http.Header, body io.Reader) (*reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, to, body)
	if err != nil {
		return nil, errors.New("the URL cannot be called")
	}
	maps.Copy(req.Header, header)
	req.Header.Set("User-Agent", c.agent)
	req.Header.Set("Accept", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // it names the query
		}
		return nil, &outageError{cause: err}
	}
	defer func() { _ = resp.Body.Close() }()
	r := &reply{status: resp.StatusCode}
	r.body, err = io.ReadAll(resp.Body)
	switch {
	case errors.Is(err, httpsclient.ErrTooLarge):
		return nil, err
	case err != nil:
		return nil, &outageError{cause: errors.New("the answer is cut off")}
	}
	return r, nil
}

// failure is the error of a status that is no answer.
func (r *reply) failure() error {
	err := fmt.Errorf("status %d: must be 200", r.status)
	if r.status/100 == 3 {
		err = fmt.Errorf("status %d: redirects are not followed (hint: configure the target)", r.status)
	}
	return &outageError{cause: err}
}

// bearer returns the header with a bearer token.
func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }
