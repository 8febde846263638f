package openreports

import (
	"fmt"
	"maps"
	"slices"
	"strings"

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
	// maxUnread bounds the results about resources that were not read in the report of a namespace.
	maxUnread = 10
)

// Report is what a report says.
type Report struct {
	// Namespace is "" for the report about the cluster.
	Namespace     string
	Summary       v1alpha1.ReportSummary
	Configuration v1alpha1.ReportConfiguration
	Results       []v1alpha1.ReportResult
}

// Reports returns the reports, ordered by namespace: the one about the cluster is the first. It is called once, when the audit
// has ended.
func (f *Findings) Reports(outcome *audit.Outcome) []Report {
	f.note(outcome)
	var all []Report
	for _, name := range slices.Sorted(maps.Keys(f.namespaces)) {
		if f.hasReport(name) {
			all = append(all, f.report(name))
		}
	}
	return all
}

// hasReport reports whether there is something to say about a namespace, or about the cluster.
func (f *Findings) hasReport(namespace string) bool {
	group := f.namespaces[namespace]
	return group.counts.hasFindings() || namespace == "" && group.counts.Skip > 0
}

// configuration returns that of a report with so many results.
func configuration(results int) v1alpha1.ReportConfiguration {
	return v1alpha1.ReportConfiguration{Limits: v1alpha1.Limits{MaxResults: results, StatusFilter: []v1alpha1.StatusFilter{"fail", "warn", "error"}}}
}

// report returns the report of a namespace, or of the cluster for "".
func (f *Findings) report(namespace string) Report {
	group := f.namespaces[namespace]
	r := Report{
		Namespace: namespace,
		Summary: v1alpha1.ReportSummary{
			Fail: int(group.counts.Fail), Warn: int(group.counts.Warn + group.counts.Change), Error: int(group.counts.Error), Skip: int(group.counts.Skip),
		},
		Configuration: configuration(f.level),
	}
	if namespace == "" {
		r.Configuration.Limits.StatusFilter = append(r.Configuration.Limits.StatusFilter, "skip")
	}
	kept := slices.SortedFunc(func(yield func(audit.Result) bool) {
		for _, list := range group.byPolicy {
			for i := range list {
				if !yield(list[i]) {
					return
				}
			}
		}
	}, compareResults)
	for i := range kept {
		r.Results = append(r.Results, result(&kept[i]))
	}
	return r
}

// note adds what the audit has not judged to the report about the cluster.
func (f *Findings) note(outcome *audit.Outcome) {
	group := f.namespaces[""]
	if group == nil {
		group = &findings{byPolicy: map[Policy][]audit.Result{}}
		f.namespaces[""] = group
	}
	unread := IncompleteOf(outcome)
	for i := range unread {
		group.counts.add(audit.Error)
		if i < maxNotes {
			f.keep(group, audit.Result{Status: audit.Error, Policy: auditPolicy, Rule: unread[i].GroupResource().String(), Message: Unread(&unread[i])})
		}
	}
	if more := len(unread) - maxNotes; more > 0 {
		f.keep(group, audit.Result{Status: audit.Error, Policy: auditPolicy, Message: fmt.Sprintf("and %d more resources were not read: the log of Gatehouse names them", more)})
	}
	for _, s := range outcome.Skipped {
		group.counts.add(audit.Skip)
		f.keep(group, audit.Result{Status: audit.Skip, Kind: s.Kind, Policy: s.Policy, Rule: s.Rule, Message: s.Reason})
	}
}

// IncompleteOf returns what an audit has not read to the end.
func IncompleteOf(outcome *audit.Outcome) []audit.Coverage {
	return slices.DeleteFunc(slices.Clone(outcome.Coverage), func(c audit.Coverage) bool { return c.Complete })
}

// keepUnread returns the report with a result for each resource that was not read and that the
// report in the cluster has results about, or may have had: it does not have all of them.
func (r *Report) keepUnread(there *v1alpha1.Report, unread []audit.Coverage) *Report {
	if r.Namespace == "" {
		return r // it names all of them
	}
	out := *r
	out.Results = slices.Clone(r.Results)
	shortened := there.Summary.Fail+there.Summary.Warn+there.Summary.Error > len(there.Results)
	for i := range unread {
		c := &unread[i]
		note := result(&audit.Result{Status: audit.Error, Policy: auditPolicy, Rule: c.GroupResource().String(), Message: Unread(c)})
		had := slices.ContainsFunc(there.Results, func(one v1alpha1.ReportResult) bool {
			return one.Policy == note.Policy && one.Rule == note.Rule || slices.ContainsFunc(one.Subjects, func(o corev1.ObjectReference) bool {
				group := schema.FromAPIVersionAndKind(o.APIVersion, o.Kind)
				return group.Group == c.Group && (group.Kind == c.Kind || c.Kind == "")
			})
		})
		if had || shortened {
			out.Summary.Error++
			if len(out.Results)-len(r.Results) < maxUnread {
				out.Results = append(out.Results, note)
			}
		}
	}
	return &out
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
		Source: Source, Policy: r.Policy, Rule: r.Rule, Result: v1alpha1.Result(r.Status), Scored: r.Status == audit.Fail, Description: r.Message,
	}
	if r.Status == audit.Change {
		out.Result = v1alpha1.Result(audit.Warn) // reports have no result of that kind
	}
	if out.Policy == "" {
		out.Policy = auditPolicy
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

// identity identifies a result beside its time.
func identity(r *v1alpha1.ReportResult) string {
	parts := []string{string(r.Result), r.Policy, r.Rule, r.Properties["kind"], r.Properties["binding"], r.Properties["template"]}
	for _, s := range r.Subjects {
		parts = append(parts, s.APIVersion, s.Kind, s.Name, string(s.UID))
	}
	return strings.Join(parts, "\x00")
}
