package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// The commands that the guide shows print what is shown. README's are in cmd/gatehouse.
func TestGuideShowsCommands(t *testing.T) {
	t.Chdir("../..")
	for document, commands := range map[string]int{"docs/sidecar.md": 1} {
		guide, err := os.ReadFile(document)
		must(t, err)
		blocks := strings.Split(strings.ReplaceAll(string(guide), "$ bin/gatehouse ", "$ gatehouse "), "\n```console\n$ gatehouse ")[1:]
		if len(blocks) != commands {
			t.Errorf("%s shows %d commands", document, len(blocks))
		}
		for _, block := range blocks {
			block, _, _ = strings.Cut(block, "\n```\n")
			command, want, _ := strings.Cut(block, "\n")
			got, err := gatehouse.Run(t.Context(), strings.Fields(command)...)
			if got != want+"\n" {
				t.Errorf("gatehouse %s: got (%v)\n%swant\n%s", command, err, got, want)
			}
		}
	}
}

// What inject adds to the manifests of an example, uninject takes out again, to the byte.
func TestUninjectRestoresExamples(t *testing.T) {
	t.Parallel()
	for _, example := range exampleNames() {
		dir := filepath.Join(examples, example)
		file := filepath.Join(dir, "pod.yaml")
		original, err := os.ReadFile(file)
		if err != nil {
			file = filepath.Join(dir, "deployment.yaml")
			original, err = os.ReadFile(file)
		}
		must(t, err)
		with, err := gatehouse.Run(t.Context(), "inject", "--config", dir, "-f", file)
		must(t, err)
		if !strings.Contains(with, statusAnnotation) {
			t.Errorf("%s: nothing is injected:\n%s", file, with)
		}
		injected := filepath.Join(t.TempDir(), "injected.yaml")
		must(t, os.WriteFile(injected, []byte(with), 0o600))
		without, err := gatehouse.Run(t.Context(), "uninject", "-f", injected)
		must(t, err)
		if !bytes.Equal([]byte(without), original) {
			t.Errorf("%s: got\n%swant\n%s", file, without, original)
		}
	}
}
