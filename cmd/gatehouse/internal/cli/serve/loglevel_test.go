package serve

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

// TestLogLevelCannotTell is what there is no answer to.
func TestLogLevelCannotTell(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte("<html>"))
			return
		}
		http.Error(w, "no\x1b[31m", http.StatusForbidden)
	}))
	t.Cleanup(other.Close)
	address := strings.TrimPrefix(other.URL, "http://")
	for _, tc := range []struct {
		name, want string
		args       []string
	}{
		{"nobody listens", "no server answers at 127.0.0.1:1: ", []string{"--ops-address", "127.0.0.1:1"}},
		{"something else listens", "is not a Gatehouse server (hint: ", []string{"--ops-address", address}},
		{"it is refused", `answers 403: no\x1b[31m`, []string{"debug", "--ops-address", address}},
		{"no level", `the level must be one of debug, info, warn, error`, []string{"loud"}},
		{"two levels", "gatehouse: too many arguments: log-level takes one level (hint: gatehouse log-level debug)\n", []string{"debug", "info"}},
		{"no address", `--ops-address "here": must be HOST:PORT`, []string{"--ops-address", "here"}},
		{"everything at once", "--ops-address \":8080\": must be HOST:PORT (hint: 127.0.0.1:8080)\n" +
			"gatehouse: the level must be", []string{"--ops-address", ":8080", "loud"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var out, problems bytes.Buffer
			if code := cli.Run(t.Context(), append([]string{"log-level"}, tc.args...), cli.Streams{Out: &out, Err: &problems}, NewLogLevelCommand); code != cli.ExitUnknown || !strings.Contains(problems.String(), tc.want) || out.Len() > 0 {
				t.Errorf("log-level %q: %d, %s%s", tc.args, code, &out, &problems)
			}
		})
	}
}
