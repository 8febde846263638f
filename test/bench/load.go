package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// idleConnections is how many idle HTTP/1.1 connections to one webhook the API
// server keeps (client-go, MaxIdleConnsPerHost).
const idleConnections = 25

// client calls one server as the API server does: TLS 1.3, kept connections,
// one review per POST, over one version of HTTP. It is safe for concurrent
// use.
type client struct {
	transport *http.Transport
	address   string
	dialer    *net.Dialer
	// anonymous is what handshakes alone are made with: it has no client certificate.
	anonymous *tls.Config
}

// newClient returns a client of the server at a loopback address that trusts
// the CA and, if certificate is not nil, presents it.
func newClient(address, protocol, ca string, certificate *tls.Certificate) (*client, error) {
	if err := requireLoopback(address); err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(ca)) {
		return nil, fmt.Errorf("no certificate in the CA of %s", address)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	anonymous := config.Clone()
	anonymous.ServerName, anonymous.NextProtos = host, []string{"http/1.1"}
	if protocol == http2 {
		anonymous.NextProtos = []string{"h2"}
	}
	if certificate != nil {
		config.Certificates = []tls.Certificate{*certificate}
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(protocol == http1)
	protocols.SetHTTP2(protocol == http2)
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	return &client{
		address: address, dialer: dialer, anonymous: anonymous,
		transport: &http.Transport{
			// Whatever the environment says of proxies, and whatever a server
			// answers, no other address is ever dialled.
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, network, address)
			},
			TLSClientConfig:     config,
			Protocols:           protocols,
			MaxIdleConnsPerHost: idleConnections,
			IdleConnTimeout:     90 * time.Second,
		},
	}, nil
}

// wants is what a right answer says to the right request.
type wants struct {
	patch  bool     // a non-empty JSON Patch; without it there must be none
	user   string   // the authenticated user; empty for admission
	denies []string // what the message of a refusal says; without any, the answer must be yes
}

// ofNull is what the null webhook can answer of it.
func (w wants) ofNull() wants { return wants{user: w.user} }

// load is what a client does in one round: it posts the body as often as
// requests says, each time with a uid of its own, from as many goroutines as
// concurrency says, each of which waits for one answer before it asks again.
type load struct {
	client      *client
	path        string
	body        body
	wants       wants
	concurrency int
	requests    int
	// firstUID is added to the number of the request to make its uid.
	firstUID int
	// handshake stands for connections that are made instead, one for each request.
	handshake bool
}

// run returns the latency of every request, in no order. The first error and
// the first wrong answer end it.
func (l load) run(ctx context.Context) ([]time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workers sync.WaitGroup
	var next atomic.Int64
	latencies := make([]time.Duration, l.requests)
	for range l.concurrency {
		workers.Go(func() {
			text := bytes.Clone(l.body.text)
			for i := next.Add(1) - 1; i < int64(l.requests); i = next.Add(1) - 1 {
				took, err := l.once(ctx, text, int(i))
				if err != nil {
					cancel(err)
					return
				}
				latencies[i] = took
			}
		})
	}
	workers.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return latencies, nil
}

// once is the request with the number, in a text of its own, or a handshake.
func (l load) once(ctx context.Context, text []byte, number int) (took time.Duration, err error) {
	if l.handshake {
		start := time.Now()
		err := l.client.handshake(ctx)
		return time.Since(start), err
	}
	uid := ""
	if at := l.body.uidAt; at >= 0 {
		uid = requestUID(l.firstUID + number)
		copy(text[at:], uid)
	}
	start := time.Now()
	answer, err := l.client.post(ctx, l.path, text)
	took = time.Since(start)
	if err != nil {
		return took, err
	}
	return took, checkAnswer(answer, uid, l.wants)
}

// requestUID returns a UUID that holds the number, which is not negative.
func requestUID(number int) string {
	return fmt.Sprintf("%08x-0000-4000-8000-%012x", number>>32, number&0xffff_ffff)
}

// post sends one review and returns the body of an answer with status 200.
func (c *client) post(ctx context.Context, path string, text []byte) ([]byte, error) {
	timeout := "timeout=10s"
	if path == pathAuthenticate {
		timeout = "timeout=30s"
	}
	target := url.URL{Scheme: "https", Host: c.address, Path: path, RawQuery: timeout}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	request.Header = http.Header{
		"Accept":       {"application/json, */*"},
		"Content-Type": {"application/json"},
		"User-Agent":   {"kube-apiserver-admission"},
	}
	response, err := c.transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %s, body %s", response.Status, excerpt(answer))
	}
	return answer, nil
}

// answer is the part of an AdmissionReview and of a TokenReview that the API
// server believes.
type answer struct {
	Kind     string `json:"kind"`
	Response *struct {
		UID     string `json:"uid"`
		Allowed bool   `json:"allowed"`
		Patch   []byte `json:"patch"`
		Type    string `json:"patchType"`
		Status  struct {
			Message string `json:"message"`
		} `json:"status"`
	} `json:"response"`
	Status struct {
		Authenticated bool   `json:"authenticated"`
		Error         string `json:"error"`
		User          struct {
			Username string `json:"username"`
		} `json:"user"`
	} `json:"status"`
}

// checkAnswer returns an error unless text answers the request with the uid in
// the way that is wanted. An empty uid expects a TokenReview.
func checkAnswer(text []byte, uid string, wants wants) error {
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		return fmt.Errorf("wrong answer: %w in %s", err, excerpt(text))
	}
	wrong := func(what string) error { return fmt.Errorf("wrong answer: %s in %s", what, excerpt(text)) }
	if uid == "" {
		switch {
		case a.Kind != "TokenReview":
			return wrong("no TokenReview")
		case a.Status.Error != "":
			return wrong("status.error")
		case !a.Status.Authenticated:
			return wrong("authenticated is not true")
		case a.Status.User.Username != wants.user:
			return wrong(fmt.Sprintf("user %q instead of %q", a.Status.User.Username, wants.user))
		}
		return nil
	}
	switch {
	case a.Kind != "AdmissionReview" || a.Response == nil:
		return wrong("no AdmissionReview with a response")
	case a.Response.UID != uid:
		return wrong(fmt.Sprintf("uid %q instead of %q", a.Response.UID, uid))
	case a.Response.Allowed && len(wants.denies) > 0:
		return wrong("allowed is true")
	case !a.Response.Allowed && len(wants.denies) == 0:
		return wrong("allowed is not true")
	case wants.patch && (len(a.Response.Patch) == 0 || a.Response.Type != "JSONPatch"):
		return wrong("no JSON Patch")
	case !wants.patch && len(a.Response.Patch) > 0:
		return wrong("a patch")
	}
	for _, text := range wants.denies {
		if !strings.Contains(a.Response.Status.Message, text) {
			return wrong(fmt.Sprintf("no %q", text))
		}
	}
	return nil
}

// excerpt quotes the beginning of a text.
func excerpt(text []byte) string {
	const most = 400
	if len(text) > most {
		return fmt.Sprintf("%q…", text[:most])
	}
	return fmt.Sprintf("%q", text)
}
