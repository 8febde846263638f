package e2e

import (
	"errors"
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

func TestBrokenDocumentIsNotUsed(t *testing.T) {
	w := sharedWorld(t)
	for _, test := range []struct {
		name     string
		document any
		says     string
	}{
		{"unknown field", map[string]any{
			"apiVersion": "gatehouse.dev/v1alpha1", "kind": "SidecarProfile", "metadata": map[string]any{"name": "x"},
			"spec": map[string]any{"template": map[string]any{}, "injektion": "OptOut"},
		}, "injektion"},
		{"wrong expression", map[string]any{
			"apiVersion": "gatehouse.dev/v1alpha1", "kind": "AdmissionPolicy", "metadata": map[string]any{"name": "x"},
			"spec": map[string]any{
				"validationActions": []string{"Deny"},
				"matchConstraints":  map[string]any{"resourceRules": []any{map[string]any{"apiGroups": []string{""}, "apiVersions": []string{"v1"}, "resources": []string{"pods"}, "operations": []string{"CREATE"}}}},
				"validations":       []any{map[string]any{"expression": "object.spec.("}},
			},
		}, "spec.validations[0].expression"},
		{"name taken", map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "inject"},
		}, "inject"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w.broken(t, "broken.yaml", test.document, test.says, func() error { return nil })
		})
	}
}

// broken writes a document that cannot be used, waits until the server has seen it, and wants the log and the metric to
// tell of it, the last good configuration to serve on, and the condition to hold. Then it removes the document, and
// wants the server to see that.
func (w *world) broken(t *testing.T, name string, document any, says string, condition func() error) {
	t.Helper()
	loads := func(result string) float64 {
		n, err := w.gatehouse.Metric(t.Context(), "gatehouse_config_loads_total", `result="`+result+`"`)
		must(t, err)
		return n
	}
	failed, succeeded := loads("error"), loads("ok")
	before, err := os.ReadFile(w.gatehouse.Log())
	must(t, err)
	file := w.write(t, name, document)
	t.Cleanup(func() { _ = os.Remove(file) }) // if this fails half-way
	support.Eventually(t, "the metric of what could not be read", func() error {
		if loads("error") == failed {
			return errNotYet
		}
		return nil
	})
	log, err := os.ReadFile(w.gatehouse.Log())
	must(t, err)
	for _, want := range []string{"configuration rejected; the previous one stays active", name, says} {
		if !strings.Contains(string(log[len(before):]), want) {
			t.Errorf("the log does not say %q:\n%s", want, log[len(before):])
		}
	}
	if loads("ok") != succeeded {
		t.Error("a configuration was loaded")
	}
	if got := w.refused(t, "red"); !strings.Contains(got, "rule of the first version") {
		t.Errorf("red is refused with %q, want what the last good configuration says", got)
	}
	created, err := w.Client().CoreV1().Pods("inject").Create(t.Context(), pod("canary"), dryRun)
	if err != nil || injected(created) != 1 {
		t.Errorf("a pod is injected no more: %v, %v", created, err)
	}
	err = condition()
	if err != nil {
		t.Error(err)
	}

	must(t, os.Remove(file))
	support.Eventually(t, "the metric of what could be read again", func() error {
		if loads("ok") == succeeded {
			return errors.New("not read again")
		}
		return nil
	})
	err = condition()
	if err != nil {
		t.Error(err)
	}
}
