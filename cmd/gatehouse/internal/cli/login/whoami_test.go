package login

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// writeKubeconfig writes a kubeconfig with this user.
func writeKubeconfig(t *testing.T, user *clientcmdapi.AuthInfo) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"], config.AuthInfos["u"], config.CurrentContext = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}, user, "prod"
	config.Contexts["prod"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	file := filepath.Join(t.TempDir(), "config")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestWhoami(t *testing.T) {
	t.Parallel()
	issued, expires := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), time.Date(2126, 11, 20, 12, 15, 0, 0, time.UTC)
	token := &clientcmdapi.AuthInfo{Token: janesToken}
	for _, c := range []struct {
		name   string
		answer login.Answer
		user   *clientcmdapi.AuthInfo
		alone  bool // no --server is given
		code   int
		says   string
	}{
		{
			name: "yes", user: token, answer: login.Answer{
				Outcome: "yes", Reason: "ok", Backend: "login-token", Source: "corp", TokenID: "t1", IssuedAt: &issued, ExpiresAt: &expires,
				User: &authenticationv1.UserInfo{
					Username: "jane", UID: "4711", Groups: []string{"dev", "ops"}, Extra: map[string]authenticationv1.ExtraValue{"example.org/b": {"1"}, "example.org/a": {"2", "3"}},
				},
			},
			says: `user        jane
uid         4711
groups      dev, ops
extra       example.org/a=2,3
extra       example.org/b=1
from        login-token of corp
token id    t1
issued      2026-11-20T12:00:00Z
expires     2126-11-20T12:15:00Z`,
		},
		{
			name: "no", user: token, code: cli.ExitNo,
			answer: login.Answer{Outcome: "no", Reason: "expired", Message: "the token has expired", Backend: "access-token", Source: "access-tokens", TokenID: "ci"},
			says:   "from        access-token of access-tokens\ntoken id    ci\ngatehouse   no: expired: the token has expired\n",
		},
		{
			name: "cannot decide", user: token, code: cli.ExitUnknown, answer: login.Answer{Outcome: "unknown", Reason: "keys", Message: "not now"},
			says: "gatehouse   cannot decide: keys: not now\n",
		},
		{
			name: "terminal tricks", user: token,
			answer: login.Answer{
				Outcome: "yes", Reason: "ok", Source: "\x1b]0;x", User: &authenticationv1.UserInfo{Username: "jane\nuser eve", Groups: []string{"\x1b[2J"}},
			},
			says: `user        jane\nuser eve` + "\n" + `groups      \x1b[2J` + "\n" + `from        \x1b]0;x`,
		},
		{
			name: "groups outside the token", user: token,
			answer: login.Answer{
				Outcome: "yes", Reason: "ok", User: &authenticationv1.UserInfo{Username: "jane", Groups: []string{"dev", "corp:a"}}, GroupOrigins: []authn.GroupOrigin{
					{Source: "token", Groups: []string{"dev"}},
					{Source: "corp", Groups: []string{"corp:a"}, At: new(time.Now().Add(-time.Hour)), Stale: true},
					{Source: "teams", Missing: "the source does not answer"},
				},
			},
			says: "groups      dev, corp:a\ngroups from the token: dev\ngroups from corp, 1h0m",
		},
		{name: "no answer", user: token, code: cli.ExitUnknown, says: "gatehouse   https://"},
		{name: "no address of Gatehouse", user: token, alone: true, code: cli.ExitUnknown, says: "gatehouse   not asked: the kubeconfig has no address of Gatehouse (hint: --server URL)\n"},
		{name: "no token", user: &clientcmdapi.AuthInfo{}, code: cli.ExitUnknown, says: "the context has no token and does not log in with Gatehouse (hint: --token-file FILE)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLoginServer(t)
			l.answer = c.answer
			args := []string{"whoami", "--kubeconfig", writeKubeconfig(t, c.user)}
			if !c.alone {
				ca := filepath.Join(t.TempDir(), "ca.crt")
				if err := os.WriteFile(ca, caOf(l.Server), 0o600); err != nil {
					t.Fatal(err)
				}
				args = append(args, "--server", l.URL, "--server-ca", ca)
			}
			got := runWith(t.Context(), "", args...)
			text := got.out + got.err
			if got.code != c.code || !strings.Contains(text, c.says) || strings.Contains(text, janesToken) {
				t.Errorf("%+v, want %d and %q", got, c.code, c.says)
			}
			if len(l.shown) > 0 && l.shown[0] != "Bearer "+janesToken {
				t.Errorf("Gatehouse was shown %q", l.shown)
			}
		})
	}
}

// A token in place of a file's name is not repeated.
func TestWhoamiWithATokenAsFile(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{
		"access token": "gatehouse_ci_" + strings.Repeat("hush", 11),
		"JWT":          "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJodXNoaHVzaGh1c2gifQ.hushhushhush",
		"a piece":      "gatehouse_hush",
		"two lines":    "gatehouse_hush\nhush",
	} {
		for _, more := range [][]string{nil, {"-o", "json"}} {
			got := runWith(t.Context(), "", append([]string{"whoami", "--server", "https://127.0.0.1:1", "--token-file", file}, more...)...)
			if got.code != cli.ExitUnknown || strings.Contains(got.out+got.err, "hush") || !strings.Contains(got.err, "--token-file: ") || !strings.Contains(got.err, "- for standard input") {
				t.Errorf("%s: %+v", name, got)
			}
		}
	}
	for _, c := range []struct{ file, says string }{
		{"", "--token-file: must not be empty (hint: the name of a file, or - for standard input)"},
		{t.TempDir(), "--token-file: cannot be read: is a directory"},
	} {
		if got := runWith(t.Context(), "", "whoami", "--server", "https://127.0.0.1:1", "--token-file", c.file); got.code != cli.ExitUnknown || !strings.Contains(got.err, c.says) {
			t.Errorf("%+v, want %q", got, c.says)
		}
	}
}

// A token of a file is the one that is shown.
func TestWhoamiWithATokenFile(t *testing.T) {
	t.Parallel()
	l := newLoginServer(t)
	l.answer = login.Answer{Outcome: "yes", Reason: "ok", User: &authenticationv1.UserInfo{Username: "jane"}}
	dir := t.TempDir()
	file, ca := filepath.Join(dir, "token"), filepath.Join(dir, "ca.crt")
	for path, text := range map[string]string{file: janesToken + "\n", ca: string(caOf(l.Server))} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server := []string{"whoami", "--server", l.URL, "--server-ca", ca, "--token-file"}
	got := runWith(t.Context(), "", append(server, file)...)
	if got.code != cli.ExitYes || l.shown[0] != "Bearer "+janesToken {
		t.Errorf("%+v, %q", got, l.shown)
	}
	kubeconfig := writeKubeconfig(t, &clientcmdapi.AuthInfo{Token: "another"})
	got = runWith(t.Context(), janesToken, append(server, "-", "--kubeconfig", kubeconfig)...)
	if got.code != cli.ExitYes || l.shown[1] != "Bearer "+janesToken {
		t.Errorf("%+v, %q", got, l.shown)
	}
	for stdin, says := range map[string]string{
		"":                       "--token-file: is empty: must hold one token (hint: ",
		"a b":                    "--token-file: must hold one token",
		"a\nb":                   "--token-file: must hold one token",
		"hush\x00":               "--token-file: must hold one token",
		strings.Repeat(" ", 100): "--token-file: must hold one token",
	} {
		if got := runWith(t.Context(), stdin, append(server, "-")...); got.code != cli.ExitUnknown || !strings.Contains(got.err, says) || strings.Contains(got.err, "hush") {
			t.Errorf("%q: %+v", stdin, got)
		}
	}
	if got := runWith(t.Context(), janesToken, "whoami", "--token-file", "-"); got.code != cli.ExitUnknown || !strings.Contains(got.err, "--server is required: the URL of Gatehouse") {
		t.Errorf("%+v", got)
	}
	if got := runWith(t.Context(), "", "whoami", "--server", "http://a", "--token-file", file); got.code != cli.ExitUnknown || !strings.Contains(got.err, "the scheme must be https") {
		t.Errorf("%+v", got)
	}
}
