package record

import (
	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/key"
)

func newKeyCommand(s cli.Streams) *cobra.Command {
	return key.NewCommand(s, key.Texts{
		Short: "Create a redaction key for recordings",
		Long: `Key prints 32 random bytes in base64: a key for the hashes that replace secret values
in recordings. Give all replicas the same key, with --record-key-file of 'gatehouse
serve'. Anyone who has the key and a recording can check guesses of redacted values.

With --out it writes the key to a new file that only its owner can read. With -o json
standard output has an object with the field file, or key without --out.

Exit codes: 0 created, 2 bad usage, or the file exists or cannot be written.`,
		Example: `  gatehouse record key --out ./record.key

  # create the Secret that the chart names in recording.keySecret
  kubectl -n gatehouse-system create secret generic gatehouse-recording-key --from-file=key=record.key`,
		Warning: "anyone who can read it and a recording can check guesses of redacted values",
		Exists:  "hashes of another key cannot be compared: keep this one, or write the new key to another file",
	})
}
