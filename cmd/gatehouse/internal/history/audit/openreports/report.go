package openreports

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
)

const (
	// Source is the source of all results.
	Source = "gatehouse"
	// auditPolicy stands for a policy in results about the audit itself.
	auditPolicy = "gatehouse-audit"
	// maxNotes bounds the results about the audit itself, of each kind.
	maxNotes = 50
)

// Reports returns the reports, ordered by namespace: the one about the cluster is the first. It is called once, when the audit
// has ended.
func (f *Findings) Reports(outcome *audit.Outcome) []v1alpha1.Report {
	f.namespaces[""].note(outcome)
	var all []v1alpha1.Report
	for _, name := range slices.Sorted(maps.Keys(f.namespaces)) {
		if group := f.namespaces[name]; group.counts.hasFindings() || name == "" && group.counts.Skip > 0 {
			all = append(all, group.report(name))
		}
	}
	return all
}

// report returns the report of a namespace, or of the cluster for "".
func (g *findings) report(namespace string) v1alpha1.Report {
	r := v1alpha1.Report{
		Source: Source,
		Summary: v1alpha1.ReportSummary{
			Fail: int(g.counts.Fail), Warn: int(g.counts.Warn + g.counts.Change), Error: int(g.counts.Error), Skip: int(g.counts.Skip),
		},
		Configuration: &v1alpha1.ReportConfiguration{Limits: v1alpha1.Limits{MaxResults: maxResults, StatusFilter: []v1alpha1.StatusFilter{"fail", "warn", "error"}}},
		Results:       g.results,
	}
	r.Namespace = namespace
	if namespace == "" {
		r.Configuration.Limits.StatusFilter = append(r.Configuration.Limits.StatusFilter, "skip")
	} else {
		r.Scope = &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: namespace}
	}
	// What is severe comes first, and else what was audited first.
	rank := func(r v1alpha1.ReportResult) int {
		return slices.Index([]v1alpha1.Result{"fail", "error", "warn", "skip"}, r.Result)
	}
	slices.SortStableFunc(r.Results, func(a, b v1alpha1.ReportResult) int { return cmp.Compare(rank(a), rank(b)) })
	return r
}

// note adds what the audit has not judged to the report about the cluster.
func (g *findings) note(outcome *audit.Outcome) {
	add := func(r audit.Result) { g.results = append(g.results, result(copied(r))) }
	unread := IncompleteOf(outcome)
	for i := range unread {
		g.counts.add(audit.Error)
		if i < maxNotes {
			add(audit.Result{Status: audit.Error, Policy: auditPolicy, Rule: unread[i].GroupResource().String(), Message: Unread(&unread[i])})
		}
	}
	if more := len(unread) - maxNotes; more > 0 {
		add(audit.Result{Status: audit.Error, Policy: auditPolicy, Message: fmt.Sprintf("and %d more resources were not read: the log of Gatehouse names them", more)})
	}
	for i, s := range outcome.Skipped {
		g.counts.add(audit.Skip)
		if i < maxNotes {
			add(audit.Result{Status: audit.Skip, Kind: s.Kind, Policy: s.Policy, Rule: s.Rule, Message: s.Reason})
		}
	}
}

// IncompleteOf returns what an audit has not read to the end.
func IncompleteOf(outcome *audit.Outcome) []audit.Coverage {
	return slices.DeleteFunc(slices.Clone(outcome.Coverage), func(c audit.Coverage) bool { return c.Complete })
}

// Unread returns why not all objects of a resource were read and judged, for people. It is the same for as
// long as the reason is the same: the problem of a request has addresses and times.
func Unread(c *audit.Coverage) string {
	resource := c.GroupResource().String()
	if c.Right != "" {
		return fmt.Sprintf("%s were not read: Gatehouse lacks the right to %s", resource, c.Right)
	}
	return fmt.Sprintf("not all %s were read: the log of Gatehouse has the reason", resource)
}

// result returns a result as it is in a report.
func result(r *audit.Result) v1alpha1.ReportResult {
	out := v1alpha1.ReportResult{
		Source: Source, Policy: cmp.Or(r.Policy, auditPolicy), Rule: r.Rule, Result: v1alpha1.Result(r.Status), Scored: r.Status == audit.Fail, Description: r.Message,
	}
	if r.Status == audit.Change {
		out.Result = v1alpha1.Result(audit.Warn) // reports have no result of that kind
	}
	properties := map[string]string{"binding": r.Binding, "template": r.Template}
	if r.Kind != "AdmissionPolicy" {
		properties["kind"] = r.Kind
	}
	maps.DeleteFunc(properties, func(_, value string) bool { return value == "" })
	if len(properties) > 0 {
		out.Properties = properties
	}
	if o := &r.Object; o.Name != "" {
		version := schema.GroupVersion{Group: o.Group, Version: o.Version}.String()
		out.Subjects = []corev1.ObjectReference{{APIVersion: version, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: types.UID(o.UID)}}
	}
	return out
}
