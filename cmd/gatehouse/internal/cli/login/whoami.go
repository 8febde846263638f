package login

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install/registration"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/session"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// whoamiFlags are the flags of whoami.
type whoamiFlags struct {
	cli.ContextFlags
	server, serverCA string
	tokenFile        string
	output           string
}

// NewWhoamiCommand returns the command "gatehouse whoami".
func NewWhoamiCommand(s cli.Streams) *cobra.Command {
	var f whoamiFlags
	cmd := &cobra.Command{
		Use:   "whoami",
		Short: "Show the identity behind a token, or why it is rejected",
		Long: `Whoami shows who you are for Gatehouse, or why it rejects your token, where an API
server says only Unauthorized. It sends the token of the kubeconfig's context, or of
--token-file, to Gatehouse. It never asks you to log in, and never prints the token.

The address of Gatehouse is --server, or the one that 'gatehouse kubeconfig' wrote.
With --token-file, name the kubeconfig too (--kubeconfig or --context) if the
address is to come from it, so that the token does not go to the wrong server.

Exit codes: 0 yes, 1 no, 2 cannot decide.`,
		Example: `  # with the token that kubectl uses
  gatehouse whoami

  # why is this token rejected?
  gatehouse whoami --server https://gatehouse.example:9443 --server-ca ca.crt --token-file token`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("token-file") && f.tokenFile == "" {
				return errors.New("--token-file: must not be empty (hint: the name of a file, or - for standard input)")
			}
			return f.run(cmd.Context(), s)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.server, "server", "", "URL of Gatehouse, https://HOST:PORT (default from the kubeconfig)")
	flags.StringVar(&f.serverCA, "server-ca", "", "file with the CAs of Gatehouse's certificate, in PEM (default the system's)")
	flags.StringVar(&f.tokenFile, "token-file", "", "file with the token, - for standard input (default the token of the kubeconfig)")
	f.Add(cmd)
	cli.AddOutputFlag(cmd, &f.output, "text", "json")
	return cmd
}

// whoamiReport is the output of whoami as JSON.
type whoamiReport struct {
	// Outcome is "yes", "no" or "unknown", as the exit code.
	Outcome authn.Outcome `json:"outcome"`
	// Context is the context of the kubeconfig, if there was one.
	Context string `json:"context,omitempty"`
	// Server is the address of Gatehouse, and Gatehouse what it answered, unless
	// GatehouseError says why there is no answer.
	Server         string        `json:"server,omitempty"`
	Gatehouse      *login.Answer `json:"gatehouse,omitempty"`
	GatehouseError string        `json:"gatehouseError,omitempty"`
}

func (f *whoamiFlags) run(ctx context.Context, s cli.Streams) error {
	report, err := f.ask(ctx, s)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if err != nil {
		return err
	}
	if err := cli.WriteReport(s.Out, f.output, report, report.print); err != nil {
		return err
	}
	return cli.ExitOutcome(report.Outcome)
}

// ask finds the token and sends it to Gatehouse.
func (f *whoamiFlags) ask(ctx context.Context, s cli.Streams) (*whoamiReport, error) {
	report := &whoamiReport{Outcome: authn.Unknown}
	server, roots, err := f.gatehouse()
	if err != nil {
		return nil, err
	}
	token := ""
	if f.tokenFile != "" {
		if token, err = cli.ReadToken(s.In, f.tokenFile); err != nil {
			return nil, err
		}
	}
	if f.tokenFile == "" || f.Named() {
		name, user, err := f.User()
		if err != nil {
			return nil, cli.WithHint(err, "--kubeconfig FILE or --context NAME, or without a kubeconfig: --token-file FILE --server URL")
		}
		report.Context = name
		own, err := execLogin(user.Exec)
		if err != nil {
			return nil, fmt.Errorf("the context %q: %w", name, err)
		}
		if server == "" && own != nil && own.server != "" {
			server = own.server
			if _, roots, err = own.serverCAs(); err != nil {
				return nil, err
			}
		}
		if server == "" {
			report.GatehouseError = "not asked: the kubeconfig has no address of Gatehouse (hint: --server URL)"
			return report, nil
		}
		if token == "" {
			if token, err = contextToken(ctx, s, own, user); err != nil {
				return nil, err
			}
		}
	}
	if server == "" {
		return nil, errors.New("--server is required: the URL of Gatehouse")
	}
	report.Server = server
	if report.Gatehouse, err = session.Whoami(ctx, server, roots, token); err != nil {
		report.GatehouseError = err.Error()
		return report, nil //nolint:nilerr // the report has it
	}
	switch outcome := authn.Outcome(report.Gatehouse.Outcome); outcome {
	case authn.Yes, authn.No:
		report.Outcome = outcome
	case authn.Unknown:
	}
	return report, nil
}

// gatehouse returns the address of Gatehouse from the flags, and the CAs of its certificate.
func (f *whoamiFlags) gatehouse() (url string, roots *x509.CertPool, err error) {
	switch {
	case f.server == "" && f.serverCA != "":
		return "", nil, errors.New("--server-ca is valid only with --server")
	case f.server == "":
		return "", nil, nil
	}
	server, err := registration.ParseURL(f.server)
	if err != nil {
		return "", nil, fmt.Errorf("--server: %w", err)
	}
	_, roots, err = readCAs("--server-ca", f.serverCA, "")
	return server.URL, roots, err
}

// contextToken returns the token of a context. Nobody is asked to log in.
func contextToken(ctx context.Context, s cli.Streams, own *loginFlags, user *clientcmdapi.AuthInfo) (string, error) {
	switch {
	case own != nil:
		get, err := own.session(s, false)
		if err != nil {
			return "", err
		}
		credential, err := get.Get(ctx)
		if err != nil {
			return "", loginError(err, "run '"+cli.DisplayName(os.Args[0])+" login' with the same --context and --kubeconfig")
		}
		return credential.Token, nil
	case user.Token != "":
		return user.Token, nil
	}
	return "", errors.New("the context has no token and does not log in with Gatehouse (hint: --token-file FILE)")
}

// print writes the report for people, a line a fact. Flush of out has the error.
func (r *whoamiReport) print(out io.Writer) {
	line := func(name, value string) {
		if value != "" {
			_, _ = fmt.Fprintf(out, "%-11s %s\n", name, value)
		}
	}
	when := func(t *time.Time) string {
		if t == nil {
			return ""
		}
		return t.UTC().Format(time.RFC3339)
	}
	a := r.Gatehouse
	if a == nil {
		line("gatehouse", r.GatehouseError)
		return
	}
	if a.User != nil {
		line("user", cli.OneLine(a.User.Username))
		line("uid", cli.OneLine(a.User.UID))
		line("groups", cli.OneLine(strings.Join(a.User.Groups, ", ")))
		for i := range a.GroupOrigins {
			origin := &a.GroupOrigins[i]
			line("groups from", cli.OneLine(origin.Describe(time.Now())+": "+cmp.Or(origin.Missing, strings.Join(origin.Groups, ", "), "none")))
		}
		for i := range a.Grants {
			g := &a.Grants[i]
			line("grant", cli.OneLine(g.Name+": "+g.Left(time.Now())+" ("+authn.CachedLonger+")"))
		}
		for _, key := range slices.Sorted(maps.Keys(a.User.Extra)) {
			line("extra", cli.OneLine(key+"="+strings.Join(a.User.Extra[key], ",")))
		}
	}
	from := cli.OneLine(a.Backend)
	if a.Source != "" {
		from = strings.TrimPrefix(from+" of "+cli.OneLine(a.Source), " of ")
	}
	line("from", from)
	line("token id", cli.OneLine(a.TokenID))
	line("issued", when(a.IssuedAt))
	ends := when(a.ExpiresAt)
	if a.ExpiresAt != nil && time.Until(*a.ExpiresAt) > 0 {
		ends += " (in " + time.Until(*a.ExpiresAt).Round(time.Second).String() + ")"
	}
	line("expires", ends)
	line("gatehouse", verdictText(a))
}

// verdictText returns Gatehouse's answer about the token on one line.
func verdictText(a *login.Answer) string {
	switch authn.Outcome(a.Outcome) {
	case authn.Yes:
		return "yes"
	case authn.No, authn.Unknown:
	}
	outcome := cli.OneLine(a.Outcome)
	if a.Outcome == string(authn.Unknown) {
		outcome = "cannot decide"
	}
	text := outcome + ": " + cli.OneLine(a.Reason)
	if a.Message != "" {
		text += ": " + cli.OneLine(a.Message)
	}
	return text
}
