// Package login has the commands of people who log in: login, logout, whoami and kubeconfig.
package login

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/session"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// loginCommand has the flags of login.
type loginCommand struct {
	loginFlags
	cli.ContextFlags
	output string
}

// NewCommand returns the command "gatehouse login".
func NewCommand(s cli.Streams) *cobra.Command {
	var f loginCommand
	cmd := &cobra.Command{
		Use:   "login",
		Short: "Log in to a cluster, and store the token for kubectl",
		Long: `Login gets a token for the API server and stores it, so that kubectl works until the
token has expired and can no longer be renewed. You run it to log in; kubectl runs
it by itself if 'gatehouse kubeconfig' wrote the kubeconfig. Without --issuer and
--server, the current context of the kubeconfig says where to log in.

With --issuer, you log in at an OpenID Connect issuer in a browser, or with --device
on another device. With --server alone, login asks for your user name and password and
sends them to Gatehouse.

With --account, each of several accounts at one issuer has a stored login of its own. The
issuer is asked for this account, and a login with another one is rejected.

With --scope, the token can do only what the scope includes, for example for a program
that should not have all of your rights. The token of an issuer has no scope, so login
exchanges it at --server for one that has, and that ends with it at the latest. A login
at the issuer that is stored already is used.

Tokens are stored in the keyring of your system, unless --token-store says otherwise:

  auto     the keyring if it is unlocked, else files that only you can read (the default)
  keyring  the keyring; login waits up to a minute for you to unlock it
  file     files that only you can read
  none     nothing is stored

Exit codes: 0 logged in, 1 rejected, 2 cannot decide: wrong usage, no response, or
no terminal for a question.`,
		Example: `  # in a browser
  gatehouse login --issuer https://dex.example --client-id kubernetes --issuer-scope email --issuer-scope groups

  # on another device
  gatehouse login --issuer https://dex.example --client-id kubernetes --device

  # with user name and password
  gatehouse login --server https://gatehouse.example:9443 --server-ca ca.crt --username jane

  # with the second of two accounts
  gatehouse login --issuer https://dex.example --client-id kubernetes --issuer-scope email --account admin@example.org

  # as in the current context of the kubeconfig
  gatehouse login

  # a token for a program that may only look, with the login of the current context
  gatehouse login --scope view -o token >token`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), s)
		},
	}
	f.add(cmd.Flags())
	f.Add(cmd)
	cmd.Flags().BoolVar(&f.passwordStdin, "password-stdin", false, "read the password from standard input and log in again, for scripts")
	cli.AddOutputFlag(cmd, &f.output, "text", "token")
	return cmd
}

func (f *loginCommand) run(ctx context.Context, s cli.Streams) error {
	info := os.Getenv(session.ExecInfoVariable)
	if info == "" {
		return f.forPerson(ctx, s)
	}
	return f.forPlugin(ctx, s, info)
}

// forPlugin writes the credential for client-go. Nothing else goes to standard output.
func (f *loginCommand) forPlugin(ctx context.Context, s cli.Streams, info string) error {
	call, err := session.ParseCall(info)
	if err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	if f.passwordStdin {
		return errors.New("--password-stdin cannot be used by kubectl, which has its own standard input")
	}
	interactive := cli.IsTerminalInput(s.In)
	if call.Interactive != nil {
		interactive = *call.Interactive
	}
	get, err := f.session(s, interactive)
	if err != nil {
		return err
	}
	credential, err := get.Get(ctx)
	if err != nil {
		return loginError(err, "run '"+cli.DisplayName(os.Args[0])+" login' in a terminal, with --context and --kubeconfig as for kubectl")
	}
	text, err := call.Answer(credential)
	if err != nil {
		return err
	}
	_, err = s.Out.Write(text)
	return err
}

// forPerson logs in and prints who the user is. A password that was given is used: who
// gives one wants to know whether it is right. So is a name, where the stored login may be
// somebody else's.
func (f *loginCommand) forPerson(ctx context.Context, s cli.Streams) error {
	if f.output == "token" && cli.IsTerminal(s.Out) {
		return errors.New("--output token: a token is not printed to a terminal (hint: redirect standard output to a pipe or a file)")
	}
	if !f.named() || f.Named() {
		if err := f.fromContext(); err != nil {
			return err
		}
	}
	if err := f.check(); err != nil {
		return err
	}
	get, err := f.session(s, true)
	if err != nil {
		return err
	}
	get.Anew, get.Renew = f.passwordStdin || f.name != "", f.output == "text"
	credential, err := get.Get(ctx)
	if err != nil {
		return loginError(err, "run it in a terminal; scripts use --password-stdin")
	}
	return f.print(s.Out, credential)
}

// fromContext takes the way to log in from the kubeconfig. Flags about this run only stay as they are.
func (f *loginCommand) fromContext() error {
	if f.named() {
		return errors.New("--context and --kubeconfig cannot be combined with --issuer and --server: the context of the kubeconfig has its own")
	}
	if names := f.given("issuer-ca", "issuer-ca-data", "client-id", "client-secret-file", "issuer-scope", "server-ca", "server-ca-data", "directory"); names != "" {
		return errors.New(names + " valid only with --issuer or --server (hint: without them, the context of the kubeconfig decides how to log in)")
	}
	said, err := loginOf(&f.ContextFlags, "--kubeconfig FILE or --context NAME, or log in without a kubeconfig: --issuer URL --client-id ID, or --server URL")
	if err != nil {
		return err
	}
	if f.listen != defaultListen {
		said.listen = f.listen
	}
	said.passwordStdin = f.passwordStdin
	switch {
	case f.scope == "" || f.scope == said.scope:
	case said.scope != "":
		return fmt.Errorf("--scope %.100q: the context logs in with the scope %q", f.scope, said.scope)
	default:
		said.scope = f.scope // a session of its own, which kubectl does not use
	}
	if err := said.setAccount(f.account); err != nil {
		return err
	}
	said.noBrowser = said.noBrowser || f.noBrowser
	said.device = said.device || f.device
	switch {
	case f.username == "" || f.username == said.username:
	case said.username != "":
		return fmt.Errorf("--username %q: the context logs in as %q", f.username, said.username)
	case said.issuer != "":
		said.username = f.username // for check to say that it is not for an issuer
	default:
		said.name = f.username // kubectl looks for a login without a name
	}
	if f.cacheDir != "" {
		said.cacheDir = f.cacheDir
	}
	if f.tokenStore != "" {
		said.tokenStore = f.tokenStore
	}
	f.loginFlags = *said
	return nil
}

// setAccount sets the account of a login that a context describes, "" for that of the context. Another one than kubectl's has a login of its
// own, which kubectl does not use.
func (f *loginFlags) setAccount(account string) error {
	if account != "" && f.account != "" && account != f.account {
		return fmt.Errorf("--account %.100q: the context logs in with the account %q (hint: a context for each account, by kubeconfig --account)", account, f.account)
	}
	f.account = cmp.Or(account, f.account)
	return nil
}

// session returns the session that checked flags describe.
func (f *loginFlags) session(s cli.Streams, interactive bool) (*session.Session, error) {
	cache, err := f.cache(interactive)
	if err != nil {
		return nil, err
	}
	method, err := f.method(s)
	if err != nil {
		return nil, err
	}
	const grace = time.Minute // for what follows the person's part
	get := &session.Session{
		Method: method, Cache: cache, Interactive: interactive, LockTimeout: loginTimeout + grace, Remarks: s.Err, Now: time.Now,
	}
	if f.issuer == "" || f.scope == "" {
		return get, nil
	}
	_, roots, err := f.serverCAs()
	if err != nil {
		return nil, err
	}
	scoped := *get
	scoped.Method = &session.Exchange{At: get, Server: f.server, Roots: roots, Scope: f.scope, Now: time.Now}
	scoped.LockTimeout *= 2 // it may wait for the other lock
	return &scoped, nil
}

// loginError returns an error of a session with its exit code. Hint is what to do where
// nobody can be asked.
func loginError(err error, hint string) error {
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted")
	}
	refused, definite := errors.AsType[*session.RefusedError](err)
	if errors.Is(err, session.ErrNeedsPerson) {
		text := session.ErrNeedsPerson.Error()
		if definite {
			text += ": the login could not be renewed: " + refused.Error()
		}
		err = fmt.Errorf("%s (hint: %s)", text, hint)
	}
	// What cannot be right is bad usage: nobody was refused.
	if definite && refused.Reason != string(authn.ReasonInput) {
		return &cli.ExitError{Code: cli.ExitNo, Err: err}
	}
	return err
}

// print writes who logged in, or the token.
func (f *loginCommand) print(out io.Writer, c *session.Credential) error {
	if f.output == "token" {
		_, err := fmt.Fprintln(out, c.Token)
		return err
	}
	renewed := "then log in again"
	switch {
	case c.RefreshToken != "", c.AtIssuer:
		renewed = "renewed automatically as long as the issuer allows it"
	case c.SessionEnds.After(c.ExpiresAt):
		renewed = "renewed automatically until " + c.SessionEnds.UTC().Format(time.RFC3339)
	}
	_, err := fmt.Fprintf(out, "logged in at %s as %s until %s; %s\n", c.Source, cli.OneLine(c.User), c.ExpiresAt.UTC().Format(time.RFC3339), renewed)
	return err
}
