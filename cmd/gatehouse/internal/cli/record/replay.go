package record

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/replay"
)

// recorded is the value of --config for the configurations that a recording holds.
const recorded = "recorded"

// replayFlags are the flags of replay.
type replayFlags struct {
	config string
	filter reviewFilter
	show   string
	all    bool
	failOn cli.Thresholds
	output string
}

// NewReplayCommand returns the command "gatehouse replay".
func NewReplayCommand(s cli.Streams) *cobra.Command {
	f := replayFlags{failOn: newThresholds()}
	cmd := &cobra.Command{
		Use:   "replay [--config DIR] RECORDING...",
		Short: "Test a configuration against recorded reviews",
		Long: `Replay decides recorded reviews again under another configuration, and reports which
answers differ: whom a change of a policy or profile would have affected.

A RECORDING is a file of 'gatehouse record get', or a directory that 'gatehouse serve
--record' writes to. --config is the candidate. It is compared with the recorded
answers. Without --config, or with --config recorded, reviews are decided by the
configuration that the recording holds: what differs then comes from this version of
the program (upgrade preview).

  newly-refused        the request was admitted, and would be refused
  newly-admitted       the reverse
  changed-patch        another mutation
  new-warnings         the client gets a warning that it did not get
  no-longer-decidable  the server cannot decide: the failurePolicy would

A replay is one step: it does not know what clients would have done after another
answer. A review whose answer depends on a value that is redacted or that was not
recorded is counted as "cannot decide", with the reason. Logins are not decided again: their tokens
are not recorded.

  -o table  text for a terminal (the default)
  -o json   the same for programs

--fail-on NAME[=N] sets when the exit code is 1; it can be given several times. NAME is
one of the changes above, or changed for any of them (the default), or undecided. More
than N reviews fail; N is 0 by default.

Exit codes: 0 no answer differs; 1 an answer differs, or the limits of --fail-on are
exceeded; 2 bad usage, a recording that cannot be read to its end, or no review that
can be decided.`,
		Example: `  # whom would the new policies have hit?
  gatehouse replay --config ./new ./recording

  # one review, with the rules and their values
  gatehouse replay --config ./new ./recording --show 0bd8e8f3

  # in a pipeline: warnings may be new, refusals may not
  gatehouse replay --config ./new ./recording --fail-on newly-refused

  # what would an upgrade of Gatehouse change?
  gatehouse-next replay ./recording`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name a recording: a file or a directory (hint: gatehouse replay --config DIR RECORDING)")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.show == "" && cmd.Flags().Changed("show") {
				return errors.New("--show: name a review by its ID or the beginning of it (hint: the report and 'gatehouse record show' list IDs)")
			}
			if err := f.check(time.Now()); err != nil {
				return err
			}
			return f.run(cmd.Context(), s, args)
		},
	}
	cli.AddConfigFlag(cmd, &f.config, "directory of documents to try, or 'recorded' for the configuration of the recording")
	flags := cmd.Flags()
	f.filter.add(cmd, "replay")
	flags.StringVar(&f.show, "show", "", "show one review, by its ID or the beginning of it")
	flags.BoolVar(&f.all, "all", false, "with --show: list every policy, and all expressions")
	flags.Var(&f.failOn, "fail-on", "fail if there are more than N reviews of this change; repeatable (default changed=0)")
	cli.AddOutputFlag(cmd, &f.output, "table", "json")
	return cmd
}

// check returns everything that is wrong with the flags.
func (f *replayFlags) check(now time.Time) error {
	errs := cli.Problems{f.filter.check(now)}
	errs.Add(f.show != "" && f.failOn.Given(), "--show replays one review alone: --fail-on cannot be given with it")
	errs.Add(f.all && f.show == "", "--all is for --show")
	return errs.Err()
}

// run replays recordings.
func (f *replayFlags) run(ctx context.Context, s cli.Streams, args []string) error {
	sources, problems := replay.Sources(args)
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	candidate := replay.Recorded()
	if f.config != "" && f.config != recorded {
		err := cli.CheckDir("--config", f.config)
		if err == nil {
			candidate, err = replay.Load(f.config)
		}
		if err != nil {
			return err
		}
	}
	if f.show != "" {
		return f.showReview(ctx, s, sources, candidate)
	}
	progress, begin := cli.NewLiveLine(s.Err), time.Now()
	var keep func(*replay.Subject) bool
	if !f.filter.isEmpty() {
		keep = f.filter.matches
	}
	report, err := replay.Run(ctx, replay.Options{
		Sources: sources, Candidate: candidate, Keep: keep,
		Progress: func(reviews int64) {
			progress.Show(func() string {
				return fmt.Sprintf("%d reviews, %.0f/s", reviews, float64(reviews)/time.Since(begin).Seconds())
			})
		},
	})
	progress.Clear()
	if err != nil {
		return err
	}
	out := newReplayReport(f, report)
	if report.Reviews == 0 && len(report.Problems) > 0 {
		return out.exit()
	}
	if err := cli.WriteReport(s.Out, f.output, out, out.print); err != nil {
		return err
	}
	return out.exit()
}
