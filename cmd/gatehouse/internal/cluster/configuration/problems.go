package configuration

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/problemlog"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/matching"
)

// The reasons of Events about the configuration.
const (
	reasonRejected  = "ConfigurationRejected"
	reasonActivated = "ConfigurationActivated"
	reasonMissing   = "ParamsNotFound"
	reasonFound     = "ParamsFound"
)

const (
	// paramsPeriod is how often params are looked for that bindings name.
	paramsPeriod = 5 * time.Second
	// denialLife is how long params are looked for in the namespace of a denied request, and maxDenials bounds how many are kept.
	denialLife, maxDenials = 10 * time.Minute, 100
	// maxProblem bounds what is shown of a problem, in bytes.
	maxProblem = 500
)

// Problems are what lasts and needs a person, though the server is ready: a rejected configuration, and params that do not exist.
// It is safe for concurrent use, and its zero value has none.
type Problems struct {
	// Record, if set, writes an Event about this replica. It does not block.
	Record func(warning bool, reason, note string)

	mu sync.Mutex
	// rejected is why the last configuration was not activated, "" if it was, and since when.
	rejected string
	since    time.Time
	// missing are bindings that deny because of missing params, and denied when a binding last denied a request in a namespace.
	missing []matching.MissingParams
	denied  map[denial]time.Time
	params  *problemlog.Log
}

// denial is a binding, as policy.DeniedByKey names it, that denied a request in a namespace.
type denial struct{ by, namespace string }

func (p *Problems) record(warning bool, reason, note string) {
	if p.Record != nil {
		p.Record(warning, reason, note)
	}
}

// reject notes that a configuration is not activated, and activate that one is.
func (p *Problems) reject(text string) {
	p.mu.Lock()
	before := p.rejected
	p.rejected = text
	if before == "" {
		p.since = time.Now()
	}
	p.mu.Unlock()
	if text != before {
		p.record(true, reasonRejected, text)
	}
}

func (p *Problems) activate() {
	p.mu.Lock()
	before := p.rejected
	p.rejected = ""
	p.mu.Unlock()
	if before != "" {
		p.record(false, reasonActivated, "the configuration is valid again and active")
	}
}

// Rejected returns why the last configuration is not active, "" if it is.
func (p *Problems) Rejected() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rejected
}

// Lines returns a line for each problem.
func (p *Problems) Lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var lines []string
	if p.rejected != "" {
		lines = append(lines, fmt.Sprintf("Configuration=False since %s: %s (hint: gatehouse lint --config DIR shows all errors)", p.since.UTC().Format(time.RFC3339), p.rejected))
	}
	for _, text := range p.missingTexts() {
		lines = append(lines, "Params=False: "+text)
	}
	return lines
}

func (p *Problems) missingTexts() []string {
	texts := make([]string, 0, len(p.missing))
	for _, m := range p.missing {
		texts = append(texts, truncate.Bytes(m.String(), maxProblem))
	}
	return texts
}

// NoteDenied notes who denied a request in a namespace, by the audit annotation policy.DeniedByKey.
func (p *Problems) NoteDenied(by, namespace string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.denied == nil {
		p.denied = map[denial]time.Time{}
	}
	for name := range strings.SplitSeq(by, ",") {
		if d := (denial{name, namespace}); strings.Contains(name, "/") && (!p.denied[d].IsZero() || len(p.denied) < maxDenials) {
			p.denied[d] = now
		}
	}
}

// deniedIn returns the namespaces of denied requests, by what denied them.
func (p *Problems) deniedIn(now time.Time) map[string][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.denied, func(_ denial, last time.Time) bool { return now.Sub(last) > denialLife })
	namespaces := map[string][]string{}
	for d := range p.denied {
		namespaces[d.by] = append(namespaces[d.by], d.namespace)
	}
	for _, list := range namespaces {
		slices.Sort(list)
	}
	return namespaces
}

// setMissing sets the bindings whose params do not exist, logs and records what is new and what is over, and reports whether
// anything has changed.
func (p *Problems) setMissing(log *slog.Logger, list []matching.MissingParams) bool {
	p.mu.Lock()
	if p.params == nil {
		p.params = problemlog.New(log, "params")
	}
	before := p.missingTexts()
	p.missing = list
	after := p.missingTexts()
	p.mu.Unlock()
	for _, text := range after {
		// Logged when a binding denies everything that its policy matches, because its params do not exist.
		p.params.Report(text, "", text, "create the params, or correct spec.paramRef of the binding; the denials name the kind, namespace and name")
		if !slices.Contains(before, text) {
			p.record(true, reasonMissing, text)
		}
	}
	for _, text := range before {
		if !slices.Contains(after, text) {
			p.params.Recover(text)
			p.record(false, reasonFound, "resolved: "+text)
		}
	}
	return !slices.Equal(before, after)
}

// checkParams looks for the params that the active bindings name.
func (r *Reconciler) checkParams() {
	s := r.Current.Snapshot.Load()
	if s == nil {
		return
	}
	denied := r.Current.Problems.deniedIn(time.Now())
	list := slices.Concat(s.Policy.MissingParams(denied), s.Mutation.MissingParams(denied))
	if r.Current.Problems.setMissing(r.Current.Log, list) {
		r.notify()
	}
}

// paramsOf returns a remark for each custom resource of a kind and name whose params do not exist.
func (p *Problems) paramsOf(kind, name string) (remarks []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.missing {
		if m.Kind == kind && m.Binding == name || m.Kind == kind+"Binding" && m.Policy == name {
			remarks = append(remarks, m.String())
		}
	}
	return remarks
}

// keepActive keeps the active configuration because a new one is invalid, and reports it.
func (r *Reconciler) keepActive(c *config.Config, err error) {
	r.Current.keepActive(c, err)
	n, first := countErrors(err)
	text := fmt.Sprintf("the configuration is invalid, so the previous one stays active: %s", strings.ReplaceAll(truncate.Bytes(first, maxProblem), "\n", "; "))
	if n > 1 {
		text += fmt.Sprintf(" (and %d more errors)", n-1)
	}
	r.Current.Problems.reject(text)
	r.notify()
}

// warnIgnored logs which documents of the directory are ignored, because the cluster has what is looked up.
func (r *Reconciler) warnIgnored(documents *config.Config) {
	if r.Cluster == nil {
		return
	}
	for _, document := range documents.LookedUp {
		source, object, _ := strings.Cut(document, ": ")
		logDiagnostic(r.Current.Log, diagnostic.Diagnostic{
			Severity: diagnostic.Warning, Source: source, Object: object, Message: "is ignored: with a cluster, params, namespaces and RBAC are read from the cluster",
			Hint: "apply the object to the cluster, and remove it from the directory",
		})
	}
}
