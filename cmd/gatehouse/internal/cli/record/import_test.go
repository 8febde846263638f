package record

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
)

const auditEvent = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"1","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/shop/secrets","verb":"create","user":{"username":"joe"},"objectRef":{"resource":"secrets","namespace":"shop","name":"s","apiVersion":"v1"},"responseStatus":{"code":201},"requestObject":{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s"},"data":{"a":"aHVudGVyMg=="}},"requestReceivedTimestamp":"2026-11-20T12:00:00.000000Z"}` + "\n"

func TestImport(t *testing.T) {
	t.Parallel()
	const list = `"verb":"list"`
	log := auditEvent + strings.Replace(auditEvent, `"verb":"create"`, list, 1)
	key := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
	dir := write(t, map[string][]byte{"audit.log": []byte(log), "key": []byte(key + "\n"), "short": []byte("aGVsbG8="), "foreign": []byte("hello\n")})
	in := func(name string) string { return filepath.Join(dir, name) }
	run := func(stdin string, args ...string) clitest.Result {
		return clitest.Run(t.Context(), stdin, append([]string{"record", "import"}, args...), NewCommand)
	}
	result := run(log, in("audit.log"), "-", "-f", in("out"), "--record-key-file", in("key"))
	const want = `out: 2 reviews of 4 events, 2026-11-20T12:00:00Z to 2026-11-20T12:00:00Z
skipped:
       2  reads: get, list and watch
the reviews lack:
  - no webhook has decided`
	if result.Code != 0 || !strings.Contains(result.Out, want) || result.Err != "" {
		t.Errorf("%+v", result)
	}
	if info, err := os.Stat(in("out")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v, want 0600", info, err)
	}
	shown := clitest.Run(t.Context(), "", []string{"record", "show", in("out"), "--full", "-v", "-o", "ndjson"}, NewCommand)
	if shown.Code != 0 || strings.Contains(shown.Out, "aHVudGVyMg") || !strings.Contains(shown.Out, `"redacted":true`) || !strings.Contains(shown.Err, "audit-log, gatehouse") || !strings.Contains(shown.Err, "lacks: no webhook has decided") {
		t.Errorf("%+v", shown)
	}
	if result := run("", in("audit.log"), "-f", in("out")); result.Code != 2 || !strings.Contains(result.Err, "exists (hint: --force replaces it)") {
		t.Errorf("a second time: %+v", result)
	}
	var got importResult
	if result := run("", in("audit.log"), "-f", in("out"), "--force", "-o", "json"); result.Code != 0 || json.Unmarshal([]byte(result.Out), &got) != nil || got.Reviews != 1 || got.Skipped["reads: get, list and watch"] != 1 || len(got.Lacks) == 0 {
		t.Errorf("with --force: %+v", result)
	}
	for _, tt := range []struct {
		name, want string
		code       int
		args       []string
	}{
		{"no log", "an audit log is missing", 2, nil},
		{"missing log", "none: cannot be read: no such file", 2, []string{in("none"), "-f", in("x1")}},
		{"foreign log beside a good one", "foreign: line 1: is no JSON", 2, []string{in("foreign"), in("audit.log"), "-f", in("x2")}},
		{"nothing in it", "no event makes a review", 1, []string{"-", "-f", in("x3")}},
		{"short key", "must hold at least 32 bytes in base64", 2, []string{in("audit.log"), "-f", in("x4"), "--record-key-file", in("short")}},
		{"missing key", "cannot be read: no such file", 2, []string{in("audit.log"), "-f", in("x4"), "--record-key-file", in("none")}},
		{"no directory", "is not a directory", 2, []string{in("audit.log"), "-f", in("x4"), "--config", in("key")}},
		{"output", "must be text, json or yaml", 2, []string{in("audit.log"), "-o", "xml"}},
	} {
		if result := run("", tt.args...); result.Code != tt.code || !strings.Contains(result.Err, tt.want) || strings.Contains(result.Err, "aGVsbG8") {
			t.Errorf("%s: %+v, want %s", tt.name, result, tt.want)
		}
	}
	for name, want := range map[string]bool{"x1": false, "x2": true, "x3": false, "x4": false} {
		if exists(in(name)) != want {
			t.Errorf("%s exists: %t, want %t", name, !want, want)
		}
	}
}
