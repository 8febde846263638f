package gatehouse

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// Local is a running server without an API server. It has certificates of its own.
type Local struct {
	*Server

	// Client is one that the server accepts as the API server.
	Client *http.Client
}

// StartLocal starts a server that ends with the test, on a directory of documents.
func StartLocal(t testing.TB, config string, flags ...string) *Local {
	t.Helper()
	dir := t.TempDir()
	certificates := filepath.Join(dir, "certificates")
	running, err := Start(t.Context(), filepath.Join(dir, "log"), append([]string{
		"--config", config, "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--drain-delay", "0s",
		"--self-signed", "127.0.0.1", "--self-signed-dir", certificates,
	}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(running.Kill)
	ca, err := os.ReadFile(filepath.Join(certificates, "ca.crt")) // #nosec G304 -- of this test
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	own, err := tls.LoadX509KeyPair(filepath.Join(certificates, "apiserver-client.crt"), filepath.Join(certificates, "apiserver-client.key"))
	if err != nil {
		t.Fatal(err)
	}
	return &Local{running, &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: []tls.Certificate{own},
	}}}}
}

// Post sends a review to a path such as /validate. An answer that is none is an error.
func (l *Local) Post(ctx context.Context, path string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+l.Reviews.String()+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := l.Client.Do(request)
	if err != nil {
		return err
	}
	answer, err := io.ReadAll(response.Body)
	err = errors.Join(err, response.Body.Close())
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, answer)
	}
	return err
}
