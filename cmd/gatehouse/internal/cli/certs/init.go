package certs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	certsource "github.com/gatehouse-dev/gatehouse/certs/source"
	certstore "github.com/gatehouse-dev/gatehouse/certs/store"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install"
)

func newInitCommand(s cli.Streams) *cobra.Command {
	f := initFlags{now: time.Now}
	cmd := &cobra.Command{
		Use:   "init DIR --host NAME",
		Short: "Create a CA for one machine without a cluster",
		Long: `Init creates a CA in a directory, and a client certificate of it for the token reviews
of the API server. A server with --self-signed-dir and this directory uses that CA at
every start. With init you can configure the API server before there is a server;
without it, the server creates the same files at its first start.

Init creates the directory if it does not exist. It changes nothing if the directory
contains a CA, and rejects files of another CA. It replaces files of a Gatehouse that
did not store the key of its CA.

Exit codes: 0 created, or it exists; 1 there are files of another CA, or ca.crt does
not hold the CA; 2 bad usage, or the directory cannot be read or written.`,
		Example: `  gatehouse certs init ./gatehouse-certs --host 192.0.2.10
  gatehouse certs init ./gatehouse-certs --host gatehouse.example.org --host 127.0.0.1`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return errors.New("the directory is missing, or there is more than one (hint: gatehouse certs init ./gatehouse-certs --host 192.0.2.10)")
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.output != "text" && f.output != "json" {
				return cli.OutputError(f.output, "text", "json")
			}
			if len(f.hosts) == 0 {
				return errors.New("--host is required: the name or address at which the API server calls (hint: --host 127.0.0.1)")
			}
			return f.run(cmd.Context(), args[0], s)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.hosts, "host", nil, "name or address at which the API server calls, as in --self-signed of serve; repeatable (required)")
	cli.AddOutputFlag(cmd, &f.output, "text", "json")
	_ = cmd.RegisterFlagCompletionFunc("host", cobra.NoFileCompletions) // the flag exists
	return cmd
}

// initFlags are what the command line of certs init says.
type initFlags struct {
	hosts  []string
	output string

	now func() time.Time
}

// initReport is what certs init says as JSON.
type initReport struct {
	// Made is false if there was a CA already, and nothing was changed.
	Made bool   `json:"made"`
	Dir  string `json:"dir"`
	// Authority is the file with the CA and its key, CA the one with what clients
	// trust, and ClientCert and ClientKey the API server's.
	Authority  string `json:"authority"`
	CA         string `json:"ca"`
	ClientCert string `json:"clientCert"`
	ClientKey  string `json:"clientKey"`
	// ID is that of the current CA, as certs status has it.
	ID       string    `json:"id"`
	NotAfter time.Time `json:"notAfter"`
	// Missing are those of the files that are not there.
	Missing []string `json:"missing,omitempty"`
}

func (f *initFlags) run(ctx context.Context, dir string, s cli.Streams) error {
	state, made, inherited, err := f.ensure(ctx, dir)
	if _, foreign := errors.AsType[*certstore.ForeignError](err); foreign {
		err = &cli.ExitError{Code: cli.ExitNo, Err: err}
	}
	if err != nil {
		return err
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	r := &initReport{
		Made: made, Dir: dir, Authority: in(certstore.AuthorityFile), CA: in(certstore.CAFile),
		ClientCert: in(certstore.ClientCertFile), ClientKey: in(certstore.ClientKeyFile),
		ID: state.Current.ID(), NotAfter: state.Current.Cert.NotAfter.UTC(),
	}
	for _, file := range []string{r.CA, r.ClientCert, r.ClientKey} {
		if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
			r.Missing = append(r.Missing, file)
		}
	}
	if f.output == "json" {
		err = cli.WriteJSONLine(s.Out, r)
	} else {
		err = f.print(s, r)
	}
	if err != nil {
		return err
	}
	f.remark(s, r)
	if inherited {
		_, _ = fmt.Fprintln(s.Err, install.ReplacedFilesWarning(dir)) // a remark
	}
	return nil
}

// ensure is the state in the directory, which is made if there is nothing, or only
// what an older version left.
func (f *initFlags) ensure(ctx context.Context, dir string) (state *rotation.State, made, inherited bool, err error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, false, false, fmt.Errorf("%q is not a directory", dir)
	}
	store := certstore.NewDirStore(dir)
	record, err := store.Load(ctx)
	if err != nil {
		return nil, false, false, err
	}
	state, err = rotation.Decode(record.Data)
	switch {
	case err == nil:
		return state, false, false, f.checkBundle(dir, store, state)
	case !errors.Is(err, rotation.ErrEmpty):
		return nil, false, false, fmt.Errorf("%s: %w (hint: a server that is started with it goes on with what can be read, or makes a new CA)", store, err)
	}
	if inherited, err = store.Claim(ctx); err != nil {
		return nil, false, false, fmt.Errorf("nothing was made: %w", err)
	}
	own, err := certsource.NewSelfSigned(ctx, certsource.SelfSignedConfig{Hosts: f.hosts, Store: store, Version: build.Version(), Now: f.now})
	if err != nil {
		return nil, false, false, err
	}
	state = own.State()
	if state == nil {
		return nil, false, false, own.Healthy()
	}
	return state, true, inherited, own.WriteDir(dir)
}

// checkBundle refuses a file for the API server that lacks a CA of the state: whoever
// goes by it trusts something else. One that is not there is remarked on.
func (f *initFlags) checkBundle(dir string, store certstore.Store, state *rotation.State) error {
	file := filepath.Join(dir, certstore.CAFile)
	text, err := os.ReadFile(file) //nolint:gosec // in the directory that is named
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, cli.Cause(err))
	}
	there := certificatesIn(text)
	for _, ca := range state.Trusted(f.now()) {
		if !slices.ContainsFunc(there, ca.Equal) {
			return &cli.ExitError{Code: cli.ExitNo, Err: fmt.Errorf("%s: does not hold the CA %s, which is in %s: whoever goes by it does not trust what is served (hint: move it away, and a server that is started with --self-signed-dir %s writes it again)",
				file, shortID(rotation.ID(ca)), store, cli.ShellQuote(dir))}
		}
	}
	return nil
}

// print shows what is where, and what to do with it.
func (f *initFlags) print(s cli.Streams, r *initReport) error {
	var text strings.Builder
	if r.Made {
		fmt.Fprintf(&text, "made a CA in %s:\n", r.Dir)
	} else {
		fmt.Fprintf(&text, "there is a CA in %s already, and nothing was changed:\n", r.Dir)
	}
	table := newTable(&text)
	for _, row := range [][2]string{
		{r.Authority, "the CA with its key, for servers on this machine and nobody else"},
		{r.CA, "the CA, for the API server; CA " + shortID(r.ID) + " is good until " + cli.FormatTime(&r.NotAfter)},
		{r.ClientCert, "the client certificate of the API server"},
		{r.ClientKey, "the key of that"},
	} {
		_, _ = fmt.Fprintf(table, "  %s\t%s\n", row[0], row[1]) // a Builder takes everything
	}
	_ = table.Flush()
	program, dir := cli.DisplayName(os.Args[0]), r.Dir
	hosts := make([]string, len(f.hosts))
	for i, host := range f.hosts {
		hosts[i] = cli.ShellQuote(host)
	}
	url := "https://HOST:9443" // of names with a star, whoever reads it has to choose
	if i := slices.IndexFunc(f.hosts, func(host string) bool { return !strings.Contains(host, "*") }); i >= 0 {
		url = "https://" + net.JoinHostPort(f.hosts[i], "9443")
	}
	fmt.Fprintf(&text, `
serve with it:
  %[1]s serve --config CONFIG --self-signed %[2]s --self-signed-dir %[3]s
register for admission:
  %[1]s manifests --url %[4]s --ca-file %[5]s --config CONFIG | kubectl apply -f -
register for token reviews, with paths on the hosts of kube-apiserver:
  %[1]s manifests --authentication --url %[4]s --ca-file %[6]s --client-cert %[7]s --client-key %[8]s
`, program, strings.Join(hosts, ","), cli.ShellQuote(dir), cli.ShellQuote(url), cli.ShellQuote(r.CA), absolute(r.CA), absolute(r.ClientCert), absolute(r.ClientKey))
	_, err := s.Out.Write([]byte(text.String()))
	return err
}

// remark says on standard error what somebody may not expect.
func (f *initFlags) remark(s cli.Streams, r *initReport) {
	if !r.Made {
		_, _ = fmt.Fprintf(s.Err, "--host %s: names are not kept with the CA; serve --self-signed says for which the certificate is\n", strings.Join(f.hosts, ",")) // remarks
	}
	for _, file := range r.Missing {
		_, _ = fmt.Fprintf(s.Err, "%s is not there: a server that is started with --self-signed-dir %s writes it\n", file, cli.ShellQuote(r.Dir))
	}
}

// absolute is a file by a path that does not depend on where one is, as a shell takes
// it.
func absolute(file string) string {
	if path, err := filepath.Abs(file); err == nil {
		file = path
	}
	return cli.ShellQuote(file)
}
