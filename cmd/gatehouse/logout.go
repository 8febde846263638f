package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
)

func newLogoutCommand(s streams) *cobra.Command {
	var (
		login   loginFlags
		context contextFlags
		output  string
	)
	cmd := &cobra.Command{
		Use:   "logout",
		Short: "Forget logins",
		Long: `Logout removes the logins that 'gatehouse login' has kept on this machine: all of
them, or with the flags of a login, or with --context, that one. The next kubectl
asks for a login again, perhaps of another user.

A token that was copied elsewhere is good until it ends; a TokenRevocation ends
tokens of a user sooner.

Exit codes: 0 nothing is left, 2 something could not be removed.`,
		Example: `  # all logins
  gatehouse logout

  # that of a context of the kubeconfig
  gatehouse logout --context prod`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if output != "text" && output != "json" {
				return outputError(output, "text", "json")
			}
			removed, err := logout(s, &login, &context)
			if err != nil {
				return err
			}
			if output == "json" {
				return json.NewEncoder(s.out).Encode(struct {
					Removed int `json:"removed"`
				}{removed})
			}
			text := "no login was kept"
			if removed > 0 {
				text = count(removed, "login") + " removed"
			}
			_, err = fmt.Fprintln(s.out, text)
			return err
		},
	}
	login.add(cmd.Flags())
	context.add(cmd)
	addOutputFlag(cmd, &output, "text", "json")
	completeLoginFlags(cmd)
	return cmd
}

// logout removes logins and tells how many there were.
func logout(s streams, login *loginFlags, context *contextFlags) (int, error) {
	said := login
	if context.named() {
		if login.named() {
			return 0, fmt.Errorf("--context and --kubeconfig say which login, and so do --issuer and --server: give one of them")
		}
		var err error
		if said, err = context.login(); err != nil {
			return 0, err
		}
		if login.cacheDir != "" {
			said.cacheDir = login.cacheDir
		}
	}
	cache, err := said.cache(os.Getenv)
	if err != nil {
		return 0, err
	}
	if !said.named() {
		if said.clientID != "" || said.directory != "" || said.username != "" || len(said.scopes) > 0 {
			return 0, said.check() // half a login is not all logins
		}
		return cache.RemoveAll()
	}
	if err := said.check(); err != nil {
		return 0, err
	}
	// Nothing but the identity is used, so files of CAs and secrets need not be there.
	said.issuerCA, said.issuerCAData, said.serverCA, said.serverCAData, said.clientSecretFile = "", "", "", "", ""
	method, err := said.method(s, time.Now)
	if err != nil {
		return 0, err
	}
	return cache.Remove(method.Identity())
}
