package login

import (
	"path/filepath"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support/terminal"
)

// Ctrl-C at a prompt ends the login, and the terminal shows again what is typed.
func TestLoginIsInterrupted(t *testing.T) {
	t.Parallel()
	l := newLoginServer(t)
	s := terminal.OnScreen(t, "", l.flags(filepath.Join(t.TempDir(), "cache"))...)
	s.Types(t, "Password of jane at ", true, "\x03")
	if err := <-s.Done; err == nil {
		t.Error("it was not interrupted")
	}
	s.Shows(t, "gatehouse: interrupted")
	if !s.Echoes(t) || len(l.requests) != 0 {
		t.Errorf("echo: %v, requests: %v", s.Echoes(t), l.requests)
	}
}
