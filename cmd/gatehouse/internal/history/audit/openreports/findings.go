// Package openreports keeps the results of an audit as reports in the cluster: one Report for each
// namespace with findings, and one ClusterReport.
//
// The number of results in all reports together has a bound, and so has its memory. A report has no time of the audit, so that an audit that finds the same writes nothing.
package openreports

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

const (
	// maxMessage bounds a message, and maxName any other text of a result, in bytes.
	maxMessage, maxName = 400, 253
	// maxResults is how many results a report has at most, and maxKept how many all reports have
	// together. A result is about 500 bytes of the API server's store, and 2 KiB at most.
	maxResults, maxKept = 100, 5000
)

// Policy identifies a policy.
type Policy struct{ Kind, Name string }

func (p Policy) compare(q Policy) int {
	return cmp.Or(strings.Compare(p.Kind, q.Kind), strings.Compare(p.Name, q.Name))
}

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

// Findings is an audit.Sink. It keeps totals, and of each namespace as many results as fit into its
// report. Which ones these are does not depend on the order in which they come: each policy has
// the same share as long as it has results, and of a policy the first ones in their order are kept.
type Findings struct {
	// level is how many results of a namespace are kept. It is halved whenever the results of all
	// namespaces together exceed maxKept.
	level, kept int
	namespaces  map[string]*findings
	policies    map[Policy]*Counts
	objects     int64
}

// findings are those of one namespace, or about objects in none.
type findings struct {
	counts Counts
	kept   int
	// byPolicy are the kept results, in order.
	byPolicy map[Policy][]audit.Result
}

// New returns Findings without any.
func New() *Findings {
	return &Findings{level: maxResults, namespaces: map[string]*findings{}, policies: map[Policy]*Counts{}}
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
		f.policies[Policy{strings.Clone(of.Kind), strings.Clone(of.Name)}] = counts
	}
	counts.add(r.Status)
	group := f.namespaces[r.Object.Namespace]
	if group == nil {
		group = &findings{byPolicy: map[Policy][]audit.Result{}}
		f.namespaces[strings.Clone(r.Object.Namespace)] = group
	}
	group.counts.add(r.Status)
	if r.Status != audit.Skip { // an exemption is no finding
		f.keep(group, r)
	}
}

// keep keeps a result if it is one of the first.
func (f *Findings) keep(group *findings, r audit.Result) {
	of := Policy{r.Kind, r.Policy}
	list := group.byPolicy[of]
	i, found := slices.BinarySearchFunc(list, r, compareResults)
	if found || i >= f.level {
		return
	}
	if i == len(list) && group.kept >= f.level && group.largest() == of {
		return // it would be removed again
	}
	group.byPolicy[of] = slices.Insert(list, i, copied(r))
	group.kept++
	f.kept++
	f.trim(group)
	for f.kept > maxKept {
		f.level /= 2
		for _, other := range f.namespaces {
			f.trim(other)
		}
	}
}

// trim removes what is above the level, each time the last result of the policy that has most.
func (f *Findings) trim(group *findings) {
	f.kept -= group.trim(f.level)
}

func (g *findings) trim(level int) (removed int) {
	for g.kept > level {
		most := g.largest()
		list := g.byPolicy[most]
		list[len(list)-1] = audit.Result{} // frees its strings
		g.byPolicy[most] = list[:len(list)-1]
		g.kept--
		removed++
	}
	return removed
}

// largest returns the policy with most kept results, the last one of several.
func (g *findings) largest() Policy {
	var most Policy
	n := 0
	for of, list := range g.byPolicy {
		if len(list) > n || len(list) == n && n > 0 && of.compare(most) > 0 {
			most, n = of, len(list)
		}
	}
	return most
}

// compareResults is the order of results: what is severe comes first.
func compareResults(a, b audit.Result) int {
	return cmp.Or(
		cmp.Compare(rank(a.Status), rank(b.Status)),
		Policy{a.Kind, a.Policy}.compare(Policy{b.Kind, b.Policy}),
		strings.Compare(a.Rule, b.Rule),
		strings.Compare(a.Object.Group, b.Object.Group), strings.Compare(a.Object.Kind, b.Object.Kind),
		strings.Compare(a.Object.Name, b.Object.Name), strings.Compare(a.Object.UID, b.Object.UID),
		strings.Compare(a.Binding, b.Binding), strings.Compare(a.Template, b.Template), strings.Compare(text(a.Message), text(b.Message)),
	)
}

func rank(s audit.Status) int {
	return slices.Index([]audit.Status{audit.Fail, audit.Error, audit.Warn, audit.Change, audit.Skip}, s)
}

// copied returns a result that shares no memory with the object that it is about, and is bounded.
func copied(r audit.Result) audit.Result {
	for _, s := range []*string{
		&r.Object.Group, &r.Object.Version, &r.Object.Kind, &r.Object.Namespace, &r.Object.Name, &r.Object.UID,
		&r.Kind, &r.Policy, &r.Binding, &r.Rule, &r.Template, &r.Exception,
	} {
		*s = strings.Clone(truncate.Bytes(diagnostic.OneLine(*s), maxName))
	}
	r.Message = text(r.Message)
	return r
}

// text returns a message as reports have it.
func text(message string) string {
	return strings.Clone(truncate.Bytes(diagnostic.OneLine(truncate.Bytes(message, maxMessage)), maxMessage))
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
