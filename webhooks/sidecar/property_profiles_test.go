package sidecar_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// richProfiles are profiles that say all that profiles can say. The test with
// the API server's validation uses them too.
const richProfiles = "../../test/podvalidity/testdata/profiles/*.yaml"

// world is a set of profiles with what they declare.
type world struct {
	name     string
	set      *sidecar.Set
	profiles []sidecar.Profile
}

// propertyNamespaces are namespaces by what is interesting about them.
type propertyNamespaces struct{}

// Namespace returns the namespace of the name, of which each says what it is.
func (propertyNamespaces) Namespace(name string) (*corev1.Namespace, bool) {
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

func someNamespaces() []string {
	return []string{
		"shop", "baseline", "restricted", "asking", "restricted-v1-22", "declining", "baseline-v1-20", "shop", "restricted-v1-25", "restricted-v1-34", "unknown",
	}
}

type propertyPresets map[string]string

// ConfigMapData returns the same for every ConfigMap.
func (p propertyPresets) ConfigMapData(_, _ string) (map[string]string, bool) { return p, true }

// worlds returns all sets of rich profiles, each with everything that a profile may
// say about what is in the way.
func worlds(t testing.TB) []world {
	t.Helper()
	paths, err := filepath.Glob(richProfiles)
	if err != nil || len(paths) < 4 {
		t.Fatalf("%s: %v, %v", richProfiles, paths, err)
	}
	var all []world
	for _, path := range paths {
		for _, conflict := range []v1alpha1.ConflictAction{v1alpha1.RefuseConflict, v1alpha1.SkipConflict, v1alpha1.KeepConflict} {
			for _, name := range []v1alpha1.SameNameAction{v1alpha1.RefuseSameName, v1alpha1.KeepSameName, v1alpha1.ReplaceSameName} {
				w := world{name: fmt.Sprintf("%s, %s conflicts, %s same names", filepath.Base(path), conflict, name)}
				for i, document := range regexp.MustCompile(`(?m)^---$`).Split(read(t, path), -1) {
					p := profile(t, fmt.Sprintf("%s#%d", path, i+1), document)
					p.Spec.OnConflict, p.Spec.OnSameName = conflict, name
					w.profiles = append(w.profiles, p)
				}
				if w.set, err = sidecar.Compile(sidecar.Spec{
					Profiles: w.profiles, Namespaces: propertyNamespaces{}, ConfigMaps: propertyPresets{"image": "example/proxy:1"},
				}); err != nil {
					t.Fatalf("%s: %v", w.name, err)
				}
				all = append(all, w)
			}
		}
	}
	return all
}
