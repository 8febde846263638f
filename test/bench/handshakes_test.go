package main

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
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
