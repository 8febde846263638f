package main

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/tokens"
)

func newTokenKeyCommand(s streams) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Make a key that signs login tokens",
		Long: `Key makes 32 random bytes, in base64: a key for login.keys of an
AuthenticationConfiguration. All replicas have the same keys. Whoever has a key
can make a login token for any name that the identity guard lets pass.

With --out the key is written to a new file that only its owner may read. Without
it, it goes to standard output.

Exit codes: 0 made, 2 bad usage, or the file exists or cannot be written.`,
		Example: `  gatehouse token key --out ./config/login.key

  # as a Secret, for all replicas
  kubectl create secret generic gatehouse-login --from-file=login.key=<(gatehouse token key)`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return makeKey(s, rand.Reader, out) },
	}
	cmd.Flags().StringVar(&out, "out", "", "file to write the key to, which must not exist")
	_ = cmd.MarkFlagFilename("out") // the flag exists
	return cmd
}

// makeKey writes a new key to a file or, without one, to standard output.
func makeKey(s streams, random io.Reader, file string) error {
	var key [32]byte
	if _, err := io.ReadFull(random, key[:]); err != nil {
		return fmt.Errorf("random bytes: %w", err)
	}
	text := base64.StdEncoding.EncodeToString(key[:]) + "\n"
	if file == "" {
		_, err := io.WriteString(s.out, text)
		return err
	}
	const onlyOwner = 0o600
	err := tokens.WriteNew(file, []byte(text), onlyOwner)
	if errors.Is(err, tokens.ErrExists) {
		return fmt.Errorf("%s exists already and is not overwritten (hint: a new key goes into a new file, and both into login.keys until no token of the old one is left)", file)
	}
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	_, err = fmt.Fprintf(s.err, "%s written; who can read it can log in as anybody\n", file)
	return err
}
