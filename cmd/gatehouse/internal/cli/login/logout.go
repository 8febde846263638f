package login

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/session"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// NewLogoutCommand returns the command "gatehouse logout".
func NewLogoutCommand(s cli.Streams) *cobra.Command {
	var (
		named             cli.ContextFlags
		cacheDir, account string
	)
	cmd := &cobra.Command{
		Use:   "logout",
		Short: "Delete stored logins",
		Long: `Logout deletes the logins that 'gatehouse login' stored on this machine, in files
and in the keyring: all of them, or with --context, --kubeconfig or --account that of one
context or account, together with the tokens with a scope that were made from it. The
next kubectl asks you to log in again.

Logout revokes nothing: a copy of a token is valid until it expires.
'gatehouse token revoke --user' ends all tokens of a user.

Exit codes: 0 nothing is left, 2 something could not be deleted.`,
		Example: `  # all logins
  gatehouse logout

  # the one of a context of the kubeconfig
  gatehouse logout --context prod

  # that of one account at the issuer of the current context
  gatehouse logout --account admin@example.org`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			removed, err := logout(&named, cacheDir, account)
			if err != nil {
				return err
			}
			text := "no login was stored"
			if removed > 0 {
				text = diagnostic.Count(removed, "login") + " deleted"
			}
			_, err = fmt.Fprintln(s.Out, text)
			return err
		},
	}
	named.Add(cmd)
	cmd.Flags().StringVar(&account, "account", "", "account at the issuer of the context")
	cli.RefuseEmpty(cmd.Flags(), "account")
	cmd.Flags().StringVar(&cacheDir, "cache-dir", "", "directory for stored logins (default $KUBECACHEDIR/gatehouse or ~/.kube/cache/gatehouse)")
	return cmd
}

// logout deletes the login of a context, or all logins, and returns how many there were.
func logout(named *cli.ContextFlags, cacheDir, account string) (int, error) {
	login := &loginFlags{}
	isOne := named.Named() || account != ""
	if isOne {
		var err error
		if login, err = loginOf(named, "--kubeconfig FILE or --context NAME"); err != nil {
			return 0, err
		}
		if account != "" && login.issuer == "" {
			return 0, errors.New("--account is for a context that logs in at an issuer")
		}
		if err := login.setAccount(account); err != nil {
			return 0, err
		}
	}
	if cacheDir != "" {
		login.cacheDir = cacheDir
	}
	cache, err := login.cache(true)
	if err != nil {
		return 0, err
	}
	if !isOne {
		return cache.RemoveAll()
	}
	return cache.Remove(login.identity())
}

// identity returns the identity of the login that checked flags describe: at an issuer, of the one without a scope, on which those with
// one depend. It needs none of the files that they name.
func (f *loginFlags) identity() session.Identity {
	if f.issuer != "" {
		return (&session.OIDC{Issuer: f.issuer, ClientID: f.clientID, Scopes: f.scopes, Account: f.account}).Identity()
	}
	return (&session.Password{Server: f.server, Directory: f.directory, Username: f.username, Scope: f.scope}).Identity()
}
