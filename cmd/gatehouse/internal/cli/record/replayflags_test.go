package record

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
)

// TestReplayProblems makes mistakes of which the error is all that is printed.
func TestReplayProblems(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string][]byte{"good": segment(t, "a", "k1", admitted("0f5c", "shop", "cart", "joe", "allowed")), "foreign": []byte("hello")})
	for _, tt := range []struct {
		name, want string
		args       []string
	}{
		{"no ID", "--show: name a review by its ID or the beginning of it (hint: ", []string{"good", "--show", ""}},
		{"unknown ID", `--show "zz": there is no such review in the recording`, []string{"good", "--show", "zz"}},
		{"times", "--since must be before --until", []string{"good", "--since", "1h", "--until", "2h"}},
		{"foreign", "foreign: is no recording", []string{"foreign"}},
		{"foreign, as JSON", "foreign: is no recording", []string{"foreign", "-o", "json"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"replay", filepath.Join(dir, tt.args[0])}, tt.args[1:]...)
			if result := clitest.Run(t.Context(), "", args, NewReplayCommand); result.Code != 2 || !strings.Contains(result.Err, tt.want) || result.Out != "" {
				t.Errorf("%+v, want %s", result, tt.want)
			}
		})
	}
}
