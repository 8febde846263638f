package login

import (
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/auth/login"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

// apiServer is an API server that believes every token, unless it is told not to.
type apiServer struct {
	*httptest.Server

	mu     sync.Mutex
	shown  []string
	status int
	user   authenticationv1.UserInfo
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	a := &apiServer{status: http.StatusCreated, user: authenticationv1.UserInfo{Username: "jane", Groups: []string{"dev", "system:authenticated"}}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+selfSubjectReviewPath, func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.shown = append(a.shown, r.Header.Get("Authorization"))
		w.WriteHeader(a.status)
		say(w, authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: a.user}})
	})
	a.Server = httptest.NewUnstartedServer(mux)
	a.Config.ErrorLog = log.New(io.Discard, "", 0)
	a.StartTLS()
	t.Cleanup(a.Close)
	return a
}

// writeKubeconfig writes a kubeconfig with a user of this API server.
func (a *apiServer) writeKubeconfig(t *testing.T, user *clientcmdapi.AuthInfo, edit func(*clientcmdapi.Cluster)) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	cluster := &clientcmdapi.Cluster{Server: a.URL, CertificateAuthorityData: caOf(a.Server)}
	if edit != nil {
		edit(cluster)
	}
	config.Clusters["c"], config.AuthInfos["u"], config.CurrentContext = cluster, user, "prod"
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
	yes := login.Answer{
		Outcome: "yes", Reason: "ok", Backend: "login-token", Source: "corp", TokenID: "t1", IssuedAt: &issued, ExpiresAt: &expires,
		User: &authenticationv1.UserInfo{
			Username: "jane", UID: "4711", Groups: []string{"dev", "ops"}, Extra: map[string]authenticationv1.ExtraValue{"example.org/b": {"1"}, "example.org/a": {"2", "3"}},
		},
	}
	const yesText = `user        jane
uid         4711
groups      dev, ops
extra       example.org/a=2,3
extra       example.org/b=1
from        login-token of corp
token id    t1
issued      2026-11-20T12:00:00Z
expires     2126-11-20T12:15:00Z`
	no := login.Answer{Outcome: "no", Reason: "expired", Message: "the token has expired", Backend: "access-token", Source: "access-tokens", TokenID: "ci"}
	token := &clientcmdapi.AuthInfo{Token: janesToken}
	none := &clientcmdapi.AuthInfo{}
	plugin := &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: clientauthenticationv1.SchemeGroupVersion.String(), InteractiveMode: clientcmdapi.AlwaysExecInteractiveMode,
		Command: "sh",
		Args: []string{"-c", `case "$KUBERNETES_EXEC_INFO" in *'"interactive":false'*) ;; *) exit 1 ;; esac
printf '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"` + janesToken + `"}}'`},
	}}
	broken := &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: clientauthenticationv1.SchemeGroupVersion.String(), InteractiveMode: clientcmdapi.NeverExecInteractiveMode, Command: "sh", Args: []string{"-c", "exit 3"},
	}}
	cases := []struct {
		name    string
		answer  login.Answer
		user    *clientcmdapi.AuthInfo
		edit    func(*apiServer, *clientcmdapi.Cluster)
		server  bool // --server is given
		code    int
		says    []string
		nobody  bool // no token is shown to the API server
		atGates int  // how often Gatehouse is asked
	}{
		{
			name: "both know you", answer: yes, user: token, server: true, atGates: 1,
			says: []string{yesText, "gatehouse   yes\n", "API server  knows you as jane, groups dev, system:authenticated\n"},
		},
		{
			name: "both refuse", answer: no, user: token, server: true, code: cli.ExitNo, atGates: 1,
			edit: func(a *apiServer, _ *clientcmdapi.Cluster) { a.status = http.StatusUnauthorized },
			says: []string{
				"from        access-token of access-tokens\ntoken id    ci\ngatehouse   no: expired: the token has expired\nAPI server  Unauthorized\n",
			},
		},
		{
			name: "the API server still believes", answer: no, user: token, server: true, atGates: 1,
			says: []string{"gatehouse   no: expired", "knows you as jane", "they differ"},
		},
		{
			name: "cannot decide", answer: login.Answer{Outcome: "unknown", Reason: "keys", Message: "not now"}, user: token, server: true, code: cli.ExitUnknown, atGates: 1,
			edit: func(a *apiServer, _ *clientcmdapi.Cluster) { a.status = http.StatusBadGateway },
			says: []string{"gatehouse   cannot decide: keys: not now\n", "API server  cannot decide: it responds with 502 Bad Gateway\n"},
		},
		{
			name: "the API server is down", answer: yes, user: token, server: true, atGates: 1, nobody: true,
			edit: func(a *apiServer, _ *clientcmdapi.Cluster) { a.Close() },
			says: []string{"gatehouse   yes\n", "API server  cannot decide: ", "connection refused (hint: check the address in the kubeconfig, and that the API server is running)\n"},
		},
		{
			name: "terminal tricks", user: token, server: true, atGates: 1,
			answer: login.Answer{
				Outcome: "yes", Reason: "ok", Source: "\x1b]0;x", User: &authenticationv1.UserInfo{Username: "jane\nuser eve", Groups: []string{"\x1b[2J"}},
			},
			says: []string{`user        jane\nuser eve`, `groups      \x1b[2J`, `from        \x1b]0;x`},
		},
		{
			name: "no address of Gatehouse", user: token, says: []string{"gatehouse   not asked: the kubeconfig has no address of Gatehouse (hint: --server URL)\n", "knows you as jane"},
		},
		{name: "another plugin", answer: yes, user: plugin, server: true, atGates: 1, says: []string{"gatehouse   yes", "knows you as jane"}},
		{name: "another plugin that fails", user: broken, server: true, code: cli.ExitUnknown, nobody: true, says: []string{`the context "prod": cannot get its token`}},
		{
			name: "no token", user: none, server: true, says: []string{"gatehouse   not asked: the context authenticates without a token", "knows you as jane"},
		},
		{
			name: "somebody who is nobody", user: token, code: cli.ExitNo, says: []string{"API server  not authenticated: system:anonymous"},
			edit: func(a *apiServer, _ *clientcmdapi.Cluster) { a.user.Username = "system:anonymous" },
		},
		{
			name: "not verified", answer: yes, user: token, server: true, atGates: 1, nobody: true,
			edit: func(_ *apiServer, c *clientcmdapi.Cluster) {
				c.CertificateAuthorityData, c.InsecureSkipTLSVerify = nil, true
			},
			says: []string{"gatehouse   yes", "not asked: the context has insecure-skip-tls-verify"},
		},
		{
			name: "no TLS", user: token, code: cli.ExitUnknown, nobody: true,
			edit: func(a *apiServer, c *clientcmdapi.Cluster) {
				c.CertificateAuthorityData, c.Server = nil, strings.Replace(a.URL, "https", "http", 1)
			},
			says: []string{"not asked: the context's server is not https"},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l, api := newLoginServer(t), newAPIServer(t)
			l.answer = c.answer
			file := api.writeKubeconfig(t, c.user, func(cluster *clientcmdapi.Cluster) {
				if c.edit != nil {
					c.edit(api, cluster)
				}
			})
			args := []string{"whoami", "--kubeconfig", file}
			if c.server {
				ca := filepath.Join(t.TempDir(), "ca.crt")
				if err := os.WriteFile(ca, caOf(l.Server), 0o600); err != nil {
					t.Fatal(err)
				}
				args = append(args, "--server", l.URL, "--server-ca", ca)
			}
			got := runWith(t.Context(), "", args...)
			if got.code != c.code {
				t.Errorf("exit code %d, want %d", got.code, c.code)
			}
			text := got.out + got.err
			for _, want := range c.says {
				if !strings.Contains(text, want) {
					t.Errorf("%s\nlacks %q", text, want)
				}
			}
			if strings.Contains(text, janesToken) {
				t.Errorf("the token was printed:\n%s", text)
			}
			if len(l.shown) != c.atGates || c.atGates == 1 && l.shown[0] != "Bearer "+janesToken {
				t.Errorf("Gatehouse was shown %q", l.shown)
			}
			if c.nobody != (len(api.shown) == 0) {
				t.Errorf("the API server was shown %q", api.shown)
			}
			if c.user == none && api.shown[0] != "" {
				t.Errorf("the API server was shown %q", api.shown)
			}
		})
	}
}

func TestWhoamiByLogin(t *testing.T) {
	t.Parallel()
	l, api := newLoginServer(t), newAPIServer(t)
	l.answer = login.Answer{Outcome: "yes", Reason: "ok", User: &authenticationv1.UserInfo{Username: "jane"}}
	cache := filepath.Join(t.TempDir(), "cache")
	user := &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: clientauthenticationv1.SchemeGroupVersion.String(), InteractiveMode: clientcmdapi.IfAvailableExecInteractiveMode,
		Command: "/not/installed/here/gatehouse", Args: l.flags(cache),
	}}
	file := api.writeKubeconfig(t, user, nil)
	got := runWith(t.Context(), "", "whoami", "--kubeconfig", file)
	if got.code != cli.ExitUnknown || !strings.Contains(got.err, `the context "prod": not logged in (hint: run: gatehouse login --kubeconfig `+file+`)`) {
		t.Errorf("%+v", got)
	}
	if login := runWith(t.Context(), janesPassword, "login", "--kubeconfig", file, "--password-stdin"); login.code != cli.ExitYes {
		t.Fatalf("%+v", login)
	}
	got = runWith(t.Context(), "", "whoami", "--context", "prod", "--kubeconfig", file, "-o", "json")
	var report whoamiReport
	if err := json.Unmarshal([]byte(got.out), &report); err != nil || got.code != cli.ExitYes || got.err != "" {
		t.Fatalf("%v: %+v", err, got)
	}
	if report.Outcome != "yes" || report.Context != "prod" || report.Server != l.URL || report.Gatehouse.User.Username != "jane" || report.APIServer.User.Username != "jane" {
		t.Errorf("%s", got.out)
	}
	if l.shown[0] != "Bearer "+janesToken+"-1" || api.shown[0] != l.shown[0] || strings.Contains(got.out, janesToken) {
		t.Errorf("%q %q %s", l.shown, api.shown, got.out)
	}
}

// Whether a token for the API server's own audiences is for others, nobody can tell.
func TestWhoamiForAnAudience(t *testing.T) {
	t.Parallel()
	yes := login.Answer{Outcome: "yes", Reason: "ok", User: &authenticationv1.UserInfo{Username: "jane"}}
	vaults := yes
	vaults.Audiences = []string{"vault"}
	const own = "gatehouse   cannot decide: audience: valid for the API server's own audiences; only the API server knows whether "
	for _, c := range []struct {
		name      string
		answer    login.Answer
		audiences []string
		refused   bool // by the API server
		code      int
		says      string
	}{
		{"the audience", vaults, []string{"vault"}, false, cli.ExitYes, "audiences   vault\n"},
		{"one of them", vaults, []string{"shop", "vault"}, false, cli.ExitYes, "audiences   vault\n"},
		{"the API server's own", yes, nil, false, cli.ExitYes, "gatehouse   yes\n"},
		{"nobody knows", yes, []string{"vault"}, false, cli.ExitUnknown, own + "\"vault\" is one of them\n"},
		{"nobody knows of two", yes, []string{"vault", "shop"}, false, cli.ExitUnknown, own + "any of \"vault\", \"shop\" is one of them\n"},
		{"refused anyway", yes, []string{"vault"}, true, cli.ExitNo, "Unauthorized"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l, api := newLoginServer(t), newAPIServer(t)
			l.answer = c.answer
			if c.refused {
				api.status = http.StatusUnauthorized
			}
			ca := filepath.Join(t.TempDir(), "ca.crt")
			if err := os.WriteFile(ca, caOf(l.Server), 0o600); err != nil {
				t.Fatal(err)
			}
			file := api.writeKubeconfig(t, &clientcmdapi.AuthInfo{Token: janesToken}, nil)
			args := []string{"whoami", "--server", l.URL, "--server-ca", ca, "--kubeconfig", file}
			for _, audience := range c.audiences {
				args = append(args, "--audience", audience)
			}
			if got := runWith(t.Context(), "", args...); got.code != c.code || !strings.Contains(got.out, c.says) {
				t.Errorf("%+v, want %d and %q", got, c.code, c.says)
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

// A token of a file is shown to those that were named, and to nobody else.
func TestWhoamiWithATokenFile(t *testing.T) {
	t.Parallel()
	l, api := newLoginServer(t), newAPIServer(t)
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
	if got.code != cli.ExitYes || strings.Contains(got.out, "API server") || l.shown[0] != "Bearer "+janesToken {
		t.Errorf("%+v, %q", got, l.shown)
	}
	kubeconfig := api.writeKubeconfig(t, &clientcmdapi.AuthInfo{Token: "another"}, nil)
	got = runWith(t.Context(), janesToken, append(server, "-", "--kubeconfig", kubeconfig)...)
	if got.code != cli.ExitYes || len(api.shown) != 1 || api.shown[0] != "Bearer "+janesToken || l.shown[1] != "Bearer "+janesToken {
		t.Errorf("%+v, %q %q", got, l.shown, api.shown)
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
