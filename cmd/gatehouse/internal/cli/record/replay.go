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
		Long: `Replay decides recorded requests again under another configuration, and reports
which answers differ and whom that affects. Use it before you change a policy or a
profile: --config is the candidate. Without --config, the recorded configuration
decides, and what differs comes from this version of Gatehouse.

  newly-refused        the request was admitted, and would be refused; of a token with
                       a scope, it was inside of the scope, and would be outside
  newly-admitted       the reverse
  changed-patch        the object would be changed in another way
  new-warnings         the client would get a warning that it did not get
  no-longer-decidable  the server could not decide, so the failurePolicy would

Without --fail-on, any change makes the exit code 1. With it, only the changes that
it names count, beyond their limits. A request whose answer depends on something
that was not recorded is counted as undecided, with the reason.

Exit codes: 0 no answer differs; 1 an answer differs, or a limit of --fail-on is
exceeded; 2 wrong usage, a recording that cannot be read to its end, or no request
that can be decided.`,
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
	flags.BoolVar(&f.all, "all", false, "with --show: also show policies that do not match, and all expressions")
	flags.Var(&f.failOn, "fail-on", "exit with code 1 if there are more than N reviews of this change: one of those above, changed for any of them, or undecided; repeatable (default changed=0)")
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
