package offline

import (
	"bufio"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"gomodules.xyz/jsonpatch/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/decision"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
)

// NewMutateCommand returns the command "gatehouse mutate". It is a command of its own beside inject, because uninject takes out all that
// inject adds, and nothing tells afterwards what a mutating policy has changed.
func NewMutateCommand(s cli.Streams) *cobra.Command {
	var f changeFlags
	var user requestFlags
	cmd := &cobra.Command{
		Use:   "mutate --config DIR|--context NAME [FILE|DIR]... [-k DIR]...",
		Short: "Show how mutating policies and sidecar injection change manifests",
		Long: `Mutate shows what becomes of manifests when they are created:
MutatingAdmissionPolicies change the objects, in the order of their names, and then
sidecars are injected into pods. The template of a workload shows what happens to
its pods. Mutate prints all manifests, and keeps unchanged parts byte by byte;
standard error names the policies and profiles that changed an object.

The policies are those of --config or of a cluster, as for check. With -o diff it
prints a unified diff for git apply, with -o json the patch and the policy that
changed each path last, and with -i it changes the files. -o argocd prints the rules
with which Argo CD ignores exactly the fields that are changed (ignoreDifferences),
and -o flux those of Flux (ignore).

Exit codes: 0 done, whether or not something changed; 1 an object would be refused;
2 wrong usage or input, no policy or profile is active, or it cannot be decided what
an object becomes. With 1 and 2, nothing is printed or written.`,
		Example: `  # what would the policies change?
  gatehouse mutate --config ./config deploy/ -o diff

  # who sets this field?
  gatehouse mutate --context prod -k overlays/prod -o json | jq .changes

  # what must Argo CD ignore, so that it shows no difference?
  gatehouse mutate --context prod -k overlays/prod -o argocd`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			if err := f.cluster.Check(f.config); err != nil {
				return err
			}
			in, err := f.open(cmd.Context(), s.In)
			if err != nil {
				return err
			}
			defer in.close()
			err = in.checkActive()
			if !f.quiet {
				f.writeSkipped(s.Err)
				if err != nil {
					in.writeWarnings(s.Err)
				}
			}
			if err != nil {
				return err
			}
			e, err := in.evaluator(&user, s.In)
			if err != nil {
				return err
			}
			if f.output == argoOutput || f.output == fluxOutput {
				return f.ignoreRules(cmd.Context(), s, e)
			}
			return f.mutate(cmd.Context(), s, e)
		},
	}
	f.add(cmd, "json", argoOutput, fluxOutput)
	f.cluster.AddBeside(cmd, &f.config)
	f.addDeciding(cmd)
	user.addUser(cmd)
	return cmd
}

// mutatedObject is what became of an object, for programs.
type mutatedObject struct {
	place
	// Patch is what changes, with the paths of the manifest.
	Patch json.RawMessage `json:"patch"`
	// Changes are the paths that policies changed, and the mutation that did it last.
	Changes []lastChange `json:"changes"`
	// Object is the object as it stands then.
	Object json.RawMessage `json:"object"`
}

// lastChange is the mutation that changed a path last.
type lastChange struct {
	// Template is the path of the template whose pod has the path.
	Template string `json:"template,omitempty"`
	Path     string `json:"path"`
	Policy   string `json:"policy"`
	Binding  string `json:"binding"`
	Mutation int    `json:"mutation"`
}

// lastChangesOf returns who changed which path last.
func lastChangesOf(all []admit.Mutated) []lastChange {
	out := []lastChange{}
	for i := range all {
		for _, c := range all[i].LastChanges() {
			out = append(out, lastChange{all[i].Template, c.Path, c.Policy, c.Binding, c.Mutation})
		}
	}
	return out
}

// mutate decides about every object, and changes those that get something.
func (f *changeFlags) mutate(ctx context.Context, s cli.Streams, e *evaluator) error {
	changed := changes{log: changeLog{anyObject: true}}
	lasts := map[*manifest.Object][]lastChange{}
	for o := range objectsIn(e.sources) {
		if o.Odd {
			changed.log.addNoPod(o)
			continue
		}
		all, ok := changed.mutate(ctx, e, o)
		lasts[o] = lastChangesOf(all)
		if ok && o.NoPod == "" {
			changed.inject(ctx, e.input, o)
		}
	}
	if err := changed.err(); err != nil {
		return err
	}
	if e.unread != nil {
		return e.unread
	}
	if f.output != "json" {
		return f.finish(s, e.sources, &changed.log)
	}
	out := bufio.NewWriter(s.Out)
	for o := range objectsIn(e.sources) {
		if o.Odd {
			continue
		}
		patch, object, err := o.Result()
		if err != nil {
			return err
		}
		if err := cli.WriteJSONLine(out, mutatedObject{placeOf(o, e.namespaceOf(o)), patch, lasts[o], object}); err != nil {
			return err
		}
	}
	return out.Flush()
}

// mutate changes an object, and the pod of its template, as mutating policies do, and reports whether that is known.
func (c *changes) mutate(ctx context.Context, e *evaluator, o *manifest.Object) (all []admit.Mutated, ok bool) {
	req, err := admit.Request(e.resources, request.Spec{Object: o.JSON(), Namespace: e.namespace, User: e.user})
	if err != nil {
		c.fail(o, err)
		return nil, false
	}
	if all, ok = c.apply(ctx, e, o, &req, o.JSON(), ""); !ok || o.NoPod != "" || o.Workload == "" {
		return all, ok
	}
	pod := e.sidecarInput(o).Request.Object.Raw
	text, err := admit.Defaulted(pod)
	if err != nil {
		c.fail(o, err)
		return all, false
	}
	created := webhooks.ForTemplate(req.Namespace, o.Workload, text).Request
	ofPod, ok := c.apply(ctx, e, o, &created, pod, o.Template)
	return append(all, ofPod...), ok
}

// apply changes an object, or the pod of the template at a path, whose text is given, by a request about it.
func (c *changes) apply(ctx context.Context, e *evaluator, o *manifest.Object, req *admission.Request, text []byte, template string) ([]admit.Mutated, bool) {
	before := req.Object.Raw
	d := e.decider.Mutate(ctx, req, template, true)
	for i := range d.Violations {
		refused := diagnostic.Diagnostic{Severity: diagnostic.Error, Message: decision.ViolationLine(&d.Violations[i])}
		if d.Violations[i].Reason == metav1.StatusReasonServiceUnavailable {
			refused.Hint = "put its CustomResourceDefinition into the --config directory"
		}
		c.refused = append(c.refused, inObject(o, diagnostic.List{refused})...)
	}
	var patch []jsonpatch.Operation
	err := d.Err
	if err == nil {
		patch, err = mutation.Rebase(text, before, req.Object.Raw)
	}
	switch {
	case err != nil:
	case template == "":
		err = o.ApplyToObject(patch)
	default:
		err = o.Apply(patch)
	}
	if err != nil {
		c.fail(o, err)
	}
	var names []string
	for _, last := range lastChangesOf(d.Mutated) {
		if !slices.Contains(names, last.Policy) {
			names = append(names, last.Policy)
		}
	}
	if len(names) > 0 && err == nil {
		c.log.add(o, "changed by %s %s", admit.MutationKind, strings.Join(names, ", "))
	}
	for _, text := range orderNotes(d.Mutated) {
		c.log.add(o, "%s", text)
	}
	return d.Mutated, err == nil && len(d.Violations) == 0
}
