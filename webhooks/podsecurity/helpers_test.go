package podsecurity_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func evaluator(t testing.TB) *podsecurity.Evaluator {
	t.Helper()
	e, err := podsecurity.New()
	must(t, err)
	return e
}

func level(t testing.TB, name, version string) podsecurity.Level {
	t.Helper()
	l, nameKnown, versionKnown := podsecurity.Parse(name, version)
	if !nameKnown || !versionKnown {
		t.Fatalf("no level %q %q", name, version)
	}
	return l
}

// fixture is a pod with which upstream tests its checks.
type fixture struct {
	// file is level/version/pass or fail/name.
	file string
	raw  rawjson.Value
	pod  *corev1.Pod
}

// standard returns the level that the fixture passes or fails.
func (f fixture) standard() (name, version string, passes bool) {
	parts := strings.Split(f.file, "/")
	return parts[0], parts[1], parts[2] == "pass"
}

// fixtures returns all of upstream's, with the defaults of the API server that the
// checks see. Most are equal for several versions, and share the pod.
func fixtures(t testing.TB) []fixture {
	t.Helper()
	all, err := readFixtures()
	must(t, err)
	if len(all) < 4000 {
		t.Fatalf("only %d fixtures were found", len(all))
	}
	return all
}

var readFixtures = sync.OnceValues(func() ([]fixture, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission").Output()
	if err != nil {
		return nil, err
	}
	source := os.DirFS(path.Join(strings.TrimSpace(string(dir)), "test", "testdata"))
	files, err := fs.Glob(source, "*/v1.*/*/*.yaml")
	out := make([]fixture, len(files))
	read := map[string]fixture{}
	for i, file := range files {
		text, readErr := fs.ReadFile(source, file)
		known, ok := read[string(text)]
		if !ok {
			raw, yamlErr := yaml.YAMLToJSON(text)
			known = fixture{raw: raw, pod: new(corev1.Pod)}
			err = errors.Join(err, readErr, yamlErr, json.Unmarshal(raw, known.pod))
			for v := range known.pod.Spec.Volumes {
				if volume := &known.pod.Spec.Volumes[v]; volume.VolumeSource == (corev1.VolumeSource{}) {
					volume.EmptyDir = new(corev1.EmptyDirVolumeSource)
				}
			}
			read[string(text)] = known
		}
		out[i] = fixture{file, known.raw, known.pod}
	}
	return out, err
})
