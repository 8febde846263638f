// Package background audits a cluster periodically and after changes of policies, in the elected replica. It publishes the
// results as metrics, in the status of AdmissionPolicies, as reports, and in the log. If an audit ends early, the results
// of the one before stay. No decision depends on audits.
package background

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	reportsv1alpha1 "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit/openreports"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/problemlog"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

const (
	// firstDelay is the time from the election to the first audit, so that a rollout of several
	// replicas does not begin several.
	firstDelay = 5 * time.Second
	// pollPause is the time between two checks whether policies have changed, and settlePause the
	// time without a change before an audit begins because of one.
	pollPause, settlePause = 2 * time.Second, 5 * time.Second
	// maxSettle bounds the wait for such a time: whoever may write exceptions can write one all the time.
	maxSettle = time.Minute
	// minPause is the shortest time between two audits. It is longer if audits take longer: at most
	// half of the time is spent on audits, however often policies change.
	minPause = 15 * time.Second
	// maxIncomplete is how many audits in a row may be dropped because the API server could not be
	// read to the end. The next one is published with what it has.
	maxIncomplete = 3
	// minDeadline bounds an audit, unless the interval is longer.
	minDeadline = time.Hour
	// pauseFactor is the length of a pause, in the time since the pause before: an audit
	// takes a third of one processor at most. busyFactor replaces it while reviews take more than
	// busyShare of the processors.
	pauseFactor, busyFactor = 2, 20
	busyShare               = 0.25
	// forbiddenPause is the time to the next audit if a right is missing: it may be granted.
	forbiddenPause = 10 * time.Minute
	// maxPause bounds a pause because of an API server that was slow to answer. It is longer than the
	// pause after the slowest object while reviews need the processors. What pauses do to the
	// continue token of a list, which expires after five minutes, matters little: the list goes on as of then.
	maxPause = 4 * time.Minute
	// maxError bounds text of other programs in the log, in bytes.
	maxError = 500
)

// Active is the configuration that an audit evaluates.
type Active struct {
	// Fingerprint changes with the policies, profiles and exceptions. It is not empty.
	Fingerprint string
	// Policies are the active ones.
	Policies []openreports.Policy
	// Audit audits once. Pace is audit.Options.Pace.
	Audit func(ctx context.Context, sink audit.Sink, pace func(context.Context, time.Duration) error) (*audit.Outcome, error)
}

// Config says what to audit. Active, Every, Reports, Changed and Log are required.
type Config struct {
	// Active returns the active configuration, nil while there is none. It is called every few seconds.
	Active func() *Active
	// Every is the time from the end of an audit to the start of the next.
	Every time.Duration
	// Reports writes reports.
	Reports *openreports.Writer
	// Load returns the share of the processors that reviews took since the last call, from 0 to 1. It may be nil.
	Load func() float64
	// Changed is called after Counts has changed.
	Changed func()
	Log     *slog.Logger
	// Now is the clock of what is published; nil is time.Now.
	Now func() time.Time
}

// Controller audits. Run must not be called while it runs; everything else is safe for concurrent use.
type Controller struct {
	cfg      Config
	metrics  *metrics
	problems *problemlog.Log

	mu      sync.Mutex
	counts  map[string]v1alpha1.PolicyAudit
	pods    map[string]v1alpha1.SidecarPodCounts
	details string
}

// New returns a Controller that has audited nothing.
func New(cfg Config) *Controller {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Load == nil {
		cfg.Load = func() float64 { return 0 }
	}
	return &Controller{
		cfg: cfg, metrics: newMetrics(cfg.Every), problems: problemlog.New(cfg.Log, "audit"),
		details: "Audit=Unknown: this replica does not audit (hint: the replica that writes status does)",
	}
}

// Counts returns what the last audit found of each AdmissionPolicy, nil before the first. The caller
// must not change it.
func (c *Controller) Counts() map[string]v1alpha1.PolicyAudit {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// Pods returns the numbers of pods of each SidecarProfile as of the last audit that read all pods, nil before the first. The caller must
// not change it.
func (c *Controller) Pods() map[string]v1alpha1.SidecarPodCounts {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.pods
}

// Details returns the state of audits in this replica, on one line.
func (c *Controller) Details() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.details
}

func (c *Controller) describe(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.details = fmt.Sprintf(format, args...)
}

// schedule is when audits are due.
type schedule struct {
	// next is the time of the next one, and soonest the time before which none begins.
	next, soonest time.Time
	// audited is the fingerprint of the last one, seen the one that was seen last, since when, and changed when
	// the first change since that audit was seen.
	audited, seen  string
	since, changed time.Time
	// failures is the number of audits in a row that were dropped.
	failures int
}

// isDue reports whether an audit is due.
func (s *schedule) isDue(now time.Time, fingerprint string) bool {
	if s.seen != fingerprint {
		s.seen, s.since = fingerprint, now
	}
	switch isNew := s.audited != "" && s.audited != fingerprint; {
	case !isNew:
		s.changed = time.Time{}
	case s.changed.IsZero():
		s.changed = now
	}
	if now.Before(s.soonest) {
		return false
	}
	isSettled := !s.changed.IsZero() && (now.Sub(s.since) >= settlePause || now.Sub(s.changed) >= maxSettle)
	return isSettled || !now.Before(s.next)
}

// Run audits until the context ends. It is called whenever this replica is elected.
func (c *Controller) Run(ctx context.Context) {
	c.metrics.lead()
	defer c.metrics.resign()
	c.describe("Audit=Unknown: elected, the first audit begins soon")
	defer c.describe("Audit=Unknown: another replica audits")
	start := time.Now()
	s := &schedule{next: start.Add(firstDelay), soonest: start.Add(firstDelay)}
	for sleep.Context(ctx, pollPause) {
		active := c.cfg.Active()
		if active == nil || !s.isDue(time.Now(), active.Fingerprint) {
			continue
		}
		began := time.Now()
		result := c.once(ctx, active, s.failures+1)
		now := time.Now()
		took := now.Sub(began)
		s.audited, s.soonest = active.Fingerprint, now.Add(max(minPause, took))
		switch {
		case !result.published:
			s.failures++
			s.next = now.Add(min(c.cfg.Every, minPause<<min(s.failures, 10)))
		case result.forbidden:
			s.failures, s.next = 0, now.Add(min(c.cfg.Every, forbiddenPause))
		default:
			s.failures, s.next = 0, now.Add(c.cfg.Every)
		}
	}
}

// end is how an audit ended.
type end struct {
	// published reports whether the result was published, forbidden whether a right is missing.
	published, forbidden bool
}

// once audits once. Attempt is 1 after a success.
func (c *Controller) once(ctx context.Context, active *Active, attempt int) end {
	began := c.cfg.Now()
	findings := newFindings(active)
	limited, cancel := context.WithTimeout(ctx, max(minDeadline, c.cfg.Every))
	outcome, err := active.Audit(limited, findings, c.pace)
	cancel()
	if ctx.Err() != nil {
		c.metrics.ran(stopped)
		return end{} // another replica may be elected: nothing is written any more
	}
	late := outcome != nil && errors.Is(err, context.DeadlineExceeded)
	if late {
		// Another attempt would not be faster.
		c.problem("audit", true, fmt.Sprintf("the audit took longer than %s, and ended before all objects were read", max(minDeadline, c.cfg.Every)),
			"see which resources were not read; simplify the rules that take long, or set a longer --audit-every")
	} else if err != nil {
		c.metrics.ran(failed)
		text := truncate.Bytes(err.Error(), maxError)
		c.describe("Audit=False: %s (hint: the results of the last complete audit stay, and Gatehouse tries again)", text)
		c.problem("audit", true, "cannot audit: "+text, hint(err))
		return end{}
	}
	c.problem("audit", late, "", "")
	unread := c.unread(outcome)
	if !late && unread.unknown > 0 && attempt <= maxIncomplete {
		c.metrics.ran(incomplete)
		c.describe("Audit=False: %d resources could not be read to the end (hint: the results of the last complete audit stay, and Gatehouse tries again)", unread.unknown)
		return end{}
	}
	c.publish(ctx, active, findings, outcome, began)
	return end{published: true, forbidden: unread.forbidden > 0}
}

// pace waits after work that took so long.
func (c *Controller) pace(ctx context.Context, took time.Duration) error {
	factor := pauseFactor
	if c.cfg.Load() > busyShare {
		factor = busyFactor
	}
	if !sleep.Context(ctx, min(took*time.Duration(factor), maxPause)) {
		return context.Cause(ctx)
	}
	return nil
}

// unread are numbers of resources of which not all objects were read.
type unread struct {
	// forbidden is for lack of a right, unknown for another reason.
	forbidden, unknown int
}

// unread counts and logs the resources that were not read to the end.
func (c *Controller) unread(outcome *audit.Outcome) unread {
	var n unread
	still := map[string]bool{}
	for i := range outcome.Coverage {
		one := &outcome.Coverage[i]
		what := "list " + one.GroupResource().String()
		still[what] = true
		switch {
		case one.Complete:
			c.problem(what, false, "", "")
			continue
		case one.Right != "":
			n.forbidden++
			c.problem(what, true, openreports.Unread(one), apierr.GrantHint("the ClusterRole gatehouse-audit", "list",
				one.GroupResource().String()+": gatehouse manifests --audit prints the rights that the policies need; the chart takes them as audit.rules"))
		default:
			n.unknown++
			c.problem(what, true, fmt.Sprintf("not all %s were read: %s", one.GroupResource(), truncate.Bytes(one.Problem, maxError)), "Gatehouse tries again; only the audit depends on it")
		}
	}
	for _, name := range outcome.Unknown {
		c.problem("unknown "+name, true, fmt.Sprintf("a policy matches %s, which the API server does not have", truncate.Bytes(name, maxError)), "correct the policy, or install the CustomResourceDefinition")
		still["unknown "+name] = true
	}
	// No policy matches the others any more.
	c.problems.Retain(func(what string) bool { return still[what] || what == "audit" || what == "reports" })
	return n
}

// problem logs a problem once for as long as it lasts, and its end.
func (c *Controller) problem(what string, lasts bool, text, hint string) {
	if lasts {
		c.problems.Report(what, "", text, hint)
	} else {
		c.problems.Recover(what)
	}
}

// hint says what to do about an audit that failed.
func hint(err error) string {
	if apierr.Classify(err).IsDenied() {
		return apierr.GrantHint("the ClusterRole gatehouse-audit", "list", "what the policies match: gatehouse manifests --audit prints the rights")
	}
	return "the results of the last complete audit stay, and Gatehouse tries again"
}

// publish makes the result of an audit known.
func (c *Controller) publish(ctx context.Context, active *Active, findings *findings, outcome *audit.Outcome, began time.Time) {
	counts, total := findings.Policies(), openreports.Counts{}
	for of, n := range counts {
		total.Fail, total.Warn, total.Error = total.Fail+n.Fail, total.Warn+n.Warn, total.Error+n.Error
		total.Change, total.Skip = total.Change+n.Change, total.Skip+n.Skip
		if !slices.Contains(active.Policies, of) && of.Name != "" {
			delete(counts, of) // the names of labels are those of the configuration
		}
	}
	objects := findings.Objects()
	reports := findings.Reports(outcome)
	unread := len(openreports.IncompleteOf(outcome))
	changes, err := c.write(ctx, reports, unread == 0)
	if ctx.Err() != nil {
		c.metrics.ran(stopped)
		return
	}
	c.metrics.publish(result{
		policies: active.Policies, counts: counts, outcome: outcome, objects: objects, took: c.cfg.Now().Sub(began), at: c.cfg.Now(), changes: changes,
	}, err == nil || errors.Is(err, openreports.ErrUnserved))
	c.setCounts(policyAudits(active, counts, outcome, began), findings.podCounts(outcome, began))
	text := ""
	if err != nil {
		text = ", not all reports are written: " + diagnostic.OneLine(truncate.Bytes(err.Error(), maxError))
	}
	c.describe("Audit=True: %d objects at %s, %d violations, %d warnings, %d errors, %d rules skipped, %d resources unread%s", objects, began.UTC().Format(time.RFC3339),
		total.Fail, total.Warn, total.Error, len(outcome.Skipped), unread, text)
	// Logged when an audit of the objects in the cluster has ended, with what it found.
	c.cfg.Log.Info("audit", "objects", objects, "violations", total.Fail, "warnings", total.Warn, "errors", total.Error, "changes", total.Change, "exempted", total.Skip,
		"skippedRules", len(outcome.Skipped), "unreadResources", unread, "seconds", c.cfg.Now().Sub(began).Seconds(),
		"reports", len(reports), "written", changes.Written, "removed", changes.Removed)
}

// write writes the reports, and logs why not.
func (c *Controller) write(ctx context.Context, reports []reportsv1alpha1.Report, isComplete bool) (openreports.Changes, error) {
	changes, err := c.cfg.Reports.Write(ctx, reports, isComplete)
	switch {
	case err == nil:
		c.problem("reports", false, "", "")
	case ctx.Err() != nil:
	case errors.Is(err, openreports.ErrUnserved):
		c.problem("reports", true, "no reports are written: the API server does not have "+openreports.Rights,
			"install the CustomResourceDefinitions of openreports.io to have them; metrics and the status of AdmissionPolicies have the numbers")
	default:
		text := "cannot write all reports: " + truncate.Bytes(err.Error(), maxError)
		advice := "they are written with the next audit; metrics and the status of AdmissionPolicies have the numbers"
		if openreports.LacksRight(err) {
			advice = apierr.GrantHint("the ClusterRole gatehouse-audit", "create, delete, list and patch", openreports.Rights)
		}
		c.problem("reports", true, text, advice)
	}
	return changes, err
}

// setCounts sets the counts for the status of policies and profiles. Without those of pods, the earlier ones stay.
func (c *Controller) setCounts(counts map[string]v1alpha1.PolicyAudit, pods map[string]v1alpha1.SidecarPodCounts) {
	c.mu.Lock()
	c.counts = counts
	if pods != nil {
		c.pods = pods
	}
	c.mu.Unlock()
	c.cfg.Changed()
}
