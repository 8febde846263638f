package cli

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
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
	return fmt.Errorf("unknown command%s for %q (hint: %s)", shown, group.CommandPath(), helpHint(group, diagnostic.DidYouMean(word, names...)))
}

// helpHint returns a hint that ends with the command that shows the usage.
func helpHint(cmd *cobra.Command, hint string) string {
	if hint != "" {
		hint += " "
	}
	return hint + "see '" + cmd.CommandPath() + " --help'"
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
		{"password-stdin", "login asks for the password (hint: or reads it with --password-stdin)"},
		{"token-file", "it reads a token from a file (hint: --token-file FILE)"},
	} {
		if flags.Lookup(one.flag) != nil {
			return fmt.Errorf("%s takes no arguments: %s", path, one.says)
		}
	}
	return fmt.Errorf("%s takes no arguments (hint: see '%s --help')", path, cmd.CommandPath())
}

// flagError returns an error about a flag in place of that of pflag. It does not repeat a password in the place of a flag: -phunter2,
// --password-stdin=hunter2.
func flagError(cmd *cobra.Command, err error) error {
	text, hint := err.Error(), ""
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		text, hint = unknownFlag(cmd, unknown)
	}
	if missing, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		text = "--" + missing.GetFlag().Name + " needs a value"
	}
	if _, ok := errors.AsType[*pflag.InvalidSyntaxError](err); ok {
		text = "invalid flag syntax: must be --NAME, --NAME=VALUE or a letter such as -o"
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		text = invalidValue(invalid)
	}
	if before, inner, found := strings.Cut(text, " (hint: "); found {
		text, hint = before, strings.TrimSuffix(inner, ")")+";"
	}
	return fmt.Errorf("%s (hint: %s)", text, helpHint(cmd, hint))
}

// unknownFlag returns the message for an unknown flag, and a hint about the flag that may have been meant.
func unknownFlag(cmd *cobra.Command, unknown *pflag.NotExistError) (text, hint string) {
	name := unknown.GetSpecifiedName()
	if unknown.GetSpecifiedShortnames() != "" {
		return "unknown flag -" + name, ""
	}
	if !isPlainWord(strings.TrimRight(name, "0123456789")) {
		return "unknown flag", ""
	}
	var names []string
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden {
			names = append(names, flag.Name)
		}
	})
	if near, ok := diagnostic.Nearest(name, names...); ok {
		hint = "did you mean --" + near + "?"
	}
	return "unknown flag --" + name, hint
}

// invalidValue returns the message for a value that a flag does not accept.
func invalidValue(invalid *pflag.InvalidValueError) string {
	flag := invalid.GetFlag()
	cause := errors.Unwrap(invalid).Error()
	switch flag.Value.Type() {
	case "bool":
		return "--" + flag.Name + " takes no value"
	case "int", "int64":
		cause = "must be a whole number"
	case "float64":
		cause = "must be a number"
	case "stringToString":
		cause = "must be KEY=VALUE"
	}
	return fmt.Sprintf("--%s %q: %s", flag.Name, invalid.GetValue(), cause)
}

// requiredSuffix is at the end of the usage of required flags.
const requiredSuffix = " (required)"

// checkRequiredFlags returns an error for each required flag that is missing.
func checkRequiredFlags(cmd *cobra.Command, _ []string) error {
	var missing []error
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if len(flag.Annotations[cobra.BashCompOneRequiredFlag]) == 0 {
			return
		}
		hint := "the " + strings.TrimSuffix(flag.Usage, requiredSuffix)
		if flag.Name == configFlag {
			hint = "--config DIR"
			// A token is explained by a directory alone.
			if slices.Contains(flag.Annotations[unlessAnnotation], "context") && !cmd.Flags().Changed("token-file") {
				hint += ", or --context NAME for a cluster"
			}
		}
		if isSpared(cmd, flag) {
			delete(flag.Annotations, cobra.BashCompOneRequiredFlag) // cobra checks it later
			return
		}
		if flag.Value.String() == "" {
			missing = append(missing, fmt.Errorf("--%s is required (hint: %s; %s)", flag.Name, hint, helpHint(cmd, "")))
		}
	})
	return errors.Join(missing...)
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
