package certs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	certstore "github.com/gatehouse-dev/gatehouse/certs/store"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

const (
	// defaultTimeout is how long a rotation is waited for: the hold, and twice as long
	// for everything else.
	defaultTimeout = 30 * time.Minute
	// pollInterval is how often the state is read.
	pollInterval = 2 * time.Second
)

func newRotateCommand(s cli.Streams) *cobra.Command {
	f := rotateFlags{commonFlags: commonFlags{now: time.Now}}
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Request a new CA",
		Long: `Rotate requests a new CA from the servers that share one. It writes only the request,
beside the CA. The servers rotate in an order in which no call fails: they publish
the new CA in every webhook configuration, wait until the slowest API server uses it
(ten minutes, or --rotation-hold of serve), take certificates of the new CA, and
remove the old CA.

With --emergency, for a CA whose key may have leaked, the servers wait ten seconds,
and at most a minute for a replica that does not report. API servers that use the new
CA later reject calls until then.

A second request has no effect until the servers have used the first one.

With --wait it shows each step on standard error, and returns when the servers have
removed the old CA and every registration trusts only the new one. You can interrupt
it: the rotation continues. With --dry-run it requests nothing; --dry-run=server makes
the API server check the request.

With --dir and no --registration, Gatehouse cannot read who trusts the CA. ca.crt holds
both CAs as soon as a server has read the request: give it to the API server before
the new CA signs, which is after the hold, and update copies of apiserver-client.crt
and apiserver-client.key. In an emergency, calls fail until you have done that.

Exit codes: 0 requested, or done with --wait; 1 not done in time; 2 cannot decide:
nothing was requested, or the state cannot be read.`,
		Example: `  gatehouse certs rotate --wait

  # the key of the CA may have leaked
  gatehouse certs rotate --emergency --wait --timeout 5m

  # on one machine
  gatehouse certs rotate --dir ./gatehouse-certs`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("timeout") && !f.wait {
				return errors.New("--timeout is for --wait")
			}
			if f.wait && f.dryRun.Active() {
				return errors.New("--wait and --dry-run exclude each other: a dry run requests nothing to wait for")
			}
			if f.timeout <= 0 {
				return fmt.Errorf("--timeout %s: must be more than 0s", cli.FormatDuration(f.timeout))
			}
			place, err := f.open(cmd)
			if err != nil {
				return err
			}
			return f.rotate(cmd.Context(), place, s)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.emergency, "emergency", false, "replace the CA as fast as possible, because its key may have leaked")
	flags.BoolVar(&f.wait, "wait", false, "show the steps and return when the rotation is done")
	flags.DurationVar(&f.timeout, "timeout", defaultTimeout, "maximum time to wait, with --wait")
	f.add(cmd)
	cli.AddDryRunFlag(cmd, &f.dryRun)
	cli.AddOutputFlag(cmd, &f.output, "text", "json")
	return cmd
}

// rotateFlags are what the command line of certs rotate says.
type rotateFlags struct {
	commonFlags
	emergency, wait bool
	timeout         time.Duration
	output          string
}

// rotateReport is what certs rotate says as JSON.
type rotateReport struct {
	// DryRun is true if nothing was written.
	DryRun bool `json:"dryRun,omitempty"`
	// ID is that of the request, Store where it was written, and At when. A dry run has no ID.
	ID        string    `json:"id,omitempty"`
	Store     string    `json:"store"`
	At        time.Time `json:"at"`
	Emergency bool      `json:"emergency"`
	// Known reports whether there was an earlier request that no server had read.
	Known bool `json:"known"`
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
	report, err := f.request(ctx, place, seen.state)
	if err != nil {
		return fmt.Errorf("nothing was requested: %w", err)
	}
	say := func(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) } // a remark
	if f.output == "text" {
		verb := "requested a new CA"
		switch {
		case report.Known:
			verb = "a new CA was requested already"
		case report.DryRun:
			verb = "would request a new CA"
		}
		where := ", in " + report.Store
		if report.ID != "" {
			where += ": request " + report.ID
		}
		say(s.Out, "%s%s", verb, where)
	}
	if seen.state.Phase == rotation.Activate {
		say(s.Err, "a rotation is in progress and has activated its new CA: the requested one begins after it")
	}
	if seen.isDown() {
		say(s.Err, "no running server can rotate it: no server has had a heartbeat in the last minute")
	}
	if f.wait {
		err = f.await(ctx, place, seen.state, report.ID, s.Err)
		report.Done, report.TrustChecked = err == nil, err == nil && seen.registered
	}
	if f.output == "json" {
		return errors.Join(cli.WriteJSONLine(s.Out, report), err)
	}
	switch {
	case report.TrustChecked:
		say(s.Out, "done: the old CA is removed, and no registration trusts it any more")
	case report.Done:
		say(s.Out, "done: the old CA is removed; registrations were not checked, because there is no --registration")
	}
	return err
}

// request writes the request, unless one that is at least as urgent waits.
func (f *rotateFlags) request(ctx context.Context, place *storage, state *rotation.State) (*rotateReport, error) {
	report := &rotateReport{Store: place.store.String(), Emergency: f.emergency}
	if r := state.Request; r != nil && (r.Emergency || !f.emergency) {
		report.ID, report.At, report.Emergency, report.Known = r.ID, r.At.UTC().Truncate(time.Second), r.Emergency, true
		return report, nil
	}
	now := f.now().Round(0)
	report.At, report.DryRun = *someTime(now), f.dryRun.Active()
	if f.dryRun == cli.DryRunClient || f.dryRun.Active() && f.dir != "" {
		return report, nil
	}
	id, err := certstore.RequestRotation(ctx, place.store, f.emergency, now)
	if !report.DryRun {
		report.ID = id
	}
	return report, err
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
func (f *rotateFlags) await(ctx context.Context, place *storage, from *rotation.State, id string, progress io.Writer) error {
	waiting, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	ticks := time.NewTicker(pollInterval)
	defer ticks.Stop()
	p := rotationProgress{id: id, old: from}
	for last := ""; ; {
		if seen := f.read(waiting, place); waiting.Err() == nil {
			done, err := p.observe(seen)
			if done || err != nil {
				return err
			}
			if p.last != last {
				last = p.last
				_, _ = fmt.Fprintf(progress, "%s %s\n", cli.FormatTime(&seen.now), cli.OneLine(last)) // a remark
			}
		}
		select {
		case <-waiting.Done():
			text := p.last + ": the servers continue (hint: " + cli.DisplayName(os.Args[0]) + " certs status)"
			switch {
			case ctx.Err() != nil:
				return errors.New("interrupted: " + text)
			case p.unknown:
				return fmt.Errorf("it is unknown whether it is done after %s: %s", f.timeout, text)
			default:
				return &cli.ExitError{Code: cli.ExitNo, Err: fmt.Errorf("not done after %s: %s", f.timeout, text)}
			}
		case <-ticks.C:
		}
	}
}

// rotationProgress is what was seen of a rotation that is waited for.
type rotationProgress struct {
	// id is that of the request, and old the state before it.
	id  string
	old *rotation.State
	// last describes what was seen last. unknown reports whether something could not be
	// read then, and begun whether the rotation is the requested one.
	last           string
	unknown, begun bool
}

// observe reports whether the rotation is done. An error ends the wait.
func (p *rotationProgress) observe(seen *snapshot) (done bool, err error) {
	state := seen.state
	if p.unknown = state == nil; p.unknown {
		p.last = "cannot decide: " + seen.unread().Error()
		return false, nil
	}
	p.begun = p.begun || state.Done == p.id
	isOver := state.Phase == rotation.Stable && state.Request == nil || p.begun && state.Done != p.id
	switch {
	case p.begun && isOver && !slices.ContainsFunc(state.Authorities(), func(a *rotation.Authority) bool { return a.ID() == p.old.Current.ID() }):
		return p.confirm(seen), nil
	case !p.begun && (state.Request == nil || state.Request.ID != p.id):
		return false, errors.New("the request is not there any more: another took its place, or servers wrote an older state again from memory (hint: ask again)")
	}
	next := seen.next()
	p.last = string(state.Phase) + ": " + next.What + ", when " + next.When
	if len(next.WaitsFor) > 0 {
		p.last += "; waits for " + join(next.WaitsFor)
	}
	return false, nil
}

// confirm reports whether every registration was read back, and trusts the new CA alone:
// servers may have lost the right to write it.
func (p *rotationProgress) confirm(seen *snapshot) bool {
	old := p.old.Authorities()
	var wrong []string
	for i := range seen.entries {
		e := &seen.entries[i]
		trustsOld := slices.ContainsFunc(old, func(a *rotation.Authority) bool { return seen.role(a.ID()) == "" && e.has(a.ID()) })
		switch {
		case e.problem != "":
			p.unknown = p.unknown || e.unknown
			wrong = append(wrong, e.name()+" "+e.problem)
		case trustsOld:
			wrong = append(wrong, e.name()+" still trusts the old CA")
		case !e.has(seen.state.Current.ID()):
			wrong = append(wrong, e.name()+" does not trust the new CA")
		}
	}
	p.last = "the servers have removed the old CA, and registrations are not up to date: " + join(wrong)
	return len(wrong) == 0
}
