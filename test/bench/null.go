package main

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// The servers that this program holds, by the name of their mode.
const (
	nullServer = "null"
	// inTreeServer evaluates policies with the API server's own plugin.
	inTreeServer = "in-tree"
)

// maxBody is the largest body that the null webhook reads, in bytes: more than
// any scenario sends.
const maxBody = 1 << 20

// The constant answers of the null webhook. %s stands for the uid that it found.
const (
	nullAdmission   = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"%s","allowed":true}}`
	nullTokenReview = `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1beta1","status":{"authenticated":true,"user":{"username":"` + tokenUser + `"}}}`
	nullAccess      = `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":false}}`
)

// nullHandler answers every review with yes and reads nothing but what
// identifies the request: the uid of an AdmissionReview; of a TokenReview,
// which the API server sends without a uid, the token. It costs what net/http,
// TLS and reading the body cost any webhook written in Go. Bodies go into pooled
// buffers, because nothing that is compared with it may allocate less.
func nullHandler() http.Handler {
	var buffers sync.Pool
	review := func(answer func(body []byte) ([]byte, error)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.ContentLength < 0 || r.ContentLength > maxBody {
				http.Error(w, "body of unknown length or too large", http.StatusRequestEntityTooLarge)
				return
			}
			buffer, _ := buffers.Get().(*[]byte)
			if buffer == nil || int64(cap(*buffer)) < r.ContentLength {
				buffer = new(make([]byte, r.ContentLength))
			}
			defer buffers.Put(buffer)
			body := (*buffer)[:r.ContentLength]
			_, err := io.ReadFull(r.Body, body)
			var text []byte
			if err == nil {
				text, err = answer(body)
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			w.Header()["Content-Type"] = []string{"application/json"}
			_, _ = w.Write(text)
		}
	}
	head, tail, _ := bytes.Cut([]byte(nullAdmission), []byte("%s"))
	admission := review(func(body []byte) ([]byte, error) {
		uid, err := findString(body, "uid")
		answer := make([]byte, 0, len(nullAdmission)+len(uid))
		return append(append(append(answer, head...), uid...), tail...), err
	})
	tokenReview := []byte(nullTokenReview)
	access := []byte(nullAccess)
	keys := newVerifier()
	mux := http.NewServeMux()
	mux.Handle("POST "+pathMutate, admission)
	mux.Handle("POST "+pathValidate, admission)
	mux.Handle("POST "+pathAuthenticate, review(func(body []byte) ([]byte, error) {
		_, err := findString(body, "token")
		return tokenReview, err
	}))
	mux.Handle("POST "+pathAuthorize, review(func(body []byte) ([]byte, error) {
		_, err := findString(body, "verb")
		return access, err
	}))
	mux.Handle("POST "+pathVerify, review(func(body []byte) ([]byte, error) {
		token, err := findString(body, "token")
		if err == nil {
			err = keys.verify(string(token))
		}
		return tokenReview, err
	}))
	return mux
}

// findString returns the value of the first string member with this name. It
// allocates nothing; the result is part of body.
func findString(body []byte, name string) ([]byte, error) {
	_, rest, found := bytes.Cut(body, []byte(`"`+name+`":"`))
	value, _, closed := bytes.Cut(rest, []byte(`"`))
	if !found || !closed {
		return nil, fmt.Errorf("no %s", name)
	}
	return value, nil
}

// serve serves one of the handlers of this program over TLS until the process
// is killed. It logs its addresses as gatehouse serve does. The configuration is of
// the in-tree plugin.
func serve(mode, certFile, keyFile, configuration string) error {
	handler := nullHandler()
	var err error
	if mode == inTreeServer {
		if handler, err = inTreeHandler(configuration); err != nil {
			return err
		}
	}
	reviews, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // bound at once
	if err != nil {
		return err
	}
	ops, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // bound at once
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector())
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	operations := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = operations.Serve(ops) }()
	slog.New(slog.NewJSONHandler(os.Stderr, nil)).Info("serving", "reviews", reviews.Addr().String(), "ops", ops.Addr().String())
	server := &http.Server{
		Handler:           handler,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS13},
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       5 * time.Minute,
	}
	return server.ServeTLS(reviews, certFile, keyFile)
}
