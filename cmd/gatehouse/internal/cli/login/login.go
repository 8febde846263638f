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

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/auth/login"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/auth/session"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// loginCommand has the flags of login, and what it needs from outside.
type loginCommand struct {
	loginFlags
	cli.ContextFlags
	output string

	getenv func(string) string
	now    func() time.Time
	// hint is the command that a person runs to log in.
	hint string
}

// NewCommand returns the command "gatehouse login".
func NewCommand(s cli.Streams) *cobra.Command {
	f := loginCommand{getenv: os.Getenv, now: time.Now}
	cmd := &cobra.Command{
		Use:   "login",
		Short: "Log in to a cluster, as a command or kubectl's credential plugin",
		Long: `Login gets a token for the API server and stores it, so that kubectl can use it
until it expires and can no longer be renewed. You run login to log in; kubectl runs
it to get the token, from the exec section of a kubeconfig that 'gatehouse
kubeconfig' writes.

With --issuer, you log in at an OpenID Connect issuer: in a browser (with PKCE), or
with --device on another device. The token is the issuer's ID token.

With --server and without --issuer, you log in with user name and password. Login
asks for them on the terminal and sends them to Gatehouse, which verifies them with
LDAP. The token is Gatehouse's. There is no flag for a password; scripts use
--password-stdin, which always logs in again. Before it asks for anything, login
verifies that the server is a Gatehouse.

Without either, the current context of the kubeconfig decides.

Tokens are stored in files that only you can read, encrypted with a key in the OS
keyring: Keychain, Credential Manager, or the Secret Service of a Linux desktop.
--token-store, or the variable GATEHOUSE_TOKEN_STORE, selects another place:
  auto     the keyring if it is unlocked, and else unencrypted files, as for SSH
           sessions and CI (the default)
  keyring  the keyring; login waits up to a minute for you to unlock it
  file     unencrypted files that only you can read
  none     nothing is stored
A stored login moves to the keyring when it is renewed.

Programs that need a login at the same time wait for one of them. Where nobody can be
asked, such as in a job, login fails and opens no browser.

If --server or the kubeconfig has the address of Gatehouse, login verifies a stored
login with Gatehouse first, and replaces it if it is rejected. When kubectl runs
login, this is omitted to save time. -o token prints the token, but never to a
terminal.

Exit codes: 0 logged in, 1 rejected, 2 cannot decide: bad usage, no response, no
terminal for the question.`,
		Example: `  # in a browser
  gatehouse login --issuer https://dex.example --client-id kubernetes --scope email --scope groups

  # on another device
  gatehouse login --issuer https://dex.example --client-id kubernetes --device

  # with user name and password
  gatehouse login --server https://gatehouse.example:9443 --server-ca ca.crt --username jane

  # as in the current context of the kubeconfig
  gatehouse login`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.hint = commandLine(cmd.Root().DisplayName(), cmd.Flags())
			return f.run(cmd.Context(), s)
		},
	}
	f.add(cmd.Flags())
	f.Add(cmd)
	cmd.Flags().BoolVar(&f.passwordStdin, "password-stdin", false, "read the password from standard input, instead of asking on the terminal")
	cli.AddOutputFlag(cmd, &f.output, "text", "json", "token")
	completeLoginFlags(cmd)
	return cmd
}

func (f *loginCommand) run(ctx context.Context, s cli.Streams) error {
	info := f.getenv(session.ExecInfoVariable)
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
	get, err := f.session(s, f.now, f.getenv, interactive)
	if err != nil {
		return err
	}
	credential, _, err := get.Get(ctx)
	if err != nil {
		return loginError(err, func() string { return f.contextHint() })
	}
	text, err := call.Answer(credential)
	if err != nil {
		return err
	}
	_, err = s.Out.Write(text)
	return err
}

// contextHint returns the command to run where kubectl cannot ask. CAs make the flags of a
// kubeconfig longer than anybody would type: then it is the context with these flags,
// if it is in a kubeconfig that can be found from here.
func (f *loginCommand) contextHint() string {
	if f.issuerCAData == "" && f.serverCAData == "" {
		return f.hint
	}
	program := cli.DisplayName(os.Args[0]) + " login --context "
	if name := contextOf(&f.ContextFlags, &f.loginFlags); name != "" {
		return program + cli.ShellQuote(name)
	}
	return program + "NAME, with the context that was used, and --kubeconfig FILE if kubectl had it"
}

// loginRemark is for people; that nobody reads it is no error.
func loginRemark(s cli.Streams, format string, args ...any) {
	_, _ = fmt.Fprintf(s.Err, "gatehouse: "+format+"\n", args...)
}

// forPerson logs in and prints who the user is.
func (f *loginCommand) forPerson(ctx context.Context, s cli.Streams) error {
	switch f.output {
	case "text", "json":
	case "token":
		if cli.IsTerminal(s.Out) {
			return errors.New("--output token: a token is not printed to a terminal (hint: redirect standard output to a pipe or a file)")
		}
	default:
		return cli.OutputError(f.output, "text", "json", "token")
	}
	if !f.named() || f.Named() {
		if err := f.fromContext(); err != nil {
			return err
		}
	}
	if err := f.check(); err != nil {
		return err
	}
	got, err := f.getForPerson(ctx, s)
	if err != nil {
		if f.output == "json" {
			err = errors.Join(err, f.printFailure(s.Out, err))
		}
		return err
	}
	return f.print(s.Out, got)
}

// loginResult is a login of a person.
type loginResult struct {
	*session.Credential

	// fresh reports that the login was not there at once.
	fresh bool
	// as is what Gatehouse calls the user, empty if it was not asked.
	as string
	// store is where the login is stored.
	store session.Store
}

// getForPerson gets a credential that Gatehouse accepts, as far as its address is known. A password that was given is
// used: who gives one wants to know whether it is right.
func (f *loginCommand) getForPerson(ctx context.Context, s cli.Streams) (*loginResult, error) {
	get, err := f.session(s, f.now, f.getenv, true)
	if err != nil {
		return nil, err
	}
	get.Anew = f.passwordStdin
	got := &loginResult{}
	login := func() error {
		var err error
		got.Credential, got.fresh, err = get.Get(ctx)
		return err
	}
	err = login()
	if err == nil && f.server != "" && (!got.fresh || f.issuer != "") {
		var rejected bool
		if got.as, rejected = f.verify(ctx, s, got); rejected && !got.fresh {
			get.Anew = true
			err = login()
		}
		err = cmp.Or(err, ctx.Err())
	}
	if err != nil {
		return nil, loginError(err, func() string { return f.hint })
	}
	got.store = get.Cache.StoreOf(get.Method.Identity())
	return got, nil
}

// verify asks Gatehouse whether it accepts a login, and returns what Gatehouse calls the user, or that only another login
// can be accepted.
func (f *loginCommand) verify(ctx context.Context, s cli.Streams, got *loginResult) (as string, rejected bool) {
	answer := f.judged(ctx, s, got.Credential)
	switch {
	case answer == nil:
		return "", false
	case answer.Outcome == string(authn.Yes):
		if answer.User != nil {
			as = answer.User.Username
		}
		return as, false
	case !ended(answer):
		loginRemark(s, "Gatehouse cannot decide whether it accepts the login: %s", verdictText(answer))
		return "", false
	case got.fresh:
		loginRemark(s, "Gatehouse rejects this login: %s", verdictText(answer))
	default:
		loginRemark(s, "Gatehouse rejects the stored login: %s", verdictText(answer))
	}
	return "", true
}

// ended reports whether only another login can change an answer about a token: a no, or the server no longer
// knows what it issued.
func ended(answer *login.Answer) bool {
	switch authn.Reason(answer.Reason) { //nolint:exhaustive // the others are of a yes, or pass by themselves
	case authn.ReasonUnknownKey, authn.ReasonSourceGone, authn.ReasonVersion:
		return true
	}
	return answer.Outcome == string(authn.No)
}

// judged returns Gatehouse's answer about a credential, or nil without one, which is
// printed as a remark.
func (f *loginCommand) judged(ctx context.Context, s cli.Streams, c *session.Credential) *login.Answer {
	text, err := f.serverCAText()
	if err != nil {
		loginRemark(s, "%s", err)
		return nil
	}
	roots, err := session.Roots(text)
	if err != nil {
		loginRemark(s, "--server-ca: %s", err)
		return nil
	}
	answer, err := session.Whoami(ctx, f.server, roots, c.Token, nil)
	if err != nil {
		loginRemark(s, "Gatehouse could not be asked whether it accepts the login: %s", err)
		return nil
	}
	return answer
}

// fromContext takes the way to log in from the kubeconfig. Flags about this run only stay as they are.
func (f *loginCommand) fromContext() error {
	if f.named() {
		return errors.New("--context and --kubeconfig cannot be combined with --issuer and --server: the context of the kubeconfig has its own")
	}
	if names := typedFlags([]typed{
		{"issuer-ca", f.issuerCA != ""},
		{"issuer-ca-data", f.issuerCAData != ""},
		{"client-id", f.clientID != ""},
		{"client-secret-file", f.clientSecretFile != ""},
		{"scope", len(f.scopes) > 0},
		{"server-ca", f.serverCA != ""},
		{"server-ca-data", f.serverCAData != ""},
		{"directory", f.directory != ""},
	}); names != "" {
		return errors.New(names + " valid only with --issuer or --server (hint: without them, the context of the kubeconfig decides how to log in)")
	}
	said, err := loginOf(&f.ContextFlags, "--kubeconfig FILE or --context NAME, or log in without a kubeconfig: --issuer URL --client-id ID, or --server URL")
	if err != nil {
		return err
	}
	if f.timeout != defaultLoginTimeout {
		said.timeout = f.timeout
	}
	if f.listen != defaultListen {
		said.listen = f.listen
	}
	said.passwordStdin = f.passwordStdin
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

// session returns the session that checked flags describe.
func (f *loginFlags) session(s cli.Streams, now func() time.Time, getenv func(string) string, interactive bool) (*session.Session, error) {
	cache, err := f.cache(s, getenv, interactive)
	if err != nil {
		return nil, err
	}
	method, err := f.method(s, now)
	if err != nil {
		return nil, err
	}
	const grace = time.Minute // for what follows the person's part
	return &session.Session{
		Method: method, Cache: cache, Interactive: interactive, LockTimeout: f.timeout + grace, Remarks: s.Err, Now: now,
	}, nil
}

// loginError returns an error of a session with its exit code. Hint is what a person runs
// to be asked; it is called only if that is needed.
func loginError(err error, hint func() string) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted")
	}
	refused, definite := errors.AsType[*session.RefusedError](err)
	if errors.Is(err, session.ErrNeedsPerson) {
		text := session.ErrNeedsPerson.Error()
		if definite {
			text += ": the renewal was rejected: " + refused.Error()
		}
		err = fmt.Errorf("%s (hint: run: %s)", text, hint())
	}
	// What cannot be right is bad usage: nobody was refused.
	if definite && refused.Reason != string(authn.ReasonInput) {
		return &cli.ExitError{Code: cli.ExitNo, Err: err}
	}
	return err
}

// loggedIn is the output of login as JSON.
type loggedIn struct {
	// Outcome is "yes".
	Outcome authn.Outcome `json:"outcome"`
	// User is what Gatehouse calls the user in the cluster or, without an answer of
	// Gatehouse, what the issuer calls them.
	User loggedInUser `json:"user"`
	// Issuer or Server is where the login was.
	Issuer    string    `json:"issuer,omitempty"`
	Server    string    `json:"server,omitempty"`
	ExpiresAt time.Time `json:"expiresAt"`
	// SessionEnds is until when the token is renewed without asking, where that is
	// known.
	SessionEnds time.Time `json:"sessionEnds,omitzero"`
	// Renewable reports whether the token can be renewed without asking.
	Renewable bool `json:"renewable"`
	// Cached reports whether there was a login already.
	Cached bool `json:"cached"`
	// Store is where it is stored: "keyring", "file" or "none".
	Store session.Store `json:"store"`
}

// loggedInUser is who logged in.
type loggedInUser struct {
	Username string `json:"username"`
}

// loginFailed is the output of a failed login as JSON.
type loginFailed struct {
	// Outcome is "no" or "unknown", as the exit code.
	Outcome authn.Outcome `json:"outcome"`
	// Reason is why the login was rejected, a word of Gatehouse or of the issuer.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message"`
}

// printFailure writes a failure as JSON; the text is written to standard error too.
func (f *loginCommand) printFailure(out io.Writer, err error) error {
	said := loginFailed{Outcome: authn.Unknown, Message: err.Error()}
	if exit, ok := errors.AsType[*cli.ExitError](err); ok && exit.Code == cli.ExitNo {
		said.Outcome = authn.No
	}
	if refused, ok := errors.AsType[*session.RefusedError](err); ok {
		said.Reason = refused.Reason
	}
	return cli.WriteJSONLine(out, said)
}

// print writes who logged in.
func (f *loginCommand) print(out io.Writer, got *loginResult) error {
	renewable := got.RefreshToken != "" || got.SessionEnds.After(got.ExpiresAt)
	switch f.output {
	case "token":
		_, err := fmt.Fprintln(out, got.Token)
		return err
	case "json":
		said := loggedIn{
			Outcome: authn.Yes, User: loggedInUser{cmp.Or(got.as, got.User)}, Issuer: f.issuer, ExpiresAt: got.ExpiresAt.UTC(), SessionEnds: got.SessionEnds,
			Renewable: renewable, Cached: !got.fresh, Store: got.store,
		}
		if f.issuer == "" {
			said.Server = got.Source
		}
		return cli.WriteJSONLine(out, said)
	}
	how := "already logged in"
	if got.fresh {
		how = "logged in"
	}
	renewed := "then log in again"
	switch {
	case got.RefreshToken != "":
		renewed = "renewed automatically as long as the issuer allows it"
	case renewable:
		renewed = "renewed automatically until " + got.SessionEnds.UTC().Format(time.RFC3339)
	}
	text := fmt.Sprintf("%s at %s as %s until %s; %s", how, got.Source, cli.OneLine(got.User), got.ExpiresAt.UTC().Format(time.RFC3339), renewed)
	if got.as != "" && got.as != got.User {
		text += "; the cluster knows you as " + cli.OneLine(got.as)
	}
	if !got.fresh && f.server == "" {
		text += fmt.Sprintf(" (hint: if the token is rejected, '%[1]s logout', then '%[1]s login')", cli.DisplayName(os.Args[0]))
	}
	_, err := fmt.Fprintln(out, text)
	return err
}
