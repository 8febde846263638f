// Package key has the commands that create a secret key.
package key

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/auth/tokens"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/internal/shell"
)

// Texts are the texts of a command.
type Texts struct {
	// Short, Long and Example are those of its help.
	Short, Long, Example string
	// Warning says who must not read the key, after the name of the file.
	Warning string
	// Exists is the hint for a file that exists already.
	Exists string
}

// NewCommand returns a command "key", which prints 32 random bytes in base64, or writes them to a
// new file.
func NewCommand(s cli.Streams, texts Texts) *cobra.Command {
	var out, output string
	cmd := &cobra.Command{
		Use: "key", Short: texts.Short, Long: texts.Long, Example: texts.Example,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return create(s, &texts, out, output == "json")
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "new file for the key; it must not exist")
	_ = cmd.MarkFlagFilename("out") // the flag exists
	cli.AddOutputFlag(cmd, &output, "text", "json")
	return cmd
}

// created is the JSON output.
type created struct {
	File string `json:"file,omitempty"`
	Key  string `json:"key,omitempty"`
}

// create writes a new key to a file or, without one, to standard output.
func create(s cli.Streams, texts *Texts, file string, asJSON bool) error {
	var key [32]byte
	if _, err := io.ReadFull(rand.Reader, key[:]); err != nil {
		return fmt.Errorf("random bytes: %w", err)
	}
	text := base64.StdEncoding.EncodeToString(key[:])
	switch {
	case file == "" && asJSON:
		return cli.WriteJSONLine(s.Out, created{Key: text})
	case file == "":
		_, err := fmt.Fprintln(s.Out, text)
		return err
	}
	const onlyOwner = 0o600
	err := tokens.WriteNew(file, []byte(text+"\n"), onlyOwner)
	switch {
	case errors.Is(err, tokens.ErrExists):
		return fmt.Errorf("%s exists already and is not overwritten (hint: %s)", file, texts.Exists)
	case errors.Is(err, fs.ErrNotExist):
		dir := filepath.Dir(file)
		return fmt.Errorf("--out: there is no directory %q (hint: mkdir -p %s)", dir, shell.Quote(dir))
	case err != nil:
		return fmt.Errorf("--out: %w", err)
	case asJSON:
		return cli.WriteJSONLine(s.Out, created{File: file})
	}
	_, err = fmt.Fprintf(s.Err, "%s written; %s\n", file, texts.Warning)
	return err
}
