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

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit/summary"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// auditFlags are the flags of audit.
type auditFlags struct {
	cli.SourceFlags
	config                      string
	namespaces, kinds, excluded []string
	failOn                      cli.Thresholds
	output                      string
}

// outputs returns the values of --output; the first is the default.
func outputs() []string { return []string{"table", "json", "ndjson"} }

// examples is how many objects of each rule and status a report names: -o ndjson has all of them.
const examples = 3

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
admission policies. With --config it decides by
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
  -o json    one document with totals, and examples of each rule
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
	f.Add(cmd)
	flags := cmd.Flags()
	flags.StringSliceVarP(&f.namespaces, "namespace", "n", nil, "audit only objects in these namespaces, as in shop,pay; repeatable; objects in no namespace are left out")
	flags.StringSliceVar(&f.kinds, "kind", nil, "audit only these kinds, as in Pod or deployments.apps; repeatable")
	flags.StringSliceVar(&f.excluded, "exclude-namespace", excludedNamespaces(), "namespaces whose objects the API server does not send to Gatehouse, and which are not audited; repeatable")
	flags.Var(&f.failOn, "fail-on", "exit with code 1 if there are more than N objects of this kind: "+strings.Join(f.failOn.Names, ", ")+"; repeatable (default violations=0)")
	cli.AddOutputFlag(cmd, &f.output, outputs()...)
	return cmd
}

// excludedNamespaces returns those of which the API server sends nothing to an install with default names.
func excludedNamespaces() []string {
	return []string{metav1.NamespaceSystem, corev1.NamespaceNodeLease, install.DefaultNamespace}
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
	for _, name := range f.namespaces {
		errs.Add(slices.Contains(f.excluded, name), "--namespace %q: the API server does not send its objects to Gatehouse (hint: --exclude-namespace names the namespaces of which that is so)", name)
	}
	for _, kind := range f.kinds {
		errs.Add(kind == "", `--kind "": must be a kind or a resource, as in Pod or deployments.apps`)
	}
	return errs.Err()
}

// run audits, and writes the report.
func (f *auditFlags) run(ctx context.Context, s cli.Streams) error {
	source, err := f.Open(ctx, f.config)
	if err != nil {
		return err
	}
	defer source.Close()
	loaded, err := source.Load(ctx, nil)
	if err != nil {
		return err
	}
	f.writeDiagnostics(s.Err, loaded.Found)
	source.WriteUnconsidered(s.Err)
	if err := source.CheckDeciding(loaded); err != nil {
		return err
	}
	out := bufio.NewWriter(s.Out)
	aggregator := summary.New(examples)
	var sink audit.Sink = aggregator
	if f.output == "ndjson" {
		sink = &lines{Sink: aggregator, out: out}
	}
	source.Access.QPS, source.Access.Burst = qps, burst
	line := cli.NewLiveLine(s.Err)
	outcome, err := audit.Run(ctx, audit.Options{
		Access: source.Access, Config: loaded.Config, Snapshot: loaded.Snapshot, Namespaces: f.namespaces, Exclude: f.excluded, Kinds: f.kinds,
		Progress: func(c audit.Coverage) {
			line.Show(func() string { return cli.InertName(c.Resource) + ": " + countOf(c.Objects, "object") })
		},
	}, sink)
	line.Clear()
	if outcome == nil {
		return source.Explain(err)
	}
	r := newReport(f, source.Describe(), outcome, aggregator.Summary())
	for _, name := range f.namespaces {
		source.Once.Namespace(name) // a missing right is a problem: then it is unknown whether the namespace exists
	}
	for _, err := range source.Unread(loaded) {
		r.addUnjudged("%s", err.Error())
	}
	r.addStop(ctx, err)
	r.conclude(&f.failOn)
	if err := errors.Join(f.write(out, r), out.Flush()); err != nil {
		return err
	}
	return r.exit()
}

// writeDiagnostics writes what is wrong with objects of the cluster, as lint does.
func (f *auditFlags) writeDiagnostics(out io.Writer, found diagnostic.List) {
	const most = 50
	written := 0
	for i := range found {
		d := &found[i]
		if written++; written > most {
			_, _ = fmt.Fprintf(out, "and %s (hint: gatehouse lint, and kubectl get gatehouse)\n", diagnostic.Count(len(found)-i, "more diagnostic")) // best effort, here and below
			return
		}
		_, _ = fmt.Fprintln(out, string(d.Severity)+": "+cli.OneLine(d.String()))
	}
}

// grouped returns a number with commas between groups of digits.
func grouped(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
