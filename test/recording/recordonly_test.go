package recording

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// TestRecordOnly: with --record-only kinds that no policy matches are in the recording, a share of their objects with all
// requests about each, and a server that is gone delays nobody.
func TestRecordOnly(t *testing.T) {
	config := t.TempDir()
	namespaces, err := os.ReadFile("testdata/config/namespace.yaml")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(config, "namespace.yaml"), namespaces, 0o600))
	s := newSite(t, "record-only", config, "--record-only", "configmaps:CREATE,UPDATE,DELETE", "--record-sample-ratio", "0.5")
	namespace := s.NewNamespace(t, nil)
	maps := s.Client().CoreV1().ConfigMaps(namespace)
	recorded := func() float64 {
		n, err := s.server.Metric(t.Context(), "gatehouse_record_reviews_total", "result", "recorded")
		must(t, err)
		return n
	}
	support.Eventually(t, "the registration", func() error {
		// Each has another UID, of which half are sent.
		_, err := maps.Create(t.Context(), configMap("canary"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && recorded() == 0 {
			err = errors.New("nothing is recorded")
		}
		return err
	})
	const objects = 60
	before := recorded()
	selected := sets.New[string]()
	for i := range objects {
		created, err := maps.Create(t.Context(), configMap(fmt.Sprintf("map-%d", i)), metav1.CreateOptions{})
		must(t, err)
		created.Data = map[string]string{"changed": "yes"}
		_, err = maps.Update(t.Context(), created, metav1.UpdateOptions{})
		must(t, err)
		must(t, maps.Delete(t.Context(), created.Name, metav1.DeleteOptions{}))
		if created.UID < "8" {
			selected.Insert(created.Name)
		}
	}
	support.Eventually(t, "the recording", func() error {
		// The last canary may be counted late.
		if got, want := recorded()-before, float64(3*selected.Len()); got < want {
			return fmt.Errorf("%v reviews are recorded, want %v: three of each of the %d objects whose UIDs are in the share", got, want, selected.Len())
		}
		return nil
	})
	if selected.Len() == 0 || selected.Len() == objects {
		t.Errorf("%d of %d objects are in the share", selected.Len(), objects)
	}

	s.stop(t)
	code, shown := program(t, "record", "show", "--namespace", namespace, "-o", "ndjson", s.recording)
	if code != 0 {
		t.Fatalf("record show: exit code %d", code)
	}
	// The API server asks again when the object that it asked about has changed in the meantime.
	operations, updates := map[string]sets.Set[string]{}, int64(0)
	for line := range strings.Lines(shown) {
		var review struct{ Name, Operation string }
		must(t, json.Unmarshal([]byte(line), &review))
		if operations[review.Name] == nil {
			operations[review.Name] = sets.New[string]()
		}
		operations[review.Name].Insert(review.Operation)
		if review.Operation == "UPDATE" {
			updates++
		}
	}
	for i := range objects {
		name := fmt.Sprintf("map-%d", i)
		want := sets.New[string]()
		if selected.Has(name) {
			want.Insert("CREATE", "UPDATE", "DELETE")
		}
		if got := operations[name]; !got.Equal(want) {
			t.Errorf("record show: reviews of %s are %v, want %v", name, sets.List(got), sets.List(want))
		}
	}
	for i := range objects {
		_, err := maps.Create(t.Context(), configMap(fmt.Sprintf("dead-%d", i)), metav1.CreateOptions{})
		must(t, err)
	}

	// A policy about them that comes later would have hit these.
	candidate := t.TempDir()
	must(t, os.WriteFile(filepath.Join(candidate, "policy.yaml"), []byte(`apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: no-changes}
spec:
  matchConstraints:
    resourceRules:
      - {apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [configmaps]}
  validations: [{expression: "false", message: a ConfigMap does not change}]
  validationActions: [Deny]
`), 0o600))
	code, text := program(t, "replay", "--config", candidate, "--namespace", namespace, "-o", "json", s.recording)
	r := parse(t, text)
	if code != 1 || r.Changed["newly-refused"] != updates {
		t.Errorf("exit code %d, want 1, and %d updates refused:\n%.3000s", code, updates, text)
	}
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"password": "hunter2"}}
}
