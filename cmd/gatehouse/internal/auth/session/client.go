package session

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/pemcert"
)

const (
	// maxAnswerBytes bounds an answer: a token, or an issuer's keys.
	maxAnswerBytes = 1 << 20
	// requestTimeout bounds one request with its answer.
	requestTimeout = 30 * time.Second
)

// Roots returns the CAs in a PEM text; nil for an empty one, which means the
// system's.
func Roots(text []byte) (*x509.CertPool, error) {
	if len(text) == 0 {
		return nil, nil
	}
	return pemcert.Pool(text)
}

// newClient returns a client that verifies certificates with the roots, nil for the
// system's, that reads bounded answers, speaks TLS alone, and repeats a secret to
// nobody: only a GET follows a redirection.
func newClient(roots *x509.CertPool) *http.Client {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: requestTimeout / 2,
		IdleConnTimeout:     requestTimeout,
	}
	return &http.Client{
		Transport: boundedTransport{transport},
		Timeout:   requestTimeout,
		CheckRedirect: func(_ *http.Request, via []*http.Request) error {
			const most = 5
			if via[0].Method != http.MethodGet || len(via) > most {
				return errors.New("the response is a redirect, which is not followed")
			}
			return nil
		},
	}
}

// boundedTransport refuses requests without TLS and cuts off answers.
type boundedTransport struct{ *http.Transport }

func (t boundedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" {
		return nil, errors.New("requests without TLS are not sent")
	}
	resp, err := t.Transport.RoundTrip(req)
	if err == nil {
		resp.Body = &boundedBody{ReadCloser: resp.Body, left: maxAnswerBytes}
	}
	return resp, err
}

type boundedBody struct {
	io.ReadCloser
	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("the answer is larger than %d bytes", maxAnswerBytes)
	}
	return n, err
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
