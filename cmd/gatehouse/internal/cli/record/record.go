// Package record has the commands about recordings of reviews: record get and show, and replay.
package record

import (
	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

// NewCommand returns the command "gatehouse record".
func NewCommand(s cli.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "record",
		Short: "Show and fetch recordings of reviews",
		Long: `A recording holds requests that servers have answered, each with its answer and with
what the decision read. 'gatehouse serve --record DIR' writes recordings; tokens are
never in them, and secret values are replaced by a mark.

'gatehouse replay' decides the requests again, under another configuration.`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newGetCommand(s), newShowCommand(s))
	return cmd
}
