package defaults_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/defaults"
	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
)

// TestPodSecurityFixtures gives the right verdict on every pod with which
// upstream tests the Pod Security Standards, after Apply. Some of them get a wrong
// one without.
func TestPodSecurityFixtures(t *testing.T) {
	t.Parallel()
	evaluator, err := podsecurity.New()
	if err != nil {
		t.Fatal(err)
	}
	admits := func(file string, level podsecurity.Level, object map[string]any) bool {
		data, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		var pod corev1.Pod
		err = json.Unmarshal(data, &pod)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		return len(evaluator.Violations(level, &pod.ObjectMeta, &pod.Spec)) == 0
	}
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission").Output()
	if err != nil {
		t.Fatal(err)
	}
	fixtures := os.DirFS(filepath.Join(strings.TrimSpace(string(dir)), "test", "testdata"))
	var looked, mended int
	err = fs.WalkDir(fixtures, ".", func(file string, entry fs.DirEntry, err error) error {
		parts := strings.Split(file, "/") // level, version, pass or fail, name
		if err != nil || entry.IsDir() || len(parts) != 4 || !strings.HasSuffix(file, ".yaml") {
			return err
		}
		level, nameKnown, versionKnown := podsecurity.Parse(parts[0], parts[1])
		if !nameKnown || !versionKnown {
			t.Errorf("%s is of no standard", file)
		}
		data, err := fs.ReadFile(fixtures, file)
		if err != nil {
			return err
		}
		object, passes := parse(t, string(data)), parts[2] == "pass"
		before := admits(file, level, object)
		defaults.Apply(object)
		after := admits(file, level, object)
		if after != passes {
			t.Errorf("%s: admitted is %v", file, after)
		}
		looked++
		if before != passes && after == passes {
			mended++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if looked < 4000 || mended == 0 {
		t.Errorf("looked at %d fixtures, and of %d the verdict was wrong without Apply", looked, mended)
	}
	t.Logf("looked at %d fixtures, of %d the verdict was wrong without Apply", looked, mended)
}
