package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
)

const (
	strayAccess = "gatehouse_ci_aaaqeayeaudaocajbifqydiob4ibceqtcqkrmfyyxyccrrq"
	strayLogin  = "gatehouse-login_first_eyJzdWIiOiJqYW5lIn0.5T7wS1eR4yU6iO8pA0sDkuL0a6D3fBFqYvB8bZ9Xn2c"
	strayJWT    = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJqYW5lIn0.5T7wS1eR4yU6iO8pA0sDkuL0a6D3fBFqYvB8bZ9Xn2c"
	strayWord   = "Tr0ub4dor&3"
)

// commandPaths are the commands that there are, as arguments.
func commandPaths(cmd *cobra.Command, above ...string) [][]string {
	all := [][]string{above}
	for _, sub := range cmd.Commands() {
		all = append(all, commandPaths(sub, append(slices.Clip(above), sub.Name())...)...)
	}
	return all
}

// eachCommand visits the commands of Gatehouse that can be run.
func eachCommand(t *testing.T, visit func(path string, cmd *cobra.Command)) {
	t.Helper()
	root := cli.NewRoot(cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}, commands()...)
	for _, path := range commandPaths(root) {
		cmd, _, err := root.Find(path)
		if err != nil {
			t.Fatal(err)
		}
		if ofCobra := len(path) > 0 && (path[0] == "help" || path[0] == "completion"); cmd.Runnable() && !ofCobra {
			visit(strings.Join(path, " "), cmd)
		}
	}
}

// Whatever command a token is given to as an argument, and as a file or a
// directory, nobody repeats it; and no command that takes no arguments repeats a
// password.
func TestNoCommandRepeatsSecrets(t *testing.T) {
	t.Parallel()
	silent := cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}
	paths := commandPaths(cli.NewRoot(silent, commands()...))
	const atLeast = 20 // or the walk has gone wrong
	if len(paths) < atLeast {
		t.Fatalf("only %d commands: %q", len(paths), paths)
	}
	takesFiles := map[string]bool{"check": true, "explain": true, "inject": true, "mutate": true, "uninject": true, "convert": true, "lint": true, "review": true, "test": true, "replay": true, "record show": true, "drill": true}
	for _, path := range paths {
		name := strings.Join(path, " ")
		for _, secret := range []string{strayAccess, strayLogin, strayJWT, strayWord} {
			if secret == strayWord && takesFiles[name] {
				continue // a file may have any name
			}
			for _, flags := range [][]string{nil, {"--config", secret}, {"--context", secret}, {"--token-file", secret}, {"-" + secret}, {"--" + secret}} {
				if secret == strayWord && len(flags) > 1 {
					continue
				}
				got := clitest.Run(t.Context(), "", slices.Concat(path, flags, []string{secret}), commands()...)
				if strings.Contains(got.Out+got.Err, secret[len(secret)-8:]) {
					t.Errorf("%s %q repeats it:\n%+v", name, flags, got)
				}
				if got.Code == cli.ExitYes {
					t.Errorf("%s %q: a success", name, flags)
				}
			}
		}
	}
}

func TestCommandLineMistakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, args, says string
	}{
		{"a password behind login", "login --username jane janepw", `'gatehouse login' takes no arguments: login asks for the password (hint: or reads it with --password-stdin)`},
		{"a token behind whoami", "whoami " + strayAccess, `'gatehouse whoami' takes no arguments: it reads a token from a file (hint: --token-file FILE)`},
		{"a directory behind list", "token list config", `'gatehouse token list' takes no arguments (hint: see 'gatehouse token list --help')`},
		{"behind a command without flags", "version now", `'gatehouse version' takes no arguments (hint: see 'gatehouse version --help')`},
		{"a password as in mysql", "login -phunter2", `unknown flag -p (hint: see 'gatehouse login --help')`},
		{"a password as the value", "login --password-stdin=hunter2", `--password-stdin takes no value (hint: see 'gatehouse login --help')`},
		{"what is no flag", "login ---hunter2", `invalid flag syntax: must be --NAME, --NAME=VALUE or a letter such as -o (hint: see 'gatehouse login --help')`},
		{"a flag that there is not", "lint --confg x", `unknown flag --confg (hint: did you mean --config? see 'gatehouse lint --help')`},
		{"a command that there is not", "tokn", `unknown command "tokn" for "gatehouse" (hint: did you mean "token"? see 'gatehouse --help')`},
		{"one of a group", "token isue --user jane", `unknown command "isue" for "gatehouse token" (hint: did you mean "issue"? see 'gatehouse token --help')`},
		{"one of a group that is like none", "token frobnicate", `unknown command "frobnicate" for "gatehouse token" (hint: see 'gatehouse token --help')`},
		{"one that may be a password", "token hunter2", `unknown command for "gatehouse token" (hint: see 'gatehouse token --help')`},
		{"a shell", "completion bsh", `unknown command "bsh" for "gatehouse completion" (hint: did you mean "bash"? see 'gatehouse completion --help')`},
		{"a topic", "help token isue", `unknown command "isue" for "gatehouse token" (hint: did you mean "issue"? see 'gatehouse token --help')`},
		{"a token where files belong", "check " + strayJWT, `an argument may be a token, which other users of this machine can see: arguments are files`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := clitest.Run(t.Context(), "", strings.Fields(c.args), commands()...)
			if want := (clitest.Result{Code: cli.ExitUnknown, Err: "gatehouse: " + c.says + "\n"}); got != want {
				t.Errorf("got %+v\nwant %+v", got, want)
			}
		})
	}
}

// Groups of commands show their help when nothing is asked of them, and help helps.
func TestGroupsShowHelp(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"token", "token --help", "help token", "help", "completion"} {
		if got := clitest.Run(t.Context(), "", strings.Fields(args), commands()...); got.Code != cli.ExitYes || !strings.Contains(got.Out, "Available Commands:") {
			t.Errorf("%s: got %+v", args, got)
		}
	}
}

// Scripts go by exit codes, so the help of every command that can fail lists them.
func TestHelpListsExitCodes(t *testing.T) {
	t.Parallel()
	eachCommand(t, func(path string, cmd *cobra.Command) {
		if path != "version" && !strings.Contains(cmd.Long, "Exit code") {
			t.Errorf("%q: no exit codes", path)
		}
	})
}
