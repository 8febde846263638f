package installers

import (
	"os/exec"
	"strings"
	"testing"
)

// TestVersions runs both programs: each says the version that is pinned, which a chart may ask for.
func TestVersions(t *testing.T) {
	t.Parallel()
	for program, c := range map[string]struct {
		args []string
		want string
	}{
		Helm:      {[]string{"version", "--short"}, "v4."},
		Kustomize: {[]string{"version"}, "v5."},
	} {
		path, err := Binary(program)
		if err != nil {
			t.Fatal(err)
		}
		output, err := exec.CommandContext(t.Context(), path, c.args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", program, err, output)
		}
		if !strings.HasPrefix(string(output), c.want) {
			t.Errorf("%s says that it is %q, want %s…", program, output, c.want)
		}
	}
}

// TestBinaryMissing says what to do.
func TestBinaryMissing(t *testing.T) {
	t.Parallel()
	_, err := Binary("no-such-program")
	if err == nil || !strings.Contains(err.Error(), "make installers") {
		t.Errorf("the error is %v, want one with a hint", err)
	}
}
