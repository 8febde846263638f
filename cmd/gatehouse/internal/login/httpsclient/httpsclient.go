// Package httpsclient makes the HTTP clients with which logins call issuers, group sources and Gatehouse.
package httpsclient

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// MaxBytes bounds an answer: an issuer's hundred keys with their certificates are
	// some 300 KiB, and ten thousand groups of Graph about a megabyte.
	MaxBytes = 1 << 20
	// maxHeaderBytes bounds the header of an answer.
	maxHeaderBytes = 64 << 10
	// stepTime bounds the TLS handshake, and how long a connection stays open unused.
	stepTime = 10 * time.Second
)

// Options are what a client is made of.
type Options struct {
	// Roots verify certificates; nil are the system's.
	Roots *x509.CertPool
	// Certificates are the client's own.
	Certificates []tls.Certificate
	// Timeout bounds a request with its answer. Without one, the context of the request does.
	Timeout time.Duration
	// MaxConnections bounds the connections to one host, 0 is no bound.
	MaxConnections int
	// CheckRedirect is that of http.Client.
	CheckRedirect func(to *http.Request, via []*http.Request) error
}

// New returns a client that speaks TLS alone, and cuts off answers of more than MaxBytes.
func New(o Options) *http.Client {
	return &http.Client{
		Timeout: o.Timeout, CheckRedirect: o.CheckRedirect,
		Transport: bounded{&http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			TLSClientConfig:        &tls.Config{RootCAs: o.Roots, Certificates: o.Certificates, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    stepTime,
			IdleConnTimeout:        stepTime,
			MaxResponseHeaderBytes: maxHeaderBytes,
			MaxConnsPerHost:        o.MaxConnections,
			MaxIdleConnsPerHost:    o.MaxConnections,
			ForceAttemptHTTP2:      true,
		}},
	}
}

// bounded refuses requests without TLS, and cuts off answers.
type bounded struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (t bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" {
		return nil, errors.New("requests without TLS are not sent")
	}
	resp, err := t.Transport.RoundTrip(req)
	if err == nil {
		resp.Body = &boundedBody{ReadCloser: resp.Body, left: MaxBytes}
	}
	return resp, err
}

// ErrTooLarge is the error of an answer that is cut off.
var ErrTooLarge = fmt.Errorf("the answer has more than %d bytes", MaxBytes)

type boundedBody struct {
	io.ReadCloser
	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	if b.left -= int64(n); b.left < 0 {
		return 0, ErrTooLarge
	}
	return n, err
}
