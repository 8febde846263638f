package login

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

// Logging out of a context leaves the other logins, and needs no file that its flags name.
func TestLogout(t *testing.T) {
	dir := t.TempDir()
	file, caches := filepath.Join(dir, "config"), filepath.Join(dir, "caches")
	t.Setenv("KUBECONFIG", file)
	t.Setenv("KUBECACHEDIR", caches)
	l := newLoginServer(t)
	for _, name := range []string{"jane", "carl"} {
		with := []string{"--server", l.URL, "--server-ca-data", l.ca(), "--username", name}
		made := runWith(t.Context(), "", append([]string{"kubeconfig", "--api-server", "https://127.0.0.1:1", "--name", name, "--merge", "--kubeconfig", file}, with...)...)
		if made.code != cli.ExitYes {
			t.Fatalf("%+v", made)
		}
		if got := runWith(t.Context(), janesPassword, "login", "--context", name, "--password-stdin"); got.code != cli.ExitYes {
			t.Fatalf("%+v", got)
		}
	}
	for _, step := range []struct {
		args []string
		want said
	}{
		{[]string{"--context", "jane", "--cache-dir", filepath.Join(dir, "other")}, said{cli.ExitYes, "no login was stored\n", ""}},
		{[]string{"--context", "jane"}, said{cli.ExitYes, "1 login deleted\n", ""}},
		{[]string{"--context", "jane"}, said{cli.ExitYes, "no login was stored\n", ""}},
		{nil, said{cli.ExitYes, "1 login deleted\n", ""}},
		{nil, said{cli.ExitYes, "no login was stored\n", ""}},
	} {
		if got := runWith(t.Context(), "", append([]string{"logout"}, step.args...)...); got != step.want {
			t.Errorf("%q: %+v\nwant %+v", step.args, got, step.want)
		}
	}
}

// The identity of a login is that of the way to log in.
func TestIdentity(t *testing.T) {
	t.Parallel()
	for _, f := range []loginFlags{
		{issuer: "https://issuer.example", clientID: "kubernetes", scopes: []string{"groups", "email"}, listen: defaultListen},
		{server: "https://gatehouse.example:9443", directory: "corp", username: "jane", name: "carl"},
	} {
		method, err := f.method(cli.Streams{In: strings.NewReader("")})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := f.identity(), method.Identity(); got.Method != want.Method || got.Issuer != want.Issuer || got.ClientID != want.ClientID ||
			strings.Join(got.Scopes, " ") != strings.Join(want.Scopes, " ") || got.Server != want.Server || got.Directory != want.Directory || got.Username != want.Username {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}
