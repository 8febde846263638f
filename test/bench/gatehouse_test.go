package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// standIn is gatehouse serve as far as the driver knows it: the same flags,
// files and listeners around the usual webhook. A configuration directory
// without a profile is refused.
func standIn(args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	config := flags.String("config", "", "")
	listen := flags.String("listen", "", "")
	operations := flags.String("ops-listen", "", "")
	host := flags.String("self-signed", "", "")
	directory := flags.String("self-signed-dir", "", "")
	certFile := flags.String("tls-cert", "", "")
	keyFile := flags.String("tls-key", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(*config, "profiles.yaml")); err != nil || *host != "127.0.0.1" && *certFile == "" {
		return errors.Join(err, errors.New("no profile for 127.0.0.1"))
	}
	if *certFile != "" {
		certificate, err := tls.LoadX509KeyPair(*certFile, *keyFile)
		if err != nil {
			return err
		}
		return standInServe(*listen, *operations, certificate)
	}
	certificate, ca, err := selfSigned()
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"ca.crt":               ca,
		"apiserver-client.crt": ca,
		"apiserver-client.key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	} {
		if err := os.WriteFile(filepath.Join(*directory, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return standInServe(*listen, *operations, certificate)
}

// standInServe answers only with a client certificate.
func standInServe(listen, operations string, certificate tls.Certificate) error {
	reviews := usualHandler()
	server := &http.Server{
		Addr:      listen,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequestClientCert},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if len(r.TLS.PeerCertificates) == 0 {
				http.Error(w, "no client certificate", http.StatusForbidden)
				return
			}
			reviews.ServeHTTP(w, r)
		}),
	}
	ended := make(chan error)
	go func() { ended <- server.ListenAndServeTLS("", "") }()
	go func() {
		ready := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/readyz":
			case "/metrics":
				metrics().ServeHTTP(w, r)
			default:
				http.NotFound(w, r)
			}
		})
		ended <- http.ListenAndServe(operations, ready)
	}()
	return <-ended
}

// The driver starts gatehouse serve, waits until it is ready, presents the
// client certificate, and measures every configuration.
func TestRunMeasuresGatehouse(t *testing.T) {
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "report.json")
	args := []string{
		"run", "--gatehouse", executable, "--no-controller-runtime", "--rounds", "1", "--requests", "32",
		"--scenario", "^(mutate|validate|validate-10-policies|validate-pod-security)/5KB/http2/c16|authenticate/http2/c16", "-o", "json", "--json", file,
	}
	var stdout, stderr strings.Builder
	if code := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr); code != exitYes {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != stdout.String() {
		t.Errorf("stdout and file differ: %v", err)
	}
	var r report
	if err := json.Unmarshal([]byte(stdout.String()), &r); err != nil {
		t.Fatal(err)
	}
	if r.Versions[gatehouseServer] != "stand-in" {
		t.Errorf("version %q", r.Versions[gatehouseServer])
	}
	if len(r.Scenarios) != 5 || len(r.Memory) != 4 {
		t.Fatalf("report: %s", stdout.String())
	}
	for _, s := range r.Scenarios {
		if s.Servers[gatehouseServer] == nil || s.Servers[gatehouseServer].Ratio <= 0 || s.Servers[usualServer] != nil {
			t.Errorf("%s: %+v", s.Name, s.Servers)
		}
		// The usual webhook decodes a review of thousands of bytes.
		if g := s.Servers[gatehouseServer]; s.Path == pathMutate && (g.AllocationsPerRequest < 100 || g.BytesPerRequest < 10_000) {
			t.Errorf("%s: %v allocations, %v bytes", s.Name, g.AllocationsPerRequest, g.BytesPerRequest)
		}
	}
	measured := 0
	for _, b := range r.Bars {
		if b.Measured > 0 && b.Result != resultNotMeasured {
			measured++
		}
	}
	if measured != 6 { // mutate, validate three times, authenticate, memory
		t.Errorf("bars %+v", r.Bars)
	}
}

// A gatehouse that does not start is an error that says what it said.
func TestStartGatehouseSaysWhatItSaid(t *testing.T) {
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	for _, name := range []string{"documents", "certificates"} {
		if err := os.Mkdir(filepath.Join(directory, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s := &server{kind: gatehouseServer, documents: filepath.Join(directory, "documents"), certificates: filepath.Join(directory, "certificates")}
	err = s.startGatehouse(t.Context(), executable, filepath.Join(directory, "gatehouse.log"))
	if err == nil || !strings.Contains(err.Error(), "ended before it was ready") || !strings.Contains(err.Error(), "no profile for 127.0.0.1") {
		t.Errorf("error %v", err)
	}
}

// standInMain is the test binary called as gatehouse.
func standInMain(args []string) int {
	if args[0] == "version" {
		_, _ = io.WriteString(os.Stdout, "stand-in\n")
		return 0
	}
	// Nobody kills it if the test is killed.
	time.AfterFunc(10*time.Minute, func() { os.Exit(1) })
	_, _ = fmt.Fprintln(os.Stderr, standIn(args[1:]))
	return 1
}
