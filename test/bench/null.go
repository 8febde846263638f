package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// The servers that this program holds, by the name of their mode.
const (
	nullServer  = "null"
	usualServer = "controller-runtime"
)

// maxBody is the largest body that the null webhook reads, in bytes: more than
// any scenario sends.
const maxBody = 1 << 20

// The constant answers of the null webhook, around the uid that it found.
const (
	nullAdmissionHead = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"`
	nullAdmissionTail = `","allowed":true}}`
	nullTokenReview   = `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1beta1","status":{"authenticated":true,"user":{"username":"` + tokenUser + `"}}}`
)

// announcement is the one line that a server of this program prints once it
// listens.
type announcement struct {
	// Address is host:port.
	Address string `json:"address"`
	// CA is the PEM certificate that signed, and is, the serving certificate.
	CA string `json:"ca"`
	// Operations is host:port, for metrics.
	Operations string `json:"operations"`
}

// nullHandler answers every review with yes and looks at nothing but what
// identifies the request: the uid of an AdmissionReview; of a TokenReview,
// which the API server sends without a uid, the token. It is the floor: what
// net/http, TLS and reading the body cost any webhook written in Go. Bodies go
// into pooled buffers, for a floor must not allocate more than those who stand
// on it.
func nullHandler() http.Handler {
	var bodies sync.Pool
	review := func(answer func(http.ResponseWriter, []byte)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.ContentLength < 0 || r.ContentLength > maxBody {
				http.Error(w, "body of unknown length or too large", http.StatusRequestEntityTooLarge)
				return
			}
			buffer, _ := bodies.Get().(*[]byte)
			if buffer == nil || int64(cap(*buffer)) < r.ContentLength {
				buffer = new(make([]byte, r.ContentLength))
			}
			defer bodies.Put(buffer)
			body := (*buffer)[:r.ContentLength]
			if _, err := io.ReadFull(r.Body, body); err != nil {
				http.Error(w, "reading the body: "+err.Error(), http.StatusBadRequest)
				return
			}
			answer(w, body)
		}
	}
	admission := review(func(w http.ResponseWriter, body []byte) {
		uid, ok := findString(body, `"uid":"`)
		if !ok {
			http.Error(w, "no uid", http.StatusBadRequest)
			return
		}
		answer := make([]byte, 0, len(nullAdmissionHead)+len(uid)+len(nullAdmissionTail))
		answer = append(answer, nullAdmissionHead...)
		answer = append(answer, uid...)
		answer = append(answer, nullAdmissionTail...)
		w.Header()["Content-Type"] = []string{"application/json"}
		_, _ = w.Write(answer)
	})
	token := review(func(w http.ResponseWriter, body []byte) {
		if _, ok := findString(body, `"token":"`); !ok {
			http.Error(w, "no token", http.StatusBadRequest)
			return
		}
		answerToken(w, body)
	})
	mux := http.NewServeMux()
	mux.Handle("POST "+pathMutate, admission)
	mux.Handle("POST "+pathValidate, admission)
	mux.Handle("POST "+pathAuthenticate, token)
	keys, err := newVerifier()
	if err != nil {
		panic(err) // constants of this program
	}
	mux.Handle("POST "+pathVerify, review(func(w http.ResponseWriter, body []byte) {
		keys.verified(w, body, answerToken)
	}))
	return mux
}

// answerToken answers every token review with yes.
func answerToken(w http.ResponseWriter, _ []byte) {
	w.Header()["Content-Type"] = []string{"application/json"}
	_, _ = io.WriteString(w, nullTokenReview)
}

// findString returns the text between the first occurrence of opening in body
// and the next quotation mark. It allocates nothing; the result is part of
// body.
func findString(body []byte, opening string) ([]byte, bool) {
	start := bytes.Index(body, []byte(opening))
	if start < 0 {
		return nil, false
	}
	text, _, closed := bytes.Cut(body[start+len(opening):], []byte(`"`))
	if !closed {
		return nil, false
	}
	return text, true
}

// serveChild serves the handler over TLS until the context or stdin ends, the
// latter so that no server survives its driver. Once it listens, it prints an
// announcement.
func serveChild(ctx context.Context, mode string, args []string, handler http.Handler, stdin io.Reader, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("bench "+mode, flag.ContinueOnError)
	flags.SetOutput(stderr)
	listen := flags.String("listen", "127.0.0.1:0", "loopback `address` to serve on; it is printed, and serving ends with stdin")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := requireLoopback(*listen); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	certificate, ca, err := selfSigned()
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *listen)
	if err != nil {
		return err
	}
	operations, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	server := &http.Server{
		Handler:           handler,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}},
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       5 * time.Minute,
	}
	ops := &http.Server{Handler: metrics(), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = ops.Serve(operations) }()
	defer func() { _ = ops.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		cancel()
	}()
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := json.NewEncoder(stdout).Encode(announcement{Address: listener.Addr().String(), CA: ca, Operations: operations.Addr().String()}); err != nil {
		return err
	}
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// metrics are those of Go's run time.
func metrics() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector())
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

// requireLoopback refuses every address whose host is not a literal loopback
// IP: names could resolve to anything.
func requireLoopback(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("%q is not a loopback address: only 127.0.0.1 and its like are served and called", address)
	}
	return nil
}

// selfSigned makes a P-256 certificate for 127.0.0.1 and ::1 that signs
// itself, and returns it ready to serve and as PEM text to trust.
func selfSigned() (tls.Certificate, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		Subject:               pkix.Name{CommonName: "gatehouse bench"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, string(ca), nil
}
