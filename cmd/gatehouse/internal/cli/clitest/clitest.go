// Package clitest runs commands in tests: in the process, or as the program "gatehouse" in a process or terminal of its own.
package clitest

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

// Main is the TestMain of a package whose tests run the program "gatehouse", which then has these commands alone.
func Main(m *testing.M, commands ...func(cli.Streams) *cobra.Command) {
	testscript.Main(m, map[string]func(){"gatehouse": func() {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		code := cli.Run(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, commands...)
		stop()
		os.Exit(code)
	}})
}

// Result is what a run printed, and its exit code.
type Result struct {
	Code     int
	Out, Err string
}

// Run runs one of the commands in this process, with stdin as its input.
func Run(ctx context.Context, stdin string, args []string, commands ...func(cli.Streams) *cobra.Command) Result {
	var out, remarks bytes.Buffer
	code := cli.Run(ctx, args, cli.Streams{In: strings.NewReader(stdin), Out: &out, Err: &remarks}, commands...)
	return Result{code, out.String(), remarks.String()}
}

// Handler returns a handler that answers as the API server does.
func Handler(api http.RoundTripper) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		response, err := api.RoundTrip(r)
		if err != nil {
			panic(http.ErrAbortHandler) // an error of the connection
		}
		defer func() { _ = response.Body.Close() }()
		maps.Copy(w.Header(), response.Header)
		w.WriteHeader(response.StatusCode)
		_, _ = io.Copy(w, response.Body) // the client tells
	})
}

// Kubeconfig starts an API server that answers as api does, and returns the path of a kubeconfig for it.
func Kubeconfig(t *testing.T, api http.RoundTripper) string {
	t.Helper()
	server := httptest.NewServer(Handler(api))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"clusters":[{"name":"c","cluster":{"server":"` + server.URL + `"}}],"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Counter is a reader of the bytes 0, 1, 2 and so on, in place of random ones.
type Counter byte

// Read fills p.
func (c *Counter) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(*c)
		*c++
	}
	return len(p), nil
}

// CIToken is an access token, and CIDocument the document of it: issued from a Counter at noon of 2026-11-20, for a
// day.
const (
	CIToken    = "gatehouse_ci_aaaqeayeaudaocajbifqydiob4ibceqtcqkrmfyyxyccrrq"
	CIDocument = `apiVersion: gatehouse.dev/v1alpha1
kind: AccessToken
metadata:
  creationTimestamp: "2026-11-20T12:00:00Z"
  name: ci
spec:
  expiresAt: "2026-11-21T12:00:00Z"
  sha256: ff158ae576e77fc40c3eb48c6af07920eaf32c4a4a0f1e119df0207f1e181a6e
  user:
    username: jane
`
)

// Paths of the objects of an install in an API server.
const (
	SecretPath                  = "/api/v1/namespaces/gatehouse-system/secrets/gatehouse-ca" // #nosec G101 -- a path
	LeasesPath                  = "/apis/coordination.k8s.io/v1/namespaces/gatehouse-system/leases"
	MutatingConfigurationPath   = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/gatehouse"
	ValidatingConfigurationPath = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/gatehouse"
)
