package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// refused returns the refusal of a ConfigMap of that name, "" if it is admitted.
func (w *world) refused(t *testing.T, name string) string {
	t.Helper()
	_, err := w.Client().CoreV1().ConfigMaps("reload").Create(t.Context(), configMap(name, nil), dryRun)
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestPolicyChangesWhileTheServerRuns(t *testing.T) {
	w := sharedWorld(t)
	file := filepath.Join(w.config, "config", "reload.yaml")
	first, err := os.ReadFile(file)
	must(t, err)
	if got := w.refused(t, "red"); !strings.Contains(got, "rule of the first version") {
		t.Fatalf("before: red is refused with %q", got)
	}
	if got := w.refused(t, "green"); got != "" {
		t.Fatalf("before: green is refused with %q", got)
	}

	second := strings.NewReplacer("'red'", "'green'", "first version", "second version").Replace(string(first))
	must(t, os.WriteFile(file, []byte(second), 0o600))
	support.Eventually(t, "the second version", func() error {
		if got := w.refused(t, "green"); !strings.Contains(got, "rule of the second version") {
			return fmt.Errorf("green is refused with %q", got)
		}
		return nil
	})
	if got := w.refused(t, "red"); got != "" {
		t.Errorf("by the second version, red is refused with %q", got)
	}

	must(t, os.WriteFile(file, first, 0o600))
	support.Eventually(t, "the first version again", func() error {
		if w.refused(t, "green") != "" || w.refused(t, "red") == "" {
			return errNotYet
		}
		return nil
	})
}
