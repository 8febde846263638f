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

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/auth/login"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

// A login that the server does not take any more is not there, and one that cannot be
// judged is.
func TestLoginThatIsKept(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		answer login.Answer
		code   int
		says   []string
	}{
		{"good", login.Answer{Outcome: "yes", Reason: "ok"}, cli.ExitYes, []string{"already logged in"}},
		{"revoked", login.Answer{Outcome: "no", Reason: "revoked", Message: "the token was revoked"}, cli.ExitUnknown, []string{"Gatehouse rejects the stored login: no: revoked: the token was revoked", "a login is required"}},
		{"signed with a key that is gone", login.Answer{Outcome: "unknown", Reason: "unknown-key"}, cli.ExitUnknown, []string{"rejects the stored login: cannot decide: unknown-key"}},
		{"of a directory that is gone", login.Answer{Outcome: "unknown", Reason: "source-gone"}, cli.ExitUnknown, []string{"rejects the stored login: cannot decide: source-gone"}},
		{"not to be told", login.Answer{Outcome: "unknown", Reason: "keys"}, cli.ExitYes, []string{"already logged in", "Gatehouse cannot decide whether it accepts the login: cannot decide: keys"}},
		{"no answer", login.Answer{}, cli.ExitYes, []string{"already logged in", "Gatehouse could not be asked whether it accepts the login: https://"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLoginServer(t)
			cache := filepath.Join(t.TempDir(), "cache")
			if got := runWith(t.Context(), janesPassword, l.flags(cache, "--password-stdin")...); got.code != cli.ExitYes {
				t.Fatalf("%+v", got)
			}
			l.mu.Lock()
			l.answer = c.answer
			l.mu.Unlock()
			calls := func() (shown, asked int) {
				l.mu.Lock()
				defer l.mu.Unlock()
				return len(l.shown), len(l.requests)
			}
			out, remarks, err := inSession(t.Context(), l.flags(cache)...)
			code := cli.ExitYes
			if exit, failed := errors.AsType[*exec.ExitError](err); failed {
				code = exit.ExitCode()
			}
			for _, want := range c.says {
				if !strings.Contains(out+remarks, want) {
					t.Errorf("%s%s\nlacks %q", out, remarks, want)
				}
			}
			if shown, asked := calls(); code != c.code || shown != 1 || asked != 1 {
				t.Errorf("exit code %d, want %d; shown %d times, asked %d times", code, c.code, shown, asked)
			}
			// kubectl does not wait for that.
			_, _, err = kubectlRun(t.Context(), "v1", l.flags(cache)...)
			if shown, asked := calls(); err != nil || shown != 1 || asked != 1 {
				t.Errorf("%v; shown %d times, asked %d times", err, shown, asked)
			}
			// A password that is given is looked at.
			if got := runWith(t.Context(), "wrong", l.flags(cache, "--password-stdin")...); got.code != cli.ExitNo || !strings.Contains(got.err, "wrong name or password") {
				t.Errorf("%+v", got)
			}
			if got := runWith(t.Context(), janesPassword, l.flags(cache, "--password-stdin", "-o", "token")...); got != (said{cli.ExitYes, janesToken + "-2\n", ""}) {
				t.Errorf("%+v", got)
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
