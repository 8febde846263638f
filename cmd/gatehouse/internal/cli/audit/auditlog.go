package audit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit/summary"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/auditlog"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// podSecurityExemption stands for the exemptions in the configuration of Pod Security, which have no names.
const podSecurityExemption = "Pod Security configuration"

// logFlagNames are the flags that --audit-log may be given with.
func logFlagNames() []string { return []string{"audit-log", "namespace", "fail-on", "output"} }

// logReader sums up audit logs.
type logReader struct {
	*report
	sink       audit.Sink
	namespaces []string
	line       *cli.LiveLine
	requests   int64
	// damaged is how many lines and annotations of the present file cannot be read, and problem is what is wrong with the first.
	damaged int
	problem string
}

// runLog reports what the audit logs say.
func (f *auditFlags) runLog(cmd *cobra.Command, s cli.Streams) error {
	for _, name := range []string{"config", "with-cluster", "partial", "in-cluster", "kubeconfig", "context", "kind", "exclude-namespace", "wave", "baseline", "expires", "reason", "add", "prune"} {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--audit-log and --%s cannot be given together: the log says what was decided, with --%s", name, strings.Join(logFlagNames()[1:], ", --"))
		}
	}
	if f.output == restartOutput {
		return errors.New("--audit-log and -o restart cannot be given together")
	}
	out := bufio.NewWriter(s.Out)
	aggregator := summary.New(examples)
	r := &logReader{report: &report{Namespaces: f.namespaces, Complete: true, Coverage: []coverage{}, isLog: true}, sink: aggregator, namespaces: f.namespaces, line: cli.NewLiveLine(s.Err)}
	if f.output == "ndjson" {
		r.sink = &lines{Sink: aggregator, out: out}
	}
	names := make([]string, len(f.logs))
	for i, path := range f.logs {
		if names[i] = cli.InertName(path); path == "-" {
			names[i] = cli.StdinName
		}
		if err := r.readFile(cmd.Context(), s.In, path, names[i]); err != nil {
			r.line.Clear()
			return err
		}
	}
	r.line.Clear()
	r.addStop(cmd.Context(), nil)
	r.Configuration = "the audit log " + strings.Join(names, ", ")
	r.Summary = aggregator.Summary()
	r.conclude(f.failOn.List())
	if err := errors.Join(f.write(out, r.report), out.Flush()); err != nil {
		return err
	}
	return r.exit()
}

// readFile reads one log. The error is that of opening it: what cannot be read of it makes the report incomplete.
func (r *logReader) readFile(ctx context.Context, stdin io.Reader, path, name string) (err error) {
	in := stdin
	if path != "-" {
		file, err := os.Open(path) // #nosec G304 -- the user names the file
		if err != nil {
			return fmt.Errorf("--audit-log: %s: cannot be read: %w", name, cli.Cause(err))
		}
		defer func() { _ = file.Close() }() // it is only read
		in = file
	}
	reader, err := auditlog.NewReader(in)
	if err != nil {
		return fmt.Errorf("--audit-log: %s: %w", name, cli.Cause(err))
	}
	r.damaged = 0
	for ctx.Err() == nil {
		event, err := reader.Next()
		switch _, isLine := errors.AsType[*auditlog.LineError](err); {
		case err == nil:
			r.add(event)
			r.line.Show(func() string { return name + ": " + countOf(r.requests, "request") })
			continue
		case isLine:
			r.fail(err)
			continue
		case !errors.Is(err, io.EOF) && !errors.Is(err, auditlog.ErrUnfinished): // which is being written
			r.addUnjudged("%s: %s", name, cli.Inert(cli.Cause(err).Error()))
		}
		break
	}
	if r.damaged > 0 {
		r.addUnjudged("%s: %s cannot be read; the first: %s", name, diagnostic.Count(r.damaged, "line"), r.problem)
	}
	return nil
}

// fail counts what cannot be read.
func (r *logReader) fail(err error) {
	if r.damaged++; r.damaged == 1 {
		r.problem = cli.Inert(err.Error())
	}
}

// add adds a request, at its end.
func (r *logReader) add(e *auditv1.Event) {
	if e.Stage != auditv1.StageResponseComplete && e.Stage != auditv1.StagePanic {
		return // the event of the end comes later
	}
	var o audit.Object
	if ref := e.ObjectRef; ref != nil {
		kind := ref.Resource
		if ref.Subresource != "" {
			kind += "/" + ref.Subresource
		}
		o = audit.Object{GroupVersionKind: schema.GroupVersionKind{Group: ref.APIGroup, Version: ref.APIVersion, Kind: kind}, Namespace: ref.Namespace, Name: ref.Name}
	}
	if len(r.namespaces) > 0 && !slices.Contains(r.namespaces, o.Namespace) {
		return
	}
	r.requests++
	if at := e.RequestReceivedTimestamp.UTC(); !at.IsZero() {
		if r.Began.IsZero() || at.Before(r.Began) {
			r.Began = at
		}
		if at.After(r.Ended) {
			r.Ended = at
		}
	}
	user := e.User.Username
	if e.ImpersonatedUser != nil {
		user = e.ImpersonatedUser.Username
	}
	r.sink.Object(o)
	found, err := auditlog.Findings(e)
	for i := range found {
		one := &found[i]
		result := audit.Result{Object: o, Kind: one.Kind, Policy: one.Policy, Binding: one.Binding, Rule: one.Rule, Message: one.Message, User: user}
		switch one.Outcome {
		case auditlog.Refused:
			result.Status = audit.Fail
		case auditlog.Warned, auditlog.Audited:
			result.Status = audit.Warn
		case auditlog.Exempt:
			if result.Status, result.Exception = audit.Skip, one.Exception; one.Exception == "" {
				result.Exception = podSecurityExemption
			}
		case auditlog.Failed:
			result.Status = audit.Error
		}
		r.sink.Result(result)
	}
	if err != nil {
		r.fail(err)
	}
}
