package recording

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// TestMigration runs the example of docs/migration.md: a policy of Kyverno is converted, served with warnings, recorded, and replayed
// with denials. Lines that the page shows must come in this order.
func TestMigration(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root(t), "docs/migration.md"))
	must(t, err)
	blocks := func(language string) (all []string) {
		for _, m := range regexp.MustCompile("(?s)\n```"+language+"\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
			all = append(all, m[1])
		}
		return all
	}
	documents, consoles := blocks("yaml"), blocks("console")
	if len(documents) != 3 || len(consoles) != 2 {
		t.Fatalf("the page has %d documents and %d blocks of commands, want 3 and 2", len(documents), len(consoles))
	}
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "latest.yaml"), []byte(documents[0]), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "pods.yaml"), []byte(documents[1]), 0o600))
	runShown(t, dir, consoles[0])
	if made, err := os.ReadFile(filepath.Join(dir, "deny/tags.yaml")); err != nil || string(made) != documents[2] { // #nosec G304 -- of this test
		t.Errorf("the policy is %v\n%s\nwant\n%s", err, made, documents[2])
	}
	s := gatehouse.StartLocal(t, filepath.Join(dir, "warn"), "--record", filepath.Join(dir, "recording"))
	for i, text := range strings.Split(documents[1], "---\n") {
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
	runShown(t, dir, consoles[1])
}

// runShown runs the commands of a block in a directory, and wants the lines below each, in their order.
func runShown(t *testing.T, dir, block string) {
	t.Helper()
	binary, err := gatehouse.Binary()
	must(t, err)
	for _, shown := range strings.Split(block, "$ gatehouse ")[1:] {
		line, lines, _ := strings.Cut(shown, "\n")
		command := exec.CommandContext(t.Context(), binary, strings.Fields(line)...)
		command.Dir = dir
		out, err := command.CombinedOutput()
		if command.ProcessState == nil || command.ProcessState.ExitCode() > 1 { // 1 is an answer
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		got := strings.Split(string(out), "\n")
		for want := range strings.Lines(lines) {
			at := slices.Index(got, strings.TrimSuffix(want, "\n"))
			if at < 0 {
				t.Errorf("%s prints no line %q, or not in this order:\n%s", line, want, out)
				break
			}
			got = got[at+1:]
		}
	}
}
