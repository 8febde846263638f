package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/certs"
)

// A server that does not come to serve leaves nothing behind that others would wait
// for: replicas that are reported and serve nothing hold up every rotation.
func TestFailedStartLeavesNoReplica(t *testing.T) {
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
	const reserved = "apiVersion: gatehouse.dev/v1alpha1\nkind: AccessToken\nmetadata: {name: a}\nspec: {sha256: \"" +
		"0000000000000000000000000000000000000000000000000000000000000000\", user: {username: \"system:admin\"}, expiresAt: \"2100-01-01T00:00:00Z\"}\n"
	for name, test := range map[string]struct {
		document string
		flags    []string
		says     string
	}{
		"the address for reviews is taken":    {policyDocument("p"), []string{"--listen", taken.Addr().String()}, "--listen: "},
		"the address for health is taken":     {policyDocument("p"), []string{"--ops-listen", taken.Addr().String()}, "--ops-listen: "},
		"there is no CA of clients":           {policyDocument("p"), []string{"--client-ca", "nowhere.crt"}, "client CA: "},
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
			got := runWith(ctx, "", append([]string{
				"serve", "--config", config, "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0",
				"--self-signed", "127.0.0.1", "--self-signed-dir", dir,
			}, test.flags...)...)
			if got.code != exitUnknown || !strings.Contains(got.err, test.says) {
				t.Fatalf("ends with %d and %s, want %q", got.code, got.err, test.says)
			}
			replicas, err := certs.NewDirReplicas(dir, "", nil).List(t.Context())
			if err != nil || len(replicas) > 0 {
				t.Errorf("%d replicas are left behind: %+v (%v)", len(replicas), replicas, err)
			}
		})
	}
}
