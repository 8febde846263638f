package server_test

import (
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/webhooks"
)

// TestWhatKeepsAConnection checks for which calls connections are kept.
func TestWhatKeepsAConnection(t *testing.T) {
	t.Parallel()
	handler := newReviews(t, webhooks.Spec{})
	for _, tc := range []struct {
		path, body      string
		certified, kept bool
	}{
		{"/mutate", admissionBody, false, true},
		{"/validate", admissionBody, false, true},
		{"/authenticate", tokenBody, true, true},
		{"/authenticate", tokenBody, false, false},
		{"/login", `{}`, false, false},
		{"/whoami", ``, false, false},
		{"/", ``, false, false},
	} {
		recorder := call(t, handler, tc.path, tc.body, certified(time.Now().Add(time.Hour), tc.certified))
		if kept := recorder.Header().Get("Connection") != "close"; kept != tc.kept {
			t.Errorf("after %s, with a certificate %v, the connection is kept: %v", tc.path, tc.certified, kept)
		}
	}
}

// send sends a review.
func (r *running) send(t *testing.T, c *http.Client) error {
	t.Helper()
	response, err := c.Do(post(t.Context(), t, r.reviews+"/mutate", strings.NewReader(admissionBody)))
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || !strings.Contains(string(body), `"allowed":true`) {
		t.Errorf("answer is %d %s (%v)", response.StatusCode, body, err)
	}
	return err
}

// TestCertifiedConnectionsDoNotCount has a caller with a client certificate while the limit is reached, over both protocols. Of others,
// one over HTTP/2 is all that there may be.
func TestCertifiedConnectionsDoNotCount(t *testing.T) {
	t.Parallel()
	r := start(t, newReviews(t, webhooks.Spec{}), func(o server.Options) *server.Server {
		o.Connections = 16
		return server.New(o)
	})
	var certified []*http.Client
	for _, http2 := range []bool{false, true} {
		c := newClient(r.roots, http2)
		c.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{r.clientCertificate(t)}
		defer c.CloseIdleConnections()
		certified = append(certified, c)
	}
	for range 3 {
		other := newClient(r.roots, true)
		defer other.CloseIdleConnections()
		for _, c := range append(certified, other) {
			if err := r.send(t, c); err != nil {
				t.Errorf("a review is not answered: %v", err)
			}
		}
	}
}
