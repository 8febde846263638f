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
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/decision"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit/summary"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/compile"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config/resolve"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// auditFlags are the flags of audit.
type auditFlags struct {
	cli.SourceFlags
	config                      string
	namespaces, kinds, excluded []string
	failOn                      cli.Thresholds
	baseline                    baselineFlags
	output                      string
	wave                        wave
	logs                        []string
}

// outputs returns the values of --output; the first is the default.
func outputs() []string { return []string{"table", "json", "ndjson", restartOutput} }

// examples is how many objects of each rule and status a report names: -o ndjson has all of them.
const examples = 3

// qps and burst bound the requests for pages: an audit must not be what overloads an API server.
const qps, burst = 20, 40

// NewCommand returns the command "gatehouse audit".
func NewCommand(s cli.Streams) *cobra.Command {
	f := auditFlags{failOn: newThresholds()}
	cmd := &cobra.Command{
		Use:   "audit [--config DIR]",
		Short: "Check the existing objects of a cluster against policies and profiles",
		Long: `Audit finds objects in a cluster that violate policies, and pods without their
sidecars. It decides each object as if it were created now, reads the cluster with
your rights, and changes nothing. Without --config, it decides by what is active in
the cluster. With --config, it decides by a directory, so that you see what a new
policy would refuse; with --with-cluster too, by both.

  fail       its creation would be refused
  warn       a policy warns about it, or audits it
  error      it cannot be decided
  excepted   a PolicyException exempts it
  baselined  a PolicyBaseline allows what it violates
  change     a mutating policy would change it

A rule that depends on the request, such as on its user, cannot be audited. The
report lists such rules, and what you have no right to read. -o json has the totals
and some examples, -o ndjson every result on a line. -o restart prints a script that
restarts the workloads whose pods have an old sidecar or none, for you to read first.

With --audit-log, it reads no objects but the audit log of an API server, and reports
which requests admission policies, Pod Security and webhooks have refused (fail),
audited (warn), exempted, or not answered (error).

With --baseline FILE, the violations that exist become known ones, also those of
policies that only warn. If there is no such file, audit writes one, which allows
each of them until --expires, as long as nothing changes that its rule reads: apply
it before a policy that denies. If the file exists, audit compares: it reports what
is new and what is mended, and changes the file only with --add, --prune, or another
--expires or --reason. A violation that the file has counts as baselined, so that
only others fail.

Exit codes: 0 no more objects than --fail-on allows, without it none that fails (any
number with --audit-log and -o restart); 1 there are more; 2 something could not be judged, whatever else was found.`,
		Example: `  # which objects break the policies that are active?
  gatehouse audit

  # what would a new policy break?
  gatehouse audit --config ./candidate --with-cluster

  # two namespaces of another cluster, for a pipeline
  gatehouse audit --context prod -n shop -n pay --fail-on warnings -o json > audit.json

  # which workloads must be restarted for the new sidecar? a tenth of them at a time
  gatehouse audit -o restart --wave 10% > restart.sh

  # what have the cluster's own policies refused and audited, and for whom?
  gatehouse audit --audit-log /var/log/kubernetes/audit.log

  # accept what violates a new policy today, until 31 March
  gatehouse audit --config ./candidate --with-cluster --baseline baseline.yaml \
    --expires 2027-03-31 --reason "PLAT-12: teams move their images"

  # later: what is new, and what is mended?
  gatehouse audit --baseline baseline.yaml
  gatehouse audit --baseline baseline.yaml --prune

  # every violation, for programs
  gatehouse audit -o ndjson | jq -c 'select(.status == "fail")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if len(f.logs) > 0 {
				return f.runLog(cmd, s)
			}
			return f.run(cmd.Context(), s)
		},
	}
	cli.AddConfigFlag(cmd, &f.config, "directory of documents, which replace what is active in the cluster")
	f.Add(cmd)
	flags := cmd.Flags()
	flags.StringSliceVarP(&f.namespaces, "namespace", "n", nil, "audit only objects in these namespaces, such as shop,pay, and no cluster-scoped objects; repeatable")
	flags.StringSliceVar(&f.kinds, "kind", nil, "audit only these kinds, such as Pod or deployments.apps; repeatable")
	flags.StringSliceVar(&f.excluded, "exclude-namespace", install.ExcludedNamespaces(), "namespaces that are not audited, because the API server sends nothing about them to Gatehouse; repeatable")
	flags.StringArrayVar(&f.logs, "audit-log", nil, "audit log of an API server, JSON lines that may be compressed with gzip, or - for standard input; repeatable")
	flags.Var(&f.failOn, "fail-on", "exit with code 1 if there are more than N objects of this kind: "+strings.Join(f.failOn.Names, ", ")+"; repeatable (default violations=0)")
	f.baseline.addTo(cmd)
	cli.AddOutputFlag(cmd, &f.output, outputs()...)
	flags.Var(&f.wave, "wave", "with -o restart, how many workloads are restarted before the script waits for them: a number, or a share such as 10% (default all)")
	return cmd
}

// check returns everything that is wrong with the flags.
func (f *auditFlags) check() error {
	errs := cli.Problems{f.Check(f.config)}
	for _, of := range []struct {
		flag  string
		names []string
	}{{"--namespace", f.namespaces}, {"--exclude-namespace", f.excluded}} {
		for _, name := range of.names {
			errs.Add(len(validation.IsDNS1123Label(name)) > 0, "%s %q: must be the name of a namespace: lower-case letters, digits and dashes", of.flag, name)
		}
	}
	for _, name := range f.namespaces {
		errs.Add(len(f.logs) == 0 && slices.Contains(f.excluded, name), "--namespace %q: the API server sends nothing about this namespace to Gatehouse (hint: --exclude-namespace lists such namespaces)", name)
	}
	errs.Add(f.output == restartOutput && len(f.kinds) > 0, "-o restart reads pods alone: --kind cannot be given")
	errs.Add(f.output == restartOutput && f.baseline.path != "", "-o restart reads pods alone: --baseline cannot be given")
	errs.Add(f.output != restartOutput && f.wave != wave{}, "--wave is for -o restart")
	for _, kind := range f.kinds {
		errs.Add(kind == "", `--kind "": must be a kind or a resource, as in Pod or deployments.apps`)
	}
	f.baseline.check(&errs, len(f.namespaces)+len(f.kinds) > 0, time.Now())
	return errs.Err()
}

// run audits, and writes the report.
func (f *auditFlags) run(ctx context.Context, s cli.Streams) error {
	var file *known
	if f.baseline.path != "" {
		var err error
		if file, err = f.baseline.open(time.Now()); err != nil {
			return err
		}
	}
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
	if err := f.writeCompiled(s.Err, loaded, time.Now()); err != nil {
		return err
	}
	source.WriteUnconsidered(s.Err)
	if err := source.CheckDeciding(loaded); err != nil {
		return err
	}
	out := bufio.NewWriter(s.Out)
	aggregator := summary.New(examples)
	var sink audit.Sink = aggregator
	var restarts *restarts
	kinds := f.kinds
	switch f.output {
	case "ndjson":
		sink = &lines{Sink: aggregator, out: out}
	case restartOutput:
		if len(loaded.Config.Sidecar.Profiles) == 0 {
			return errors.New("no SidecarProfile is active, so that there is nothing to restart for (hint: apply one, or name a directory with --config DIR)")
		}
		restarts = newRestarts(aggregator)
		sink, kinds = restarts, []string{"Pod"}
	}
	var compared *collector
	if file != nil {
		compared = newCollector(file, f.baseline.add || !file.exists, time.Now(), loaded.Config.Policy.ReachOf, sink)
		sink = compared
	}
	source.Access.QPS, source.Access.Burst = qps, burst
	line := cli.NewLiveLine(s.Err)
	outcome, err := audit.Run(ctx, audit.Options{
		Access: source.Access, Config: loaded.Config, Snapshot: loaded.Snapshot, Namespaces: f.namespaces, Exclude: f.excluded, Kinds: kinds, Entries: file != nil,
		Progress: func(c audit.Coverage) {
			line.Show(func() string { return cli.InertName(c.Resource) + ": " + objectCount(c.Objects) })
		},
	}, sink)
	line.Clear()
	if outcome == nil {
		return source.Explain(err)
	}
	r := newReport(f, source.Describe(), outcome, aggregator.Summary())
	r.Unseen = f.Unseen(f.config)
	for _, name := range f.namespaces {
		source.Once.Namespace(name) // a missing right is a problem: then it is unknown whether the namespace exists
	}
	for _, err := range source.Unread(loaded) {
		r.addUnjudged("%s", err.Error())
	}
	r.addStop(ctx, err)
	limits := f.failOn.List(violationsName)
	if restarts != nil {
		limits = f.failOn.List()
	}
	r.conclude(limits)
	if compared != nil {
		knowsAll := (f.config == "" || f.WithCluster) && len(source.Unconsidered()) == 0
		if err := f.concludeBaseline(r, compared, loaded.Config, knowsAll, err != nil || ctx.Err() != nil); err != nil {
			return err
		}
	}
	if restarts != nil {
		restarts.print(decision.LinePrinter(out), f, r)
		err = out.Flush()
	} else {
		err = errors.Join(f.write(out, r), out.Flush())
	}
	if err != nil {
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

// writeCompiled writes which documents of gatehouse compile in the cluster are not what compiling gives now. What is audited are their sources,
// where these decide too.
func (f *auditFlags) writeCompiled(out io.Writer, loaded *resolve.CommandConfig, now time.Time) error {
	list, made, err := compile.EnforcedBy(loaded.Config, f.excluded, loaded.Compiled, now)
	for i := range list {
		if e := &list[i]; e.State == v1alpha1.OutOfDateReason || e.State == v1alpha1.ExceptionEndedReason {
			_, _ = fmt.Fprintf(out, "warning: %s\n", cli.OneLine(e.Kind+"/"+e.Name+": "+e.Text)) // best effort, here and below
		}
	}
	for i := range made {
		kind, name, _ := strings.Cut(made[i].From, "/")
		if at, hasEnded := made[i].HasEnded(now); hasEnded && compile.Of(list, kind, name) == nil {
			_, _ = fmt.Fprintf(out, "warning: %s: an exception in it ended at %s (hint: compile %s again, and apply the result)\n",
				cli.OneLine(made[i].Document), at.Format(time.RFC3339), cli.OneLine(made[i].From))
		}
	}
	return err
}

// grouped returns a number with commas between groups of digits.
func grouped(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
