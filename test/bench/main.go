// Command bench measures what a review costs Gatehouse, as a ratio to a null
// webhook: a TLS server that reads the body, finds the uid and answers a
// constant. The null webhook, Gatehouse and, for comparison, the API server's own
// plugins for policies serve the same requests in the same run, in
// alternating rounds, so that other load on the machine affects them alike.
//
// The driver starts the servers as processes of their own, so that the processor
// time and memory of each can be read from the kernel. The servers that
// Gatehouse is compared with are modes of this program. Only loopback addresses
// are served and called.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"
	"time"
)

// Exit codes, those of gatehouse itself.
const (
	exitYes     = 0 // measured; with --check, every bar held
	exitNo      = 1 // --check: a bar was missed
	exitUnknown = 2 // not measured: bad usage, a server that failed, a wrong answer
)

const usage = `Usage:
  bench [flags]

Measures the processor time that a server spends on one review, as a ratio to
a null TLS webhook in the same run. See docs/performance.md.

Examples:
  # everything, against the binary that make build wrote
  bench --gatehouse bin/gatehouse

  # what a change costs
  bench --gatehouse bin/gatehouse --old /tmp/gatehouse --scenario '/5KB/http2'

  # in a minute, only 5 KB pods, and fail if a bar is missed
  bench --gatehouse bin/gatehouse --quick --scenario '/5KB/|authenticate' --check

Flags:
`

// options are the flags.
type options struct {
	gatehouse string         // path of the binary; empty measures without it
	old       string         // path of another binary that is measured beside it; may be empty
	scenario  *regexp.Regexp // selects scenarios by name
	rounds    int            // of every scenario
	duration  time.Duration  // of a round of a scenario on one server
	check     bool           // a missed bar is an error
}

func main() {
	if isServer(os.Args) {
		err := serve(os.Args[1], os.Args[2], os.Args[3], os.Args[4])
		_, _ = fmt.Fprintf(os.Stderr, "bench %s: %v\n", os.Args[1], err)
		os.Exit(exitUnknown)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// isServer reports whether the arguments are those that the driver starts a server
// with.
func isServer(args []string) bool {
	return len(args) == 5 && slices.Contains([]string{nullServer, inTreeServer}, args[1])
}

// run is main without the process around it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseOptions(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitYes
	}
	var r *report
	if err == nil {
		r, err = drive(ctx, o, stderr)
	}
	if err == nil {
		err = r.write(stdout)
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "bench: %v\n", err)
		return exitUnknown
	}
	if o.check && !r.passed() {
		_, _ = fmt.Fprintln(stderr, "bench: a bar was missed")
		return exitNo
	}
	return exitYes
}

// parseOptions reads the flags.
func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	var scenario string
	var quick bool
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		_, _ = io.WriteString(stderr, usage)
		flags.PrintDefaults()
	}
	flags.StringVar(&o.gatehouse, "gatehouse", "bin/gatehouse", "the gatehouse `binary`; empty measures without it")
	flags.StringVar(&o.old, "old", "", "another gatehouse `binary` to measure in the same rounds, such as the one before a change")
	flags.StringVar(&scenario, "scenario", "", "measure only the scenarios whose name matches this `regexp`")
	flags.IntVar(&o.rounds, "rounds", 5, "rounds of every scenario")
	flags.DurationVar(&o.duration, "duration", 70*time.Millisecond, "of a round of a scenario on one server; every worker makes at least one request")
	flags.BoolVar(&quick, "quick", false, "the same as --rounds 3 --duration 25ms")
	flags.BoolVar(&o.check, "check", false, "exit with 1 if a bar is missed or was not measured")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if quick {
		o.rounds, o.duration = 3, 25*time.Millisecond
	}
	expression, err := regexp.Compile(scenario)
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.rounds < 1:
		return o, fmt.Errorf("--rounds %d: must be at least 1", o.rounds)
	case o.duration <= 0:
		return o, fmt.Errorf("--duration %v: must be positive", o.duration)
	case err != nil:
		return o, fmt.Errorf("--scenario %q: %w", scenario, err)
	}
	o.scenario = expression
	return o, nil
}
