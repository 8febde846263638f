package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

// idleConnections is how many idle HTTP/1.1 connections to one webhook the API
// server keeps (client-go, MaxIdleConnsPerHost).
const idleConnections = 25

// client calls one server as the API server does: TLS 1.3, kept connections,
// one review per POST, over one version of HTTP. It is safe for concurrent
// use.
type client struct {
	address   string
	transport *http.Transport
	// handshakes is for connections without a request, and without a client
	// certificate.
	handshakes *tls.Config
}

// newClient returns a client of the server at an address that trusts the CAs and
// presents the certificates, if the server requests one.
func newClient(address, protocol string, ca *x509.CertPool, certificates ...tls.Certificate) *client {
	config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: ca}
	handshakes := config.Clone()
	handshakes.NextProtos = []string{"http/1.1"}
	config.Certificates = certificates
	protocols := new(http.Protocols)
	protocols.SetHTTP1(protocol == http1)
	protocols.SetHTTP2(protocol == http2)
	return &client{
		address: address, handshakes: handshakes,
		transport: &http.Transport{
			TLSClientConfig:     config,
			Protocols:           protocols,
			MaxIdleConnsPerHost: idleConnections,
			IdleConnTimeout:     90 * time.Second,
		},
	}
}

// load is what a client does in one round: it posts the review until the duration
// is over, each time with a new uid, from as many goroutines as concurrency says,
// each of which waits for one answer before it asks again, and asks at least once.
// Without a path it makes connections instead.
type load struct {
	client      *client
	path        string
	review      []byte
	wants       wants
	concurrency int
	duration    time.Duration
}

// run returns the latency of every request, in no order. The first error and
// the first wrong answer end it.
func (l load) run(ctx context.Context) ([]time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workers sync.WaitGroup
	latencies := make([][]time.Duration, l.concurrency)
	start := time.Now()
	for i := range latencies {
		workers.Go(func() {
			review := bytes.Clone(l.review)
			for first := true; first || time.Since(start) < l.duration; first = false {
				took, err := l.once(ctx, review)
				if err != nil {
					cancel(err)
					return
				}
				latencies[i] = append(latencies[i], took)
			}
		})
	}
	workers.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return slices.Concat(latencies...), nil
}

// once makes one request, with a new uid written into the review, or one
// connection. It returns how long that took.
func (l load) once(ctx context.Context, review []byte) (time.Duration, error) {
	if l.path == "" {
		start := time.Now()
		err := l.client.handshake(ctx)
		return time.Since(start), err
	}
	uid := ""
	if at := bytes.Index(l.review, []byte(placeholderUID)); at >= 0 {
		uid = string(uuid.NewUUID())
		copy(review[at:], uid)
	}
	start := time.Now()
	text, err := l.client.post(ctx, l.path, review)
	took := time.Since(start)
	if err == nil {
		_, err = checkAnswer(text, uid, l.wants)
	}
	return took, err
}

// post sends one review and returns the body of an answer with status 200.
func (c *client) post(ctx context.Context, path string, review []byte) ([]byte, error) {
	timeout := "10s"
	switch path {
	case pathAuthenticate:
		timeout = "30s"
	case pathAuthorize:
		timeout = "3s"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+c.address+path+"?timeout="+timeout, bytes.NewReader(review))
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
		return nil, fmt.Errorf("status %s, body %q", response.Status, excerpt(answer))
	}
	return answer, nil
}

// handshake connects as the API server does for admission, without a session to
// resume and without a client certificate, and closes the connection so that both
// sides know that the other has completed the handshake.
func (c *client) handshake(ctx context.Context) error {
	dialed, err := (&tls.Dialer{Config: c.handshakes}).DialContext(ctx, "tcp", c.address)
	if err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	defer func() { _ = dialed.Close() }()
	connection, _ := dialed.(*tls.Conn)
	if err := checkHandshake(connection.ConnectionState()); err != nil {
		return err
	}
	if err := connection.CloseWrite(); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	// With TLS 1.3 the server may not be done yet, and may refuse.
	n, err := connection.Read(make([]byte, 1))
	if !errors.Is(err, io.EOF) {
		return fmt.Errorf("handshake: %d bytes and %w instead of an end", n, err)
	}
	return nil
}

// checkHandshake returns an error for whatever costs less or more than what is to
// be compared: a full handshake of TLS 1.3 with a P-256 certificate.
func checkHandshake(state tls.ConnectionState) error {
	key, ok := state.PeerCertificates[0].PublicKey.(*ecdsa.PublicKey)
	switch {
	case state.Version != tls.VersionTLS13:
		return fmt.Errorf("handshake: version %s instead of TLS 1.3", tls.VersionName(state.Version))
	case state.DidResume:
		return errors.New("handshake: a session was resumed")
	case !ok || key.Curve != elliptic.P256():
		return fmt.Errorf("handshake: a certificate with a key %T instead of P-256", state.PeerCertificates[0].PublicKey)
	default:
		return nil
	}
}

// answer is an AdmissionReview or a TokenReview.
type answer struct {
	Kind     string                         `json:"kind"`
	Response *admissionv1.AdmissionResponse `json:"response"`
	// Status is of a TokenReview or a SubjectAccessReview.
	Status struct {
		authenticationv1.TokenReviewStatus

		Denied bool `json:"denied"`
	} `json:"status"`
}

// checkAnswer decodes an answer. It returns an error unless this is the wanted
// answer to the request with the uid. An empty uid expects a TokenReview.
func checkAnswer(text []byte, uid string, wants wants) (answer, error) {
	var a answer
	wrong := ""
	switch err := json.Unmarshal(text, &a); {
	case err != nil:
		wrong = err.Error()
	case wants.access:
		wrong = a.wrongAccess()
	case uid == "":
		wrong = a.wrongToken(wants)
	default:
		wrong = a.wrongAdmission(uid, wants)
	}
	if wrong != "" {
		return a, fmt.Errorf("wrong answer: %s in %q", wrong, excerpt(text))
	}
	return a, nil
}

// wrongToken returns what is wrong with an answer to a TokenReview, or "".
func (a answer) wrongToken(wants wants) string {
	switch {
	case a.Kind != "TokenReview":
		return "no TokenReview"
	case a.Status.Error != "":
		return "status.error"
	case !a.Status.Authenticated:
		return "authenticated is not true"
	case a.Status.User.Username != wants.user:
		return fmt.Sprintf("user %q instead of %q", a.Status.User.Username, wants.user)
	default:
		return ""
	}
}

// wrongAccess returns what is wrong with an answer to a SubjectAccessReview on which there is no opinion, or "".
func (a answer) wrongAccess() string {
	switch {
	case a.Kind != "SubjectAccessReview":
		return "no SubjectAccessReview"
	case a.Status.Denied:
		return "denied is true"
	default:
		return ""
	}
}

// wrongAdmission returns what is wrong with an answer to an AdmissionReview, or
// "".
func (a answer) wrongAdmission(uid string, wants wants) string {
	switch {
	case a.Kind != "AdmissionReview" || a.Response == nil:
		return "no AdmissionReview with a response"
	case string(a.Response.UID) != uid:
		return fmt.Sprintf("uid %q instead of %q", a.Response.UID, uid)
	case a.Response.Allowed && len(wants.denies) > 0:
		return "allowed is true"
	case !a.Response.Allowed && len(wants.denies) == 0:
		return "allowed is not true"
	case wants.patch() && (len(a.Response.Patch) == 0 || a.Response.PatchType == nil || *a.Response.PatchType != admissionv1.PatchTypeJSONPatch):
		return "no JSON Patch"
	case !wants.patch() && len(a.Response.Patch) > 0:
		return "a patch"
	}
	for _, message := range wants.denies {
		if a.Response.Result == nil || !strings.Contains(a.Response.Result.Message, message) {
			return fmt.Sprintf("no %q", message)
		}
	}
	return ""
}

// excerpt returns the beginning of a text.
func excerpt(text []byte) string { return truncate.Bytes(string(text), 400) }
