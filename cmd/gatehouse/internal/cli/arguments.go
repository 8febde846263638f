package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// What is printed is kept: by logs, by CI, by the scroll-back of a terminal. People
// who mistake a command give it passwords and tokens as arguments, so an argument
// that has no place is only repeated if it is not one of them.

// plainWord reports whether a text may be repeated: it is short and of lower-case
// letters, as the names of commands are, and tokens and keys are not.
func plainWord(text string) bool {
	const longest = 16
	return len(text) <= longest && !strings.ContainsFunc(text, func(r rune) bool { return (r < 'a' || r > 'z') && r != '-' })
}

// unknownCommand is the error for a word in the place of a subcommand, with the
// one that may have been meant.
func unknownCommand(group *cobra.Command, word string) error {
	shown := ""
	if plainWord(word) {
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

// ofRoot is the word of cobra's error for a command that there is not.
func ofRoot(err error) string {
	quoted, wrong := strconv.QuotedPrefix(strings.TrimPrefix(err.Error(), "unknown command "))
	word, wrongToo := strconv.Unquote(quoted)
	if wrong != nil || wrongToo != nil {
		return ""
	}
	return word
}

// misspelled is the error for a word behind a group of commands that is none of
// them. Cobra shows the group's help for it and calls that a success.
func misspelled(root *cobra.Command, args []string) error {
	group, rest, err := root.Find(args)
	if err == nil && !group.Runnable() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return unknownCommand(group, rest[0])
	}
	return nil // or cobra has an error for it
}

// helpTopic refuses to help about a command that there is not.
func helpTopic(cmd *cobra.Command, args []string) error {
	group, rest, err := cmd.Root().Find(args)
	if err != nil {
		return unknownCommand(cmd.Root(), ofRoot(err))
	}
	if group.HasSubCommands() && len(rest) > 0 {
		return unknownCommand(group, rest[0])
	}
	return nil
}

// keepArguments makes a command without arguments, and all below it, refuse them
// without repeating them.
func keepArguments(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		keepArguments(sub)
	}
	check := cmd.Args
	if check == nil {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		// That of cobra.NoArgs, which has the argument in it.
		if err != nil && len(args) > 0 && err.Error() == cobra.NoArgs(cmd, args).Error() {
			return noArguments(cmd)
		}
		return err
	}
}

// noArguments is the error of a command that takes none.
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
	such := ""
	told := func(flag *pflag.Flag) {
		if flag != nil && such == "" {
			such = ", and is told by flags such as --" + flag.Name
		}
	}
	flags.VisitAll(func(flag *pflag.Flag) {
		if isRequired(flag) {
			told(flag)
		}
	})
	told(flags.Lookup("config")) // which some commands need unless a cluster is named
	return fmt.Errorf("%s takes no arguments%s (hint: see '%s --help')", path, such, cmd.CommandPath())
}

// NoArgs refuses arguments, and says where what they are belongs.
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

// flagError is an error about a flag as it may be shown. In the place of flags too
// there may be a password: -phunter2, --password-stdin=hunter2.
func flagError(cmd *cobra.Command, err error) error {
	text := err.Error()
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		switch name := unknown.GetSpecifiedName(); {
		case unknown.GetSpecifiedShortnames() != "":
			text = "unknown flag: -" + name
		case !plainWord(strings.TrimRight(name, "0123456789")):
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

// needsFlags tells which of the required flags are missing, and what they are.
func needsFlags(cmd *cobra.Command, _ []string) error {
	var missing []error
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if isRequired(flag) && flag.Value.String() == "" {
			missing = append(missing, fmt.Errorf("--%s is required (hint: the %s)", flag.Name, strings.TrimSuffix(flag.Usage, " (required)")))
		}
	})
	return errors.Join(missing...)
}

func isRequired(flag *pflag.Flag) bool {
	return len(flag.Annotations[cobra.BashCompOneRequiredFlag]) > 0
}

// jwtText is the text of a JWT, whose header is base64url of an object.
var jwtText = regexp.MustCompile(`\bey[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`)

// withoutTokens is a text without the tokens that are in it, such as one that was
// taken for the name of a file.
func withoutTokens(text string) string {
	return jwtText.ReplaceAllString(diagnostic.Diagnostic{Message: text}.Redacted().Message, "…")
}

// LooksLikeToken reports whether a text is meant as a bearer token, as far as its
// shape and its length tell it from the name of a file.
func LooksLikeToken(text string) bool {
	const least = 40
	text = strings.TrimSpace(text)
	if scheme, rest, ok := strings.Cut(text, " "); ok && strings.EqualFold(scheme, "bearer") {
		text = strings.TrimSpace(rest)
	}
	return len(text) >= least && !strings.Contains(text, "/") &&
		(strings.HasPrefix(text, "gatehouse_") || strings.HasPrefix(text, "gatehouse-login_") || jwt.Shaped(text))
}
