package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	schemas "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/schema"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// checkFlags are the flags of check.
type checkFlags struct {
	evaluatorFlags
	output string
	quiet  bool
}

// outputs returns the values of --output; the first is the default.
func (*checkFlags) outputs() []string { return []string{"table", "json", "sarif", "github"} }

// NewCheckCommand returns the command "gatehouse check".
func NewCheckCommand(s cli.Streams) *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:   "check --config DIR|--context NAME [FILE|DIR]... [-k DIR]...",
		Short: "Check whether manifests would be admitted",
		Long: `Check tells you before you apply manifests whether the API server and Gatehouse
would admit them. It does with every object what happens to it in a cluster:
validation by the schema of its kind, defaults, mutating policies, sidecar injection
and all policies, also for the pods that a workload will create. It prints a verdict
for each object, and every violation with its policy, rule and line.

The policies are those of --config, or what is active in a cluster (--context,
--kubeconfig or --in-cluster). With both, --config replaces what is active, or adds
to it with --with-cluster. Params come from there alone; namespaces and
CustomResourceDefinitions can also be among the manifests.

  admitted       nothing denies it
  warned         it is admitted, with a warning
  refused        the API server, a policy or sidecar injection would reject it
  cannot decide  something is missing: the reason follows

Exit codes: 0 every object is admitted; 1 an object is refused; 2 wrong usage, or an
object that cannot be decided.`,
		Example: `  # would the cluster take this?
  gatehouse check --config ./config deploy/
  gatehouse check --config ./config -k deploy/overlays/prod

  # what the change of a branch would do, for a pipeline
  gatehouse check --config ./config deploy/ --old main/deploy/ -o sarif > gatehouse.sarif
  helm template charts/web | gatehouse check --config ./config --path charts/web -o sarif > gatehouse.sarif

  # by what is active in a cluster, as the one who deploys
  gatehouse check --context prod new.yaml --as system:serviceaccount:ci:deployer`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return f.run(cmd.Context(), s)
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "print only objects with something to report, and the summary")
	cli.AddOutputFlag(cmd, &f.output, f.outputs()...)
	return cmd
}

// run checks all objects, and writes the report.
func (f *checkFlags) run(ctx context.Context, s cli.Streams) error {
	e, err := f.evaluator(ctx, s, f.quiet)
	if err != nil {
		return err
	}
	defer e.close()
	line := cli.NewLiveLine(s.Err)
	if f.quiet {
		line = cli.NewLiveLine(io.Discard)
	}
	report, err := newCheckReport(ctx, e, line)
	if err != nil {
		return err
	}
	if err := f.write(s, report); err != nil {
		return err
	}
	if !f.quiet {
		e.writeUnchecked(s.Err)
	}
	e.writeProblems(s.Err)
	return report.exit(e.problems() > 0)
}

// checkVerdict is what becomes of an object.
type checkVerdict string

const (
	checkAdmitted checkVerdict = "admitted"
	checkWarned   checkVerdict = "warned"
	checkRefused  checkVerdict = "refused"
	checkUnknown  checkVerdict = "cannot-decide"
)

// text returns the verdict for people.
func (v checkVerdict) text() string { return strings.ReplaceAll(string(v), "-", " ") }

// checkVerdicts returns all verdicts, in the order of the summary.
func checkVerdicts() []checkVerdict {
	return []checkVerdict{checkAdmitted, checkWarned, checkRefused, checkUnknown}
}

// checked is the result for one object.
type checked struct {
	place
	// Line is the line of the file in which the object begins.
	Line      int                   `json:"line"`
	Operation admissionv1.Operation `json:"operation,omitempty"`
	Verdict   checkVerdict          `json:"verdict"`
	// Error says what is unknown.
	Error      string             `json:"error,omitempty"`
	Violations []checkedViolation `json:"violations,omitempty"`
	// Warnings are those that say more than violations do.
	Warnings []string `json:"warnings,omitempty"`
	// Note says what was assumed that may be wrong.
	Note string `json:"note,omitempty"`

	source, title string
	noLines       bool // that of the object
}

// checkedViolation is a violation and its effect.
type checkedViolation struct {
	policy.Violation
	Effect checkEffect `json:"effect"`
	// Line and Column are the position of the field in the file, or of the object or its template.
	Line   int `json:"line"`
	Column int `json:"column"`
}

func (v *checkedViolation) setPosition(at manifest.Position) { v.Line, v.Column = at.Line, at.Column }

// checkEffect is the effect of a violation.
type checkEffect string

const (
	effectDenied    checkEffect = "denied"
	effectWarned    checkEffect = "warned"
	effectAudited   checkEffect = "audited"
	effectExcepted  checkEffect = "excepted"
	effectExisting  checkEffect = "existing"
	effectBaselined checkEffect = "baselined"
)

func effectOf(v *policy.Violation) checkEffect {
	switch {
	case v.Outcome == policy.Excepted:
		return effectExcepted
	case v.Outcome == policy.Baselined:
		return effectBaselined
	case v.Outcome == policy.Existing:
		return effectExisting
	case v.Refuses():
		return effectDenied
	case slices.Contains(v.Actions, admissionregistrationv1.Warn):
		return effectWarned
	default:
		return effectAudited
	}
}

// checkReport has the results for all objects, in the order of the files.
type checkReport struct {
	objects []*checked
	counts  map[checkVerdict]int
}

// newCheckReport evaluates every object.
func newCheckReport(ctx context.Context, e *evaluator, line *cli.LiveLine) (*checkReport, error) {
	defer line.Clear()
	report := &checkReport{counts: make(map[checkVerdict]int)}
	total := 0
	for _, s := range e.sources {
		total += len(s.Objects)
	}
	for o := range objectsIn(e.sources) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		line.Show(func() string {
			return fmt.Sprintf("%d of %s…", len(report.objects), diagnostic.Count(total, "object"))
		})
		c := newChecked(e, o, e.evaluate(ctx, o, false))
		report.objects = append(report.objects, c)
		report.counts[c.Verdict]++
	}
	if len(report.objects) == 0 {
		return nil, errors.New("there is no object in these manifests (hint: -k DIR renders a kustomization)")
	}
	return report, nil
}

func newChecked(e *evaluator, o *manifest.Object, from *evaluation) *checked {
	c := &checked{
		place: placeOf(o, e.namespaceOf(o)), Line: o.Line(), Operation: from.operation, Warnings: from.Warnings, Note: from.note,
		source: o.Source, title: titleOf(o), noLines: o.NoLines,
	}
	for _, d := range from.invalid {
		v := checkedViolation{Violation: schemaViolation(o, &d), Effect: effectDenied}
		v.setPosition(o.Position(strict.Steps(d.Field)...))
		c.Violations = append(c.Violations, v)
	}
	for i := range from.Violations {
		v := checkedViolation{Violation: from.Violations[i]}
		v.Effect = effectOf(&v.Violation)
		v.setPosition(o.Position(strict.Steps(v.Template)...))
		c.Violations = append(c.Violations, v)
	}
	if o.LooksLikeWorkload {
		c.Note = strings.TrimPrefix(c.Note+"; "+podHint, "; ")
	}
	c.Verdict, c.Error = from.verdict(), from.problem()
	return c
}

// schemaKind is the kind of violations of a schema, which stand where others have the kind of a policy.
const schemaKind = "Schema"

func schemaViolation(o *manifest.Object, d *diagnostic.Diagnostic) policy.Violation {
	return policy.Violation{
		Kind: schemaKind, Policy: o.GroupVersionKind().GroupVersion().String() + " " + o.Kind, Message: d.String(),
		Reason: metav1.StatusReasonInvalid, Outcome: policy.Violated, Actions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
	}
}

// writeUnchecked says which kinds were not checked against a schema, and why.
func (e *evaluator) writeUnchecked(out io.Writer) {
	var lines []string
	for kind, err := range e.unchecked {
		reason := err.Error()
		switch {
		case e.opaque[kind]:
			reason = "its CustomResourceDefinition cannot be read from the cluster"
		case errors.Is(err, schemas.ErrUnknown):
			reason += " (hint: put its CustomResourceDefinition into the --config directory, or among the manifests)"
		}
		lines = append(lines, fmt.Sprintf("note: %s %s is not checked against a schema: %s", kind.GroupVersion(), kind.Kind, reason))
	}
	slices.Sort(lines)
	for _, line := range lines {
		_, _ = fmt.Fprintln(out, cli.OneLine(line)) // best effort
	}
}

// exit returns the exit code. If something could not be read, an object is refused or it is unknown what becomes of it.
func (r *checkReport) exit(unread bool) error {
	switch {
	case r.counts[checkRefused] > 0 && r.counts[checkUnknown] == 0:
		return cli.Exit(cli.ExitNo)
	case unread, r.counts[checkUnknown] > 0:
		return cli.Exit(cli.ExitUnknown)
	default:
		return nil
	}
}
