package login

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login"
)

const (
	janesPassword = "correct horse battery"
	janesToken    = "gatehouse-login_janes-token"
)

// loginServer is a Gatehouse that knows jane and her tokens.
type loginServer struct {
	*httptest.Server

	mu       sync.Mutex
	requests []login.Request
	// issued is how many tokens there were.
	issued int
	// answer is what is said about a token.
	answer login.Answer
	shown  []string
	// gone is whether jane left.
	gone bool
}

func newLoginServer(t *testing.T) *loginServer {
	t.Helper()
	l := &loginServer{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+login.Path, l.login)
	mux.Handle("GET "+login.Path, login.Handler(login.HandlerOptions{Now: time.Now}))
	mux.HandleFunc("POST "+login.WhoamiPath, l.whoami)
	l.Server = httptest.NewUnstartedServer(mux)
	l.Config.ErrorLog = log.New(io.Discard, "", 0)
	l.StartTLS()
	t.Cleanup(l.Close)
	return l
}

// ca is the server's CA in base64, as --server-ca-data takes it.
func (l *loginServer) ca() string { return base64.StdEncoding.EncodeToString(caOf(l.Server)) }

func caOf(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

func (l *loginServer) login(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var request login.Request
	_ = json.NewDecoder(r.Body).Decode(&request)
	l.requests = append(l.requests, request)
	switch {
	case request.Directory == "nope":
		w.WriteHeader(http.StatusBadRequest)
		say(w, login.Failure{Reason: "input", Message: "there is no such directory"})
		return
	case l.gone && request.Token != "":
		w.WriteHeader(http.StatusUnauthorized)
		say(w, login.Failure{Reason: "credentials", Message: "the account is not there any more"})
		return
	}
	if request.Password != janesPassword && !strings.HasPrefix(request.Token, janesToken) {
		w.WriteHeader(http.StatusUnauthorized)
		say(w, login.Failure{Reason: "credentials", Message: "wrong name or password"})
		return
	}
	l.issued++
	now := time.Now()
	say(w, login.Issued{
		Token: fmt.Sprintf("%s-%d", janesToken, l.issued), ExpiresAt: now.Add(time.Hour), SessionEnds: now.Add(10 * time.Hour),
		User: authenticationv1.UserInfo{Username: "jane"},
	})
}

func (l *loginServer) whoami(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shown = append(l.shown, r.Header.Get("Authorization"))
	say(w, l.answer)
}

func say(w io.Writer, content any) {
	if err := json.NewEncoder(w).Encode(content); err != nil {
		panic(err)
	}
}

// flags are those of a login at the server.
func (l *loginServer) flags(cache string, more ...string) []string {
	return append([]string{"login", "--server", l.URL, "--server-ca-data", l.ca(), "--username", "jane", "--cache-dir", cache}, more...)
}

// said is what a run of the program printed, and its exit code.
type said struct {
	code     int
	out, err string
}

func runWith(ctx context.Context, stdin string, args ...string) said {
	var out, remarks bytes.Buffer
	code := cli.Run(ctx, args, cli.Streams{In: strings.NewReader(stdin), Out: &out, Err: &remarks}, NewCommand, NewLogoutCommand, NewWhoamiCommand, NewKubeconfigCommand)
	return said{code, out.String(), remarks.String()}
}

func TestLoginRefused(t *testing.T) {
	t.Parallel()
	l := newLoginServer(t)
	got := runWith(t.Context(), "hush-hush\n", l.flags(filepath.Join(t.TempDir(), "cache"), "--password-stdin")...)
	if got != (said{cli.ExitNo, "", "gatehouse: wrong name or password (reason credentials)\n"}) {
		t.Errorf("%+v", got)
	}
	// Bad usage is no refusal.
	got = runWith(t.Context(), "wrong", l.flags(filepath.Join(t.TempDir(), "cache"), "--directory", "nope", "--password-stdin")...)
	if got != (said{cli.ExitUnknown, "", "gatehouse: there is no such directory (reason input)\n"}) {
		t.Errorf("%+v", got)
	}
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	got = runWith(interrupted, janesPassword, l.flags(filepath.Join(t.TempDir(), "cache"), "--password-stdin")...)
	if got != (said{cli.ExitUnknown, "", "gatehouse: interrupted\n"}) {
		t.Errorf("%+v", got)
	}
	const nobody = "https://127.0.0.1:1"
	got = runWith(t.Context(), janesPassword, l.flags(filepath.Join(t.TempDir(), "cache"), "--password-stdin", "--server", nobody)...)
	if got.code != cli.ExitUnknown || !strings.Contains(got.err, nobody+": ") || !strings.Contains(got.err, "refused") {
		t.Errorf("%+v", got)
	}
}

// expire makes the one login in a cache one whose token has ended.
func expire(t *testing.T, cache string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(cache, "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var kept map[string]any
	if err := json.Unmarshal(data, &kept); err != nil {
		t.Fatal(err)
	}
	kept["obtainedAt"], kept["expiresAt"] = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	if data, err = json.Marshal(kept); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(files[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// kubectlRun runs the program as kubectl does, in a process of its own.
func kubectlRun(ctx context.Context, args ...string) (stdout, stderr []byte, err error) {
	cmd := exec.CommandContext(ctx, "gatehouse", args...)
	cmd.Env = append(os.Environ(), `KUBERNETES_EXEC_INFO={"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"interactive":false}}`)
	var out, remarks bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &remarks
	err = cmd.Run()
	return out.Bytes(), remarks.Bytes(), err
}

// Ten kubectls find a token that has ended: one renews it, and nobody is asked.
func TestManyKubectls(t *testing.T) {
	t.Parallel()
	l := newLoginServer(t)
	cache := filepath.Join(t.TempDir(), "cache")
	if got := runWith(t.Context(), janesPassword, l.flags(cache, "--password-stdin")...); got.code != cli.ExitYes {
		t.Fatalf("%+v", got)
	}
	expire(t, cache)
	const processes = 10
	results := make(chan string, processes)
	for range processes {
		go func() {
			out, remarks, err := kubectlRun(t.Context(), l.flags(cache)...)
			if err != nil {
				results <- fmt.Sprintf("%v: %s", err, remarks)
				return
			}
			results <- string(out)
		}()
	}
	for range processes {
		if got := <-results; !strings.Contains(got, `"token":"`+janesToken+`-2"`) {
			t.Error(got)
		}
	}
	if len(l.requests) != 2 || l.requests[1] != (login.Request{Token: janesToken + "-1"}) {
		t.Errorf("asked: %+v", l.requests)
	}
}

// Where the kubeconfig names nobody, who asks for a user gets no other's token.
func TestLoginOfAnotherUser(t *testing.T) {
	t.Parallel()
	l := newLoginServer(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "config")
	made := runWith(t.Context(), "", "kubeconfig", "--api-server", "https://127.0.0.1:1", "--merge", "--kubeconfig", file,
		"--server", l.URL, "--server-ca-data", l.ca(), "--cache-dir", filepath.Join(dir, "cache"))
	if made.code != cli.ExitYes {
		t.Fatalf("%+v", made)
	}
	as := func(name, password string) said {
		return runWith(t.Context(), password, "login", "--kubeconfig", file, "--username", name, "--password-stdin", "-o", "token")
	}
	if got := as("jane", janesPassword); got != (said{cli.ExitYes, janesToken + "-1\n", ""}) {
		t.Fatalf("%+v", got)
	}
	if got := as("bob", "wrong"); got != (said{cli.ExitNo, "", "gatehouse: wrong name or password (reason credentials)\n"}) {
		t.Errorf("%+v", got)
	}
	if got := as("bob", janesPassword); got != (said{cli.ExitYes, janesToken + "-2\n", ""}) {
		t.Errorf("%+v", got)
	}
	if last := l.requests[len(l.requests)-1]; last.Username != "bob" {
		t.Errorf("asked for %q", last.Username)
	}
	if got := runWith(t.Context(), "", "login", "--kubeconfig", file, "--device"); got.code != cli.ExitUnknown || !strings.Contains(got.err, "--device is valid only with --issuer") {
		t.Errorf("%+v", got)
	}
	// kubectl has the last one's.
	if got := runWith(t.Context(), "", "login", "--kubeconfig", file, "-o", "token"); got.out != janesToken+"-2\n" {
		t.Errorf("%+v", got)
	}
}

// Whatever happens, a password and a token are where they belong.
func TestNoSecretIsLeftAnywhere(t *testing.T) {
	t.Parallel()
	l := newLoginServer(t)
	dir := t.TempDir()
	cache, file := filepath.Join(dir, "cache"), filepath.Join(dir, "config")
	var printed strings.Builder
	try := func(stdin string, args ...string) {
		fmt.Fprintf(&printed, "%v: %+v\n", args[0], runWith(t.Context(), stdin, args...))
	}
	with := []string{"--server", l.URL, "--server-ca-data", l.ca(), "--username", "jane", "--cache-dir", cache}
	try("", append([]string{"kubeconfig", "--api-server", "https://127.0.0.1:1", "--merge", "--kubeconfig", file}, with...)...)
	try(janesPassword+"x", l.flags(cache, "--password-stdin")...)
	try(janesPassword, l.flags(cache, "--password-stdin")...)
	try("", l.flags(cache)...)
	l.answer = login.Answer{Outcome: "no", Reason: "revoked", Message: "the token was revoked"}
	try("", "whoami", "--kubeconfig", file)
	try("", "whoami", "--kubeconfig", file, "-o", "json")
	try(janesToken, "whoami", "--server", l.URL, "--token-file", "-")
	try(janesToken+" "+janesPassword, "whoami", "--server", l.URL, "--token-file", "-")
	l.Close()
	try("", "whoami", "--kubeconfig", file)
	try(janesPassword, l.flags(filepath.Join(dir, "cache2"), "--password-stdin")...)
	for _, secret := range []string{janesPassword, janesToken} {
		if strings.Contains(printed.String(), secret) {
			t.Errorf("%q was printed:\n%s", secret, &printed)
		}
	}
	kept := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if bytes.Contains(data, []byte(janesPassword)) || strings.Contains(path, "jane") {
			t.Errorf("%s has the password, or a name", path)
		}
		if bytes.Contains(data, []byte(janesToken)) {
			kept++
			if info.Mode() != 0o600 {
				t.Errorf("%s has the token and mode %v", path, info.Mode())
			}
		}
		return nil
	})
	if err != nil || kept != 1 {
		t.Errorf("%d files have the token, want 1 (%v)", kept, err)
	}
	if !strings.Contains(printed.String(), "revoked") {
		t.Errorf("the test did nothing:\n%s", &printed)
	}
}

// The flag overrides the variable.
func TestTokenStore(t *testing.T) {
	t.Parallel()
	l := newLoginServer(t)
	for _, c := range []struct {
		store, deleted string
	}{
		{"", "1 login deleted\n"}, // by the variable
		{"file", "1 login deleted\n"},
		{"none", "no login was stored\n"},
	} {
		cache := filepath.Join(t.TempDir(), "cache")
		args := l.flags(cache, "--password-stdin")
		if c.store != "" {
			args = append(args, "--token-store", c.store)
		}
		if got := runWith(t.Context(), janesPassword, args...); got.code != cli.ExitYes {
			t.Errorf("%q: %+v", c.store, got)
		}
		if got := runWith(t.Context(), "", "logout", "--cache-dir", cache); got.code != cli.ExitYes || got.out != c.deleted {
			t.Errorf("%q: %+v", c.store, got)
		}
	}
}
