// Package audit has the command "gatehouse audit", which judges what exists in a cluster.
package audit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit/summary"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/config/resolve"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// auditFlags are the flags of audit.
type auditFlags struct {
	cli.SourceFlags
	config                      string
	namespaces, kinds, excluded []string
	failOn                      cli.Thresholds
	examples                    int
	timeout                     time.Duration
	quiet                       bool
	output                      string
}

// outputs returns the values of --output; the first is the default.
func outputs() []string { return []string{"table", "json", "ndjson"} }

// mostExamples bounds --examples: a summary has a bounded size.
const mostExamples = 1000

// qps and burst bound the requests for pages: an audit must not be what overloads an API server.
const qps, burst = 20, 40

// NewCommand returns the command "gatehouse audit".
func NewCommand(s cli.Streams) *cobra.Command {
	f := auditFlags{failOn: newThresholds()}
	cmd := &cobra.Command{
		Use:   "audit [--config DIR]",
		Short: "Check what exists in a cluster against policies and profiles",
		Long: `Audit reads the objects of a cluster that policies match, with your rights, and
decides each as its creation would be decided now: it sets defaults, applies mutating
policies, injects sidecars into pods and pod templates, and evaluates all policies.
It changes nothing.

Without --config it decides by what is active in the cluster: custom resources, the
documents that the running servers have in their own --config, and the cluster's own
admission policies (not with --native=false). With --config it decides by
the documents of a directory in their place, to see what a new policy would break;
with --with-cluster too, by both. Namespaces and params come from the cluster. If
the servers cannot be asked, the audit is not complete unless --partial is set.

  fail       its creation would be refused now
  warn       a policy warns about it, or audits it
  error      cannot decide
  excepted   a PolicyException exempts it
  change     a mutating policy would change it, with the paths

For injection it counts pods whose sidecars are current, stale (of another
revision), missing, declined (the pod opts out), or extra (a pod would not get them
now).

An audit does not know who would ask: rules that read userInfo, oldObject,
operation, options or the authorizer are skipped and listed with the reason. What
cannot be read is listed with the missing right.

  -o table   per rule: numbers of objects, namespaces and examples (the default)
  -o json    one document with totals, and examples of each rule; -o yaml is the
             same in YAML
  -o ndjson  every result, a line each, as they are found; the last line has the
             document of -o json as "report"

Exit codes: 2 something could not be judged: a kind or an object, or the audit was
cut off; otherwise 1 there is more than --fail-on allows, without it any object
that fails; otherwise 0.`,
		Example: `  # which objects break the policies that are active?
  gatehouse audit

  # what would a new policy break?
  gatehouse audit --config ./candidate --with-cluster

  # two namespaces of another cluster, for a pipeline
  gatehouse audit --context prod -n shop -n pay --fail-on warnings -o json > audit.json

  # every violation, for programs
  gatehouse audit -o ndjson | jq -c 'select(.status == "fail")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return f.run(cmd.Context(), s)
		},
	}
	cli.AddConfigFlag(cmd, &f.config, "directory of documents that decide in place of what is active in the cluster")
	cli.NoteConfigVariable(cmd)
	f.Add(cmd)
	flags := cmd.Flags()
	flags.StringSliceVarP(&f.namespaces, "namespace", "n", nil, "audit only objects in these namespaces, as in shop,pay; repeatable; objects in no namespace are left out")
	flags.StringSliceVar(&f.kinds, "kind", nil, "audit only these kinds, as in Pod or deployments.apps; repeatable")
	flags.StringSliceVar(&f.excluded, "exclude-namespace", excludedNamespaces(), "namespaces whose objects the API server does not send to Gatehouse; the cluster's own admission policies judge them all the same; repeatable")
	flags.Var(&f.failOn, "fail-on", "exit with code 1 if there are more than N objects, or N%, of this kind: "+strings.Join(f.failOn.Names, ", ")+"; repeatable (default violations=0)")
	flags.IntVar(&f.examples, "examples", 3, "examples of each rule and status")
	flags.DurationVar(&f.timeout, "timeout", 0, "end the audit after this time and report what was judged until then (default none)")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print only violations, errors and what was not judged; no progress and no warnings about policies")
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(commonKinds(), cobra.ShellCompDirectiveNoFileComp)) // the flags exist
	_ = cmd.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions(f.failOn.Names, cobra.ShellCompDirectiveNoFileComp))
	cli.AddOutputFlag(cmd, &f.output, outputs()...)
	return cmd
}

// excludedNamespaces returns those of which the API server sends nothing to an install with default names.
func excludedNamespaces() []string {
	return []string{metav1.NamespaceSystem, corev1.NamespaceNodeLease, install.DefaultNamespace}
}

// commonKinds returns kinds for completion. Others are accepted.
func commonKinds() []string {
	return []string{"ConfigMap", "CronJob", "DaemonSet", "Deployment", "Ingress", "Job", "Namespace", "Pod", "ReplicaSet", "Role", "RoleBinding", "Service", "StatefulSet"}
}

// check returns everything that is wrong with the flags.
func (f *auditFlags) check() error {
	errs := cli.Problems{f.Check(f.config)}
	for _, of := range []struct {
		flag  string
		names []string
	}{{"--namespace", f.namespaces}, {"--exclude-namespace", f.excluded}} {
		for _, name := range of.names {
			errs.Add(len(validation.IsDNS1123Label(name)) > 0, "%s %q: must be a DNS label: lower-case letters, digits and dashes", of.flag, name)
		}
	}
	if !f.Native(f.config) {
		errs = append(errs, f.checkNotExcluded())
	}
	for _, kind := range f.kinds {
		errs.Add(kind == "", `--kind "": must be a kind or a resource, as in Pod or deployments.apps`)
	}
	errs.Add(f.examples < 0 || f.examples > mostExamples, "--examples %d: must be from 0 to %d (hint: -o ndjson prints every result)", f.examples, mostExamples)
	errs.Add(f.timeout < 0, "--timeout %s: must not be negative", f.timeout)
	return errs.Err()
}

// checkNotExcluded returns an error for each namespace that is audited although the API server sends nothing of it.
func (f *auditFlags) checkNotExcluded() error {
	var errs cli.Problems
	for _, name := range f.namespaces {
		errs.Add(slices.Contains(f.excluded, name), "--namespace %q: the API server does not send its objects to Gatehouse (hint: --exclude-namespace names the namespaces of which that is so)", name)
	}
	return errs.Err()
}

// run audits, and writes the report.
func (f *auditFlags) run(ctx context.Context, s cli.Streams) error {
	// What was judged until the time-out is reported.
	limited, cancel := ctx, context.CancelFunc(func() {})
	if f.timeout > 0 {
		limited, cancel = context.WithTimeout(ctx, f.timeout)
	}
	defer cancel()
	source, err := f.Open(limited, f.config)
	if err != nil {
		return err
	}
	defer source.Close()
	loaded, err := source.Load(limited, nil)
	if err != nil {
		return f.cutOff(ctx, limited, err, "the policies were read")
	}
	f.writeDiagnostics(s.Err, loaded.Found)
	source.WriteUnconsidered(s.Err)
	if err := source.CheckDeciding(loaded); err != nil {
		return f.cutOff(ctx, limited, err, "the policies were read")
	}
	out := bufio.NewWriter(s.Out)
	aggregator := summary.New(f.examples, profileNames(loaded)...)
	var sink audit.Sink = aggregator
	if f.output == "ndjson" {
		sink = &lines{Sink: aggregator, out: out}
	}
	excluded := f.excluded
	if native := nativePolicies(loaded); len(native) > 0 && len(excluded) > 0 {
		// The API server evaluates its own policies in every namespace.
		sink, excluded = &onlyNative{Sink: sink, excluded: excluded, policies: native}, nil
	} else if err := f.checkNotExcluded(); err != nil {
		return err
	}
	source.Access.QPS, source.Access.Burst = qps, burst
	line := cli.NewLiveLine(s.Err)
	if f.quiet {
		line = cli.NewLiveLine(io.Discard)
	}
	progress := progress{}
	began := time.Now()
	outcome, err := audit.Run(limited, audit.Options{
		Access: source.Access, Config: loaded.Config, Snapshot: loaded.Snapshot, Namespaces: f.namespaces, Exclude: excluded, Kinds: f.kinds,
		Progress: func(c audit.Coverage) {
			progress.add(c)
			line.Show(func() string { return progress.text(time.Since(began)) })
		},
	}, sink)
	line.Clear()
	if outcome == nil {
		return f.cutOff(ctx, limited, source.Explain(err), "it was known which resources there are")
	}
	r := newReport(f, source.Describe(), outcome, aggregator.Summary())
	for _, name := range f.namespaces {
		source.Once.Namespace(name) // a missing right is a problem: then it is unknown whether the namespace exists
	}
	for _, err := range source.Unread(loaded) {
		r.addUnjudged("%s", err.Error())
	}
	r.addStop(ctx, limited, f.timeout, err)
	r.conclude(&f.failOn)
	if err := errors.Join(f.write(out, r), out.Flush()); err != nil {
		return err
	}
	return r.exit()
}

// cutOff returns the error of an audit that has judged nothing: the time-out, if that has come before something happened.
func (f *auditFlags) cutOff(ctx, limited context.Context, err error, before string) error {
	if limited.Err() == nil || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("--timeout %s ended before %s (hint: a longer one)", f.timeout, before)
}

// writeDiagnostics writes what is wrong with objects of the cluster, as lint does.
func (f *auditFlags) writeDiagnostics(out io.Writer, found diagnostic.List) {
	const most = 50
	written := 0
	for i := range found {
		d := &found[i]
		if f.quiet && d.Severity != diagnostic.Error {
			continue
		}
		if written++; written > most {
			_, _ = fmt.Fprintf(out, "and %s (hint: gatehouse lint, and kubectl get gatehouse)\n", diagnostic.Count(len(found)-i, "more diagnostic")) // best effort, here and below
			return
		}
		_, _ = fmt.Fprintln(out, string(d.Severity)+": "+cli.OneLine(d.String()))
	}
}

// profileNames returns the profiles of a configuration.
func profileNames(loaded *resolve.CommandConfig) []string {
	profiles := loaded.Config.Sidecar.Profiles
	names := make([]string, len(profiles))
	for i := range profiles {
		names[i] = profiles[i].Name
	}
	return names
}

// nativePolicies returns the kinds and names of the policies that the API server evaluates itself.
func nativePolicies(loaded *resolve.CommandConfig) map[string]bool {
	names := map[string]bool{}
	for o := range loaded.Config.Objects("MutatingAdmissionPolicy", "ValidatingAdmissionPolicy") {
		if o.Source == config.ClusterSource {
			names[o.Kind+"/"+o.GetName()] = true
		}
	}
	return names
}

// onlyNative is a sink that gets, of objects in excluded namespaces, only results of policies that the API server evaluates itself.
type onlyNative struct {
	audit.Sink
	excluded []string
	// policies has their kinds and names.
	policies map[string]bool
}

// Result implements audit.Sink.
func (s *onlyNative) Result(r audit.Result) {
	if r.Kind == "" || s.policies[r.Kind+"/"+r.Policy] || !s.isExcluded(&r.Object) {
		s.Sink.Result(r)
	}
}

// Injection implements audit.Sink.
func (s *onlyNative) Injection(o audit.Object, profile string, state audit.Injection) {
	if !s.isExcluded(&o) {
		s.Sink.Injection(o, profile, state)
	}
}

// isExcluded reports whether an object is in an excluded namespace, or is that namespace.
func (s *onlyNative) isExcluded(o *audit.Object) bool {
	return slices.Contains(s.excluded, o.Home())
}

// progress says how far an audit is.
type progress struct {
	// kind and objects are those of the present resource, and done is the number of earlier ones.
	kind         string
	objects, sum int64
	done         int
	started      string
}

// add notes what was read.
func (p *progress) add(c audit.Coverage) {
	if key := c.String(); key != p.started {
		if p.started != "" {
			p.done++
			p.sum += p.objects
		}
		p.started = key
	}
	p.kind, p.objects = c.Resource, c.Objects
}

// text returns the progress for people: "pods: 12,000 objects; 15,000 in all, 3 kinds done, 1,200/s".
func (p *progress) text(elapsed time.Duration) string {
	all := p.sum + p.objects
	return fmt.Sprintf("%s: %s objects; %s in all, %s done, %.0f/s", cli.InertName(p.kind), grouped(p.objects), grouped(all),
		diagnostic.Count(p.done, "kind"), float64(all)/max(elapsed, time.Millisecond).Seconds())
}

// grouped returns a number with commas between groups of digits.
func grouped(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
