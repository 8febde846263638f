package certs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	certstore "github.com/gatehouse-dev/gatehouse/certs/store"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

const (
	// defaultTimeout is how long a rotation is waited for: the hold, and as long
	// again for everything else.
	defaultTimeout = 30 * time.Minute
	// pollInterval is how often it is looked at.
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

Exit codes: 0 requested, or done with --wait; 1 not done in time, or another program,
such as cert-manager, owns the CA; 2 cannot decide: nothing was requested, or the
state cannot be read.`,
		Example: `  gatehouse certs rotate --wait

  # the key of the CA may have leaked
  gatehouse certs rotate --emergency --wait --timeout 5m

  # on one machine
  gatehouse certs rotate --dir ./gatehouse-certs`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.output != "text" && f.output != "json" {
				return cli.OutputError(f.output, "text", "json")
			}
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
	_ = cmd.RegisterFlagCompletionFunc("timeout", cobra.NoFileCompletions) // the flag exists
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
	// Known tells that somebody had asked before, and nobody had looked at it.
	Known bool `json:"known"`
	// Done tells that the rotation is over. It is only waited for with --wait.
	Done bool `json:"done"`
	// TrustChecked tells that Done is true of registrations too, which were read
	// back. Without --registration there are none in the case of a directory.
	TrustChecked bool `json:"trustChecked"`
}

func (f *rotateFlags) rotate(ctx context.Context, place *storage, s cli.Streams) error {
	seen := f.read(ctx, place)
	if !seen.whole() {
		return fmt.Errorf("nothing was requested: %w", firstProblem(seen.diagnoseState()))
	}
	if seen.state.Current.Key == nil {
		return &cli.ExitError{Code: cli.ExitNo, Err: fmt.Errorf("nothing was requested: %s: another program, such as cert-manager, owns the CA (hint: request a new one there; servers detect it)", place.store)}
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
	if seen.replicasErr == nil && seen.alive() == 0 {
		say(s.Err, "no running server can rotate it: %s (hint: %s)", seen.nobody(), seen.start())
	}
	if !seen.registered && seen.dir != "" {
		say(s.Err, "%s", f.byHand(seen))
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
		say(s.Out, "done: the old CA is removed")
		say(s.Err, "registrations were not checked, because there is no --registration")
	}
	return err
}

// byHand says what somebody has to do by hand, where nobody can tell who trusts a CA.
func (f *rotateFlags) byHand(seen *snapshot) string {
	policy := rotation.Policy{Hold: f.hold, EmergencyHold: rotation.DefaultEmergencyHold}
	cause := rotation.Requested
	if f.emergency {
		cause = rotation.Emergency
	}
	hold := policy.HoldFor(cause)
	when := dated(seen.now.Add(hold), seen.now) + " at the earliest"
	if seen.alive() == 0 || seen.state.Phase == rotation.Activate {
		when = duration.HumanDuration(hold) + " after a server has begun with it"
	}
	return fmt.Sprintf("cannot decide who trusts the CA: %s holds both CAs as soon as a server has read the request; give it to the API server before the new CA signs, which is %s, and update copies of %s",
		filepath.Join(seen.dir, certstore.CAFile), when, clientFiles)
}

// request writes the request, unless one that is at least as urgent waits.
func (f *rotateFlags) request(ctx context.Context, place *storage, state *rotation.State) (*rotateReport, error) {
	report := &rotateReport{Store: place.store.String(), Emergency: f.emergency}
	if r := state.Request; r != nil && (r.Emergency || !f.emergency) {
		report.ID, report.At, report.Emergency, report.Known = r.ID, r.At.UTC().Truncate(time.Second), r.Emergency, true
		return report, nil
	}
	now := f.now().Round(0)
	if f.dryRun == cli.DryRunClient || f.dryRun.Active() && f.dir != "" {
		report.DryRun, report.At = true, *someTime(now)
		return report, nil
	}
	id, err := certstore.RequestRotation(ctx, place.store, f.emergency, now)
	report.ID, report.At = id, *someTime(now)
	if f.dryRun.Active() {
		report.ID, report.DryRun = "", true
	}
	return report, err
}

// firstProblem is the first diagnostic as an error, and how many more there are.
func firstProblem(found []diagnostic) error {
	one := found[0]
	text := one.Object + ": " + one.Message
	if len(found) > 1 {
		text += fmt.Sprintf(", and %d more", len(found)-1)
	}
	if one.Remedy != "" {
		text += " (hint: " + one.Remedy + ")"
	}
	return errors.New(text)
}

// await shows the steps until what was requested is done, from a state on.
func (f *rotateFlags) await(ctx context.Context, place *storage, from *rotation.State, id string, progress io.Writer) error {
	waiting, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	ticks := time.NewTicker(pollInterval)
	defer ticks.Stop()
	var p rotationProgress
	p.remember(from)
	p.old = from.Current.ID()
	for {
		seen := f.read(waiting, place)
		if waiting.Err() == nil || ctx.Err() == nil && seen.whole() {
			line, done, err := p.observe(seen, id)
			if line != "" {
				_, _ = fmt.Fprintf(progress, "%s %s\n", cli.FormatTime(&seen.now), cli.OneLine(line)) // a remark
			}
			if done || err != nil {
				return err
			}
		}
		select {
		case <-waiting.Done():
			return f.late(ctx, &p)
		case <-ticks.C:
		}
	}
}

// late is why nothing is waited for any more.
func (f *rotateFlags) late(ctx context.Context, p *rotationProgress) error {
	again := fmt.Sprintf("the servers go on with it (hint: %s certs status%s)", cli.DisplayName(os.Args[0]), f.where())
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted: " + again)
	case p.unread != nil:
		return fmt.Errorf("it is unknown whether it is done after %s: %w", f.timeout, p.unread)
	default:
		return &cli.ExitError{Code: cli.ExitNo, Err: fmt.Errorf("not done after %s: %s: %s", f.timeout, cmp.Or(p.last, "nothing was seen of it yet"), again)}
	}
}

// rotationProgress is what was seen of a rotation that is waited for.
type rotationProgress struct {
	// last is what was shown last, and key reports whether that is still so.
	last, key string
	// begun tells that the rotation is the requested one.
	begun bool
	// unread is why the state, or who trusts it, cannot be read now.
	unread error
	// old is the ID of the CA that signed before.
	old string
	// known are the IDs of all CAs that the state had.
	known []string
}

// remember takes note of the CAs of a state.
func (p *rotationProgress) remember(state *rotation.State) {
	for _, a := range state.Authorities() {
		if !slices.Contains(p.known, a.ID()) {
			p.known = append(p.known, a.ID())
		}
	}
}

// observe is what is to be shown of the state, "" if nothing is new. An error tells
// that there is nothing more to wait for.
func (p *rotationProgress) observe(seen *snapshot, id string) (line string, done bool, err error) {
	state := seen.state
	if !seen.whole() {
		return p.cannotTell(firstProblem(seen.diagnoseState())), false, nil
	}
	p.remember(state)
	switch {
	case state.Done == id && state.Phase == rotation.Stable, p.begun && state.Done != id && seen.role(p.old) == "":
		line, done = p.confirm(seen)
		return line, done, nil
	case !p.begun && state.Done != id && (state.Request == nil || state.Request.ID != id):
		return "", false, errors.New("the request is not there any more: another took its place, or servers wrote an older state again from memory (hint: ask again)")
	}
	p.unread, p.begun = nil, p.begun || state.Done == id
	next := seen.next()
	p.last = string(state.Phase) + ": " + next.text(seen.now)
	if len(next.WaitsFor) > 0 {
		p.last += "; waits for " + join(next.WaitsFor)
	}
	if state.Phase == rotation.Hold && !seen.registered && seen.dir != "" {
		p.last += "; give " + filepath.Join(seen.dir, certstore.CAFile) + " to the API server before that"
	}
	unread := seen.unread() != nil
	if unread {
		p.last += "; no server reads it: their logs say why, and Events of the reason " + certs.ReasonStoreFailed
	}
	// Without how long things are ago.
	return p.show(p.last, fmt.Sprint(state.Phase, state.Cause, next.What, next.When, cli.FormatTime(next.At), next.names, unread)), false, nil
}

// show is a line unless the one with its key was shown last.
func (p *rotationProgress) show(line, key string) string {
	if key == p.key {
		return ""
	}
	p.key = key
	return line
}

func (p *rotationProgress) cannotTell(why error) string {
	p.unread = why
	return p.show("cannot decide: "+why.Error(), why.Error())
}

// confirm reads back that the registrations have come to know what the servers did:
// these may have lost the right to tell them.
func (p *rotationProgress) confirm(seen *snapshot) (line string, done bool) {
	var wrong, unknown []string
	for i := range seen.entries {
		switch e := &seen.entries[i]; {
		case e.unknown:
			unknown = append(unknown, e.name()+": "+e.problem)
		case e.problem != "":
			wrong = append(wrong, e.name()+" "+e.problem)
		default:
			wrong = append(wrong, p.behind(seen, e)...)
		}
	}
	switch {
	case len(wrong) > 0:
		p.unread, p.last = nil, "the servers have removed the old CA, and registrations have not: "+strings.Join(append(wrong, unknown...), "; ")
		return p.show(p.last, p.last), false
	case len(unknown) > 0:
		return p.cannotTell(errors.New(strings.Join(unknown, "; "))), false
	default:
		return "", true
	}
}

// behind is what a webhook trusts and should not any more, and does not and should.
func (p *rotationProgress) behind(seen *snapshot, e *trustEntry) []string {
	var wrong []string
	for _, id := range p.known {
		if seen.role(id) == "" && e.has(id) {
			wrong = append(wrong, e.name()+" still trusts "+shortID(id))
		}
	}
	if current := seen.state.Current.ID(); !e.has(current) {
		wrong = append(wrong, e.name()+" does not trust the current CA "+shortID(current))
	}
	return wrong
}
