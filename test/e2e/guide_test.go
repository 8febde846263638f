package e2e

import (
	"os"
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
