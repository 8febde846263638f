package offline

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
)

// TestHostileNames puts ends of lines and control sequences into names of files, namespaces, objects, labels and messages. No command
// writes them raw, in any format, so that no line is a command for a CI system or a control sequence for a terminal.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	const hostile = "a\n::error file=x,line=1::injected\x1b[31m"
	encoded, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("HOSTILE", string(encoded))
	write := func(dir, content string) string {
		dir = filepath.Join(t.TempDir(), dir)
		file := filepath.Join(dir, "h\n::error::name\x1b[31m.yaml")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text.Replace(content)), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	const profile = `apiVersion: gatehouse.dev/v1alpha1
kind: SidecarProfile
metadata: {name: logs}
spec:
  injection: OptOut
  match: {namespaceSelector: {matchLabels: {env: prod}}}
  parameters: [{name: level, type: string, default: a}]
  template: {spec: {containers: [{name: logs, image: logs, args: ["${params.level}"]}]}}
`
	const policy = `---
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: names}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods]}]}
  validations: [{expression: EXPRESSION, message: HOSTILE}]
  validationActions: [Deny, Warn]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: unbound}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [HOSTILE]}]}
  validations: [{expression: "false", message: HOSTILE}]
`
	configs := map[string]string{
		"valid":   write("valid", profile+strings.ReplaceAll(policy, "EXPRESSION", `"object.metadata.name == 'x'"`)),
		"invalid": write("invalid", profile+strings.ReplaceAll(policy, "EXPRESSION", "HOSTILE")),
		"empty":   write("empty", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n"),
	}
	manifests := map[string]string{
		"objects": write("objects", `apiVersion: v1
kind: Pod
metadata: {name: HOSTILE, namespace: HOSTILE, labels: {HOSTILE: HOSTILE}, annotations: {HOSTILE: HOSTILE}}
spec: {nodeName: HOSTILE, HOSTILE: 1, containers: [{name: HOSTILE, image: HOSTILE}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: a, namespace: a, annotations: {sidecar.gatehouse.dev/inject: HOSTILE}}
spec: {template: {metadata: {annotations: {sidecar.gatehouse.dev/inject: HOSTILE, logs.sidecar.gatehouse.dev/level: HOSTILE}}, spec: {containers: [{name: a, image: a}]}}}
---
apiVersion: v1
kind: HOSTILE
metadata: {name: a}
---
apiVersion: HOSTILE
kind: Pod
metadata: {name: a}
`),
		"pods": write("pods", `apiVersion: v1
kind: Pod
metadata: {name: a, namespace: HOSTILE, annotations: {sidecar.gatehouse.dev/inject: "logs"}}
spec: {containers: [{name: a, image: HOSTILE}]}
`),
		"broken": write("broken", "a: [\n"),
	}
	var commands [][]string
	for _, config := range configs {
		for _, output := range (&lintFlags{}).outputs() {
			commands = append(commands, []string{"lint", "-o", output, "--config", config})
		}
		commands = append(commands, []string{"test", "--config", config}, []string{"test", "--config", config, "-o", "junit"})
		for _, files := range manifests {
			in := []string{"--config", config, "-f", files}
			for _, labels := range [][]string{nil, {"--namespace-labels", "env=prod"}} {
				for _, output := range (&checkFlags{}).outputs() {
					commands = append(commands, slices.Concat([]string{"check", "-o", output}, in, labels))
				}
				commands = append(commands,
					slices.Concat([]string{"explain", "--all"}, in, labels), slices.Concat([]string{"explain", "-o", "json"}, in, labels),
					slices.Concat([]string{"inject", "-o", "diff"}, in, labels))
			}
			commands = append(commands, []string{"uninject", "-o", "diff", "-f", files})
		}
	}
	for _, args := range commands {
		got := clitest.Run(t.Context(), "", args, NewLintCommand, NewTestCommand, NewCheckCommand, NewExplainCommand, NewInjectCommand, NewUninjectCommand)
		for _, out := range []string{got.Out, got.Err} {
			if strings.Contains(out, "\x1b") || strings.Contains(out, "\n::error file=x") || strings.Contains(out, "\n::error::") {
				t.Errorf("%q:\n%s", args, out)
			}
		}
	}
}
