package recording

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// TestUpgradePreview: a recording of Kubernetes 1.36, replayed with the same policies by this program, names what the CEL of
// the newer line changes: orValue behind a value that is not optional. UPDATE_GOLDEN=1 builds the program that makes
// the recording, which takes minutes, and makes it anew.
func TestUpgradePreview(t *testing.T) {
	t.Parallel()
	of := filepath.Join(root(t), "test/kubernetes136")
	file := filepath.Join(of, "testdata/recording/kubernetes-1.36.gatehouse.zst")
	if os.Getenv("UPDATE_GOLDEN") == "1" {
		command := exec.CommandContext(t.Context(), "go", "run", ".", "testdata/config/policies.yaml")
		command.Dir = of
		var recording, stderr bytes.Buffer
		command.Stdout, command.Stderr = &recording, &stderr
		if err := command.Run(); err != nil {
			t.Fatalf("%v: %s", err, stderr.Bytes())
		}
		must(t, os.WriteFile(file, recording.Bytes(), 0o600))
	}
	code, text := program(t, "replay", "--config", filepath.Join(of, "testdata/config"), "-o", "json", file)
	r := parse(t, text)
	if code != 1 || r.Reviews != 5 || r.Unchanged != 4 || len(r.Undecided) != 0 || len(r.Groups) != 1 {
		t.Fatalf("exit code %d, want 1, and one of five reviews changed:\n%s", code, text)
	}
	g := r.Groups[0]
	if g.Change != "newly-refused" || g.Rule["name"] != "tokens" || !slices.Equal(g.Workloads, []string{"Pod/without-token"}) {
		t.Errorf("the change is %+v, want that the policy tokens refuses Pod/without-token", g)
	}
	if !bytes.Contains([]byte(text), []byte("no such overload")) {
		t.Errorf("the report does not say why:\n%s", text)
	}
}
