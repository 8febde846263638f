package certificates

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

const (
	// thinking is how long a server takes for an answer: so long that most of the load's calls are under way at one
	// time, and the API server makes connections that it then does not keep.
	thinking = 15 * time.Millisecond
	// farewell is after how many answers a server closes a connection, as servers do that age theirs.
	farewell = 10
)

// server is a webhook that allows everything, at the address of a pod. It counts what it presents.
type server struct {
	listener net.Listener
	http     *http.Server

	answers atomic.Int64

	mu sync.Mutex
	// presented is how often a certificate was presented, by the key of its issuer.
	presented map[string]int
	// log is what the HTTP server has to complain of.
	log bytes.Buffer
}

// getCertificate is tls.Config.GetCertificate.
type getCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

func serve(ctx context.Context, get getCertificate) (*server, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(cluster.ListenAddress(), "0"))
	if err != nil {
		return nil, err
	}
	s := &server{listener: listener, presented: map[string]int{}}
	s.http = &http.Server{
		Handler:           http.HandlerFunc(s.allow),
		ReadHeaderTimeout: time.Minute,
		IdleTimeout:       5 * time.Minute, // longer than the API server keeps a connection
		ErrorLog:          log.New(s, "", 0),
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS13,
			GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
				cert, err := get(hello)
				if err == nil && cert != nil {
					s.count(cert)
				}
				return cert, err
			},
		},
	}
	go s.http.ServeTLS(listener, "", "") //nolint:errcheck // it ends with the test
	return s, nil
}

// close ends the server and all of its connections.
func (s *server) close() error { return s.http.Close() }

func (s *server) port() int { return s.listener.Addr().(*net.TCPAddr).Port }

func (s *server) count(cert *tls.Certificate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.presented[string(cert.Leaf.AuthorityKeyId)]++
}

// work is what a server has done.
type work struct {
	// handshakes is how often it presented a certificate, and refused how often a client did not accept that. (A client
	// that hangs up in the middle of a handshake is another matter: an API server does so that has got another
	// connection meanwhile.)
	handshakes, refused int
}

func (w work) and(o work) work {
	return work{w.handshakes + o.handshakes, w.refused + o.refused}
}

func (s *server) work() work {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := work{refused: bytes.Count(s.log.Bytes(), []byte("remote error: tls: "))}
	for _, n := range s.presented {
		w.handshakes += n
	}
	return w
}

// of is how often the server presented a certificate of a CA.
func (s *server) of(ca *x509.Certificate) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.presented[string(ca.SubjectKeyId)]
}

// Write implements io.Writer for the HTTP server's log.
func (s *server) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(line)
}

// look shakes hands with the server as an API server does, and returns what it presents.
func (s *server) look(ctx context.Context, host string, bundle []byte) (*x509.Certificate, error) {
	return look(ctx, s.listener.Addr().String(), host, bundle)
}

func look(ctx context.Context, address, host string, bundle []byte) (*x509.Certificate, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return nil, errors.New("there is no certificate in the bundle")
	}
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS13}}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer connection.Close() //nolint:errcheck // nothing was written
	return connection.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

// allow answers a review with yes.
func (s *server) allow(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var review admissionv1.AdmissionReview
	err = errors.Join(err, json.Unmarshal(body, &review))
	if err != nil || review.Request == nil {
		http.Error(w, fmt.Sprintf("not a review: %v", err), http.StatusBadRequest)
		return
	}
	time.Sleep(thinking)
	answer, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: review.TypeMeta,
		Response: &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true},
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if s.answers.Add(1)%farewell == 0 {
		w.Header().Set("Connection", "close")
	}
	_, _ = w.Write(answer) // whoever has gone does not want it
}
