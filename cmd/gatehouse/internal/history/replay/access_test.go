package replay_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/replay"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// scopeNamed returns a configuration with a scope for reading a resource.
func scopeNamed(name, resource string) string {
	return fmt.Sprintf(`apiVersion: gatehouse.dev/v1alpha1
kind: AuthenticationConfiguration
scopes: [{name: %s, rules: [{apiGroups: [apps], resources: [%s], verbs: [get, list]}]}]`, name, resource)
}

// accessReview returns one of a user with a scope, without one for "".
func accessReview(scope, resource string) string {
	extra := ""
	if scope != "" {
		extra = fmt.Sprintf(`"extra":{"gatehouse.dev/scope":[%s]},`, scope)
	}
	return fmt.Sprintf(`{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"user":"ci","groups":["builders"],%s"resourceAttributes":{"namespace":"shop","verb":"get","group":"apps","version":"v1","resource":%q,"name":"web"}}}`, extra, resource)
}

// access answers an access review as the server does.
func (s *server) access(body string) {
	s.t.Helper()
	spec, apiVersion, err := review.DecodeAccess([]byte(body))
	if err != nil {
		s.t.Fatal(err)
	}
	endpoints := webhooks.Endpoints()
	e := endpoints[slices.IndexFunc(endpoints, func(e webhooks.Endpoint) bool { return e.Access != nil })]
	trace := s.recorder.Begin()
	d := e.Access(context.Background(), trace.Snapshot(s.snapshot), &spec)
	outcome, status := review.Outcome{Endpoint: e.Name, Started: s.now, Reason: string(d.Reason), Decision: review.Unknown}, d.Status()
	var answer []byte
	if status.EvaluationError == "" {
		outcome.Decision, answer = review.NoOpinion, review.AppendAccess(nil, apiVersion, &status)
	}
	if status.Denied {
		outcome.Decision = review.Denied
	}
	s.n++
	trace.Finish(&outcome, review.Exchange{Body: []byte(body), Answer: answer})
	s.wait()
}

// TestAccessFlips replays an access review under another configuration.
func TestAccessFlips(t *testing.T) {
	t.Parallel()
	const deployer, inline = `"deployer"`, `"{\"verbs\":[\"get\"],\"apiGroups\":[\"apps\"],\"resources\":[\"deployments\"]}","namespace=shop"`
	rule := []replay.Rule{{Kind: replay.ScopeKind, Name: "deployer"}}
	for _, tt := range []struct {
		name, before, after, scope string
		changes                    []replay.Change
		undecided                  string
	}{
		{name: "the same", before: scopeNamed("deployer", "deployments"), after: scopeNamed("deployer", "deployments"), scope: deployer},
		{name: "outside now", before: scopeNamed("deployer", "deployments"), after: scopeNamed("deployer", "daemonsets"), scope: deployer, changes: []replay.Change{replay.NewlyRefused}},
		{name: "inside now", before: scopeNamed("deployer", "daemonsets"), after: scopeNamed("deployer", "deployments"), scope: deployer, changes: []replay.Change{replay.NewlyAdmitted}},
		{name: "removed", before: scopeNamed("deployer", "deployments"), after: scopeNamed("other", "deployments"), scope: deployer, changes: []replay.Change{replay.NoLongerDecidable}},
		{name: "not known then", before: shop, after: scopeNamed("deployer", "deployments"), scope: deployer, undecided: "it was not decided when it was recorded"},
		{name: "never known", before: shop, after: shop, scope: deployer},
		{name: "a scope of Gatehouse", before: scopeNamed("deployer", "deployments"), after: shop, scope: `"view"`},
		{name: "rules of its own", before: scopeNamed("deployer", "deployments"), after: shop, scope: inline},
		{name: "unreadable", before: shop, after: scopeNamed("deployer", "deployments"), scope: `"{"`},
		{name: "no scope", before: shop, after: scopeNamed("deployer", "daemonsets")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, tt.before)
			s.access(accessReview(tt.scope, "deployments"))
			report, all := run(t, replay.Options{Sources: s.recording(), Candidate: load(t, tt.after)})
			if len(all) != 1 || len(report.Problems) > 0 {
				t.Fatalf("%d results, problems %q", len(all), report.Problems)
			}
			r := all[0]
			if !slices.Equal(r.Changes, tt.changes) || !strings.HasPrefix(r.Undecided, tt.undecided) || tt.undecided == "" && r.Undecided != "" {
				t.Errorf("changes %q, undecided %q; want %q, %q; before %+v, after %+v", r.Changes, r.Undecided, tt.changes, tt.undecided, r.Before, r.After)
			}
			if len(tt.changes) > 0 && !slices.Equal(r.Rules, rule) {
				t.Errorf("rules %+v, want %+v", r.Rules, rule)
			}
			if of := r.Review; of.User != "ci" || of.Operation != "get" || of.Kind != "deployments.apps" || of.Namespace != "shop" || of.Name != "web" || of.Workload != "" {
				t.Errorf("subject %+v", of)
			}
			_, all = run(t, replay.Options{Sources: sources(t, s.dir), Candidate: replay.Recorded()})
			if len(all[0].Changes) > 0 || all[0].Undecided != "" {
				t.Errorf("under the recorded configuration: %+v", all[0])
			}
		})
	}
}

// TestAccessCauses: a recorded denial names the scope.
func TestAccessCauses(t *testing.T) {
	t.Parallel()
	s := newServer(t, shop)
	s.access(accessReview(`"view","namespace=bank"`, "deployments"))
	s.access(accessReview(`"view"`, "deployments"))
	found, err := replay.Find(t.Context(), s.recording(), "", 2)
	if err != nil || len(found) != 2 {
		t.Fatal(found, err)
	}
	const scope = "view in namespace bank"
	causes := replay.RecordedCauses(found[0].Review)
	if want := (replay.Cause{Rule: replay.Rule{Kind: replay.ScopeKind, Name: scope}, Effect: replay.Refused}); !slices.Equal(causes, []replay.Cause{want}) {
		t.Errorf("got %+v, want %+v", causes, want)
	}
	if was := found[0].Recorded(); was.Decision != "denied" || was.Message != "outside of the scope of this token: "+scope {
		t.Errorf("recorded %+v", was)
	}
	if was := found[1].Recorded(); was.Decision != "no-opinion" || len(replay.RecordedCauses(found[1].Review)) > 0 {
		t.Errorf("recorded %+v", was)
	}
}
