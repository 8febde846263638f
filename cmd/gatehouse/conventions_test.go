package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
)

// imperatives are the words with which a short description may begin.
func imperatives() []string {
	return []string{
		"Add", "Answer", "Check", "Convert", "Create", "Delete", "Explain", "Fetch", "Find", "Forget", "Issue", "List", "Log", "Print", "Remove", "Request", "Revoke", "Run", "Show", "Test", "Update", "Write",
	}
}

// TestConventions holds what users of kubectl expect of every command, so that a new command cannot forget it.
func TestConventions(t *testing.T) {
	t.Parallel()
	eachCommand(t, func(path string, cmd *cobra.Command) {
		problem := func(format string, args ...any) {
			t.Helper()
			t.Errorf("%q: "+format, append([]any{path}, args...)...)
		}
		if cmd.Example == "" {
			problem("no example")
		}
		if verb, _, _ := strings.Cut(cmd.Short, " "); !slices.Contains(imperatives(), verb) {
			problem("the short description %q does not begin with one of %q", cmd.Short, imperatives())
		}
		if strings.HasSuffix(cmd.Short, ".") || len(cmd.Short) > 80 {
			problem("the short description %q ends with a full stop or is too long", cmd.Short)
		}
		cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
			if want := map[string]string{"config": "c", "namespace": "n", "yes": "y", "output": "o", "filename": "f"}[flag.Name]; want != "" && flag.Shorthand != want {
				problem("--%s has no -%s", flag.Name, want)
			}
			if flag.DefValue == "[]" {
				problem("--%s shows the default []", flag.Name)
			}
			switch {
			case flag.Name == "config":
				if err := flag.Value.Set("a"); err != nil || flag.Value.Set("b") == nil {
					problem("--config can be given twice")
				}
			case flag.Value.Type() == "duration":
				if err := flag.Value.Set("1d12h"); err != nil || flag.Value.String() != "36h0m0s" {
					problem("--%s does not accept days: %v", flag.Name, err)
				}
				if strings.Contains(flag.DefValue, "m0s") {
					problem("--%s shows the default %s", flag.Name, flag.DefValue)
				}
			}
		})
	})
}

// TestUsageErrors gives every command wrong words. Each is refused with exit code 2, by messages that begin with the program, end with a
// hint about the help, and have no word of the libraries.
func TestUsageErrors(t *testing.T) {
	t.Parallel()
	ofLibraries := regexp.MustCompile(`arg\(s\)|flag\(s\)|shorthand|unknown flag: |flag needs an argument|invalid argument|bad flag syntax|strconv|time: `)
	eachCommand(t, func(path string, cmd *cobra.Command) {
		if path == "" {
			return
		}
		wrong := [][]string{{"--no-such-flag"}, {"-Z"}, {"--=x"}}
		cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
			switch kind := flag.Value.Type(); {
			case flag.Name == "help":
			case kind == "bool":
				wrong = append(wrong, []string{"--" + flag.Name + "=perhaps"})
			case flag.NoOptDefVal == "":
				wrong = append(wrong, []string{"--" + flag.Name})
			}
			if slices.Contains([]string{"duration", "int", "int64", "float64", "stringToString"}, flag.Value.Type()) {
				wrong = append(wrong, []string{"--" + flag.Name + "=soon"})
			}
		})
		for _, args := range wrong {
			got := clitest.Run(t.Context(), "", append(strings.Fields(path), args...), commands()...)
			hint := "see 'gatehouse " + path + " --help')\n"
			if got.Code != cli.ExitUnknown || !strings.HasPrefix(got.Err, "gatehouse: ") || !strings.HasSuffix(got.Err, hint) || got.Out != "" || ofLibraries.MatchString(got.Err) {
				t.Errorf("%s %q: got %+v", path, args, got)
			}
		}
		for _, args := range [][]string{nil, {"a", "b", "c"}} {
			if err := cmd.ValidateArgs(args); err != nil && ofLibraries.MatchString(err.Error()) {
				t.Errorf("%s %q: %v", path, args, err)
			}
		}
	})
}
