package login

import (
	"os"
	"strings"
	"testing"
)

// TestGuideShowsExplain keeps the output in the guide equal to what is tested.
func TestGuideShowsExplain(t *testing.T) {
	t.Parallel()
	const guide, explained = "../../../../../docs/login-users.md", "../offline/testdata/explaintoken/"
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	for file, command := range map[string]string{
		explained + "jwt.txt":                   "--token-file token.txt\n",
		explained + "access-token-audience.txt": "--token-file token.txt --audience vault\n",
	} {
		output, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), command+strings.TrimSpace(string(output))+"\n```") {
			t.Errorf("%s does not show %s, which is what the command prints", guide, file)
		}
	}
}
