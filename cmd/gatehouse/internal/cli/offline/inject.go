package offline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// NewInjectCommand returns the command "gatehouse inject".
func NewInjectCommand(s cli.Streams) *cobra.Command {
	var f changeFlags
	cmd := &cobra.Command{
		Use:   "inject --config DIR|--context NAME [FILE|DIR]... [-k DIR]...",
		Short: "Add sidecars to the pods in manifests",
		Long: `Inject adds sidecars to the pods in manifests, as the server does when the pods are
created. Use it to review or commit the result, or to do without a webhook. It
prints all manifests and keeps unchanged parts byte by byte, but expands YAML
aliases in what it changes. With -o diff it prints a unified diff for git apply, and
with -i it changes the files.

A pod that has its sidecars already stays as it is. After a change of a profile,
remove the old sidecars first:

  gatehouse uninject -f FILE | gatehouse inject --config DIR

Exit codes: 0 done, whether or not something changed; 1 a pod would be refused; 2
wrong usage or input, no policy or profile is active, or it cannot be decided what a
pod becomes. With 1 and 2, nothing is printed or written.`,
		Example: `  # what would be added?
  gatehouse inject --config ./config deploy/ -o diff

  # without a webhook
  gatehouse inject --config ./config -k overlays/prod | kubectl apply -f -
  helm template ./chart | gatehouse inject --config ./config | kubectl apply -f -`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(f.check(cmd), f.cluster.Check(f.config)); err != nil {
				return err
			}
			in, err := f.openActive(cmd.Context(), s.In, f.notes(s), true)
			if err != nil {
				return err
			}
			defer in.close()
			return f.inject(cmd.Context(), s, in)
		},
	}
	f.add(cmd)
	f.cluster.AddBeside(cmd, &f.config)
	f.addDeciding(cmd)
	return cmd
}

// inject decides about every pod, and changes those that get something.
func (f *changeFlags) inject(ctx context.Context, s cli.Streams, in *input) error {
	var changed changes
	for o := range objectsIn(in.sources) {
		if o.NoPod != "" {
			changed.log.addNoPod(o)
			continue
		}
		changed.inject(ctx, in, o)
	}
	if err := changed.err(); err != nil {
		return err
	}
	if in.unread != nil {
		return in.unread
	}
	return f.finish(s, in.sources, &changed.log)
}

// changes are what became of the objects of manifests.
type changes struct {
	log              changeLog
	refused, unknown diagnostic.List
}

// err returns what keeps the manifests from being written.
func (c *changes) err() error {
	switch {
	case len(c.unknown) > 0:
		all := slices.Concat(c.refused, c.unknown)
		all.Sort()
		return all
	case len(c.refused) > 0:
		return &cli.ExitError{Code: cli.ExitNo, Err: fmt.Errorf("refused:\n%w", c.refused)}
	default:
		return nil
	}
}

// fail notes why it is unknown what an object should become.
func (c *changes) fail(o *manifest.Object, err error) {
	message := strings.ReplaceAll(err.Error(), "\n", "; ")
	c.unknown = append(c.unknown, inObject(o, diagnostic.List{{Severity: diagnostic.Error, Message: message}})...)
}

// inject decides about the pod of an object, and changes it.
func (c *changes) inject(ctx context.Context, in *input, o *manifest.Object) {
	pod := in.sidecarInput(o)
	d := in.snapshot.Sidecar.Decide(ctx, pod)
	switch {
	case len(d.Refusals) > 0:
		c.refused = append(c.refused, inObject(o, d.Refusals)...)
		return
	case d.Err == nil:
		d.Err = o.Apply(d.Patches)
	}
	if d.Err != nil {
		c.unknown = append(c.unknown, inObject(o, diagnostic.List{in.undecided(pod.Request.Namespace, &d)})...)
		return
	}
	for _, warning := range slices.Concat(misplacedWarnings(o), d.Warnings) {
		c.log.add(o, "warning: %s", warning)
	}
	isSelected := slices.ContainsFunc(d.Verdicts, func(v sidecar.Verdict) bool { return v.Reason.Selected() || v.Reason == sidecar.NotAsked })
	if !c.log.anyObject || isSelected { // mutate is about more than profiles
		c.log.add(o, "%s", in.outcome(d.Verdicts, injectedRevisions(pod.Request.Object.Raw)))
	}
}

// inObject returns diagnostics about a pod as diagnostics about the object that holds it.
func inObject(o *manifest.Object, list diagnostic.List) diagnostic.List {
	found := make(diagnostic.List, len(list))
	for i, f := range list {
		f.Source, f.Object, f.Field = o.Source, o.Title(), o.Field(f.Field)
		found[i] = f
	}
	return found
}

// outcome returns what became of a pod, in a line, by the revisions of profiles that it had before. Profiles that do not select
// it are not named, except those that the pod did not ask for.
func (in *input) outcome(verdicts []sidecar.Verdict, before map[string]string) string {
	var applied, there, stale, others []string
	for i := range verdicts {
		v := &verdicts[i]
		switch {
		case v.Reason == sidecar.Applied:
			applied = append(applied, v.Profile)
		case v.Reason == sidecar.AlreadyThere && before[v.Profile] != v.Revision:
			stale = append(stale, v.Profile)
		case v.Reason == sidecar.AlreadyThere:
			there = append(there, v.Profile)
		case v.Reason == sidecar.NotAsked:
			others = append(others, fmt.Sprintf("%s (%s: %s%s)", v.Profile, v.Reason, cmp.Or(v.Detail, v.Reason.Text()), in.requestHint(v.Profile)))
		case v.Reason.Selected():
			others = append(others, fmt.Sprintf("%s (%s: %s)", v.Profile, v.Reason, cmp.Or(v.Detail, v.Reason.Text())))
		}
	}
	var parts []string
	if len(applied) > 0 {
		parts = append(parts, "changed: "+strings.Join(applied, ", "))
	} else {
		parts = append(parts, "left as it is")
	}
	if len(there) > 0 {
		parts = append(parts, "already there: "+strings.Join(there, ", "))
	}
	if len(stale) > 0 {
		parts = append(parts, "stale: "+strings.Join(stale, ", ")+" (hint: gatehouse uninject -f FILE | gatehouse inject --config DIR refreshes it)")
	}
	if len(others) > 0 {
		parts = append(parts, "not applied: "+strings.Join(others, ", "))
	}
	if len(applied)+len(there)+len(stale)+len(others) == 0 {
		parts = append(parts, "no profile selects it")
	}
	return strings.Join(parts, "; ")
}
