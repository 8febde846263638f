package replay_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replay"
)

// everything is a configuration that reads all that can be recorded.
func everything() string {
	return documents(
		shop, `apiVersion: v1
kind: Namespace
metadata: {name: bank, labels: {team: bank, pod-security.kubernetes.io/enforce: baseline}, annotations: {sidecar.gatehouse.dev/inject: "false"}}`,
		role, fmt.Sprintf(limits, "shop"),
		admissionPolicy("images", "object.spec.containers.all(c, !c.image.endsWith(':latest'))"),
		admissionPolicy("warns", "object.metadata.name != 'b'", "  validationActions: [Warn, Audit]"),
		admissionPolicy("team", "params.data.team == object.metadata.labels.team", withParams), fmt.Sprintf(binding, "team"),
		admissionPolicy("may", "authorizer.group('').resource('pods').namespace('shop').check('get').allowed()"),
		admissionPolicy("namespaces", "namespaceObject.metadata.labels.team != 'bank' || object.metadata.name != 'c'"),
		admissionPolicy("standard", "true", "  podSecurity: {level: baseline, version: latest}", "  validationActions: [Deny]"),
		admissionPolicy("workloads", "object.spec.containers.all(c, c.image != 'registry.example/app:latest')"),
		`apiVersion: gatehouse.dev/v1alpha1
kind: PolicyException
metadata: {name: x, namespace: gatehouse-system}
spec: {reason: tests, policies: [{name: images}], match: {namespaceSelector: {matchLabels: {team: shop}}}, expiresAt: "2026-11-20T12:30:00Z"}`,
		`apiVersion: gatehouse.dev/v1alpha1
kind: SidecarProfile
metadata: {name: mesh}
spec:
  injection: OptOut
  parameters: [{name: level, type: string, default: "info"}]
  template:
    spec:
      containers: [{name: proxy, image: "registry.example/proxy:1", args: ["--level=${params.level}", "--app=${pod.metadata.?name.orValue('')}"], env: [{name: LONG, value: value-of-the-profile}]}]`,
	)
}

// randomRequest returns a request of a sequence.
func randomRequest(random *rand.Rand) request {
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	more := pick("", `,"env":[{"name":"A","value":"hunter2hunter2"}]`, `,"securityContext":{"privileged":true}`)
	object := strings.Replace(pod(pick("a", "b", "c"), more), "app:1", pick("app:1", "app:latest"), 1)
	object = strings.Replace(object, `"labels":{"team":"shop"`, `"annotations":{"mesh.sidecar.gatehouse.dev/level":"`+pick("info", "debug")+`","my-token":"hunter2"},"labels":{"team":"`+pick("shop", "bank")+`"`, 1)
	r := request{
		endpoint: pick("validate", "validate", "mutate"), namespace: pick("shop", "bank", "unknown"), user: pick("anna", "bert"), object: object,
		dryRun: random.IntN(10) == 0,
	}
	switch random.IntN(8) {
	case 0:
		r.operation, r.oldObject = "UPDATE", strings.Replace(object, "app:1", "app:2", 1)
	case 1:
		r.operation, r.oldObject, r.object = "DELETE", object, ""
	case 2:
		r.group, r.kind, r.resource = "apps", "Deployment", "deployments"
		r.object = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"checkout"},"spec":{"template":` + object + `}}`
	case 3:
		r.kind, r.resource = "ConfigMap", "configmaps"
		r.object = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"secret-value"}}`
	}
	return r
}

// TestDeterminism replays random requests under the configuration that has decided on them.
func TestDeterminism(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, configuration string
		paths               []string
		// undecided is a part of the reasons that there may be.
		undecided string
	}{
		{name: "everything", configuration: everything()},
		{name: "rules that read redacted values", configuration: documents(everything(), admissionPolicy("env", "object.spec.containers.all(c, !has(c.env) || c.env.all(e, e.value != 'x'))")), undecided: "redacted"},
		{name: "redacted images", configuration: everything(), paths: []string{"spec.containers[*].image"}, undecided: "redacted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, tt.configuration, tt.paths...)
			random := rand.New(rand.NewPCG(1, 2))
			const n = 400
			for range n {
				r := randomRequest(random)
				if again := s.injected; again != "" && random.IntN(2) == 0 {
					r = request{endpoint: "mutate", namespace: "shop", object: again} // a reinvocation
				}
				s.answer(r)
			}
			all := s.recording()
			var before string
			for range 2 {
				for _, candidate := range []*replay.Candidate{load(t, tt.configuration), replay.Recorded()} {
					report, results := run(t, replay.Options{Sources: all, Candidate: candidate})
					for i := range results {
						r := &results[i]
						if len(r.Changes) > 0 || r.Undecided != "" && (tt.undecided == "" || !strings.Contains(r.Undecided, tt.undecided)) {
							t.Fatalf("%s: changes %q, undecided %q, rules %+v, before %+v, after %+v", r.Review.ID, r.Changes, r.Undecided, r.Rules, r.Before, r.After)
						}
					}
					text, err := json.Marshal(report)
					if err != nil {
						t.Fatal(err)
					}
					if before != "" && string(text) != before {
						t.Errorf("report %s, and before %s", text, before)
					}
					before = string(text)
					if report.Reviews != n || tt.undecided != "" && (report.UndecidedReviews() == 0 || report.Unchanged == 0) {
						t.Errorf("report %s", text)
					}
				}
			}
		})
	}
}
