package main

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// A handshake counts only if it is what is to be compared, and if the server has
// done its part.
func TestHandshake(t *testing.T) {
	certificate, ca, err := selfSigned()
	if err != nil {
		t.Fatal(err)
	}
	_, other, err := selfSigned()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		ca     string
		change func(*httptest.Server)
		want   string // of the error; "" for none
	}{
		{"full", ca, func(*httptest.Server) {}, ""},
		{"the server asks for a client certificate", ca, func(s *httptest.Server) { s.TLS.ClientAuth = tls.RequestClientCert }, ""},
		{"the server wants a client certificate", ca, func(s *httptest.Server) { s.TLS.ClientAuth = tls.RequireAnyClientCert }, "certificate required"},
		{"another CA", other, func(*httptest.Server) {}, "unknown authority"},
		{"TLS 1.2", ca, func(s *httptest.Server) { s.TLS.MaxVersion = tls.VersionTLS12 }, "protocol version not supported"},
		{"an RSA key", "", func(s *httptest.Server) { s.TLS.Certificates = nil }, "instead of P-256"},
		{"the server hangs up", ca, func(s *httptest.Server) {
			s.Config.ConnState = func(c net.Conn, state http.ConnState) {
				if state == http.StateNew {
					_ = c.Close()
				}
			}
		}, "handshake: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := httptest.NewUnstartedServer(http.NotFoundHandler())
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			s.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
			tt.change(s)
			s.StartTLS()
			defer s.Close()
			trusted := tt.ca
			if trusted == "" {
				trusted = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
			}
			c, err := newClient(s.Listener.Addr().String(), http1, trusted, &certificate)
			if err != nil {
				t.Fatal(err)
			}
			err = c.handshake(t.Context())
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// Each handshake is a connection of its own, without a request, a session or a
// client certificate.
func TestHandshakesAreNotShared(t *testing.T) {
	certificate, ca, err := selfSigned()
	if err != nil {
		t.Fatal(err)
	}
	connections := make(chan tls.ConnectionState, 100)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("there was a request") }))
	s.TLS = &tls.Config{
		Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequestClientCert,
		VerifyConnection: func(state tls.ConnectionState) error {
			connections <- state
			return nil
		},
	}
	s.StartTLS()
	defer s.Close()
	c, err := newClient(s.Listener.Addr().String(), http1, ca, &certificate)
	if err != nil {
		t.Fatal(err)
	}
	latencies, err := load{client: c, handshake: true, concurrency: 4, requests: 20}.run(t.Context())
	if err != nil || len(latencies) != 20 || percentile(latencies, 0) <= 0 {
		t.Errorf("latencies %v, error %v", latencies, err)
	}
	if len(connections) != 20 {
		t.Errorf("%d connections, want 20", len(connections))
	}
	for range len(connections) {
		if state := <-connections; state.DidResume || len(state.PeerCertificates) > 0 || state.NegotiatedProtocol != "http/1.1" {
			t.Errorf("resumed %v, %d client certificates, protocol %q", state.DidResume, len(state.PeerCertificates), state.NegotiatedProtocol)
		}
	}
}

// The driver measures handshakes with both sources of certificates.
func TestRunMeasuresHandshakes(t *testing.T) {
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"run", "--gatehouse", executable, "--rounds", "1", "--requests", "32", "--scenario", "^handshake", "-o", "json"}
	var stdout, stderr strings.Builder
	if code := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr); code != exitYes {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	var r report
	if err := json.Unmarshal([]byte(stdout.String()), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Scenarios) != 2 || len(r.Memory) != 3 {
		t.Fatalf("report: %s", stdout.String())
	}
	for _, s := range r.Scenarios {
		g := s.Servers[gatehouseServer]
		if g == nil || g.Ratio <= 0 || s.Servers[nullServer] == nil || s.Servers[usualServer] != nil {
			t.Errorf("%s: %+v", s.Name, s.Servers)
		}
		for _, b := range r.Bars {
			if strings.HasPrefix(b.What, s.Name+",") && b.Result == resultNotMeasured {
				t.Errorf("%s has no bar that was measured", s.Name)
			}
		}
	}
}
