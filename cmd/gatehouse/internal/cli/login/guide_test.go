package login

import (
	"os"
	"strings"
	"testing"
)

// TestGuidesShowLogin keeps the output in the guides equal to what is tested.
func TestGuidesShowLogin(t *testing.T) {
	t.Parallel()
	const (
		registration = "../../install/registration/testdata/"
		explained    = "../offline/testdata/explaintoken/"
	)
	for guide, outputs := range map[string]map[string]string{
		"login.md": {
			registration + "kubeconfig.yaml": "$ cat kubeconfig.yaml\n",
		},
		"login-users.md": {
			explained + "jwt.txt":                   "--token-file token.txt\n",
			explained + "access-token-audience.txt": "--token-file token.txt --audience vault\n",
		},
	} {
		text, err := os.ReadFile("../../../../../docs/" + guide)
		if err != nil {
			t.Fatal(err)
		}
		for file, command := range outputs {
			output, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), command+strings.TrimSpace(string(output))+"\n```") {
				t.Errorf("docs/%s does not show %s, which is what the command prints", guide, file)
			}
		}
	}
}
