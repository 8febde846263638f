// Package token has the commands about access tokens and Grants: token issue, list, revoke and key, and grant create, list and revoke.
package token

import (
	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

// NewCommand returns the command "gatehouse token".
func NewCommand(s cli.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Issue, list and revoke access tokens",
		Long: `An access token is a bearer token for the API server, for scripts and other
programs. 'token issue' shows it once. Gatehouse keeps only a hash of it, in an
AccessToken document; the token is revoked when that document is deleted.`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newTokenIssueCommand(s), newTokenListCommand(s), newTokenRevokeCommand(s), newTokenKeyCommand(s))
	return cmd
}
