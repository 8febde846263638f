package session

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/httpsclient"
	"github.com/gatehouse-dev/gatehouse/internal/pemcert"
)

// requestTimeout bounds one request with its answer.
const requestTimeout = 30 * time.Second

// Roots returns the CAs in a PEM text; nil for an empty one, which means the
// system's.
func Roots(text []byte) (*x509.CertPool, error) {
	if len(text) == 0 {
		return nil, nil
	}
	return pemcert.Pool(text)
}

// newClient returns a client that verifies certificates with the roots, nil for the
// system's, and repeats a secret to nobody: only a GET follows a redirection.
func newClient(roots *x509.CertPool) *http.Client {
	return httpsclient.New(httpsclient.Options{
		Roots: roots, Timeout: requestTimeout,
		CheckRedirect: func(_ *http.Request, via []*http.Request) error {
			const most = 5
			if via[0].Method != http.MethodGet || len(via) > most {
				return errors.New("the response is a redirect, which is not followed")
			}
			return nil
		},
	})
}

// transportError returns the error of a request for people, with a hint where there
// is one.
func transportError(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		if wrapped.Timeout() {
			return errors.New("no response in time")
		}
		err = wrapped.Err
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return fmt.Errorf("%w (hint: pass its CA with --server-ca or --issuer-ca)", err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("no response in time")
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%s (hint: check the address, and that the server is running)", printable(err.Error()))
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Errorf("%s (hint: check the host name)", printable(err.Error()))
	}
	return errors.New(printable(err.Error()))
}
