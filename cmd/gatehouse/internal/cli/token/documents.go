package token

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/tokens"
	"github.com/gatehouse-dev/gatehouse/internal/shell"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// listFlags are the flags of the commands that list documents.
type listFlags struct {
	tokenPlace
	user, output string

	now func() time.Time
}

func (f *listFlags) add(cmd *cobra.Command) {
	f.tokenPlace.add(cmd, "directory of documents")
	cmd.Flags().StringVar(&f.user, "user", "", "show only the "+f.words().plural+" of this user")
	cli.AddOutputFlag(cmd, &f.output, "table", "json")
}

// shows reports whether the documents of a user are listed.
func (f *listFlags) shows(user string) bool { return f.user == "" || f.user == user }

// writeRows writes rows as -o says: each as a line of JSON, or all as a table.
func writeRows[T any](s cli.Streams, f *listFlags, rows []T, head []string, cells func(*T) []string) error {
	if f.output != "json" && len(rows) == 0 {
		_, err := fmt.Fprintln(s.Err, "no "+f.words().document+"s found")
		return err
	}
	table := make([][]string, len(rows))
	for i := range rows {
		if f.output != "json" {
			table[i] = cells(&rows[i])
		} else if err := cli.WriteJSONLine(s.Out, &rows[i]); err != nil {
			return err
		}
	}
	if f.output == "json" {
		return nil
	}
	return cli.WriteTable(s.Out, head, table)
}

// writeDocument writes a document for a file, or with "json" what programs get in its place.
func writeDocument(out io.Writer, output string, document, json any) error {
	if output == "json" {
		return cli.WriteJSON(out, json)
	}
	text, err := yaml.Marshal(document)
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}

// diagnose compiles a document, which is that of a source, as a server will, beside what is known, and returns what it finds about it. What
// is wrong with other documents is no matter.
func diagnose(known authn.Spec, source string) (diagnostic.List, error) {
	set, err := authn.Compile(known)
	var found diagnostic.List
	if err == nil {
		found = set.Warnings()
	} else if !errors.As(err, &found) {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(found), func(one diagnostic.Diagnostic) bool { return one.Source != source }), nil
}

// judge refuses a document that is to be created if diagnose finds an error.
func (f *tokenPlace) judge(known authn.Spec, source string) error {
	found, err := diagnose(known, source)
	if err != nil || found.Err() == nil {
		return err
	}
	return f.refused(found.Err())
}

// refused returns the error of what is definitely not created.
func (f *tokenPlace) refused(err error) error {
	return &cli.ExitError{Code: cli.ExitNo, Err: fmt.Errorf("%s:\n%w", f.words().nothing, err)}
}

// notCreated returns the error of a document that was not created at a place, nil for a nil error.
func (f *tokenPlace) notCreated(err error, place, name string) error {
	words := f.words()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, tokens.ErrExists):
		return fmt.Errorf("%s exists already and is not overwritten (hint: another %s, or %s %s revoke%s %s)",
			place, words.nameFlag, cli.DisplayName(os.Args[0]), words.command, f.flags(), shell.Quote(name))
	case errors.Is(err, tokens.ErrRefused):
		return f.refused(err)
	default:
		return fmt.Errorf("%s: %w", words.nothing, err)
	}
}
