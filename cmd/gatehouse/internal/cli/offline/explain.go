package offline

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/decision"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// NewExplainCommand returns the command "gatehouse explain".
func NewExplainCommand(s cli.Streams) *cobra.Command {
	f := explainFlags{token: newExplainTokenFlags()}
	cmd := &cobra.Command{
		Use:   "explain --config DIR|--context NAME [FILE|DIR]... [-k DIR]... | --token-file FILE",
		Short: "Explain step by step how an object or a token is decided",
		Long: `Explain shows how the verdict of check comes about. For each object it shows which
policies match, the value of each variable and rule, and what they cost; what each
mutating policy changes; and for each sidecar profile why it applies to the pod or
not. Use it when an object is refused, or when a pod has no sidecar. It reads the
same files as check, and changes nothing.

With --token-file, explain shows how a bearer token is verified, step by step, and
what the API server gets as the answer. It never prints the token, and asks no other
server unless you pass --fetch-keys or --ask-groups. With --can-i too, it shows
whether the token's scope includes a request; then the exit code is 1 if it does not.

Exit codes for objects: 0 whatever the verdicts are, 2 if an object cannot be
decided or no policy or profile is active. Exit codes for a token: 0 yes, 1 no, 2
cannot decide.`,
		Example: `  # why is there no sidecar?
  gatehouse explain --config ./config deployment.yaml

  # why is it refused?
  gatehouse explain --config ./config -k overlays/prod --as system:serviceaccount:ci:deployer

  # which pods in the cluster are stale?
  kubectl get pods -A -o json | gatehouse explain --config ./config -o json |
    jq -r 'select(any(.profiles[]; .status == "stale")) | .namespace + "/" + .name'

  # why is this token refused?
  gatehouse explain --config ./config --token-file token.txt --fetch-keys

  # does the scope of this token include it?
  gatehouse explain --config ./config --token-file token.txt --can-i "delete pods -n shop"`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(f.token.check(cmd.Flags()), f.check()); err != nil {
				return err
			}
			if f.token.file != "" {
				return f.token.explain(cmd.Context(), s, f.config, f.output)
			}
			e, err := f.evaluator(cmd.Context(), s, !f.cluster.Given()) // of a directory, lint and check say warnings
			if err != nil {
				return err
			}
			defer e.close()
			defer e.writeProblems(s.Err)
			return (&explainer{e, f.all}).explain(cmd.Context(), s, f.output)
		},
	}
	f.add(cmd)
	cmd.Args = f.token.refuseTokens(cmd.Args, func() []string { return f.files })
	f.token.add(cmd)
	cmd.Flags().BoolVar(&f.all, "all", false, "also show policies that do not match an object, and all expressions")
	cli.AddOutputFlag(cmd, &f.output, "text", "json")
	return cmd
}

// explainFlags are the flags of explain.
type explainFlags struct {
	evaluatorFlags
	token  explainTokenFlags
	output string
	all    bool
}

// explained is the explanation of an object.
type explained struct {
	place
	// NoPod says why the object holds no pod. Then there are no profiles.
	NoPod string `json:"noPod,omitempty"`
	// Profiles is never nil, so that it is a list in JSON.
	Profiles []explainedProfile `json:"profiles"`
	Warnings []string           `json:"warnings,omitempty"`
	Refusals diagnostic.List    `json:"refusals,omitempty"`
	// Invalid is what the API server rejects of the object by the schema of its kind.
	Invalid diagnostic.List `json:"invalid,omitempty"`
	// Mutations are what mutating policies do to the object, and to the pods of its template.
	Mutations []explainedMutation `json:"mutations,omitempty"`
	// GeneratedName is the name that policies see of an object with generateName.
	GeneratedName string `json:"generatedName,omitempty"`
	// Policies are all policies, also those that do not match the object. There are none for a pod that injection refuses.
	Policies []policy.Evaluation `json:"policies,omitempty"`
	// Violations are those that are none of Policies: what the API server refuses of the changed object, and pods that nobody will admit.
	Violations []policy.Violation `json:"violations,omitempty"`
	// Verdict is the one of check.
	Verdict checkVerdict `json:"verdict"`
	// Error says what is unknown.
	Error string `json:"error,omitempty"`

	object *manifest.Object
	from   *evaluation
	// hasPolicies reports whether any policy is configured.
	hasPolicies bool
}

// explainedProfile is the explanation of one profile.
type explainedProfile struct {
	Profile  string         `json:"profile"`
	Reason   sidecar.Reason `json:"reason,omitempty"`
	Detail   string         `json:"detail,omitempty"`
	Revision string         `json:"revision,omitempty"`
	// Status is of a pod that is already injected: current, stale, or gone if
	// there is no such profile any more, and then there is no reason.
	Status string `json:"status,omitempty"`
	sidecar.Explanation
}

// explainer explains what becomes of objects, and why.
type explainer struct {
	*evaluator
	// all lists every policy.
	all bool
}

func (x *explainer) explain(ctx context.Context, s cli.Streams, output string) error {
	out := bufio.NewWriter(s.Out)
	unknown, pods, told := x.unread != nil, 0, 0
	for o := range objectsIn(x.sources) {
		e := x.explainObject(ctx, o)
		if !mayHoldPod(o) && !e.isMatched() {
			continue
		}
		if told++; !o.Odd {
			pods++
		}
		unknown = unknown || e.Error != ""
		if output == "json" {
			if err := cli.WriteJSONLine(out, e); err != nil {
				return err
			}
			continue
		}
		if told > 1 {
			_ = out.WriteByte('\n') // Flush has the error, here and below
		}
		title := titleOf(o)
		if e.Namespace != "" {
			title += " in namespace " + e.Namespace
		}
		_, _ = fmt.Fprintln(out, cli.OneLine(o.Source+": "+title))
		e.print(out, x.all)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	switch {
	case unknown, x.problems() > 0:
		return cli.Exit(cli.ExitUnknown)
	case pods == 0:
		what := "no pod"
		if len(x.matchers) > 0 {
			what = "no pod, and no object that a policy is about,"
		}
		_, err := fmt.Fprintf(s.Err, "gatehouse: there is %s in these manifests\n", what)
		return err
	default:
		return nil
	}
}

// explainObject explains one object.
func (x *explainer) explainObject(ctx context.Context, o *manifest.Object) *explained {
	e := &explained{
		place: placeOf(o, x.namespaceOf(o)), NoPod: noPod(o), Profiles: []explainedProfile{},
		object: o, from: x.evaluate(ctx, o, true), hasPolicies: len(x.matchers) > 0,
	}
	if o.NoPod == "" && unreadableError(o) == nil {
		x.explainSidecars(ctx, o, e)
	}
	e.Invalid = e.from.invalid
	e.Mutations, e.GeneratedName = explainMutations(e.from.Mutated), e.from.GeneratedName
	e.Violations = e.from.Beside
	e.Policies, e.Verdict, e.Error = e.from.Policies, e.from.verdict(), cmp.Or(e.from.problem(), e.Error)
	return e
}

// explainSidecars explains what becomes of a pod.
func (x *explainer) explainSidecars(ctx context.Context, o *manifest.Object, e *explained) {
	in := x.sidecarInput(o)
	in.Explain = true
	if e.from.Pod != nil {
		in.Request.Object.Raw = e.from.Pod
	}
	d := x.snapshot.Sidecar.Decide(ctx, in)
	e.Warnings, e.Refusals = slices.Concat(misplacedWarnings(o), d.Warnings), inObject(o, d.Refusals)
	if d.Err != nil {
		e.Error = x.undecided(in.Request.Namespace, &d).String()
	}
	there := injectedRevisions(in.Request.Object.Raw)
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		p := explainedProfile{Profile: v.Profile, Reason: v.Reason, Detail: v.Detail, Revision: v.Revision}
		if p.Detail == "" && v.Reason != sidecar.Applied && v.Reason != sidecar.AlreadyThere {
			p.Detail = v.Reason.Text()
		}
		if v.Reason == sidecar.NotAsked {
			p.Detail += x.requestHint(v.Profile)
		}
		if revision, ok := there[v.Profile]; ok {
			p.Status = "stale"
			if revision == v.Revision {
				p.Status = "current"
			}
			delete(there, v.Profile)
		}
		if v.Explanation != nil {
			p.Explanation = *v.Explanation
		}
		e.Profiles = append(e.Profiles, p)
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		e.Profiles = append(e.Profiles, explainedProfile{Profile: name, Revision: there[name], Status: "gone", Detail: "the pod has it, and there is no such profile"})
	}
}

// requestHint says what the author of a pod writes to get a profile.
func (in *input) requestHint(profile string) string {
	profiles := in.config.Sidecar.Profiles
	for i := range profiles {
		if p := &profiles[i]; p.Name == profile && p.Spec.Rollout != nil {
			profile = cmp.Or(p.Spec.Rollout.Replaces, profile)
			break
		}
	}
	return fmt.Sprintf(" (annotate the pod with %s: %q)", v1alpha1.InjectAnnotation, profile)
}

// injectedRevisions returns those of the profiles that the status annotation of a pod lists.
func injectedRevisions(pod []byte) map[string]string {
	value, err := rawjson.Parse(pod)
	if err != nil {
		return nil
	}
	var status struct {
		Profiles []struct {
			Name     string `json:"name"`
			Revision string `json:"revision"`
		} `json:"profiles"`
	}
	text := value.Get("metadata", "annotations", v1alpha1.StatusAnnotation).Text()
	if json.Unmarshal([]byte(text), &status) != nil {
		return nil // the decision warns about it
	}
	all := make(map[string]string, len(status.Profiles))
	for _, p := range status.Profiles {
		all[p.Name] = p.Revision
	}
	return all
}

// print writes the explanation for people. Flush of out has the error.
func (e *explained) print(out io.Writer, all bool) {
	line := decision.LinePrinter(out)
	for i := range e.Mutations {
		e.Mutations[i].print(line, all)
	}
	switch {
	case unreadableError(e.object) != nil:
	case e.NoPod == "":
		e.printSidecars(line)
	case mayHoldPod(e.object):
		line("  no pod: %s", cli.OneLine(e.NoPod))
	}
	if e.from.note != "" {
		line("  note: %s", cli.OneLine(e.from.note))
	}
	if e.GeneratedName != "" {
		line("  note: policies see the name %s, in place of one that the API server generates", cli.OneLine(e.GeneratedName))
	}
	for i := range e.Invalid {
		line("  invalid: %s", cli.OneLine(e.Invalid[i].String()))
	}
	e.printPolicies(line, all)
	for i := range e.Violations {
		line("  %s: %s", effectOf(&e.Violations[i]), decision.ViolationLine(&e.Violations[i]))
	}
	if e.Error != "" {
		line("  cannot decide: %s", cli.OneLine(e.Error))
	}
	line("  verdict: %s", e.Verdict.text())
}

// printSidecars writes the profiles.
func (e *explained) printSidecars(line func(string, ...any)) {
	// What is printed below about the pod is not printed above about a profile.
	var below strings.Builder
	for _, warning := range e.Warnings {
		below.WriteString(warning + "\n")
	}
	for _, refusal := range e.Refusals {
		below.WriteString(refusal.String() + "\n")
	}
	name, reason := 0, 0
	for i := range e.Profiles {
		name, reason = max(name, len(e.Profiles[i].Profile)), max(reason, len(e.Profiles[i].Reason))
	}
	for i := range e.Profiles {
		p := &e.Profiles[i]
		var about []string
		if p.Revision != "" {
			about = append(about, strings.TrimRight("revision "+p.Revision+" "+p.Status, " "))
		}
		if p.Detail != "" && !strings.Contains(below.String(), p.Detail) {
			about = append(about, p.Detail)
		}
		line("  %-*s  %-*s  %s", name, p.Profile, reason, p.Reason, cli.OneLine(strings.Join(about, "; ")))
		p.print(line, below.String())
	}
	if len(e.Profiles) == 0 && e.Error == "" && !e.hasPolicies {
		line("  there is no sidecar profile")
	}
	for _, warning := range e.Warnings {
		line("  warning: %s", cli.OneLine(warning))
	}
	for i := range e.from.Violations {
		if v := &e.from.Violations[i]; v.Kind == admit.InjectionKind {
			line("  %s: %s", effectDenied, decision.ViolationLine(v))
		}
	}
}

// print writes one profile, without the details that are printed below.
func (p *explainedProfile) print(line func(string, ...any), below string) {
	width, result := 0, 0
	for _, s := range p.Steps {
		width, result = max(width, len(s.Name)), max(result, len(s.Result))
	}
	var last sidecar.Step
	for _, s := range p.Steps {
		if (s.Name == "conflict" || s.Detail == p.Detail) && strings.Contains(below, s.Detail) {
			s.Detail = ""
		}
		if s == last {
			continue // one of several conflicts
		}
		last = s
		line("      %-*s  %-*s  %s", width, s.Name, result, s.Result, cli.OneLine(s.Detail))
	}
	for _, parameter := range p.Parameters {
		line("      parameter %s = %q (%s)", parameter.Name, parameter.Value, cli.OneLine(parameter.From))
	}
	for _, path := range p.Adds {
		line("      adds %s", cli.OneLine(path))
	}
}
