package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/session"
)

// loginCommand is what the command line of login says, and what it needs of the
// world.
type loginCommand struct {
	loginFlags
	contextFlags
	output string

	getenv func(string) string
	now    func() time.Time
	// hint is what a person runs to be asked.
	hint string
}

func newLoginCommand(s streams) *cobra.Command {
	f := loginCommand{getenv: os.Getenv, now: time.Now}
	cmd := &cobra.Command{
		Use:   "login",
		Short: "Log in, and be kubectl's credential plugin",
		Long: `Login gets a token for the API server and keeps it, so that kubectl asks nobody
again until it has ended and cannot be renewed. People run it to log in; kubectl
runs it to get the token, by the exec section of a kubeconfig that 'gatehouse
kubeconfig' writes.

With --issuer one logs in at an OpenID Connect issuer: in a browser (with PKCE),
or with --device on another device. The token is the issuer's ID token.

With --server and without --issuer one logs in with name and password, which are
asked for on the terminal and given to Gatehouse, which asks the directory. The
token is Gatehouse's. A password is never a flag; scripts use --password-stdin.

Without either, the current context of the kubeconfig says how.

The login is kept in a directory that only its owner can look into. Programs that
need a login at the same time wait for one of them. Where nobody can be asked,
such as in a job, login fails rather than open a browser.

Run by a person, login prints who one is and until when. The token is printed with
-o token alone, and never to a terminal.

Exit codes: 0 logged in, 1 refused, 2 could not tell: bad usage, nobody answered,
nobody to ask.`,
		Example: `  # in a browser
  gatehouse login --issuer https://dex.example --client-id kubernetes --scope email --scope groups

  # on another device
  gatehouse login --issuer https://dex.example --client-id kubernetes --device

  # with name and password
  gatehouse login --server https://gatehouse.example:9443 --server-ca ca.crt --username jane

  # as the current context of the kubeconfig says
  gatehouse login`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			program := cmd.Root().DisplayName()
			f.hint = commandLine(program, cmd.Flags())
			if f.issuerCAData != "" || f.serverCAData != "" {
				f.hint = program + " login --context NAME, with the context that was used"
			}
			return f.run(cmd.Context(), s)
		},
	}
	f.loginFlags.add(cmd.Flags())
	f.contextFlags.add(cmd)
	cmd.Flags().BoolVar(&f.passwordStdin, "password-stdin", false, "read the password from standard input, instead of asking on the terminal")
	addOutputFlag(cmd, &f.output, "text", "json", "token")
	completeLoginFlags(cmd)
	return cmd
}

func (f *loginCommand) run(ctx context.Context, s streams) error {
	info := f.getenv(session.ExecInfoVariable)
	if info == "" {
		return f.forPerson(ctx, s)
	}
	return f.forPlugin(ctx, s, info)
}

// forPlugin answers client-go. Nothing else goes to standard output.
func (f *loginCommand) forPlugin(ctx context.Context, s streams, info string) error {
	call, err := session.ParseCall(info)
	if err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	if f.passwordStdin {
		return errors.New("--password-stdin is not for kubectl: standard input is kubectl's")
	}
	interactive := isTerminalInput(s.in)
	if call.Interactive != nil {
		interactive = *call.Interactive
	}
	credential, _, err := f.get(ctx, s, interactive)
	if err != nil {
		return err
	}
	text, err := call.Answer(credential)
	if err != nil {
		return err
	}
	_, err = s.out.Write(text)
	return err
}

// isTerminalInput tells whether a person types.
func isTerminalInput(r io.Reader) bool {
	file, ok := r.(*os.File)
	return ok && isTerminal(file)
}

// forPerson logs in and says who that was.
func (f *loginCommand) forPerson(ctx context.Context, s streams) error {
	switch f.output {
	case "text", "json":
	case "token":
		if isTerminal(s.out) {
			return errors.New("--output token: standard output is a terminal, where a token stays to be read (hint: a pipe or a file)")
		}
	default:
		return outputError(f.output, "text", "json", "token")
	}
	if !f.loginFlags.named() || f.contextFlags.named() {
		if err := f.fromContext(); err != nil {
			return err
		}
	}
	if err := f.check(); err != nil {
		return err
	}
	credential, fresh, err := f.get(ctx, s, true)
	if err != nil {
		return err
	}
	return f.print(s.out, credential, fresh)
}

// fromContext takes the way to log in from the kubeconfig. What is about this
// login alone stays as the flags say.
func (f *loginCommand) fromContext() error {
	if f.loginFlags.named() {
		return errors.New("--context and --kubeconfig say how to log in, and so do --issuer and --server: give one of them")
	}
	said, err := f.login()
	if err != nil {
		return fmt.Errorf("%w (hint: --context NAME, or say how with --issuer or --server)", err)
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
	f.loginFlags = *said
	return nil
}

// get gets the credential of checked flags, with an exit code in the error.
func (f *loginFlags) get(ctx context.Context, s streams, now func() time.Time, getenv func(string) string, interactive bool) (*session.Credential, bool, error) {
	cache, err := f.cache(getenv)
	if err != nil {
		return nil, false, err
	}
	method, err := f.method(s, now)
	if err != nil {
		return nil, false, err
	}
	const grace = time.Minute // for what follows the person's part
	get := session.Session{
		Method: method, Cache: cache, Interactive: interactive, Patience: f.timeout + grace, Remarks: s.err, Now: now,
	}
	credential, fresh, err := get.Get(ctx)
	switch _, refused := errors.AsType[*session.RefusedError](err); {
	case refused:
		return nil, false, &exitError{code: exitNo, err: err}
	case errors.Is(err, context.Canceled):
		return nil, false, errors.New("interrupted")
	}
	return credential, fresh, err
}

func (f *loginCommand) get(ctx context.Context, s streams, interactive bool) (*session.Credential, bool, error) {
	credential, fresh, err := f.loginFlags.get(ctx, s, f.now, f.getenv, interactive)
	if errors.Is(err, session.ErrNeedsPerson) {
		err = fmt.Errorf("%w (hint: run: %s)", session.ErrNeedsPerson, f.hint)
	}
	return credential, fresh, err
}

// loggedIn is what login says as JSON.
type loggedIn struct {
	User      string    `json:"user"`
	Source    string    `json:"source"`
	ExpiresAt time.Time `json:"expiresAt"`
	// SessionEnds is until when the token is renewed without asking, where that is
	// known.
	SessionEnds time.Time `json:"sessionEnds,omitzero"`
	// Renewable tells whether the token can be renewed without asking.
	Renewable bool `json:"renewable"`
	// Cached tells that there was a login already.
	Cached bool `json:"cached"`
}

func (f *loginCommand) print(out io.Writer, c *session.Credential, fresh bool) error {
	switch f.output {
	case "token":
		_, err := fmt.Fprintln(out, c.Token)
		return err
	case "json":
		return json.NewEncoder(out).Encode(loggedIn{
			User: c.User, Source: c.Source, ExpiresAt: c.ExpiresAt.UTC(), SessionEnds: c.SessionEnds,
			Renewable: c.RefreshToken != "" || c.SessionEnds.After(c.ExpiresAt), Cached: !fresh,
		})
	}
	how := "already logged in"
	if fresh {
		how = "logged in"
	}
	renewed := "then somebody has to log in again"
	switch {
	case c.RefreshToken != "":
		renewed = "renewed without asking as long as the issuer allows it"
	case c.SessionEnds.After(c.ExpiresAt):
		renewed = "renewed without asking until " + c.SessionEnds.UTC().Format(time.RFC3339)
	}
	_, err := fmt.Fprintf(out, "%s at %s as %s until %s; %s\n", how, c.Source, oneLine(c.User), c.ExpiresAt.UTC().Format(time.RFC3339), renewed)
	return err
}
