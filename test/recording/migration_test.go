package recording

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// TestMigration does what docs/tasks/move-from-kyverno.md shows: a policy of Kyverno is converted, served with warnings, recorded, and
// replayed with denials. Package test/docs compares what its other commands print.
func TestMigration(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root(t), "docs/tasks/move-from-kyverno.md"))
	must(t, err)
	// block returns the rest of the block of the page that begins like this, from its info string on.
	block := func(begin string) string {
		_, rest, found := strings.Cut(string(text), "\n```"+begin)
		shown, _, ended := strings.Cut(rest, "\n```\n")
		if !found || !ended {
			t.Fatalf("the page has no block %q", begin)
		}
		return shown + "\n"
	}
	dir := t.TempDir()
	pods := block("yaml pods.yaml\n")
	must(t, os.WriteFile(filepath.Join(dir, "latest.yaml"), []byte(block("yaml latest.yaml\n")), 0o600))
	const first = "gatehouse convert latest.yaml --actions Warn"
	for line := range strings.Lines(first + block("sh\n"+first)) {
		if args, isConvert := strings.CutPrefix(line, "gatehouse convert "); isConvert {
			run(t, dir, append([]string{"convert"}, strings.Fields(args)...)...)
		}
	}
	s := gatehouse.StartLocal(t, filepath.Join(dir, "warn"), "--record", filepath.Join(dir, "recording"))
	for i, text := range strings.Split(pods, "---\n") {
		var pod map[string]any
		must(t, yaml.Unmarshal([]byte(text), &pod))
		pod["metadata"].(map[string]any)["namespace"] = "shop"
		object, err := json.Marshal(pod)
		must(t, err)
		review := admission(string(rune('a'+i)), "pods", "Pod", string(object))
		named := strings.Replace(string(review), `"name":"x"`, `"name":"`+pod["metadata"].(map[string]any)["name"].(string)+`"`, 1)
		must(t, s.Post(t.Context(), "/validate", []byte(named)))
	}
	must(t, s.Signal(os.Interrupt))
	if code, err := s.Wait(t.Context()); err != nil || code != 0 {
		t.Fatalf("the server ends with %d, %v", code, err)
	}
	const replay = "replay --config deny recording"
	got := strings.Split(run(t, dir, strings.Fields(replay)...), "\n")
	for want := range strings.Lines(block("sh other\ngatehouse " + replay + "\n```\n\n```console\n")) {
		at := slices.Index(got, strings.TrimSuffix(want, "\n"))
		if at < 0 {
			t.Fatalf("gatehouse %s prints no line %q, or not in this order", replay, want)
		}
		got = got[at+1:]
	}
}

// run runs the program in a directory, and returns what it prints.
func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	binary, err := gatehouse.Binary()
	must(t, err)
	command := exec.CommandContext(t.Context(), binary, args...) // #nosec G204 -- of a page
	command.Dir = dir
	out, err := command.CombinedOutput()
	if command.ProcessState == nil || command.ProcessState.ExitCode() > 1 { // 1 is an answer
		t.Fatalf("%s: %v\n%s", args, err, out)
	}
	return string(out)
}
