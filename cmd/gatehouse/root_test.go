package main

import (
	"regexp"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// takesFile reports whether a flag is declared to take a file or a directory.
func takesFile(flag *pflag.Flag) bool {
	_, file := flag.Annotations[cobra.BashCompFilenameExt]
	_, directory := flag.Annotations[cobra.BashCompSubdirsInDir]
	return file || directory
}

// files are the words with which the usage of a flag begins that takes a file or a directory.
var files = regexp.MustCompile(`^((PEM|kubeconfig|SSH) )?(file|directory)\b`)

// Shells offer files where there is nothing else to offer. So every flag that takes a file
// is declared to, and every command says what its arguments are.
func TestCompletionOffersFilesWhereTheyBelong(t *testing.T) {
	t.Parallel()
	flags := 0
	eachCommand(t, func(path string, cmd *cobra.Command) {
		if cmd.ValidArgsFunction == nil {
			t.Errorf("%q: nothing says what its arguments are", path)
		}
		cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
			if flag.Value.Type() == "bool" {
				return
			}
			flags++
			if _, says := cmd.GetFlagCompletionFunc(flag.Name); says == takesFile(flag) {
				t.Errorf("%q --%s: it is to take a file or to say what it takes, one of the two", path, flag.Name)
			}
			if files.MatchString(flag.Usage) && !takesFile(flag) {
				t.Errorf("%q --%s: it is to be declared to take a file: %s", path, flag.Name, flag.Usage)
			}
		})
	})
	const atLeast = 150 // or the walk has gone wrong
	if flags < atLeast {
		t.Errorf("only %d flags", flags)
	}
}
