package podsecurity_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	podsecuritypolicy "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

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
	file, text string
	pod        *corev1.Pod
}

// standard returns the level that the fixture passes or fails.
func (f fixture) standard() (name, version string, passes bool) {
	parts := strings.Split(f.file, "/")
	return parts[0], parts[1], parts[2] == "pass"
}

// fixtures returns all of upstream's, with the defaults of the API server that the
// checks see.
func fixtures(t testing.TB) []fixture {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission").Output()
	if err != nil {
		t.Fatalf("where are the fixtures? %v", err)
	}
	source := os.DirFS(path.Join(strings.TrimSpace(string(dir)), "test", "testdata"))
	files, err := fs.Glob(source, "*/v1.*/*/*.yaml")
	must(t, err)
	if len(files) < 4000 {
		t.Fatalf("only %d fixtures were found", len(files))
	}
	out := make([]fixture, len(files))
	read := map[string]*corev1.Pod{}
	for i, file := range files {
		text, err := fs.ReadFile(source, file)
		must(t, err)
		out[i] = fixture{file: file, text: string(text), pod: read[string(text)]}
		if out[i].pod == nil {
			out[i].pod = new(corev1.Pod)
			must(t, yaml.Unmarshal(text, out[i].pod))
			defaultVolumes(&out[i].pod.Spec)
			read[string(text)] = out[i].pod
		}
	}
	return out
}

func defaultVolumes(spec *corev1.PodSpec) {
	for i := range spec.Volumes {
		if spec.Volumes[i].VolumeSource == (corev1.VolumeSource{}) {
			spec.Volumes[i].EmptyDir = &corev1.EmptyDirVolumeSource{}
		}
	}
}

// distinct returns the pods of the fixtures, each once.
func distinct(all []fixture) []*corev1.Pod {
	seen := map[*corev1.Pod]bool{}
	var out []*corev1.Pod
	for _, f := range all {
		if !seen[f.pod] {
			seen[f.pod] = true
			out = append(out, f.pod)
		}
	}
	return out
}

// versions returns those at which a check begins, or changes, and "latest": between
// them nothing does.
func versions() []string {
	out := []string{"latest"}
	for _, check := range podsecuritypolicy.DefaultChecks() {
		for _, v := range check.Versions {
			if name := v.MinimumVersion.String(); !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}
