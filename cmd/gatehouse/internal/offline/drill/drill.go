// Package drill finds out what stops in a cluster when a webhook does not answer. It reads all webhooks, whoever has installed them, makes
// the requests that a cluster needs to come back, and decides for each as the API server does whether a webhook must answer it.
//
// It is pure: the report is a function of the Cluster and of the requests of the past, which others read.
package drill

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/matching"
)

// Severity is how bad a finding is.
type Severity string

// The severities, worst first.
const (
	// Lockout: the cluster, or what answers, does not come back by itself.
	Lockout Severity = "lockout"
	// Risk: an outage is more probable, longer or wider than it must be.
	Risk Severity = "risk"
	// Note: it is good to know.
	Note Severity = "note"
)

// Severities returns all of them, worst first.
func Severities() []Severity { return []Severity{Lockout, Risk, Note} }

// IsAtLeast reports whether a severity is as bad as another one.
func (s Severity) IsAtLeast(other Severity) bool {
	return slices.Index(Severities(), s) <= slices.Index(Severities(), other)
}

// Finding is something to mend.
type Finding struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`
	// Requests are those that would fail, if the finding is about some.
	Requests []string `json:"requests,omitempty"`
	// Mend says what to do.
	Mend string `json:"mend"`
}

// Subject is a webhook, or something else that must answer: a conversion webhook of a CustomResourceDefinition, or the server of an
// APIService.
type Subject struct {
	// Object is KIND/NAME, and Webhook the name of the webhook in it, if there are several.
	Object  string `json:"object"`
	Webhook string `json:"webhook,omitempty"`
	// Backend is what answers: a Service, NAMESPACE/NAME, or the address of a URL.
	Backend string `json:"backend"`
	// Sent names the operations and resources of its rules, some of them.
	Sent string `json:"sent,omitempty"`
	// FailurePolicy is Fail or Ignore, and TimeoutSeconds how long the API server waits.
	FailurePolicy  string `json:"failurePolicy,omitempty"`
	TimeoutSeconds int    `json:"timeoutSeconds,omitempty"`
	// Severity is that of the worst finding, "" without one.
	Severity Severity  `json:"severity,omitempty"`
	Findings []Finding `json:"findings"`

	Place
}

// Title names the subject.
func (s *Subject) Title() string { return strings.TrimSuffix(s.Object+" "+s.Webhook, " ") }

// Report is the result of a drill.
type Report struct {
	// Subjects are the worst first.
	Subjects []*Subject `json:"subjects"`
	// Dependencies are what does not start without something else, and Cycles are those that wait for each other.
	Dependencies []Dependency `json:"dependencies"`
	Cycles       []Cycle      `json:"cycles"`
	// Outage is what would have failed in the past, nil if no request of it was given.
	Outage *Outage `json:"outage,omitempty"`
	// Unknown is what could not be decided or read, and Assumed what was taken for granted.
	Unknown []string `json:"unknown,omitempty"`
	Assumed []string `json:"assumed,omitempty"`
}

// Count returns how many findings have a severity.
func (r *Report) Count(s Severity) (n int) {
	for _, subject := range r.Subjects {
		for i := range subject.Findings {
			if subject.Findings[i].Severity == s {
				n++
			}
		}
	}
	return n
}

// Options are what Run needs besides the cluster.
type Options struct {
	// Now is the time by which certificates end.
	Now time.Time
	// Served returns the certificates that a pod presents at a port to a client that asks for the name, the leaf first, one at least. It
	// is nil if no pod is asked.
	Served func(ctx context.Context, namespace, pod string, port int, name string) ([]*x509.Certificate, error)
	// Progress is told what is under way. It may be nil.
	Progress func(what string)
}

// Drill rehearses the outages in a cluster. It is not safe for concurrent use.
type Drill struct {
	cluster          *Cluster
	selectors        matching.Selectors
	reviewsAreExempt bool
	report           *Report
	subjects         map[*hook]*Subject
	assumed, unknown map[string]bool
	past             past
	progress         func(what string)
	// ordinary are requests for a new pod in each namespace, made when they are first needed.
	ordinary []probeRequest
}

const (
	// reviewsExemptSince is the version since which the API server calls no webhook about token and access reviews.
	reviewsExemptSince = "1.37"
	// expressionsOf is the version whose expressions compile if that of the cluster is not known.
	expressionsOf = "1.37"
)

// New returns the drill of a cluster, to which nothing is added any more. The error is that of the context.
func New(ctx context.Context, c *Cluster) (*Drill, error) {
	d := &Drill{
		cluster: c, selectors: matching.NewSelectors(), report: &Report{Subjects: []*Subject{}, Dependencies: []Dependency{}, Cycles: []Cycle{}},
		subjects: map[*hook]*Subject{}, assumed: map[string]bool{}, unknown: map[string]bool{}, past: past{buckets: map[bucketKey]*bucket{}, requests: map[string]int64{}},
	}
	compiler, err := expression.NewCompiler(expressionsOf, nil)
	if err != nil {
		return nil, err
	}
	if parsed, err := version.ParseGeneric(c.Kubernetes); err == nil {
		d.reviewsAreExempt = parsed.AtLeast(version.MustParseGeneric(reviewsExemptSince))
	}
	for _, unread := range c.Unread {
		d.addUnknown(unread, "%s", unread)
	}
	for _, h := range c.hooks {
		h.compile(&d.selectors, compiler, ctx.Err)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		s := &Subject{
			Object: h.configuration, Webhook: h.GetName(), Backend: h.backend(), Sent: h.sent(), FailurePolicy: string(*h.GetFailurePolicy()), TimeoutSeconds: int(h.timeout.Seconds()),
			Findings: []Finding{}, Place: h.place,
		}
		d.subjects[h] = s
		d.report.Subjects = append(d.report.Subjects, s)
		if h.broken != nil {
			d.addUnknown(h.title(), "%s: it is not known what is sent: %v", h.title(), h.broken)
		}
	}
	return d, nil
}

// maxUnknown is how much of what is not known a report names.
const maxUnknown = 1000

// addUnknown notes what is not known, once for a reason.
func (d *Drill) addUnknown(reason, format string, args ...any) {
	if !d.unknown[reason] && len(d.unknown) < maxUnknown {
		d.unknown[reason] = true
		d.report.Unknown = append(d.report.Unknown, fmt.Sprintf(format, args...))
	}
}

func (d *Drill) assume(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !d.assumed[text] {
		d.assumed[text] = true
		d.report.Assumed = append(d.report.Assumed, text)
	}
}

// add adds a finding about a subject. NAMESPACE in the mend is that of the backend.
func (s *Subject) add(code Code, requests []string, format string, args ...any) {
	e := find(code)
	namespace, _, _ := strings.Cut(s.Backend, "/")
	s.Findings = append(s.Findings, Finding{
		Code: code, Severity: e.severity, Message: fmt.Sprintf(format, args...), Requests: requests, Mend: strings.ReplaceAll(e.mend, "NAMESPACE", namespace),
	})
}

// Run finds out what stops when webhooks do not answer, and ends the drill. The error is that of the context.
func (d *Drill) Run(ctx context.Context, o Options) (*Report, error) {
	if d.progress = o.Progress; d.progress == nil {
		d.progress = func(string) {}
	}
	if err := d.findLockouts(ctx); err != nil {
		return nil, err
	}
	d.progress("what depends on what")
	if err := d.findDependencies(ctx); err != nil {
		return nil, err
	}
	d.progress("what is behind the webhooks")
	if err := d.findRisks(ctx, &o); err != nil {
		return nil, err
	}
	d.addOutage()
	return d.finish(), nil
}

// finish sorts the findings and subjects.
func (d *Drill) finish() *Report {
	for _, s := range d.report.Subjects {
		slices.SortStableFunc(s.Findings, func(a, b Finding) int {
			return cmp.Compare(slices.Index(Severities(), a.Severity), slices.Index(Severities(), b.Severity))
		})
		if len(s.Findings) > 0 {
			s.Severity = s.Findings[0].Severity
		}
	}
	rank := func(s *Subject) (int, int) {
		i, n := slices.Index(Severities(), s.Severity), 0
		if i < 0 {
			i = len(Severities())
		}
		for k := range s.Findings {
			if s.Findings[k].Severity == s.Severity {
				n++
			}
		}
		return i, -n
	}
	slices.SortStableFunc(d.report.Subjects, func(a, b *Subject) int {
		i, n := rank(a)
		j, k := rank(b)
		return cmp.Or(cmp.Compare(i, j), cmp.Compare(n, k), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Webhook, b.Webhook))
	})
	return d.report
}

// stopped are the requests that fail for a webhook, by code.
type stopped struct {
	failing, waiting, refused map[Code][]string
	byRights                  bool
	refusal                   error
}

// judge adds what becomes of a probe while the webhook does not answer.
func (d *Drill) judge(ctx context.Context, h *hook, p *Probe, r *request, out *stopped) {
	c, byRights, err := h.calls(ctx, r)
	switch c {
	case notCalled:
	case unsure:
		if h.broken == nil {
			d.addUnknown(h.title()+err.Error(), "%s: it is not known whether it is called to %s: %v", h.title(), p.Title, err)
		}
	case refused:
		out.refused[p.Code] = append(out.refused[p.Code], p.Title)
		out.refusal = err
	case called:
		if out.byRights = out.byRights || byRights; h.fails {
			out.failing[p.Code] = append(out.failing[p.Code], p.Title)
		} else {
			out.waiting[p.Code] = append(out.waiting[p.Code], p.Title)
		}
	}
}

// findLockouts adds what of the requests that a cluster needs fails without each webhook.
func (d *Drill) findLockouts(ctx context.Context) error {
	shared := d.requests(d.cluster.clusterProbes())
	own := map[string][]probeRequest{}
	for _, h := range d.cluster.hooks {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		d.progress("the outage of " + h.title())
		out := stopped{map[Code][]string{}, map[Code][]string{}, map[Code][]string{}, false, nil}
		if service, _ := h.service(); service != nil {
			if own[h.backend()] == nil {
				own[h.backend()] = d.requests(d.cluster.ownProbes(service.Namespace, d.backendPods(h)))
			}
			for i := range own[h.backend()] {
				d.judge(ctx, h, &own[h.backend()][i].Probe, own[h.backend()][i].request, &out)
			}
		}
		for i := range shared {
			d.judge(ctx, h, &shared[i].Probe, shared[i].request, &out)
		}
		d.addStopped(h, &out)
		if h.fails && h.constraints != nil && h.constraints.MatchesPodCreation() {
			if err := d.addNewPods(ctx, h); err != nil {
				return err
			}
		}
	}
	return nil
}

// probeRequest is a probe with its request, which is the same for all webhooks.
type probeRequest struct {
	Probe
	request *request
}

func (d *Drill) requests(list []Probe) []probeRequest {
	out := make([]probeRequest, 0, len(list))
	for i := range list {
		r, err := d.newRequest(&list[i].Request)
		if err != nil {
			d.addUnknown(list[i].Title, "it is not known who is called to %s: %v", list[i].Title, err)
			continue
		}
		out = append(out, probeRequest{list[i], r})
	}
	return out
}

// backendPods returns the groups of the pods that answer for a webhook. If they are not known, what is known of them stands for them.
func (d *Drill) backendPods(h *hook) []*podGroup {
	found := d.cluster.behind(h.backend())
	if len(found) > 0 {
		return found
	}
	reference, _ := h.service()
	service := d.cluster.services[h.backend()]
	if service == nil {
		d.assume("the Service %s is not known: any pod in its namespace stands for its pods", h.backend())
		return []*podGroup{barePod(reference.Namespace, nil)}
	}
	d.assume("the pods of the Service %s are not known: a pod with the labels of its selector stands for them", h.backend())
	return []*podGroup{barePod(reference.Namespace, service.Spec.Selector)}
}

// addStopped adds findings about the requests that fail.
func (d *Drill) addStopped(h *hook, out *stopped) {
	s := d.subjects[h]
	but := ""
	if out.byRights {
		but = " (unless the user has a right for which a match condition asks)"
	}
	for _, code := range lockoutCodes() {
		if titles := out.failing[code]; len(titles) > 0 {
			s.add(code, titles, "without an answer, nobody can %s%s", describe(titles), but)
		}
	}
	for _, code := range slices.Sorted(maps.Keys(out.refused)) {
		titles := out.refused[code]
		s.add(ConditionError, titles, "whether it answers or not, nobody can %s, because a match condition fails and failurePolicy is Fail: %v", describe(titles), out.refusal)
	}
	if titles := out.waiting[Leases]; len(titles) > 0 && h.timeout >= leaseTimeout {
		s.add(SlowLeases, titles, "without an answer, each attempt to %s waits %s; a leader gives up after 5s to 10s", describe(titles), h.timeout)
	}
}

// leaseTimeout is how long leaders wait for the renewal of a Lease.
const leaseTimeout = 5 * time.Second

// addNewPods adds in how many namespaces no pod can be created.
func (d *Drill) addNewPods(ctx context.Context, h *hook) error {
	var stopped []string
	for _, p := range d.ordinaryRequests() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if c, _, _ := h.calls(ctx, p.request); c == called || c == refused {
			stopped = append(stopped, p.Namespace)
		}
	}
	if len(stopped) > 0 {
		d.subjects[h].add(NewPods, nil, "without an answer, no pod can be created in %d of %s: %s", len(stopped), diagnostic.Count(len(d.ordinary), "namespace"), describe(stopped))
	}
	return nil
}

// ordinaryRequests returns requests for a new pod in each namespace.
func (d *Drill) ordinaryRequests() []probeRequest {
	if d.ordinary == nil {
		d.ordinary = d.requests(d.cluster.ordinaryProbes())
	}
	return d.ordinary
}
