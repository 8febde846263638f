// Command demo shows what Gatehouse does on a real API server, in less than a
// minute: a login with an access token, a pod that gets its sidecar, a pod that
// is refused with every reason, a warning, a policy that changes without a
// restart, and a replay of what was recorded. Everything runs on this machine, on loopback addresses, in a
// temporary directory.
//
// What it prints is a transcript: the commands as they were run and their real
// output. It checks each output and fails when one is not as it must be, so that
// it is an end-to-end test too.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// Exit codes, those of gatehouse itself.
const (
	exitYes     = 0 // everything was shown and is as it must be
	exitNo      = 1 // something is not as it must be, or could not be started
	exitUnknown = 2 // bad usage
	// exitInterrupted is the shell's code for a program that Ctrl-C ended.
	exitInterrupted = 128 + int(syscall.SIGINT)
)

const usage = `Shows what Gatehouse does, on a real API server that is started for it, and
checks that it does. Nothing is left behind.

Usage:
  demo [--keep] [--gatehouse FILE]

Flags:
`

// options are the command line.
type options struct {
	keep      bool
	gatehouse string // path of the binary; empty is bin/gatehouse of the repository
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// The first signal asks for a clean end, the second ends at once.
	context.AfterFunc(ctx, stop)
	ctx, cancel := context.WithCancel(ctx)
	// With the reader gone there is nobody to show anything to. That must not kill
	// this program, however often it writes: what it started must end first.
	unread := make(chan os.Signal, 1)
	signal.Notify(unread, syscall.SIGPIPE)
	go func() {
		<-unread
		cancel()
	}()
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	cancel()
	stop()
	os.Exit(code)
}

// run is main without the process around it. When it returns, nothing that it
// started runs and nothing that it wrote is there, however it ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseOptions(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitYes
	case err != nil:
		_, _ = fmt.Fprintf(stderr, "demo: %v (hint: see demo --help)\n", err)
		return exitUnknown
	}
	out := &transcript{out: stdout}
	err = demonstrate(ctx, o, out, stderr)
	switch {
	case err == nil:
		return exitYes
	case ctx.Err() != nil:
		_, _ = fmt.Fprintln(stderr, "demo: interrupted")
		return exitInterrupted
	default:
		_, _ = fmt.Fprintf(stderr, "\ndemo: FAILED: %v\n", err)
		return exitNo
	}
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the caller says what is wrong, once
	flags.BoolVar(&o.keep, "keep", false, "leave everything running until Ctrl-C")
	flags.StringVar(&o.gatehouse, "gatehouse", "", "the gatehouse `binary` (default bin/gatehouse, which make build makes)")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		_, _ = io.WriteString(stderr, usage)
		flags.SetOutput(stderr)
		flags.PrintDefaults()
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return o, err
}

// demonstrate starts everything, shows everything, and removes everything.
func demonstrate(ctx context.Context, o options, out *transcript, stderr io.Writer) (err error) {
	begin := time.Now()
	root, err := support.Root()
	if err != nil {
		return err
	}
	if o.gatehouse == "" {
		o.gatehouse = filepath.Join(root, "bin", "gatehouse")
	}
	s, err := newStage(root, o.gatehouse, out, stderr)
	if err != nil {
		return err
	}
	// Deferred, so that a panic leaves nothing behind either.
	defer func() {
		if closeErr := s.close(); closeErr != nil {
			err = errors.Join(err, fmt.Errorf("clean up: %w", closeErr))
		}
	}()

	out.line("This shows what Gatehouse does, on an API server of its own. Working in %s", s.dir)
	shown := steps()
	for i, step := range shown {
		title := step.title
		if i > 0 {
			title = fmt.Sprintf("%d. %s", i, title)
		}
		out.heading(title, step.says)
		for _, line := range step.lines {
			if err := s.show(ctx, line); err != nil {
				return fmt.Errorf("%q is not as it must be:\n%w%s", title, err, s.logs())
			}
		}
	}
	out.heading("Summary", "")
	for _, step := range shown[1:] {
		out.passed(step.summary)
	}
	version, err := s.cluster.Client().Discovery().ServerVersion()
	if err != nil {
		return err
	}
	out.line("\n%d steps shown and checked on Kubernetes %s in %s.", len(shown)-1, version.GitVersion, time.Since(begin).Round(100*time.Millisecond))
	if !o.keep {
		out.line("Nothing is left behind. To try things out yourself: make demo KEEP=1")
		return nil
	}
	s.printKept()
	waitForEnd(ctx)
	s.progress("ending everything and removing %s…", s.dir)
	return nil
}

// waitForEnd returns when a signal came, or when the program that started this
// one is gone: make and go run may be ended without this one being told.
func waitForEnd(ctx context.Context) {
	parent := os.Getppid()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for os.Getppid() == parent {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
