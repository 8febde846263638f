package sidecar_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

const (
	examples = "../../manifests/examples/log-shipper/"
	guide    = "../../docs/sidecar.md"
)

// TestExample runs the example of the guide, which a reader will try first.
func TestExample(t *testing.T) {
	t.Parallel()
	var namespace corev1.Namespace
	if err := yaml.UnmarshalStrict([]byte(read(t, examples+"namespace.yaml")), &namespace); err != nil {
		t.Fatal(err)
	}
	set, err := sidecar.Compile(sidecar.Spec{
		Profiles:   []sidecar.Profile{profile(t, "profile.yaml", read(t, examples+"profile.yaml"))},
		Namespaces: namespaces{namespace.Name: namespace.Labels},
	})
	if err != nil {
		t.Fatal(err)
	}
	if warnings := set.Warnings(); len(warnings) > 0 {
		t.Errorf("warnings about the example profile: %v", warnings)
	}
	pod := toJSON(t, read(t, examples+"pod.yaml"))
	response := set.Review(context.Background(), request(namespace.Name, pod))
	if !response.Allowed || len(response.Warnings) > 0 {
		t.Fatalf("got %+v", response)
	}
	patched := apply(t, pod, response.Patches)
	again := set.Review(context.Background(), request(namespace.Name, patched))
	if !again.Allowed || again.Patches != nil {
		t.Errorf("second call: got %+v", again)
	}
	var strict corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(patched), &strict); err != nil {
		t.Errorf("the result is no pod: %v", err)
	}
	out, err := yaml.JSONToYAML([]byte(patched))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "log-shipper.yaml", string(out))
}

// TestGuideShowsTheExample keeps the guide equal to what is tested.
func TestGuideShowsTheExample(t *testing.T) {
	t.Parallel()
	text := read(t, guide)
	for _, path := range []string{examples + "profile.yaml", examples + "pod.yaml"} {
		if !strings.Contains(text, "```yaml\n"+read(t, path)+"```\n") {
			t.Errorf("%s does not show %s as it is", guide, path)
		}
	}
	status := statusOf(t, toJSON(t, read(t, "testdata/log-shipper.yaml")))
	if !strings.Contains(text, "```yaml\nsidecar.gatehouse.dev/status: '"+status+"'\n```\n") {
		t.Errorf("%s does not show the annotation %s", guide, status)
	}
}

// golden compares text with a file in testdata. UPDATE_GOLDEN=1 writes it.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("UPDATE_GOLDEN") == "1" {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want := read(t, path); want != text {
		t.Errorf("%s: got\n%s\nwant\n%s", path, text, want)
	}
}

// TestNoStaleGoldens fails on files that no test compares with.
func TestNoStaleGoldens(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	known := []string{"log-shipper.yaml", "findings.txt", "fuzz"}
	for _, entry := range entries {
		if !slices.Contains(known, entry.Name()) {
			t.Errorf("testdata/%s belongs to no test", entry.Name())
		}
	}
}
