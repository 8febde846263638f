package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

const (
	// certsPatience is how long a rotation is waited for: the hold, and as long
	// again for everything else.
	certsPatience = 30 * time.Minute
	// certsLook is how often it is looked at.
	certsLook = 2 * time.Second
)

func newCertsRotateCommand(s streams) *cobra.Command {
	f := certsRotateFlags{certsFlags: certsFlags{now: time.Now}}
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Ask the servers for a new CA",
		Long: `Rotate asks the servers that share a CA to replace it. It writes the request beside
the CA and nothing else; the servers do the rest, in an order in which no call
fails: the new CA goes into every webhook configuration, then time passes for the
slowest API server, ten minutes unless --rotation-hold of serve says otherwise, then
every server takes a certificate of the new CA, and then the old one is forgotten.

With --emergency, for a CA whose key may be known to others, the hold is ten
seconds, and a replica that does not answer is waited for no longer than a minute:
API servers that have not noticed by then refuse calls until they have.

Asking again while a request has not been looked at, or while a rotation has not
come to the new CA yet, starts no second one.

With --wait it shows each step on standard error and returns when the old CA is
forgotten. Interrupted, it changes nothing about the rotation.

Exit codes: 0 requested, or with --wait done; 1 not done in time, or the CA is
somebody else's to replace, such as cert-manager's; 2 could not tell: nothing was
requested, or what became of it cannot be read.`,
		Example: `  gatehouse certs rotate --wait

  # the key of the CA may be known to others
  gatehouse certs rotate --emergency --wait --timeout 5m

  # on one machine
  gatehouse certs rotate --dir ./certs`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.output != "text" && f.output != "json" {
				return outputError(f.output, "text", "json")
			}
			if cmd.Flags().Changed("timeout") && !f.wait {
				return errors.New("--timeout is for --wait")
			}
			if f.timeout <= 0 {
				return fmt.Errorf("--timeout %s: must be more than nothing", f.timeout)
			}
			place, err := f.open(cmd)
			if err != nil {
				return err
			}
			return f.rotate(cmd.Context(), place, s)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.emergency, "emergency", false, "be done with the old CA as soon as that can be, because its key may be known to others")
	flags.BoolVar(&f.wait, "wait", false, "show the steps, and return when it is done")
	flags.DurationVar(&f.timeout, "timeout", certsPatience, "how long to wait, with --wait")
	f.add(cmd)
	addOutputFlag(cmd, &f.output, "text", "json")
	return cmd
}

// certsRotateFlags are what the command line of certs rotate says.
type certsRotateFlags struct {
	certsFlags
	emergency, wait bool
	timeout         time.Duration
	output          string
}

// rotateReport is what certs rotate says as JSON.
type rotateReport struct {
	// ID is that of the request, Store where it was written, and At when.
	ID        string    `json:"id"`
	Store     string    `json:"store"`
	At        time.Time `json:"at"`
	Emergency bool      `json:"emergency"`
	// Known tells that somebody had asked before, and nobody had looked at it.
	Known bool `json:"known"`
	// Done tells that the rotation is over. It is only waited for with --wait.
	Done bool `json:"done"`
}

func (f *certsRotateFlags) rotate(ctx context.Context, place *certsPlace, s streams) error {
	seen := f.look(ctx, place)
	if !seen.whole() {
		return fmt.Errorf("nothing was requested: %w", firstOf(seen.ofState()))
	}
	if seen.state.Current.Key == nil {
		return &exitError{code: exitNo, err: fmt.Errorf("nothing was requested: %s: the CA is somebody else's, such as cert-manager's (hint: ask for a new one there; servers see it by themselves)", place.store)}
	}
	report, err := f.request(ctx, place, seen.state)
	if err != nil {
		return fmt.Errorf("nothing was requested: %w", err)
	}
	say := func(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) } // a remark
	if f.output == "text" {
		verb := "requested a new CA"
		if report.Known {
			verb = "a new CA was requested already"
		}
		say(s.out, "%s, in %s: request %s", verb, report.Store, report.ID)
	}
	if seen.state.Phase == rotation.Activate {
		say(s.err, "a rotation is under way and has come to its new CA: what was requested begins when that is over")
	}
	if seen.replicasErr == nil && seen.alive() == 0 {
		say(s.err, "no server runs that would do it: %s (hint: %s)", seen.nobody(), seen.start())
	}
	if f.wait {
		err = f.await(ctx, place, report.ID, s.err)
		report.Done = err == nil
	}
	if f.output == "json" {
		encoder := json.NewEncoder(s.out)
		encoder.SetEscapeHTML(false)
		return errors.Join(encoder.Encode(report), err)
	}
	if report.Done {
		say(s.out, "done: the old CA is forgotten")
	}
	return err
}

// request writes the request, unless one that is at least as urgent waits.
func (f *certsRotateFlags) request(ctx context.Context, place *certsPlace, state *rotation.State) (*rotateReport, error) {
	report := &rotateReport{Store: place.store.String(), Emergency: f.emergency}
	if r := state.Request; r != nil && (r.Emergency || !f.emergency) {
		report.ID, report.At, report.Emergency, report.Known = r.ID, r.At.UTC().Truncate(time.Second), r.Emergency, true
		return report, nil
	}
	now := f.now().Round(0)
	id, err := certs.RequestRotation(ctx, place.store, f.emergency, now)
	report.ID, report.At = id, *someTime(now)
	return report, err
}

// firstOf is the first finding as an error, and how many more there are.
func firstOf(found []certsFinding) error {
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

// await shows the steps until what was requested is done.
func (f *certsRotateFlags) await(ctx context.Context, place *certsPlace, id string, progress io.Writer) error {
	waiting, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	ticks := time.NewTicker(certsLook)
	defer ticks.Stop()
	var p rotationProgress
	for {
		seen := f.look(waiting, place)
		if waiting.Err() == nil {
			line, done, err := p.look(seen, id)
			if line != "" {
				_, _ = fmt.Fprintf(progress, "%s %s\n", instant(&seen.now), oneLine(line)) // a remark
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
func (f *certsRotateFlags) late(ctx context.Context, p *rotationProgress) error {
	again := fmt.Sprintf("the servers go on with it (hint: %s certs status%s)", displayName(os.Args[0]), f.where())
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted: " + again)
	case p.unread != nil:
		return fmt.Errorf("whether it is done after %s cannot be told: %w", f.timeout, p.unread)
	default:
		return &exitError{code: exitNo, err: fmt.Errorf("not done after %s: %s: %s", f.timeout, cmp.Or(p.last, "nothing was seen of it yet"), again)}
	}
}

// rotationProgress is what was seen of a rotation that is waited for.
type rotationProgress struct {
	// last is what was shown last, and key tells whether that is still so.
	last, key string
	// begun tells that the rotation is the requested one.
	begun bool
	// unread is why the state cannot be read now.
	unread error
}

// look is what is to be shown of the state, "" if nothing is new. An error tells
// that there is nothing more to wait for.
func (p *rotationProgress) look(seen *certsSight, id string) (line string, done bool, err error) {
	state := seen.state
	switch {
	case !seen.whole():
		if p.unread = firstOf(seen.ofState()); p.key == p.unread.Error() {
			return "", false, nil
		}
		p.key = p.unread.Error()
		return "could not tell: " + p.key, false, nil
	case state.Done == id && state.Phase == rotation.Stable, p.begun && state.Done != id:
		return "", true, nil
	case state.Done != id && (state.Request == nil || state.Request.ID != id):
		return "", false, errors.New("the request is not there any more: another took its place, or servers wrote an older state again from memory (hint: ask again)")
	}
	p.unread, p.begun = nil, state.Done == id
	next := seen.next()
	p.last = string(state.Phase) + ": " + next.text(seen.now)
	if len(next.WaitsFor) > 0 {
		p.last += "; waits for " + listed(next.WaitsFor)
	}
	// Without how long things are ago.
	key := fmt.Sprint(state.Phase, state.Cause, next.What, next.When, instant(next.At), next.names)
	if key == p.key {
		return "", false, nil
	}
	p.key = key
	return p.last, false, nil
}
