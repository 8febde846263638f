package token

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/tokens"
	"github.com/gatehouse-dev/gatehouse/internal/shell"
)

func newTokenKeyCommand(s cli.Streams) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Create a key that signs login tokens",
		Long: `Key prints 32 random bytes in base64: a key for login.keys of an
AuthenticationConfiguration, with which Gatehouse signs the tokens of logins. All
replicas use the same keys. Keep it secret: anyone with the key can create a token
for any user that the guard allows.

Exit codes: 0 created, 2 wrong usage, or the file exists or cannot be written.`,
		Example: `  gatehouse token key --out ./config/login.key

  # create a Secret for all replicas
  kubectl create secret generic gatehouse-login --from-file=login.key=<(gatehouse token key)`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return createKey(s, out) },
	}
	cmd.Flags().StringVar(&out, "out", "", "new file for the key; it must not exist")
	return cmd
}

// createKey writes a new key to a file or, without one, to standard output.
func createKey(s cli.Streams, file string) error {
	var key [32]byte
	_, _ = rand.Read(key[:]) // it does not fail
	text := base64.StdEncoding.EncodeToString(key[:])
	if file == "" {
		_, err := fmt.Fprintln(s.Out, text)
		return err
	}
	const onlyOwner = 0o600
	err := tokens.WriteNew(file, []byte(text+"\n"), onlyOwner)
	switch {
	case errors.Is(err, tokens.ErrExists):
		return fmt.Errorf("%s exists already and is not overwritten (hint: write the new key to another file, and keep both in login.keys until all tokens of the old one have expired)", file)
	case errors.Is(err, fs.ErrNotExist):
		dir := filepath.Dir(file)
		return fmt.Errorf("--out: there is no directory %q (hint: mkdir -p %s)", dir, shell.Quote(dir))
	case err != nil:
		return fmt.Errorf("--out: %w", err)
	}
	_, err = fmt.Fprintf(s.Err, "%s written; anyone who can read it can log in as any user\n", file)
	return err
}
