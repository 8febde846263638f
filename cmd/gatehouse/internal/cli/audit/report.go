package audit

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/decision"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit/summary"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// report is the JSON output of audit.
type report struct {
	// Configuration says by what was decided, for people, and Digest identifies it.
	Configuration string `json:"configuration"`
	Digest        string `json:"digest,omitempty"`
	// Unseen says for people what may decide too and is not known.
	Unseen string `json:"unseen,omitempty"`
	// Namespaces and Kinds are the filters, if any.
	Namespaces []string  `json:"namespaces,omitempty"`
	Kinds      []string  `json:"kinds,omitempty"`
	Began      time.Time `json:"began"`
	Ended      time.Time `json:"ended"`
	// Result is "pass" (exit code 0), "fail" (1) or "cannot-decide" (2).
	Result result `json:"result"`
	// Complete reports whether everything was judged but what Skipped lists.
	Complete bool `json:"complete"`

	*summary.Summary

	// Coverage says what was read of each resource.
	Coverage []coverage `json:"coverage"`
	// Unjudged says for people what keeps the audit from being complete.
	Unjudged []string `json:"unjudged,omitempty"`
	// Skipped are the rules that no audit can judge, with the reason.
	Skipped []audit.Skipped `json:"skipped,omitempty"`
	// Unknown are resources that policies name and the cluster does not have.
	Unknown []string `json:"unknown,omitempty"`
	// Exceeded are the limits of --fail-on that are exceeded.
	Exceeded []string `json:"exceeded,omitempty"`

	// Baseline is what became of the file of --baseline.
	Baseline *baselineReport `json:"baseline,omitempty"`

	failed []cli.Threshold
	// isLog reports whether this is about the requests of an audit log, which Objects counts.
	isLog bool
}

// result is the result of an audit.
type result string

const (
	passed       result = "pass"
	violated     result = "fail"
	cannotDecide result = "cannot-decide"
)

// coverage is what was read of a resource.
type coverage struct {
	// Resource is the plural with its group, as "deployments.apps".
	Resource string `json:"resource"`
	Version  string `json:"version"`
	audit.Coverage
}

// Names of --fail-on.
const (
	violationsName = "violations"
	warningsName   = "warnings"
	exceptedName   = "excepted"
	baselinedName  = "baselined"
	changesName    = "changes"
)

// newThresholds returns --fail-on without a value.
func newThresholds() cli.Thresholds {
	names := []string{violationsName, warningsName, exceptedName, baselinedName, changesName}
	for _, state := range []audit.Injection{audit.Stale, audit.Missing, audit.Extra, audit.Declined} {
		names = append(names, string(state))
	}
	return cli.Thresholds{Names: names, What: "objects"}
}

// newReport returns the report of an audit by a configuration.
func newReport(f *auditFlags, configuration string, outcome *audit.Outcome, sum *summary.Summary) *report {
	r := &report{
		Configuration: configuration, Digest: outcome.Digest, Namespaces: f.namespaces, Kinds: f.kinds,
		Began: outcome.Began, Ended: outcome.Ended, Complete: outcome.Complete, Summary: sum,
		Coverage: make([]coverage, 0, len(outcome.Coverage)), Skipped: outcome.Skipped, Unknown: outcome.Unknown,
	}
	for _, c := range outcome.Coverage {
		r.Coverage = append(r.Coverage, coverage{c.GroupResource().String(), c.Version, c})
		if c.Complete {
			continue
		}
		text := c.GroupResource().String() + ": "
		if c.Objects > 0 {
			text += "only " + diagnostic.Count(int(c.Objects), "object") + " judged: "
		}
		if c.Right != "" {
			text += "missing right: " + c.Right
		} else {
			text += cmp.Or(c.Problem, "not read to the end")
		}
		r.addUnjudged("%s", text)
	}
	r.Unknown = nil
	for _, text := range outcome.Unknown {
		// A filter that fits nothing looks like a cluster without violations.
		switch missing := slices.IndexFunc(f.namespaces, func(name string) bool { return text == fmt.Sprintf("namespace %q", name) }); {
		case missing >= 0:
			r.addUnjudged("--namespace %s: there is no such namespace", f.namespaces[missing])
		case slices.ContainsFunc(f.kinds, func(kind string) bool { return strings.HasPrefix(text, kind+": ") }):
			r.addUnjudged("--kind %s", text)
		default:
			r.Unknown = append(r.Unknown, text)
		}
	}
	if sum.Totals.Error > 0 {
		r.addUnjudged("%s cannot be decided", diagnostic.Count(int(sum.Totals.Error), "object"))
	}
	return r
}

// addUnjudged adds what keeps the audit from being complete.
func (r *report) addUnjudged(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(r.Unjudged, text) {
		r.Unjudged = append(r.Unjudged, text)
	}
}

// addStop adds why the audit was cut off, and which kinds it has not seen.
func (r *report) addStop(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
		r.addUnjudged("the audit was interrupted: objects that are not counted were not judged")
	case err != nil:
		r.addUnjudged("the audit ended: %s", cli.Inert(err.Error()))
	}
}

// conclude decides on the result.
func (r *report) conclude(limits []cli.Threshold) {
	for _, t := range limits {
		if n := r.count(t.Name); t.IsExceeded(n) {
			r.failed = append(r.failed, t)
			r.Exceeded = append(r.Exceeded, fmt.Sprintf("%s: %s of %s, allowed is %s", t.Name, grouped(n), r.counted(), t.Limit()))
		}
	}
	r.Complete = r.Complete && len(r.Unjudged) == 0
	if !r.Complete && len(r.Unjudged) == 0 {
		r.addUnjudged("the API server could not list all of its resources")
	}
	switch {
	case !r.Complete:
		r.Result = cannotDecide
	case len(r.failed) > 0:
		r.Result = violated
	default:
		r.Result = passed
	}
}

// count returns how many objects a name of --fail-on is about.
func (r *report) count(name string) (n int64) {
	switch name {
	case violationsName:
		return r.Totals.Fail
	case warningsName:
		return r.Totals.Warn
	case exceptedName:
		return r.Totals.Excepted
	case baselinedName:
		return r.Totals.Baselined
	case changesName:
		return r.Totals.Change
	default:
		for i := range r.Injection {
			n += r.Injection[i].States[audit.Injection(name)]
		}
		return n
	}
}

// objectCount returns a number of objects.
func objectCount(n int64) string { return countOf(n, "object") }

// countOf returns a number of what one word names.
func countOf(n int64, one string) string {
	_, text, _ := strings.Cut(diagnostic.Count(int(n), one), " ")
	return grouped(n) + " " + text
}

// counted returns how many objects or requests the report is about.
func (r *report) counted() string {
	if r.isLog {
		return countOf(r.Objects, "request")
	}
	return objectCount(r.Objects)
}

// exit returns the error with the exit code.
func (r *report) exit() error {
	switch r.Result {
	case cannotDecide:
		return &cli.ExitError{Code: cli.ExitUnknown}
	case violated:
		return &cli.ExitError{Code: cli.ExitNo}
	case passed:
	}
	return nil
}

// ruleTitle names a rule.
func ruleTitle(kind, name, rule string) string {
	if kind == "" {
		return "not of a policy"
	}
	return decision.RuleText(&policy.Violation{Kind: cli.InertName(kind), Policy: name, Rule: rule})
}

// objectTitle names an object on one line, with its group: "Deployment.apps shop/web".
func objectTitle(o *summary.Object) string {
	kind, name := o.Kind, cli.InertName(o.Name)
	if group, _, grouped := strings.Cut(o.APIVersion, "/"); grouped {
		kind += "." + group
	}
	if o.Namespace != "" {
		name = cli.InertName(o.Namespace) + "/" + name
	}
	return cli.InertName(kind) + " " + name
}

// exampleText returns an example on one line.
func exampleText(x *summary.Example) string {
	text := objectTitle(&x.Object)
	if x.Template != "" {
		text += ", " + cli.InertName(x.Template)
	}
	if x.User != "" {
		text += " by " + cli.InertName(x.User)
	}
	if x.Message != "" {
		text += ": " + cli.Inert(x.Message)
	}
	if x.Exception != "" && x.Exception != podSecurityExemption {
		text += " (PolicyException " + cli.InertName(x.Exception) + ")"
	}
	if x.Baseline != "" {
		text += " (PolicyBaseline " + cli.InertName(x.Baseline) + ")"
	}
	return text
}

// exampleLabel returns the status or state of an example.
func exampleLabel(x *summary.Example) string {
	switch {
	case x.State != "":
		return string(x.State)
	case x.Exception != "" && x.Status == audit.Skip:
		return exceptedName
	case x.Baseline != "" && x.Status == audit.Skip:
		return baselinedName
	default:
		return string(x.Status)
	}
}

// namesText returns names with their numbers on one line, the most frequent first, at most mostNames of them.
func namesText(list []summary.Named) string {
	list = slices.SortedStableFunc(slices.Values(list), func(a, b summary.Named) int { return -cmp.Compare(a.Objects, b.Objects) })
	parts := make([]string, 0, mostNames+1)
	more := int64(0)
	for i, one := range list {
		if i >= mostNames {
			more += one.Objects
			continue
		}
		parts = append(parts, fmt.Sprintf("%s (%s)", cli.InertName(one.Name), grouped(one.Objects)))
	}
	if more > 0 {
		parts = append(parts, "others ("+grouped(more)+")")
	}
	return strings.Join(parts, ", ")
}

// write writes the report.
func (f *auditFlags) write(out *bufio.Writer, r *report) error {
	switch f.output {
	case "json":
		return cli.WriteJSON(out, r)
	case "ndjson":
		return cli.WriteJSONLine(out, map[string]*report{"report": r})
	default:
		r.print(out)
		return nil
	}
}

// lines is a sink that writes each result on a line, for another one.
type lines struct {
	audit.Sink
	out *bufio.Writer
	// err is the first error, after which nothing is written. Flush has it too.
	err error
}

// line is a line of -o ndjson: a result, or the state of an injection.
type line struct {
	summary.Example
	PolicyKind string `json:"policyKind,omitempty"`
	Policy     string `json:"policy,omitempty"`
	Rule       string `json:"rule,omitempty"`
	Profile    string `json:"profile,omitempty"`
}

// Result implements audit.Sink.
func (l *lines) Result(r audit.Result) {
	l.Sink.Result(r)
	l.write(&line{
		Example: summary.Example{
			Status: r.Status, Object: summary.ObjectOf(&r.Object), User: r.User, Binding: r.Binding, Template: r.Template, Exception: r.Exception, Baseline: r.Baseline, Message: r.Message,
		},
		PolicyKind: r.Kind, Policy: r.Policy, Rule: r.Rule,
	})
}

// Injection implements audit.Sink.
func (l *lines) Injection(o audit.Object, profile string, state audit.Injection) {
	l.Sink.Injection(o, profile, state)
	l.write(&line{Example: summary.Example{State: state, Object: summary.ObjectOf(&o)}, Profile: profile})
}

func (l *lines) write(one *line) {
	if l.err == nil {
		l.err = cli.WriteJSONLine(l.out, one)
	}
}

// elapsed returns how long the audit took.
func (r *report) elapsed() string {
	return r.Ended.Sub(r.Began).Round(time.Second / 10).String()
}
