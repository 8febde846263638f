package login

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
)

func TestLoginOnATerminal(t *testing.T) {
	t.Parallel()
	l := newLoginServer(t)
	cache := filepath.Join(t.TempDir(), "cache")
	s := clitest.OnScreen(t, "", "login", "--server", l.URL, "--server-ca-data", l.ca(), "--cache-dir", cache)
	s.Types(t, "User name at "+l.URL+": ", false, "jane\n")
	s.Types(t, "Password of jane at "+l.URL+": ", true, "typo typo\n")
	s.Shows(t, "wrong name or password")
	s.Until(t, "a second prompt", func() bool { return strings.Count(s.String(), "Password of jane") == 2 })
	s.Types(t, "Password of jane", true, janesPassword+"\n")
	if err := <-s.Done; err != nil {
		t.Fatalf("%v:\n%s", err, s)
	}
	s.Shows(t, "logged in at "+l.URL+" as jane until ")
	for _, secret := range []string{"typo typo", janesPassword, janesToken} {
		if strings.Contains(s.String(), secret) {
			t.Errorf("%q is on the screen:\n%s", secret, s)
		}
	}
	if !s.Echoes(t) {
		t.Error("the terminal stays silent")
	}

	s = clitest.OnScreen(t, "", "login", "--server", l.URL, "--server-ca-data", l.ca(), "--cache-dir", cache, "-o", "token")
	s.Shows(t, "a token is not printed to a terminal")
	if err := <-s.Done; err == nil || strings.Contains(s.String(), janesToken) {
		t.Errorf("%v:\n%s", err, s)
	}
	file := filepath.Join(t.TempDir(), "token")
	s = clitest.OnScreen(t, file, "login", "--server", l.URL, "--server-ca-data", l.ca(), "--cache-dir", cache, "-o", "token")
	if err := <-s.Done; err != nil {
		t.Fatalf("%v:\n%s", err, s)
	}
	if token, err := os.ReadFile(file); err != nil || string(token) != janesToken+"-1\n" {
		t.Errorf("%q, %v", token, err)
	}
}

// Ctrl-C at a prompt ends the login, and the terminal shows again what is typed.
func TestLoginIsInterrupted(t *testing.T) {
	t.Parallel()
	l := newLoginServer(t)
	s := clitest.OnScreen(t, "", l.flags(filepath.Join(t.TempDir(), "cache"))...)
	s.Types(t, "Password of jane at ", true, "\x03")
	if err := <-s.Done; err == nil {
		t.Error("it was not interrupted")
	}
	s.Shows(t, "gatehouse: interrupted")
	if !s.Echoes(t) || len(l.requests) != 0 {
		t.Errorf("echo: %v, requests: %v", s.Echoes(t), l.requests)
	}
}
