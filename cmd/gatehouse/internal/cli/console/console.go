// Package console implements the command "gatehouse console": pages for a browser on this machine, about a cluster, a
// configuration and recordings.
//
// The console listens on this machine alone. It reads a cluster with the rights of the user of the kubeconfig, and changes
// nothing. It computes nothing itself: it runs other commands, and each page names the command that prints the same.
package console

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/semaphore"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
)

//go:embed templates
var templates embed.FS

// defaultPort is the port without --port: the same on all machines, so that the URL of a page works for a colleague, too.
const defaultPort = 8642

// Run runs a command of the program and returns its exit code.
type Run func(ctx context.Context, args []string, s cli.Streams) int

// flags are what the command line says.
type flags struct {
	cli.SourceFlags
	config     string
	recordings []string
	namespaces []string
	port       int
	noBrowser  bool
}

// NewCommand returns the command "gatehouse console". Run runs the other commands.
func NewCommand(s cli.Streams, run Run) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Show decisions and policies in a browser",
		Long: `Console shows in your browser what the servers of a cluster do: replicas and
certificates, decisions with their reasons, policies and profiles. You can also try
a change of a policy on manifests and recordings. Each page names the command that
prints the same. With --config or --recording, and without --context, the console
needs no cluster.

The console runs on this machine, reads the cluster with your rights, and changes
nothing. It answers only your browser: the URL that it prints has a token, which
works once.

Exit codes: 0 stopped by a signal, 2 it cannot serve.`,
		Example: `  # the cluster of the current context
  gatehouse console

  # a recording and the configuration that you change
  gatehouse console --config ./config --recording ./prod.gatehouse.zst

  # a candidate for a cluster
  gatehouse console --context prod --config ./new`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return f.serve(cmd.Context(), s, run)
		},
	}
	cli.AddConfigFlag(cmd, &f.config, "directory of documents; with a cluster, they replace what is active there")
	f.Add(cmd)
	flags := cmd.Flags()
	flags.StringArrayVar(&f.recordings, "recording", nil, "recording to show: a file, or a directory of such files; repeatable (default the recordings of the replicas)")
	flags.StringArrayVarP(&f.namespaces, "namespace", "n", nil, "namespace whose objects are shown; repeatable (default all that you may read)")
	flags.IntVar(&f.port, "port", defaultPort, "port on the loopback interface, 0 for any free port")
	flags.BoolVar(&f.noBrowser, "no-browser", false, "print the URL, and open no browser")
	return cmd
}

// check returns everything that is wrong with the flags.
func (f *flags) check() error {
	errs := []error{f.Check(f.config)}
	if f.config != "" {
		errs = append(errs, cli.CheckDir("--config", f.config))
	}
	for _, path := range f.recordings {
		if _, err := os.Stat(path); err != nil {
			errs = append(errs, fmt.Errorf("--recording %s: %w", cli.InertName(path), cli.Cause(err)))
		}
	}
	if f.port < 0 || f.port > 65535 {
		errs = append(errs, fmt.Errorf("--port %d: must be from 0 to 65535", f.port))
	}
	return errors.Join(errs...)
}

// isOffline reports whether no cluster is shown.
func (f *flags) isOffline() bool {
	return !f.Given() && (f.config != "" || len(f.recordings) > 0)
}

// sourceWords returns the flags that make another command decide by what the console shows.
func (f *flags) sourceWords() (words []string) {
	if f.config != "" {
		words = append(words, "--config", f.config)
	}
	if f.isOffline() {
		return words
	}
	return append(words, f.Arguments(f.WithCluster)...)
}

// console is what the pages share.
type console struct {
	*flags

	// ctx ends with the program.
	ctx context.Context //nolint:containedctx // jobs outlive requests
	run Run
	web *web.Server
	// work is a directory for files that commands read. It is removed at the end.
	work string
	now  func() time.Time

	observer observer
	// computing allows one computation of the page "try" at a time.
	computing *semaphore.Weighted

	// log has the decisions of the recordings. Background is done when nothing reads them any more.
	log        recordings
	background sync.WaitGroup
}

// serve serves the pages until the context ends.
func (f *flags) serve(ctx context.Context, s cli.Streams, run Run) error {
	listener, note, err := f.listen(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // Serve closes it, too
	work, err := os.MkdirTemp("", "gatehouse-console-")
	if err != nil {
		return fmt.Errorf("make a temporary directory: %w", cli.Cause(err))
	}
	defer os.RemoveAll(work) //nolint:errcheck // it is for this process alone
	ctx, cancel := context.WithCancel(ctx)
	address, secrets := listener.Addr().String(), web.NewSecrets()
	c, err := newConsole(ctx, f, run, work, address, secrets, func(url string) {
		_, _ = fmt.Fprintf(s.Err, "A browser has opened that URL, which is used up. For another browser: %s\n", url)
	})
	if err != nil {
		cancel()
		return err
	}
	defer c.background.Wait()
	defer cancel()
	url := secrets.FirstURL(address)
	_, _ = fmt.Fprintf(s.Err, "%sThe console is at %s\nPress Ctrl-C to stop it.\n", note, url)
	if !f.noBrowser {
		go openBrowser(s.Err, work, address, secrets)
	}
	return serveUntil(ctx, listener, c.web)
}

// listen listens on the loopback interface. If the default port is in use, it takes a free one.
func (f *flags) listen(ctx context.Context) (listener net.Listener, note string, err error) {
	on := func(port int) (net.Listener, error) {
		return new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}
	listener, err = on(f.port)
	if err != nil && f.port == defaultPort {
		note = fmt.Sprintf("Port %d is in use, so the console takes another one.\n", defaultPort)
		listener, err = on(0)
	}
	if err != nil {
		return nil, "", fmt.Errorf("--port %d: %w (hint: --port 0 takes a free port)", f.port, cli.Cause(err))
	}
	return listener, note, nil
}

const (
	headerTimeout = 10 * time.Second
	stopTimeout   = 2 * time.Second
)

// serveUntil serves until the context ends.
func serveUntil(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout, BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() {
		deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		_ = server.Shutdown(deadline) // what does not end by then ends with the process
	})
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the console: %w", err)
	}
	return nil
}

// newConsole returns a console with all pages.
func newConsole(ctx context.Context, f *flags, run Run, work, address string, secrets web.Secrets, renewed func(url string)) (*console, error) {
	pages, err := fs.Sub(templates, "templates")
	if err != nil {
		return nil, err
	}
	if !f.isOffline() {
		f.Context = f.ContextName() // commands need a cluster by name, and it must stay the same when another program changes the kubeconfig
	}
	c := &console{flags: f, ctx: ctx, run: run, work: work, now: time.Now, computing: semaphore.NewWeighted(1)}
	if c.isMirrored() {
		if err := os.MkdirAll(c.recordingPaths()[0], 0o700); err != nil {
			return nil, fmt.Errorf("make a directory for recordings: %w", cli.Cause(err))
		}
	}
	c.web, err = web.New(web.Options{
		Address: address, Secrets: secrets, Renewed: renewed, Templates: pages, Program: cli.DisplayName(os.Args[0]), Functions: functions(), About: c.about,
		Sections: []web.Section{{Path: "/", Title: "Overview"}, {Path: "/decisions", Title: "Decisions"}, {Path: "/policies", Title: "Policies and profiles"}, {Path: "/try", Title: "Try"}},
	})
	if err != nil {
		return nil, err
	}
	c.addOverview()
	c.addDecisions()
	c.addPolicies()
	c.addTry()
	return c, nil
}

// about says what the console shows.
func (c *console) about() string {
	if c.isOffline() {
		if c.config == "" {
			return "a recording, without a cluster"
		}
		return filepath.Base(c.config) + ", without a cluster"
	}
	if c.Unseen(c.config) != "" {
		return c.Describe(c.config) + ", without policies in files of API servers"
	}
	return c.Describe(c.config)
}
