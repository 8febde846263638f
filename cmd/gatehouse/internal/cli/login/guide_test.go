package login

import (
	"os"
	"strings"
	"testing"
)

// TestGuideShowsExplain keeps the output in the guide equal to what is tested.
func TestGuideShowsExplain(t *testing.T) {
	t.Parallel()
	const guide, explained = "../../../../../docs/tasks/find-out-why-a-token-is-rejected.md", "../offline/testdata/explaintoken/jwt.txt"
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	output, err := os.ReadFile(explained)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "--token-file token.txt\n"+strings.TrimSpace(string(output))+"\n```") {
		t.Errorf("%s does not show %s, which is what the command prints", guide, explained)
	}
}
