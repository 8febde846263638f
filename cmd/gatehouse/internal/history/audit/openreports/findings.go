// Package openreports writes the results of an audit as reports into the cluster: one Report for each namespace with
// findings, and one ClusterReport. The number of results in all reports together is bounded. Reports have no time, so an
// audit with the same results writes nothing.
package openreports

import (
	"strings"

	"github.com/openreports/reports-api/apis/openreports.io/v1alpha1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

const (
	// maxMessage bounds a message, and maxName any other text of a result, in bytes.
	maxMessage, maxName = 400, 253
	// maxShare is how many results of a policy with one status a report has at most, so that a policy that everything violates
	// does not displace others, maxResults how many it has in all, and maxKept how many all reports have together. A result is
	// about 500 bytes of the API server's store, and 2 KiB at most.
	maxShare, maxResults, maxKept = 30, 100, 5000
)

// Policy identifies a policy.
type Policy struct{ Kind, Name string }

// Counts are numbers of results by status.
type Counts struct{ Fail, Warn, Error, Change, Skip int64 }

func (c *Counts) add(s audit.Status) {
	switch s {
	case audit.Fail:
		c.Fail++
	case audit.Warn:
		c.Warn++
	case audit.Error:
		c.Error++
	case audit.Change:
		c.Change++
	case audit.Skip:
		c.Skip++
	case audit.Pass:
	}
}

// hasFindings reports whether there is a reason for a report.
func (c *Counts) hasFindings() bool { return c.Fail+c.Warn+c.Error+c.Change > 0 }

// Findings is an audit.Sink. It keeps totals, and of each namespace the first results.
type Findings struct {
	kept       int
	namespaces map[string]*findings
	policies   map[Policy]*Counts
	objects    int64
}

// findings are those of one namespace, or about objects in none.
type findings struct {
	counts  Counts
	results []v1alpha1.ReportResult
	shares  map[share]int
}

// share is what maxShare is about.
type share struct {
	policy Policy
	status audit.Status
}

// New returns Findings without any.
func New() *Findings {
	return &Findings{namespaces: map[string]*findings{"": {shares: map[share]int{}}}, policies: map[Policy]*Counts{}}
}

var _ audit.Sink = (*Findings)(nil)

// Object implements audit.Sink.
func (f *Findings) Object(audit.Object) { f.objects++ }

// Injection implements audit.Sink. Reports are about policies.
func (f *Findings) Injection(audit.Object, string, audit.Injection) {}

// Result implements audit.Sink.
func (f *Findings) Result(r audit.Result) {
	if r.Status == audit.Pass {
		return
	}
	of := Policy{r.Kind, r.Policy}
	counts := f.policies[of]
	if counts == nil {
		counts = &Counts{}
		of = Policy{strings.Clone(of.Kind), strings.Clone(of.Name)} // a part of a longer string would keep that in memory, here and below
		f.policies[of] = counts
	}
	counts.add(r.Status)
	group := f.namespaces[r.Object.Namespace]
	if group == nil {
		group = &findings{shares: map[share]int{}}
		f.namespaces[strings.Clone(r.Object.Namespace)] = group
	}
	group.counts.add(r.Status)
	key := share{of, r.Status}
	if r.Status == audit.Skip || group.shares[key] == maxShare || len(group.results) == maxResults || f.kept == maxKept { // an exemption is no finding
		return
	}
	if group.shares[key] == 0 {
		key.policy = Policy{strings.Clone(of.Kind), strings.Clone(of.Name)}
	}
	group.shares[key]++
	f.kept++
	group.results = append(group.results, result(copied(r)))
}

// copied returns a result that shares no memory with the object that it is about, and is bounded.
func copied(r audit.Result) *audit.Result {
	for _, s := range []*string{
		&r.Object.Group, &r.Object.Version, &r.Object.Kind, &r.Object.Namespace, &r.Object.Name, &r.Object.UID,
		&r.Kind, &r.Policy, &r.Binding, &r.Rule, &r.Template,
	} {
		*s = strings.Clone(truncate.Bytes(diagnostic.OneLine(*s), maxName))
	}
	r.Message = strings.Clone(truncate.Bytes(diagnostic.OneLine(truncate.Bytes(r.Message, maxMessage)), maxMessage))
	return &r
}

// Objects returns the number of objects.
func (f *Findings) Objects() int64 { return f.objects }

// Policies returns the counts of each policy that has results.
func (f *Findings) Policies() map[Policy]Counts {
	counts := make(map[Policy]Counts, len(f.policies))
	for of, c := range f.policies {
		counts[of] = *c
	}
	return counts
}
