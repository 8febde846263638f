package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
)

// A server that fails to start releases the directory of its CA.
func TestFailedStartReleasesDirectory(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"clusters":[{"name":"c","cluster":{"server":"http://` + taken.Addr().String() + `"}}],"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const policy = `{apiVersion: gatehouse.dev/v1alpha1, kind: AdmissionPolicy, metadata: {name: p}, spec: {validationActions: [Deny],
 matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}, validations: [{expression: "true"}]}}`
	const reserved = "apiVersion: gatehouse.dev/v1alpha1\nkind: AccessToken\nmetadata: {name: a}\nspec: {sha256: \"" +
		"0000000000000000000000000000000000000000000000000000000000000000\", user: {username: \"system:admin\"}, expiresAt: \"2100-01-01T00:00:00Z\"}\n"
	for name, test := range map[string]struct {
		document string
		flags    []string
		says     string
	}{
		"the address for reviews is taken":    {policy, []string{"--listen", taken.Addr().String()}, "--listen: "},
		"the address for health is taken":     {policy, []string{"--ops-listen", taken.Addr().String()}, "--ops-listen: "},
		"there is no CA of clients":           {policy, []string{"--client-ca", "nowhere.crt"}, "client CA: "},
		"the configuration cannot be used":    {reserved, nil, "system:admin"},
		"nor beside a cluster, asked at once": {reserved, []string{"--kubeconfig", kubeconfig}, "system:admin"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, config := t.TempDir(), t.TempDir()
			if err := os.WriteFile(filepath.Join(config, "a.yaml"), []byte(test.document), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			got := clitest.Run(ctx, "", append([]string{
				"serve", "--config", config, "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0",
				"--self-signed", "127.0.0.1", "--self-signed-dir", dir,
			}, test.flags...), commands()...)
			if got.Code != cli.ExitUnknown || !strings.Contains(got.Err, test.says) {
				t.Fatalf("ends with %d and %s, want %q", got.Code, got.Err, test.says)
			}
			release, err := certs.NewDirStore(dir).Occupy()
			if err != nil {
				t.Fatalf("the directory is occupied: %v", err)
			}
			release()
		})
	}
}

// An API server that hangs is asked for everything at once: what it does not answer
// keeps a server from serving for as long as one answer is waited for, not several.
func TestServeAsksTogether(t *testing.T) {
	t.Parallel()
	asked, done := make(chan string, 100), make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		select {
		case <-done:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(hanging.Close)
	t.Cleanup(func() { close(done) })
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	content := `{"clusters":[{"name":"c","cluster":{"server":"` + hanging.URL + `"}}],"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	program := exec.CommandContext(
		t.Context(), "gatehouse", "serve",
		"--config", "../../manifests/examples/log-shipper", "--kubeconfig", kubeconfig, "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0",
		"--self-signed", "127.0.0.1", "--self-signed-secret", "system/ca",
	)
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Wait() }) // it was killed with the test's context
	const together = 3 * time.Second         // of the five that what policies look up is waited for
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	missing := map[string]bool{"/api/v1/namespaces": true, "/api/v1/namespaces/system/secrets/ca": true}
	for len(missing) > 0 {
		select {
		case path := <-asked:
			if missing[path] {
				late.Reset(together)
			}
			delete(missing, path)
		case <-late.C:
			t.Fatalf("not asked for at the same time: %v", missing)
		}
	}
}
