// Command bench measures what a review costs Gatehouse, as a ratio to a null
// webhook: a TLS server that reads the body, finds the uid and answers a
// constant. The null webhook, Gatehouse and, for comparison, a webhook written
// with controller-runtime in the usual way serve the same requests in the same
// run, in alternating rounds, so that what else the machine does falls on all
// of them alike.
//
// One binary holds the parts: the driver and load generator (bench run), the two
// servers that it compares with (bench null, bench controller-runtime), and the
// compilation of policies (bench compile). It starts them as processes of their
// own, so that the processor time and memory of each can be read from the kernel.
// Only loopback addresses are ever served or called.
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
	"syscall"
	"time"
)

// Exit codes, those of gatehouse itself.
const (
	exitYes     = 0 // measured; with --check, every bar held
	exitNo      = 1 // --check: a bar was missed
	exitUnknown = 2 // not measured: bad usage, a server that failed, a wrong answer
)

// errMissed is what --check reports when a bar was missed.
var errMissed = errors.New("a bar was missed")

const usage = `Usage:
  bench [run] [flags]                        measure
  bench null [--listen 127.0.0.1:0]          serve the null webhook
  bench controller-runtime [--listen …]      serve the usual webhook
  bench compile [--times 1]                  compile 1,000 policies, and print what that took

Measures the processor time that a server spends on one review, as a ratio to
a null TLS webhook in the same run. See docs/performance.md.

Examples:
  # everything, against the binary that make build wrote
  bench --gatehouse bin/gatehouse

  # what a change costs
  bench --gatehouse bin/gatehouse --old /tmp/gatehouse --scenario '/5KB/http2'

  # in a minute, only 5 KB pods, and fail if a bar is missed
  bench --gatehouse bin/gatehouse --quick --scenario '/5KB/|authenticate' --check

Flags of run:
`

// options are the flags of bench run.
type options struct {
	gatehouse   string         // path of the binary; empty measures without it
	old         string         // path of another one that is measured beside it; may be empty
	usual       bool           // whether the controller-runtime webhook takes part
	scenario    *regexp.Regexp // which scenarios run; nil is all
	rounds      int            // how often every scenario is measured
	requests    int            // requests in a round of a 5 KB scenario at concurrency 16
	limit       time.Duration  // no round is started that would end later
	output      string         // "table" or "json"
	jsonFile    string         // where the JSON report goes besides; empty is nowhere
	check       bool           // whether a missed bar is an error
	quick       bool           // fewer rounds and requests
	executable  string         // this program, which also holds the servers to compare with
	interactive bool           // whether progress may rewrite its line
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main without the process around it.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	mode := "run"
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		mode, args = args[0], args[1:]
	}
	var err error
	switch mode {
	case "run":
		var o options
		if o, err = parseOptions(args, stderr); err == nil {
			err = drive(ctx, o, stdout, stderr)
		}
	case nullServer:
		err = serveChild(ctx, mode, args, nullHandler(), stdin, stdout, stderr)
	case usualServer:
		err = serveChild(ctx, mode, args, usualHandler(), stdin, stdout, stderr)
	case compileMode:
		err = serveCompilations(args, stdout, stderr)
	default:
		err = fmt.Errorf("unknown mode %q: one of run, %s, %s, %s", mode, nullServer, usualServer, compileMode)
	}
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return exitYes
	case errors.Is(err, errMissed):
		_, _ = fmt.Fprintf(stderr, "bench: %v\n", err)
		return exitNo
	default:
		_, _ = fmt.Fprintf(stderr, "bench: %v\n", err)
		return exitUnknown
	}
}

// parseOptions reads the flags of bench run and fills the defaults, which
// --quick lowers.
func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	var scenario string
	var withoutUsual bool
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		_, _ = io.WriteString(stderr, usage)
		flags.PrintDefaults()
	}
	flags.StringVar(&o.gatehouse, "gatehouse", "bin/gatehouse", "the gatehouse `binary`; empty measures without it")
	flags.StringVar(&o.old, "old", "", "another gatehouse `binary` to measure in the same rounds, such as the one before a change")
	flags.BoolVar(&withoutUsual, "no-controller-runtime", false, "leave out the controller-runtime webhook")
	flags.StringVar(&scenario, "scenario", "", "measure only the scenarios whose name matches this `regexp`")
	flags.IntVar(&o.rounds, "rounds", 0, "rounds of every scenario (default 7; quick 5)")
	flags.IntVar(&o.requests, "requests", 0, "requests in a round; fewer at concurrency 1 and with large pods (default 2000; quick 400)")
	flags.DurationVar(&o.limit, "limit", 0, "start no round that would end later (default 8m; quick 1m30s)")
	flags.BoolVar(&o.quick, "quick", false, "fewer rounds and requests")
	flags.BoolVar(&o.check, "check", false, "exit with 1 if a bar is missed or was not measured")
	flags.StringVar(&o.output, "o", "table", "what goes to stdout: table or json")
	flags.StringVar(&o.jsonFile, "json", "", "write the JSON report to this `file` too")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	rounds, requests, limit := 7, 2000, 480*time.Second
	if o.quick {
		rounds, requests, limit = 5, 400, 90*time.Second
	}
	if o.rounds == 0 {
		o.rounds = rounds
	}
	if o.requests == 0 {
		o.requests = requests
	}
	if o.limit == 0 {
		o.limit = limit
	}
	switch {
	case o.rounds < 1:
		return o, fmt.Errorf("--rounds %d: must be at least 1", o.rounds)
	case o.requests < 16:
		return o, fmt.Errorf("--requests %d: must be at least 16", o.requests)
	case o.output != "table" && o.output != "json":
		return o, fmt.Errorf("-o %q: must be table or json", o.output)
	}
	if scenario != "" {
		expression, err := regexp.Compile(scenario)
		if err != nil {
			return o, fmt.Errorf("--scenario %q: %w", scenario, err)
		}
		o.scenario = expression
	}
	executable, err := os.Executable()
	if err != nil {
		return o, fmt.Errorf("finding this program, which is also the server to compare with: %w", err)
	}
	o.executable = executable
	o.usual = !withoutUsual
	if info, err := os.Stderr.Stat(); err == nil {
		o.interactive = info.Mode()&os.ModeCharDevice != 0
	}
	return o, nil
}
