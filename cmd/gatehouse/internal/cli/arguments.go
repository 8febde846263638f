package cli

import (
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// Logs and terminals keep what is printed, and users who mistake a command give it passwords and tokens as arguments. So an unexpected
// argument is repeated only if it looks like the name of a command.

// isPlainWord reports whether a text is short and of lower-case letters, as names of commands are, and tokens and keys are not.
func isPlainWord(text string) bool {
	const longest = 16
	return len(text) <= longest && !strings.ContainsFunc(text, func(r rune) bool { return (r < 'a' || r > 'z') && r != '-' })
}

// unknownCommand returns the error for an unknown subcommand, with the one that may have been meant.
func unknownCommand(group *cobra.Command, word string) error {
	shown := ""
	if isPlainWord(word) {
		shown = " " + strconv.Quote(word)
	}
	var names []string
	for _, cmd := range group.Commands() {
		if cmd.IsAvailableCommand() {
			names = append(names, cmd.Name())
		}
	}
	hint := diagnostic.DidYouMean(word, names...)
	if hint == "" {
		hint = "see '" + group.CommandPath() + " --help'"
	}
	return fmt.Errorf("unknown command%s for %q (hint: %s)", shown, group.CommandPath(), hint)
}

// unknownWord returns the word of cobra's error for an unknown command.
func unknownWord(err error) string {
	quoted, wrong := strconv.QuotedPrefix(strings.TrimPrefix(err.Error(), "unknown command "))
	word, wrongToo := strconv.Unquote(quoted)
	if wrong != nil || wrongToo != nil {
		return ""
	}
	return word
}

// checkSubcommand returns the error for an unknown command of a group, for which cobra shows help and succeeds.
func checkSubcommand(root *cobra.Command, args []string) error {
	group, rest, err := root.Find(args)
	if err == nil && !group.Runnable() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return unknownCommand(group, rest[0])
	}
	return nil
}

// checkHelpTopic returns the error for help about an unknown command.
func checkHelpTopic(cmd *cobra.Command, args []string) error {
	group, rest, err := cmd.Root().Find(args)
	if err != nil {
		return unknownCommand(cmd.Root(), unknownWord(err))
	}
	if group.HasSubCommands() && len(rest) > 0 {
		return unknownCommand(group, rest[0])
	}
	return nil
}

// hideArguments makes a command without arguments, and its subcommands, refuse arguments without repeating them.
func hideArguments(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		hideArguments(sub)
	}
	check := cmd.Args
	if check == nil {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		// The error of cobra.NoArgs contains the argument.
		if err != nil && len(args) > 0 && err.Error() == cobra.NoArgs(cmd, args).Error() {
			return noArguments(cmd)
		}
		return err
	}
}

// noArguments returns the error of a command that takes none.
func noArguments(cmd *cobra.Command) error {
	flags := cmd.Flags()
	path := "'" + cmd.CommandPath() + "'"
	for _, one := range []struct{ flag, says string }{
		{"password-stdin", "the password is asked for (hint: or read, with --password-stdin)"},
		{"token-file", "a token is read from a file (hint: --token-file FILE)"},
	} {
		if flags.Lookup(one.flag) != nil {
			return fmt.Errorf("%s takes no arguments: %s", path, one.says)
		}
	}
	example := flags.Lookup("config") // which some commands need unless a cluster is named
	for required := range requiredFlags(cmd) {
		example = required
		break
	}
	such := ""
	if example != nil {
		such = ", and is told by flags such as --" + example.Name
	}
	return fmt.Errorf("%s takes no arguments%s (hint: see '%s --help')", path, such, cmd.CommandPath())
}

// NoArgs refuses arguments, with a message about where they belong.
func NoArgs(belongs func(arg string) string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return nil
		case LooksLikeToken(args[0]):
			return errors.New("what may be a token has no place on a command line: " + belongs("…"))
		}
		return fmt.Errorf("%q: %s", args[0], belongs(args[0]))
	}
}

// flagError returns an error about a flag without a password that is in its place: -phunter2, --password-stdin=hunter2.
func flagError(cmd *cobra.Command, err error) error {
	text := err.Error()
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		switch name := unknown.GetSpecifiedName(); {
		case unknown.GetSpecifiedShortnames() != "":
			text = "unknown flag: -" + name
		case !isPlainWord(strings.TrimRight(name, "0123456789")):
			text = "unknown flag"
		}
	}
	if _, ok := errors.AsType[*pflag.InvalidSyntaxError](err); ok {
		text = "bad flag syntax"
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok && invalid.GetFlag().Value.Type() == "bool" {
		text = "--" + invalid.GetFlag().Name + " takes no value"
	}
	return fmt.Errorf("%s (hint: see '%s --help')", text, cmd.CommandPath())
}

// checkRequiredFlags returns an error for each required flag that is missing.
func checkRequiredFlags(cmd *cobra.Command, _ []string) error {
	var missing []error
	for flag := range requiredFlags(cmd) {
		if flag.Value.String() == "" {
			missing = append(missing, fmt.Errorf("--%s is required (hint: the %s)", flag.Name, strings.TrimSuffix(flag.Usage, " (required)")))
		}
	}
	return errors.Join(missing...)
}

// requiredFlags yields the required flags of a command.
func requiredFlags(cmd *cobra.Command) iter.Seq[*pflag.Flag] {
	var required []*pflag.Flag
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if len(flag.Annotations[cobra.BashCompOneRequiredFlag]) > 0 {
			required = append(required, flag)
		}
	})
	return slices.Values(required)
}

// jwtText matches a JWT, whose header is a base64url-encoded object.
var jwtText = regexp.MustCompile(`\bey[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`)

// withoutTokens returns a text without the tokens in it.
func withoutTokens(text string) string {
	return jwtText.ReplaceAllString(diagnostic.Diagnostic{Message: text}.Redacted().Message, "…")
}

// LooksLikeToken reports whether a text looks like a bearer token and not like the name of a file.
func LooksLikeToken(text string) bool {
	const least = 40
	text = strings.TrimSpace(text)
	if scheme, rest, ok := strings.Cut(text, " "); ok && strings.EqualFold(scheme, "bearer") {
		text = strings.TrimSpace(rest)
	}
	return len(text) >= least && !strings.Contains(text, "/") &&
		(strings.HasPrefix(text, "gatehouse_") || strings.HasPrefix(text, "gatehouse-login_") || jwt.Shaped(text))
}
