package policy_test

import (
	"encoding/json"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// TestVersions fails when the selected cel-go is not the one that the selected
// k8s.io/apiserver requires, which is the one that the API server is built with:
// what expressions mean depends on both. Before another k8s.io/apiserver is
// selected, the expressions below, and a library of policies, must give the
// verdicts that they give in the API server of that version.
func TestVersions(t *testing.T) {
	t.Parallel()
	text := readFile(t, "../../go.mod")
	required := func(text, module string) string {
		t.Helper()
		found := regexp.MustCompile(`(?m)^(?:require)?\s+` + regexp.QuoteMeta(module) + ` (\S+)`).FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("no version of %s in go.mod", module)
		}
		return found[1]
	}
	for _, module := range []string{"k8s.io/apiserver", "k8s.io/pod-security-admission"} {
		if got, reviewed := required(text, module), "v0.37.2"; got != reviewed {
			t.Errorf("go.mod selects %s %s, reviewed is %s", module, got, reviewed)
		}
	}
	const celgo = "github.com/google/cel-go"
	file, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.GoMod}}", "k8s.io/apiserver").Output()
	must(t, err)
	if got, want := required(text, celgo), required(readFile(t, strings.TrimSpace(string(file))), celgo); got != want {
		t.Errorf("go.mod selects %s %s, k8s.io/apiserver requires %s (hint: 'go mod graph' names the module that raises it)", celgo, got, want)
	}
	if regexp.MustCompile(`(?m)^\s*(replace|exclude)\b`).MatchString(text) {
		t.Error("go.mod replaces or excludes modules")
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
