package policy_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// TestReviewedVersions fails when the module selection moves: what expressions
// mean depends on these two modules, and Kubernetes 1.37 itself has cel-go
// 0.29.2. Before the versions here are changed, the expressions below, and a
// library of policies, have to give the verdicts that they give in the API
// server of that version.
func TestReviewedVersions(t *testing.T) {
	t.Parallel()
	text := readFile(t, "../../go.mod")
	for module, reviewed := range map[string]string{
		"github.com/google/cel-go":      "v0.30.0",
		"k8s.io/apiserver":              "v0.37.2",
		"k8s.io/pod-security-admission": "v0.37.2",
	} {
		got := regexp.MustCompile(`(?m)^(?:require)?\s+` + regexp.QuoteMeta(module) + ` (\S+)`).FindStringSubmatch(text)
		if got == nil || got[1] != reviewed {
			t.Errorf("go.mod selects %s %v, reviewed is %s", module, got, reviewed)
		}
	}
	if strings.Contains(text, "replace") {
		t.Error("go.mod replaces modules")
	}
	if got := environment.DefaultCompatibilityVersion().String(); got != policy.CompatibilityVersion {
		t.Errorf("the library's default compatibility version is %s, ours %s", got, policy.CompatibilityVersion)
	}
}

// hazardObject is what the expressions of testdata/hazards.json look at.
const hazardObject = `{apiVersion: example.com/v1, kind: Thing, metadata: {name: web, labels: {team: ops}}, spec: {replicas: 3, half: 0.5, host: null, names: [a, b], ports: [{port: 80}, {port: 443}], empty: {}}}`

// TestHazards holds expressions whose outcome has changed between versions of
// cel-go, or that use what a version added, against their outcome in Kubernetes
// 1.37: testdata/hazards.json was made with k8s.io/apiserver 0.37.2 and its own
// cel-go 0.29.2, and is not to be made from what comes out here.
func TestHazards(t *testing.T) {
	t.Parallel()
	var hazards map[string]string
	must(t, json.Unmarshal([]byte(readFile(t, "testdata/hazards.json")), &hazards))
	if len(hazards) < 140 {
		t.Fatalf("only %d expressions", len(hazards))
	}
	req := review(t, hazardObject)
	for expression, want := range hazards {
		text, err := json.Marshal(expression)
		must(t, err)
		set, err := policy.Compile(specOf(t, denyAll("p", "validations: [{expression: "+string(text)+"}]", "")))
		got := "does not compile"
		if err == nil {
			response := decide(t, set, req)
			_, failure, failed := strings.Cut(message(response), "resulted in error: ")
			switch {
			case response.Allowed:
				got = "true"
			case failed:
				got = "error: " + failure
			default:
				got = "false"
			}
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", expression, got, want)
		}
	}
}
