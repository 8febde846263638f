package login

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

// A login whose renewal the server rejects is not there any more, and one that cannot be renewed
// now is used.
func TestLoginAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		edit func(*loginServer)
		code int
		says []string
	}{
		{"good", func(*loginServer) {}, cli.ExitYes, []string{"logged in at "}},
		{"gone", func(l *loginServer) { l.gone = true }, cli.ExitUnknown, []string{"the login could not be renewed: the account is not there any more", "you have to log in"}},
		{"no answer", func(l *loginServer) { l.Close() }, cli.ExitYes, []string{"logged in at ", "the token could not be renewed and is used until it expires: https://"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLoginServer(t)
			cache := filepath.Join(t.TempDir(), "cache")
			if got := runWith(t.Context(), janesPassword, l.flags(cache, "--password-stdin")...); got.code != cli.ExitYes {
				t.Fatalf("%+v", got)
			}
			l.mu.Lock()
			c.edit(l)
			l.mu.Unlock()
			out, remarks, err := inSession(t.Context(), l.flags(cache)...)
			code := cli.ExitYes
			if exit, failed := errors.AsType[*exec.ExitError](err); failed {
				code = exit.ExitCode()
			}
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, want := range c.says {
				if !strings.Contains(out+remarks, want) {
					t.Errorf("%s%s\nlacks %q", out, remarks, want)
				}
			}
			// kubectl does not renew what is good.
			if out, _, err := kubectlRun(t.Context(), l.flags(cache)...); err != nil || !strings.Contains(string(out), janesToken) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// inSession runs the program as people do where there is no terminal to ask on.
func inSession(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	cmd := exec.CommandContext(ctx, "gatehouse", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var out, remarks bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &remarks
	err = cmd.Run()
	return out.String(), remarks.String(), err
}
