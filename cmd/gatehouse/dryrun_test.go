package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// installed returns an API server with an install and an access token.
func installed(t *testing.T) *fakeapi.Server {
	t.Helper()
	stored := certs.NewDirStore(t.TempDir())
	if _, err := certs.NewOwnCA(t.Context(), certs.OwnCAConfig{Hosts: []string{"127.0.0.1"}, Store: stored}); err != nil {
		t.Fatal(err)
	}
	record, err := stored.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(record.Data)
	if err != nil {
		t.Fatal(err)
	}
	api := testAPI(
		t, `{apiVersion: v1, kind: Secret, metadata: {name: gatehouse-ca, namespace: gatehouse-system}, data: `+string(data)+`}`,
		`{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: gatehouse}, webhooks: [{name: mutate.gatehouse.dev, clientConfig: {url: "https://192.0.2.1"}}]}`,
	)
	api.Serve(resource(v1alpha1.GroupVersion, "accesstokens", "AccessToken", false))
	api.Serve(resource(v1alpha1.GroupVersion, "tokenrevocations", "TokenRevocation", false))
	api.Put(map[string]any{"apiVersion": "gatehouse.dev/v1alpha1", "kind": "AccessToken", "metadata": map[string]any{"name": "old"}, "spec": map[string]any{
		"sha256": strings.Repeat("0", 64), "user": map[string]any{"username": "jane"}, "expiresAt": "2999-01-01T00:00:00Z",
	}})
	return api
}

// TestDryRun: with --dry-run commands that write to a cluster send no write.
func TestDryRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ args, says string }{
		"token issue":          {"token issue --id ci --user jane", "dry run: would create AccessToken/ci in the cluster; no token was issued\n"},
		"token revoke":         {"token revoke old", "would remove AccessToken old of jane, in the cluster\n"},
		"token revoke of user": {"token revoke --user jane", "would write a TokenRevocation"},
		"certs rotate":         {"certs rotate --registration=", "would request a new CA, in Secret gatehouse-system/gatehouse-ca; the servers wait twice for 10m, so that no call fails\n"},
		"uninstall":            {"uninstall", "would delete MutatingWebhookConfiguration/gatehouse\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := installed(t)
			got := clitest.Run(t.Context(), "", append(strings.Fields(c.args), "--kubeconfig", fakeapi.Kubeconfig(t, api), "--dry-run"), commands()...)
			for _, r := range api.Requests(func(r *fakeapi.Request) bool { return !slices.Contains([]string{"get", "list"}, r.Verb) }) {
				t.Errorf("there is a write: %s", r.String())
			}
			said := got.Out + got.Err
			if got.Code != cli.ExitYes || !strings.Contains(said, c.says) {
				t.Errorf("got %+v, want %q", got, c.says)
			}
			if strings.Contains(said, "gatehouse_ci_") {
				t.Errorf("the token is shown: %s", said)
			}
		})
	}
	t.Run("rotate waits for nothing", func(t *testing.T) {
		t.Parallel()
		got := clitest.Run(t.Context(), "", []string{"certs", "rotate", "--dry-run", "--wait"}, commands()...)
		if want := "gatehouse: --wait and --dry-run exclude each other: a dry run requests nothing to wait for\n"; got.Code != cli.ExitUnknown || got.Err != want {
			t.Errorf("got %+v", got)
		}
	})
}
