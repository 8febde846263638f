package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// Two installs that see different things in the same custom resources report that once, with the remedy, and both go on
// answering.
func TestTwoInstallsOfCustomResources(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	must(t, w.applyDefinitions(t.Context()))
	w.createShop(t)
	must(t, w.CreateNamespace(t.Context(), "second", nil))
	must(t, w.apply(t.Context(), policyNamed("red", "object.metadata.name != 'red'", "")))
	first := newResourceInstall(t, w, resourceOptions{}).start(t)
	w.hasConditions(t, "admissionpolicy", "", "red", "Compiled=True", inUse)

	second := newResourceInstall(t, w, resourceOptions{namespace: "second", name: "gatehouse-second", alone: true})
	directory := t.TempDir()
	must(t, os.WriteFile(filepath.Join(directory, "red.yaml"), []byte(policyNamed("red", "object.metadata.name != 'red'", "")), 0o600))
	second.flags = append(second.flags, "--config", directory)
	second.start(t)
	const remedy = "remove one of the two"
	contested := func(l *logLine) bool { return l.Message == "status" && strings.Contains(l.Hint, remedy) }
	second.logged(t, "the other install", contested)
	w.event(t, metav1.NamespaceDefault, "AdmissionPolicy", "red", "StatusContested", remedy)
	support.Throughout(t, "both answer", 5*time.Second, func() error {
		for _, c := range []*resourceInstall{first, second} {
			r := c.reviewer(t)
			for pod, want := range map[string]bool{"red": true, "green": false} {
				if got, err := r.ask(t.Context(), pod); err != nil || (got != "") != want {
					return fmt.Errorf("%s judges %s %q, %w", c.name, pod, got, err)
				}
			}
		}
		return nil
	})
	if n := second.logged(t, "the other install", contested); n != 1 {
		t.Errorf("it is told %d times", n)
	}
}
