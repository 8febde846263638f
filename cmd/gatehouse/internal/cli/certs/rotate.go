package certs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

const (
	// A rotation is waited for as long as two holds of the servers take, and one more for everything else, and at least defaultTimeout.
	defaultTimeout = 30 * time.Minute
	defaultHolds   = 3
	// pollInterval is how often the state is read.
	pollInterval = 2 * time.Second
)

func newRotateCommand(s cli.Streams) *cobra.Command {
	f := rotateFlags{commonFlags: commonFlags{now: time.Now}}
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Request a new CA",
		Long: `Rotate requests a new CA, and the elected server replaces the old one without a
failed call. It publishes the new CA in every webhook configuration, waits until
every API server trusts it (ten minutes, or --rotation-hold of serve), has all
servers use certificates of the new CA, waits as long again, and removes the old CA.
--wait shows these steps; you can interrupt it, and the rotation goes on.

With --dir and no --registration, Gatehouse does not know who trusts the CA. ca.crt
holds both CAs as soon as the server has read the request. Before the first wait is
over, give it to the API server, and the new apiserver-client.crt and
apiserver-client.key, too.

Exit codes: 0 requested, or done with --wait; 1 not done in time; 2 cannot decide:
nothing was requested, or the state cannot be read.`,
		Example: `  gatehouse certs rotate --wait

  # on one machine
  gatehouse certs rotate --dir ./gatehouse-certs`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("timeout") && !f.wait {
				return errors.New("--timeout is for --wait")
			}
			if f.wait && f.dryRun {
				return errors.New("--wait and --dry-run exclude each other: a dry run requests nothing to wait for")
			}
			if f.timeout <= 0 {
				return fmt.Errorf("--timeout %s: must be more than 0s", cli.FormatDuration(f.timeout))
			}
			place, err := f.open(cmd)
			if err != nil {
				return err
			}
			f.isDefault = !cmd.Flags().Changed("timeout")
			return f.rotate(cmd.Context(), place, s)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.wait, "wait", false, "show each step, and return when the rotation is done")
	flags.DurationVar(&f.timeout, "timeout", defaultTimeout, "with --wait, maximum time to wait; without the flag at least three times --rotation-hold of the servers")
	f.add(cmd)
	cli.AddDryRunFlag(cmd, &f.dryRun)
	cli.AddOutputFlag(cmd, &f.output, "text", "json")
	return cmd
}

// rotateFlags are what the command line of certs rotate says.
type rotateFlags struct {
	commonFlags
	wait    bool
	timeout time.Duration
	// isDefault reports whether the timeout is not given.
	isDefault bool
	output    string
}

// rotateReport is what certs rotate says as JSON.
type rotateReport struct {
	// DryRun is true if nothing was written.
	DryRun bool `json:"dryRun,omitempty"`
	// ID is that of the request, the time when it was made, and Store where it was written.
	ID    string `json:"id"`
	Store string `json:"store"`
	// Done reports whether the rotation is over. It is only waited for with --wait.
	Done bool `json:"done"`
	// TrustChecked reports whether Done is true of registrations too, which were read
	// back.
	TrustChecked bool `json:"trustChecked"`
}

func (f *rotateFlags) rotate(ctx context.Context, place *storage, s cli.Streams) error {
	seen := f.read(ctx, place)
	if seen.state == nil {
		return fmt.Errorf("nothing was requested: %w", seen.unread())
	}
	report := &rotateReport{ID: f.now().UTC().Format(time.RFC3339Nano), Store: place.store.String(), DryRun: f.dryRun}
	if !report.DryRun {
		if err := place.store.Request(ctx, report.ID); err != nil {
			return fmt.Errorf("nothing was requested: %w", err)
		}
	}
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(s.Out, format+"\n", args...) } // a remark
	if f.output == "text" {
		verb := "requested a new CA"
		if report.DryRun {
			verb = "would request a new CA"
		}
		say("%s, in %s; the servers wait twice for %s, so that no call fails", verb, report.Store, duration.HumanDuration(seen.state.Hold))
	}
	if f.isDefault {
		f.timeout = max(f.timeout, defaultHolds*seen.state.Hold)
	}
	var err error
	if f.wait {
		err = f.await(ctx, place, seen.state, report.ID, s.Err)
		report.Done, report.TrustChecked = err == nil, err == nil && len(place.names) > 0
	}
	if f.output == "json" {
		return errors.Join(cli.WriteJSONLine(s.Out, report), err)
	}
	switch {
	case report.TrustChecked:
		say("done: the old CA is removed, and no registration trusts it any more")
	case report.Done:
		say("done: the old CA is removed; registrations were not checked, because there is no --registration")
	}
	return err
}

// unread returns why the state cannot be read.
func (s *snapshot) unread() error {
	d := s.diagnoseState()[0]
	if d.Remedy == "" {
		return errors.New(d.Object + ": " + d.Message)
	}
	return fmt.Errorf("%s: %s (hint: %s)", d.Object, d.Message, d.Remedy)
}

// await shows the steps until what was requested is done, from a state on.
func (f *rotateFlags) await(ctx context.Context, place *storage, from *certs.State, id string, progress io.Writer) error {
	waiting, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	ticks := time.NewTicker(pollInterval)
	defer ticks.Stop()
	last, unknown := "", false
	for {
		if seen := f.read(waiting, place); waiting.Err() == nil {
			text, done := seen.progress(from, id)
			if done {
				return nil
			}
			if unknown = seen.state == nil; text != last {
				last = text
				_, _ = fmt.Fprintf(progress, "%s %s\n", cli.FormatTime(&seen.now), cli.OneLine(last)) // a remark
			}
		}
		select {
		case <-waiting.Done():
			text := last + ": the servers continue (hint: " + cli.DisplayName(os.Args[0]) + " certs status)"
			switch {
			case ctx.Err() != nil:
				return errors.New("interrupted: " + text)
			case unknown:
				return fmt.Errorf("it is unknown whether it is done after %s: %s", f.timeout, text)
			default:
				return &cli.ExitError{Code: cli.ExitNo, Err: fmt.Errorf("not done after %s: %s", f.timeout, text)}
			}
		case <-ticks.C:
		}
	}
}

// progress returns how far a rotation is that was requested when the state was as given, and whether it is done: the request was
// the last one, and every registration was read back and trusts the new CA alone.
func (s *snapshot) progress(from *certs.State, id string) (text string, done bool) {
	if s.state == nil {
		return "cannot decide: " + s.unread().Error(), false
	}
	if s.state.Done != id || s.state.Phase() != certs.Stable {
		next := s.next()
		text := string(s.state.Phase()) + ": " + next.What + ", when " + next.When
		if len(next.WaitsFor) > 0 {
			text += "; waits for " + strings.Join(next.WaitsFor, ", ")
		}
		return text, false
	}
	wrong := s.lacking(s.state.Active)
	for i := range s.configurations {
		c := &s.configurations[i]
		if c.Err != nil {
			wrong = append(wrong, c.Err.Error())
		}
		for j := range c.Webhooks {
			if w := &c.Webhooks[j]; has(w, from.Active.ID()) {
				wrong = append(wrong, nameOf(c, w))
			}
		}
	}
	return "the servers have removed the old CA, and registrations are not up to date: " + strings.Join(wrong, ", "), len(wrong) == 0
}
