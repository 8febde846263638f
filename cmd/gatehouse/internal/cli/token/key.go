package token

import (
	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/key"
)

func newTokenKeyCommand(s cli.Streams) *cobra.Command {
	return key.NewCommand(s, key.Texts{
		Short: "Create a key that signs login tokens",
		Long: `Key prints 32 random bytes in base64: a key for login.keys of an
AuthenticationConfiguration. All replicas use the same keys. Anyone with a key can
create a login token for any user that the identity guard allows.

With --out it writes the key to a new file that only its owner can read. With -o json
standard output has an object with the field file, or key without --out.

Exit codes: 0 created, 2 bad usage, or the file exists or cannot be written.`,
		Example: `  gatehouse token key --out ./config/login.key

  # create a Secret for all replicas
  kubectl create secret generic gatehouse-login --from-file=login.key=<(gatehouse token key)`,
		Warning: "anyone who can read it can log in as any user",
		Exists:  "write the new key to another file, and keep both in login.keys until all tokens of the old one have expired",
	})
}
