package login

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/auth/session"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// NewLogoutCommand returns the command "gatehouse logout".
func NewLogoutCommand(s cli.Streams) *cobra.Command {
	var (
		login  loginFlags
		named  cli.ContextFlags
		output string
	)
	cmd := &cobra.Command{
		Use:   "logout",
		Short: "Delete stored logins",
		Long: `Logout deletes the logins that 'gatehouse login' stored on this machine, from files
and from the OS keyring: all of them, including those in the --cache-dir of a context.
With the flags of a login, or with --context, it deletes that one. With --server alone
it deletes those of all users at that Gatehouse. The next kubectl asks you to log in
again.

Copies of a token are valid until they expire; a TokenRevocation revokes the tokens of
a user sooner. The refresh token of a login at an issuer is revoked, if the issuer
supports it and the flags or a context of the kubeconfig name the login.

Exit codes: 0 nothing is left, 2 something could not be deleted.`,
		Example: `  # all logins
  gatehouse logout

  # the one of a context of the kubeconfig
  gatehouse logout --context prod

  # those of all users at one Gatehouse
  gatehouse logout --server https://gatehouse.example:9443`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return cli.OutputError(output, "text", "json")
			}
			removed, err := logout(cmd.Context(), s, &login, &named, whichLogin(cmd.Flags()))
			if err != nil {
				return err
			}
			if output == "json" {
				return cli.WriteJSONLine(s.Out, struct {
					Removed int `json:"removed"`
				}{removed})
			}
			text := "no login was stored"
			if removed > 0 {
				text = diagnostic.Count(removed, "login") + " deleted"
			}
			_, err = fmt.Fprintln(s.Out, text)
			return err
		},
	}
	login.add(cmd.Flags())
	named.Add(cmd)
	cli.AddOutputFlag(cmd, &output, "text", "json")
	completeLoginFlags(cmd)
	return cmd
}

// whichLogin returns the first given flag that identifies a login or a part of one; empty if there is none.
func whichLogin(flags *pflag.FlagSet) (name string) {
	others := map[string]bool{"cache-dir": true, "context": true, "kubeconfig": true, "output": true, "token-store": true}
	flags.Visit(func(flag *pflag.Flag) {
		if name == "" && !others[flag.Name] {
			name = flag.Name
		}
	})
	return name
}

// logout deletes logins and returns how many there were. Says is the result of whichLogin.
func logout(ctx context.Context, s cli.Streams, login *loginFlags, named *cli.ContextFlags, says string) (int, error) {
	said := login
	switch {
	case named.Named():
		if says != "" {
			return 0, errors.New("--context and --kubeconfig cannot be combined with --" + says)
		}
		var err error
		if said, err = loginOf(named, "--kubeconfig FILE or --context NAME"); err != nil {
			return 0, err
		}
		if login.cacheDir != "" {
			said.cacheDir = login.cacheDir
		}
		if login.tokenStore != "" {
			said.tokenStore = login.tokenStore
		}
	case says == "":
		return logoutOfAll(ctx, s, login, named)
	}
	if err := said.check(); err != nil { // half a login is not all logins
		return 0, err
	}
	cache, err := said.cache(s, os.Getenv, true)
	if err != nil {
		return 0, err
	}
	method, _, err := said.forgettable(s)
	if err != nil {
		return 0, err
	}
	everybody := !named.Named() && said.issuer == "" && said.username == "" && said.directory == ""
	removed, err := forget(ctx, s, cache, []*loginFlags{said}, func() (int, error) {
		if everybody {
			return cache.RemoveOf(said.server)
		}
		return cache.Remove(method.Identity())
	})
	if err != nil {
		return removed, err
	}
	source := cmp.Or(said.issuer, said.server)
	if others, err := cache.CountOf(source); err == nil && others > 0 {
		loginRemark(s, "still stored for %s, with other flags such as --username or --scope: %s (hint: '%s logout' deletes all logins)",
			source, diagnostic.Count(others, "login"), cli.DisplayName(os.Args[0]))
	}
	return removed, nil
}

// logoutOfAll removes all logins of the directory that flags name, or else of the
// usual one and those of contexts that keep theirs elsewhere.
func logoutOfAll(ctx context.Context, s cli.Streams, login *loginFlags, named *cli.ContextFlags) (int, error) {
	usual, err := login.cache(s, os.Getenv, true)
	if err != nil {
		return 0, err
	}
	here, elsewhere := []*loginFlags{}, []*loginFlags{}
	for _, own := range loginsOf(named) {
		if own.cacheDir != "" && login.cacheDir == "" {
			elsewhere = append(elsewhere, own)
		} else {
			here = append(here, own)
		}
	}
	removed, err := forget(ctx, s, usual, here, usual.RemoveAll)
	problems := []error{err}
	for _, own := range elsewhere {
		method, _, err := own.forgettable(s)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		cache, err := own.cache(s, os.Getenv, true)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		n, err := forget(ctx, s, cache, []*loginFlags{own}, func() (int, error) { return cache.Remove(method.Identity()) })
		removed += n
		problems = append(problems, err)
	}
	return removed, errors.Join(problems...)
}

// forget removes logins, and gives the refresh tokens of those that are known back
// to their issuers.
func forget(ctx context.Context, s cli.Streams, cache *session.Cache, known []*loginFlags, remove func() (int, error)) (int, error) {
	type held struct {
		issuer     *session.OIDC
		credential *session.Credential
		problem    error
	}
	var all []held
	seen := map[string]bool{"": true}
	for _, login := range known {
		method, incomplete, err := login.forgettable(s)
		if err != nil {
			continue
		}
		issuer, ok := method.(*session.OIDC)
		if !ok {
			continue
		}
		if kept := cache.Stored(issuer.Identity()); kept != nil && !seen[kept.RefreshToken] {
			seen[kept.RefreshToken] = true // contexts may share a login
			all = append(all, held{issuer, kept, incomplete})
		}
	}
	removed, err := remove()
	for _, one := range all {
		giveBack(ctx, s, one.issuer, one.credential, one.problem)
	}
	return removed, err
}

// forgettable returns the way to log in that checked flags describe, as far as logging out
// needs it. Incomplete says why nothing can be asked by it: the identity is enough
// to remove a login, and files of CAs and secrets need not be there.
func (f *loginFlags) forgettable(s cli.Streams) (method session.Method, incomplete, err error) {
	if method, incomplete = f.method(s, time.Now); incomplete == nil {
		return method, nil, nil
	}
	bare := *f
	bare.issuerCA, bare.issuerCAData, bare.serverCA, bare.serverCAData, bare.clientSecretFile = "", "", "", "", ""
	method, err = bare.method(s, time.Now)
	return method, incomplete, err
}

// giveBack gives the refresh token of a login that was removed back to the issuer.
// What keeps it from that is a remark: here, nothing is left all the same.
func giveBack(ctx context.Context, s cli.Streams, issuer *session.OIDC, c *session.Credential, problem error) {
	if problem == nil {
		// Nobody waits long for a remark.
		const timeout = 10 * time.Second
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		problem = issuer.Revoke(ctx, c)
	}
	if problem != nil {
		_, _ = fmt.Fprintf(s.Err, "gatehouse: the refresh token was not revoked, and is valid until the issuer ends it: %s\n", problem) // a remark
	}
}
