package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
)

// writes are the requests that change something in an API server with an install and an access token.
type writes struct {
	mu sync.Mutex
	// all are METHOD RESOURCE, with " dryRun=All" behind those that persist nothing.
	all []string
	// forbidden refuses them.
	forbidden bool
	objects   map[string]any
}

func (w *writes) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	answer := func(code int, body any) {
		out.Header().Set("Content-Type", "application/json")
		out.WriteHeader(code)
		_ = json.NewEncoder(out).Encode(body) //nolint:errchkjson // the client reports it
	}
	status := func(code int, reason string) {
		answer(code, map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "message": reason, "code": code})
	}
	object, found := w.objects[r.URL.Path]
	body, _ := io.ReadAll(r.Body)
	if r.Method != http.MethodGet {
		write := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/apis/")
		if r.URL.Query().Get("dryRun") == "All" || strings.Contains(string(body), `"dryRun":["All"]`) {
			write += " dryRun=All"
		}
		w.mu.Lock()
		w.all = append(w.all, write)
		w.mu.Unlock()
	}
	switch {
	case r.Method != http.MethodGet && w.forbidden:
		status(http.StatusForbidden, "Forbidden")
	case r.Method == http.MethodPost:
		var made map[string]any
		if json.Unmarshal(body, &made) != nil {
			status(http.StatusBadRequest, "BadRequest")
			return
		}
		answer(http.StatusCreated, made)
	case found:
		answer(http.StatusOK, object)
	case r.Method == http.MethodGet && strings.HasSuffix(path.Base(r.URL.Path), "s"):
		answer(http.StatusOK, map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": []any{}})
	default:
		status(http.StatusNotFound, "NotFound")
	}
}

// newWrites returns an API server, and a kubeconfig for it.
func newWrites(t *testing.T, forbidden bool) (w *writes, kubeconfig string) {
	t.Helper()
	dir := t.TempDir()
	stored := certs.NewDirStore(dir)
	if _, err := certs.NewOwnCA(t.Context(), certs.OwnCAConfig{Hosts: []string{"127.0.0.1"}, Store: stored}); err != nil {
		t.Fatal(err)
	}
	record, err := stored.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	meta := func(name string) map[string]any {
		return map[string]any{"name": name, "uid": "1", "resourceVersion": "1", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}
	}
	const tokens = "/apis/gatehouse.dev/v1alpha1/accesstokens"
	token := map[string]any{"apiVersion": "gatehouse.dev/v1alpha1", "kind": "AccessToken", "metadata": meta("old"), "spec": map[string]any{
		"sha256": strings.Repeat("0", 64), "user": map[string]any{"username": "jane"}, "expiresAt": "2999-01-01T00:00:00Z",
	}}
	w = &writes{forbidden: forbidden, objects: map[string]any{
		clitest.SecretPath: map[string]any{"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": meta("gatehouse-ca"), "data": record.Data},
		clitest.MutatingConfigurationPath: map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": meta("gatehouse"), "webhooks": []any{
			map[string]any{"name": "mutate.gatehouse.dev", "clientConfig": map[string]any{"url": "https://192.0.2.1"}},
		}},
		tokens:          map[string]any{"apiVersion": "gatehouse.dev/v1alpha1", "kind": "AccessTokenList", "metadata": map[string]any{}, "items": []any{token}},
		tokens + "/old": token,
	}}
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	kubeconfig = filepath.Join(dir, "kubeconfig")
	text := fmt.Appendf(nil, "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: %q}}]\ncontexts: [{name: c, context: {cluster: c, user: c}}]\nusers: [{name: c, user: {}}]\n", server.URL)
	if err := os.WriteFile(kubeconfig, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return w, kubeconfig
}

// TestDryRun: with --dry-run=client commands that write to a cluster send no write, and with --dry-run=server the API server checks each
// without persisting it.
func TestDryRun(t *testing.T) {
	t.Parallel()
	const secret = "PATCH " + clitest.SecretPath
	for name, c := range map[string]struct {
		args   string
		writes []string
		says   string
	}{
		"token issue":          {"token issue --id ci --user jane", []string{"POST gatehouse.dev/v1alpha1/accesstokens"}, "dry run: would create AccessToken/ci in the cluster; no token was issued\n"},
		"token revoke":         {"token revoke old", []string{"DELETE gatehouse.dev/v1alpha1/accesstokens/old"}, "would remove AccessToken old of jane, in the cluster\n"},
		"token revoke of user": {"token revoke --user jane", []string{"POST gatehouse.dev/v1alpha1/tokenrevocations", "DELETE gatehouse.dev/v1alpha1/accesstokens/old"}, "would write a TokenRevocation"},
		"certs rotate":         {"certs rotate --registration=", []string{secret}, "would request a new CA, in Secret gatehouse-system/gatehouse-ca\n"},
		"uninstall":            {"uninstall", []string{"DELETE admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/gatehouse"}, "would delete MutatingWebhookConfiguration/gatehouse\n"},
	} {
		for _, mode := range []string{"", "=client", "=server", "=server, forbidden"} {
			t.Run(name+mode, func(t *testing.T) {
				t.Parallel()
				flag, forbidden := strings.CutSuffix(mode, ", forbidden")
				w, kubeconfig := newWrites(t, forbidden)
				got := clitest.Run(t.Context(), "", append(strings.Fields(c.args), "--kubeconfig", kubeconfig, "--dry-run"+flag), commands()...)
				var want []string
				for _, write := range c.writes {
					if flag == "=server" {
						want = append(want, write+" dryRun=All")
					}
				}
				if forbidden && len(w.all) > 0 {
					want = want[:min(len(w.all), len(want))] // it may stop at the first
				}
				if !slices.Equal(w.all, want) {
					t.Errorf("got the writes %q, want %q", w.all, want)
				}
				said := got.Out + got.Err
				if forbidden && (got.Code == cli.ExitYes || strings.Contains(said, c.says)) || !forbidden && (got.Code != cli.ExitYes || !strings.Contains(said, c.says)) {
					t.Errorf("got %+v, want %q", got, c.says)
				}
				if strings.Contains(said, "gatehouse_ci_") {
					t.Errorf("the token is shown: %s", said)
				}
			})
		}
	}
	t.Run("rotate waits for nothing", func(t *testing.T) {
		t.Parallel()
		got := clitest.Run(t.Context(), "", []string{"certs", "rotate", "--dry-run", "--wait"}, commands()...)
		if want := "gatehouse: --wait and --dry-run exclude each other: a dry run requests nothing to wait for\n"; got.Code != cli.ExitUnknown || got.Err != want {
			t.Errorf("got %+v", got)
		}
	})
}
