package recording

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"
)

// TestUpgradePreview: a recording of Kubernetes 1.36, replayed with the same policies by this program, names what the CEL of
// the newer line changes: orValue behind a value that is not optional. The recording was made once, by a program with
// k8s.io/apiserver v0.36 and cel-go v0.26 that decided five pods by these policies.
func TestUpgradePreview(t *testing.T) {
	t.Parallel()
	const of = "testdata/kubernetes136"
	file := filepath.Join(of, "recording/kubernetes-1.36.gatehouse.zst")
	code, text := program(t, "replay", "--config", filepath.Join(of, "config"), "-o", "json", file)
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
