// Package property_test holds decisions of webhooks/sidecar about random pods against what is true of every decision.
package property_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podsecuritypolicy "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// richProfiles are profiles that say all that profiles can say. The test with
// the API server's validation uses them too.
const richProfiles = "../../../test/podvalidity/testdata/profiles/*.yaml"

// world is a set of profiles with what they declare.
type world struct {
	name     string
	set      *sidecar.Set
	profiles []sidecar.Profile
	security podsecuritypolicy.Evaluator
}

// namespaces are namespaces by what is interesting about them.
type namespaces struct{}

// Namespace returns the namespace of the name, of which each says what it is.
func (namespaces) Namespace(name string) (*corev1.Namespace, bool) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}}
	level, version, _ := strings.Cut(name, "-v1-")
	switch level {
	case "shop":
	case "baseline", "restricted":
		ns.Labels["pod-security.kubernetes.io/enforce"] = level
		if version != "" {
			ns.Labels["pod-security.kubernetes.io/enforce-version"] = "v1." + version
		}
	case "asking":
		ns.Annotations[v1alpha1.InjectAnnotation] = "asked"
		ns.Annotations["mesh.sidecar.gatehouse.dev/level"] = "warn"
		ns.Annotations["mesh.sidecar.gatehouse.dev/cpu"] = "1500m"
	case "declining":
		ns.Annotations[v1alpha1.InjectAnnotation] = "false"
	default:
		return nil, false
	}
	return ns, true
}

var someNamespaces = []string{
	"shop", "baseline", "restricted", "asking", "restricted-v1-22", "declining", "baseline-v1-20", "shop", "restricted-v1-25", "restricted-v1-34", "unknown",
}

// presets has the same data for every ConfigMap.
type presets map[string]string

func (p presets) ConfigMapData(_, _ string) (map[string]string, bool) { return p, true }

// documents returns the documents of the rich profiles by their files.
func documents(t testing.TB) map[string][]string {
	t.Helper()
	paths, err := filepath.Glob(richProfiles)
	if err != nil || len(paths) < 4 {
		t.Fatalf("%s: %v, %v", richProfiles, paths, err)
	}
	all := map[string][]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(path), ".yaml")] = strings.Split(string(text), "\n---\n")
	}
	return all
}

func profile(t testing.TB, source, text string) sidecar.Profile {
	t.Helper()
	p := sidecar.Profile{Source: source}
	if err := yaml.UnmarshalStrict([]byte(text), &p.SidecarProfile); err != nil {
		t.Fatalf("%s: %v", source, err)
	}
	return p
}

// worlds returns the sets of rich profiles, each with everything that a profile may
// say about what is in the way, or those of the names.
func worlds(t testing.TB, names ...string) []*world {
	t.Helper()
	security, err := podsecuritypolicy.NewEvaluator(podsecuritypolicy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var all []*world
	files := documents(t)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		for _, conflict := range []v1alpha1.ConflictAction{v1alpha1.RefuseConflict, v1alpha1.SkipConflict, v1alpha1.KeepConflict} {
			for _, sameName := range []v1alpha1.SameNameAction{v1alpha1.RefuseSameName, v1alpha1.KeepSameName, v1alpha1.ReplaceSameName} {
				w := &world{name: fmt.Sprintf("%s %s %s", file, conflict, sameName), security: security}
				if len(names) > 0 && !strings.Contains(strings.Join(names, ","), w.name) {
					continue
				}
				for i, text := range files[file] {
					p := profile(t, fmt.Sprintf("%s#%d", file, i+1), text)
					p.Spec.OnConflict, p.Spec.OnSameName = conflict, sameName
					w.profiles = append(w.profiles, p)
				}
				if w.set, err = sidecar.Compile(sidecar.Spec{
					Profiles: w.profiles, Namespaces: namespaces{}, ConfigMaps: presets{"image": "example/proxy:1"},
				}); err != nil {
					t.Fatalf("%s: %v", w.name, err)
				}
				all = append(all, w)
			}
		}
	}
	return all
}

func asJSON(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// treeOf returns JSON as a tree whose numbers are as they are written.
func treeOf(t testing.TB, text []byte) any {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func asObject(v any) map[string]any {
	if m, ok := v.(map[string]any); ok && m != nil {
		return m
	}
	return map[string]any{}
}
