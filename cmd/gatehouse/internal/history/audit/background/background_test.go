package background_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit/background"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit/openreports"
	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
)

var (
	reports        = fakeapi.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "openreports.io", Version: "v1alpha1", Resource: "reports"}, Kind: "Report", Namespaced: true}
	clusterReports = fakeapi.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "openreports.io", Version: "v1alpha1", Resource: "clusterreports"}, Kind: "ClusterReport"}
	namespaces     = fakeapi.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Kind: "Namespace"}
	limits         = openreports.Policy{Kind: "AdmissionPolicy", Name: "limits"}
)

// site is a cluster whose audits find what the test says.
type site struct {
	*fakeapi.Server

	log bytes.Buffer
	c   *background.Controller

	mu          sync.Mutex
	fingerprint string
	violations  int
	outcome     audit.Outcome
	err         error
	takes       time.Duration
	load        float64
	// injection has the state of the sidecars of each pod, for each profile.
	injection map[string][]audit.Injection
	// works is what an audit says that it worked before its pause, 100 ms if it is 0.
	works   time.Duration
	began   []time.Time
	changes int
	paces   []time.Duration
}

// inSite runs a test with a controller that is elected until the test ends, in a bubble.
func inSite(t *testing.T, resources []fakeapi.Resource, test func(t *testing.T, s *site, stop func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &site{Server: fakeapi.New(append(resources, namespaces)...), fingerprint: "1", violations: 2}
		s.Put(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop"}})
		objects, err := dynamic.NewForConfig(s.Config("gatehouse-audit"))
		must(t, err)
		meta, err := metadata.NewForConfig(s.Config("gatehouse-audit"))
		must(t, err)
		s.c = background.New(background.Config{
			Active: s.active, Every: time.Hour,
			Reports: openreports.NewWriter(objects, meta, "gatehouse-system"),
			Load:    func() float64 { s.mu.Lock(); defer s.mu.Unlock(); return s.load },
			Changed: func() { s.set(func() { s.changes++ }) }, Log: slog.New(slog.NewTextHandler(&s.log, nil)),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.c.Run(ctx)
		}()
		stop := func() {
			cancel()
			<-done
		}
		test(t, s, stop)
		stop()
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *site) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *site) active() *background.Active {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fingerprint == "" {
		return nil
	}
	return &background.Active{
		Fingerprint: s.fingerprint, Policies: []openreports.Policy{limits, {Kind: "AdmissionPolicy", Name: "owners"}, {Kind: "SidecarProfile", Name: "logs"}}, Audit: s.audit,
	}
}

func (s *site) audit(ctx context.Context, sink audit.Sink, pace func(context.Context, time.Duration) error) (*audit.Outcome, error) {
	s.mu.Lock()
	s.began = append(s.began, time.Now())
	violations, outcome, failure, takes, works, injection := s.violations, s.outcome, s.err, s.takes, cmp.Or(s.works, 100*time.Millisecond), s.injection
	s.mu.Unlock()
	for i := range violations {
		o := audit.Object{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Namespace: "shop", Name: fmt.Sprintf("pod-%d", i)}
		sink.Object(o)
		sink.Result(audit.Result{Object: o, Status: audit.Fail, Kind: limits.Kind, Policy: limits.Name, Rule: "validations[0]", Message: "no limit"})
	}
	for profile, states := range injection {
		for _, state := range states {
			sink.Injection(audit.Object{}, profile, state)
		}
	}
	start := time.Now()
	if err := pace(ctx, works); err != nil {
		return &outcome, err
	}
	s.set(func() { s.paces = append(s.paces, time.Since(start)) })
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return &outcome, ctx.Err()
		}
	}
	return &outcome, failure
}

func (s *site) audits() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.began)
}

// value returns a metric without labels, or with these pairs, and whether it exists.
func (s *site) value(t *testing.T, name string, pairs ...string) (float64, bool) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.c)
	families, err := registry.Gather()
	must(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && hasLabels(m, pairs) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue(), true
			}
		}
	}
	return 0, false
}

func hasLabels(m *dto.Metric, pairs []string) bool {
	for i := 0; i < len(pairs); i += 2 {
		found := false
		for _, l := range m.GetLabel() {
			found = found || l.GetName() == pairs[i] && l.GetValue() == pairs[i+1]
		}
		if !found {
			return false
		}
	}
	return true
}

func (s *site) want(t *testing.T, want float64, name string, pairs ...string) {
	t.Helper()
	if got, found := s.value(t, name, pairs...); !found || got != want {
		t.Errorf("%s %v is %v, %v, want %v", name, pairs, got, found, want)
	}
}

func served() []fakeapi.Resource { return []fakeapi.Resource{reports, clusterReports} }

// writes returns the number of requests that change something.
func (s *site) writes() int {
	return len(s.Requests(func(r *fakeapi.Request) bool {
		return r.Verb == "patch" || r.Verb == "delete" || r.Verb == "create" || r.Verb == "update"
	}))
}

// TestPods: an audit counts the pods of the active profiles, unless it could not read all pods.
func TestPods(t *testing.T) {
	t.Parallel()
	inSite(t, served(), func(t *testing.T, s *site, _ func()) {
		pods := audit.Coverage{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Complete: true}
		s.set(func() {
			s.outcome.Coverage = []audit.Coverage{pods}
			s.injection = map[string][]audit.Injection{
				"logs": {audit.Current, audit.Current, audit.Stale, audit.Missing, audit.Extra, audit.Declined}, "of-a-tenant": {audit.Extra},
			}
		})
		time.Sleep(5 * time.Minute)
		counted := s.c.Pods()["logs"]
		if counted.Matched != 4 || counted.Injected != 4 || counted.Stale != 1 || counted.CountedAt.IsZero() || len(s.c.Pods()) != 1 {
			t.Errorf("%+v", s.c.Pods())
		}
		pods.Complete, pods.Right = false, "list pods"
		s.set(func() { s.outcome.Coverage, s.injection, s.fingerprint = []audit.Coverage{pods}, nil, "2" })
		time.Sleep(5 * time.Minute)
		if s.audits() != 2 || s.c.Pods()["logs"] != counted {
			t.Errorf("after %d audits: %+v", s.audits(), s.c.Pods())
		}
	})
}

// TestChange: a change of policies leads to an audit soon, and many changes do not lead to many.
func TestChange(t *testing.T) {
	t.Parallel()
	inSite(t, served(), func(t *testing.T, s *site, _ func()) {
		s.set(func() { s.takes = time.Minute })
		time.Sleep(5 * time.Minute)
		if s.audits() != 1 {
			t.Fatalf("%d audits", s.audits())
		}
		s.set(func() { s.fingerprint = "2" })
		time.Sleep(20 * time.Second)
		if s.audits() != 2 {
			t.Errorf("%d audits after a change", s.audits())
		}
		time.Sleep(5 * time.Minute)
		before := s.audits()
		for i := range 600 { // one change each second
			s.set(func() { s.fingerprint = fmt.Sprint("x", i) })
			time.Sleep(time.Second)
		}
		if n := s.audits() - before; n < 3 || n > 6 { // each takes a minute
			t.Errorf("%d audits in ten minutes while the policies change", n)
		}
		before = s.audits()
		for i := range 60 {
			s.set(func() { s.fingerprint = fmt.Sprint("y", i) })
			time.Sleep(time.Minute)
		}
		if n := s.audits() - before; n < 10 || n > 31 {
			t.Errorf("%d audits of a minute in an hour with a change each minute", n)
		}
	})
}

// TestFailures: an audit that fails, or that could not read everything, publishes nothing and is tried again; one problem is logged
// once. A right that is missing is no reason to wait.
func TestFailures(t *testing.T) {
	t.Parallel()
	coverage := func(right string) audit.Outcome {
		return audit.Outcome{Coverage: []audit.Coverage{{
			GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Problem: "dial tcp 10.0.0.1:443: i/o timeout", Right: right, Policies: []string{"owners"},
		}}}
	}
	for name, c := range map[string]struct {
		outcome audit.Outcome
		err     error
		// dropped is the outcome of the runs that were dropped, and audits the number until one is published.
		dropped string
		audits  int
		log     string
	}{
		"the API server is not there": {audit.Outcome{}, errors.New("connection refused"), "failed", 0, "connection refused"},
		"no right to discover":        {audit.Outcome{}, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no")), "failed", 0, "gatehouse manifests --audit"},
		"half of a list":              {coverage(""), nil, "incomplete", 4, "i/o timeout"},
		"a right is missing":          {coverage("list secrets"), nil, "", 3, "lacks the right to list secrets"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inSite(t, served(), func(t *testing.T, s *site, _ func()) {
				s.set(func() { s.outcome, s.err = c.outcome, c.err })
				time.Sleep(30 * time.Minute)
				synctest.Wait()
				if n, _ := s.value(t, "gatehouse_audit_runs_total", "outcome", "published"); n > 0 != (c.audits > 0) {
					t.Errorf("%v audits are published", n)
				}
				if c.audits > 0 && s.audits() != c.audits {
					t.Errorf("%d audits, want %d", s.audits(), c.audits)
				}
				if c.audits == 0 && (s.audits() < 4 || s.writes() > 0 || s.c.Counts() != nil || !strings.HasPrefix(s.c.Details(), "Audit=False: ")) {
					t.Errorf("%d audits, %d writes, %q", s.audits(), s.writes(), s.c.Details())
				}
				if c.dropped != "" {
					if n, _ := s.value(t, "gatehouse_audit_runs_total", "outcome", c.dropped); n == 0 {
						t.Errorf("no audit is %s", c.dropped)
					}
				}
				if n := strings.Count(s.log.String(), "level=WARN"); n != 1 || !strings.Contains(s.log.String(), c.log) {
					t.Errorf("it logged %s", s.log.String())
				}
				if c.audits > 0 {
					s.want(t, 1, "gatehouse_audit_unread_resources")
					got := s.c.Counts()["owners"]
					if len(got.NotAudited) != 1 || strings.Contains(got.NotAudited[0], "10.0.0.1") {
						t.Errorf("not audited is %q", got.NotAudited)
					}
				}
				s.set(func() { s.outcome, s.err = audit.Outcome{}, nil })
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				s.want(t, 0, "gatehouse_audit_unread_resources")
			})
		})
	}
}

// TestNoReports: a cluster without the kinds of reports, or without the right to write them, has metrics and the status, and says so once.
func TestNoReports(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		resources []fakeapi.Resource
		refuse    bool
		log       string
		failed    float64
		details   string
	}{
		"no kinds": {nil, false, "does not have reports and clusterreports in openreports.io", 0, "not all reports are written: "},
		"no right": {served(), true, "must allow create, delete, list and patch of reports and clusterreports in openreports.io", 4, "cannot list resource"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inSite(t, c.resources, func(t *testing.T, s *site, _ func()) {
				if c.refuse {
					s.Update(func() {
						s.Intercept = func(r *fakeapi.Request) (any, error) {
							if r.Resource == "clusterreports" {
								return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "clusterreports"}, "", errors.New(`User "x" cannot list resource "clusterreports"`))
							}
							return nil, nil
						}
					})
				}
				time.Sleep(3*time.Hour + time.Minute)
				synctest.Wait()
				if s.audits() != 4 || s.c.Counts()["limits"].Violations != 2 {
					t.Errorf("%d audits, %+v", s.audits(), s.c.Counts())
				}
				s.want(t, 2, "gatehouse_audit_violations", "policy", "limits", "status", "fail")
				s.want(t, c.failed, "gatehouse_audit_report_writes_total", "outcome", "failed")
				if got := s.c.Details(); !strings.HasPrefix(got, "Audit=True: ") || !strings.Contains(got, c.details) {
					t.Errorf("the details are %q", got)
				}
				if n := strings.Count(s.log.String(), "level=WARN"); n != 1 || !strings.Contains(s.log.String(), c.log) {
					t.Errorf("it logged %s", s.log.String())
				}
				s.Update(func() { s.Intercept = nil })
				if !c.refuse {
					s.Serve(reports)
					s.Serve(clusterReports)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				if len(s.List(reports)) != 1 {
					t.Error("the report is not written later")
				}
			})
		})
	}
}

// TestStuck: an audit that does not end is ended, and what it has found is published.
func TestStuck(t *testing.T) {
	t.Parallel()
	inSite(t, served(), func(t *testing.T, s *site, _ func()) {
		s.set(func() { s.takes = 1000 * time.Hour })
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		s.want(t, 1, "gatehouse_audit_runs_total", "outcome", "published")
		s.want(t, 0, "gatehouse_audit_runs_total", "outcome", "failed")
		if strings.Count(s.log.String(), "took longer than 1h") != 1 {
			t.Errorf("it logged %s", s.log.String())
		}
	})
}

// TestPace: an audit rests after it worked, longer while reviews need the processors.
func TestPace(t *testing.T) {
	t.Parallel()
	inSite(t, served(), func(t *testing.T, s *site, _ func()) {
		time.Sleep(time.Minute)
		s.set(func() { s.load = 0.9 })
		time.Sleep(time.Hour + time.Minute)
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.paces) != 2 || s.paces[0] != 200*time.Millisecond || s.paces[1] != 2*time.Second {
			t.Errorf("the pauses are %v", s.paces)
		}
	})
	// The share of the processors is kept for the slowest object, too.
	inSite(t, served(), func(t *testing.T, s *site, _ func()) {
		s.set(func() { s.works = 10 * time.Second })
		time.Sleep(time.Minute)
		s.set(func() { s.load = 0.9 })
		time.Sleep(time.Hour + 5*time.Minute)
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.paces) != 2 || s.paces[0] != 20*time.Second || s.paces[1] != 200*time.Second {
			t.Errorf("the pauses are %v", s.paces)
		}
	})
}

// TestNothingActive: nothing is audited before there is a configuration.
func TestNothingActive(t *testing.T) {
	t.Parallel()
	inSite(t, served(), func(t *testing.T, s *site, _ func()) {
		s.set(func() { s.fingerprint = "" })
		time.Sleep(5 * time.Hour)
		if s.audits() > 0 {
			t.Errorf("%d audits", s.audits())
		}
		s.set(func() { s.fingerprint = "1" })
		time.Sleep(time.Minute)
		if s.audits() != 1 {
			t.Errorf("%d audits", s.audits())
		}
	})
}
