package audit

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
)

// logLine is a request of an audit log that has ended.
func logLine(t *testing.T, user, namespace, name string, code int, message string, annotations map[string]string) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"kind": "Event", "apiVersion": "audit.k8s.io/v1", "auditID": name, "stage": "ResponseComplete", "verb": "create", "user": map[string]any{"username": user},
		"objectRef":                map[string]any{"resource": "deployments", "apiGroup": "apps", "apiVersion": "v1", "namespace": namespace, "name": name},
		"responseStatus":           map[string]any{"code": code, "message": message},
		"requestReceivedTimestamp": "2026-11-20T09:00:00.000000Z", "annotations": annotations,
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + "\n"
}

// TestAuditLog reads logs of several kinds.
func TestAuditLog(t *testing.T) {
	t.Parallel()
	const native = "validation.policy.admission.k8s.io/validation_failure"
	first := logLine(t, "jane", "shop", "a", 422, `deployments.apps "a" is forbidden: ValidatingAdmissionPolicy 'limits' with binding 'all' denied request: set it`, nil) +
		logLine(t, "jane", "shop", "a", 422, `deployments.apps "a" is forbidden: ValidatingAdmissionPolicy 'limits' with binding 'all' denied request: set it`, nil) +
		logLine(t, "joe", "pay", "b", 201, "", map[string]string{native: `[{"message":"too few","policy":"replicas","binding":"all","expressionIndex":0,"validationActions":["Audit"]}]`}) +
		strings.Replace(logLine(t, "joe", "pay", "c", 0, "", nil), "ResponseComplete", "RequestReceived", 1)
	second := logLine(t, "kube", "kube-system", "d", 201, "", map[string]string{"pod-security.kubernetes.io/exempt": "namespace"}) +
		logLine(t, "kube", "pay", "e", 500, `Internal error occurred: failed calling webhook "w.example.org": EOF`, nil)
	dir := t.TempDir()
	plain, packed, damaged := filepath.Join(dir, "audit.log"), filepath.Join(dir, "audit.log.gz"), filepath.Join(dir, "damaged.log")
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write([]byte(second))
	_ = z.Close()
	for path, text := range map[string]string{plain: first, packed: zipped.String(), damaged: "{\"kind\n" + logLine(t, "a", "b", "c", 201, "", map[string]string{native: "x"}) + first[:30]} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		args  []string
		stdin string
		code  int
		says  []string
	}{
		"two files": {[]string{"--audit-log", plain, "--audit-log", packed}, "", cli.ExitYes, []string{
			"5 requests in the audit log " + plain + ", " + packed, "from 2026-11-20T09:00:00Z to 2026-11-20T09:00:00Z",
			"       2         0         0         0  ValidatingAdmissionPolicy limits\n          in        shop (2)\n          by        jane (2)\n          fail      deployments.apps shop/a by jane: set it\n",
			"       0         1         0         0  ValidatingAdmissionPolicy replicas, validations[0]\n          in        pay (1)\n          by        joe (1)\n",
			"       0         0         1         0  Webhook w.example.org\n", "       0         0         0         1  PodSecurity\n          excepted  deployments.apps kube-system/d by kube: exempt by its namespace\n",
			"5 requests: 2 refused, 1 warned or audited, 1 exempt, 1 without an answer of a webhook\n",
		}},
		"standard input": {[]string{"--audit-log", "-", "-n", "pay"}, first, cli.ExitYes, []string{"1 request in the audit log standard input", "1 request: 0 refused, 1 warned"}},
		"a namespace that is not audited otherwise": {[]string{"--audit-log", packed, "-n", "kube-system"}, "", cli.ExitYes, []string{"1 request: 0 refused"}},
		"a limit":    {[]string{"--audit-log", plain, "--fail-on", "violations=1"}, "", cli.ExitNo, []string{"failed: violations: 2 of 3 requests, allowed is 1"}},
		"damaged":    {[]string{"--audit-log", damaged}, "", cli.ExitUnknown, []string{damaged + ": 2 lines cannot be read; the first: line 1 is not JSON", "1 request: ", "the log was not read completely"}},
		"JSON":       {[]string{"--audit-log", plain, "-o", "json"}, "", cli.ExitYes, []string{`"users": [`, `"user": "jane"`, `"result": "pass"`}},
		"lines":      {[]string{"--audit-log", plain, "-o", "ndjson"}, "", cli.ExitYes, []string{`{"status":"fail","apiVersion":"apps/v1","kind":"deployments","namespace":"shop","name":"a","user":"jane","binding":"all","message":"set it","policyKind":"ValidatingAdmissionPolicy","policy":"limits"}`}},
		"no file":    {[]string{"--audit-log", filepath.Join(dir, "none")}, "", cli.ExitUnknown, []string{"cannot be read"}},
		"a table":    {[]string{"--audit-log", plain, "--kind", "Pod"}, "", cli.ExitUnknown, []string{"--audit-log and --kind cannot be given together"}},
		"a baseline": {[]string{"--audit-log", plain, "--baseline", "b.yaml", "--prune"}, "", cli.ExitUnknown, []string{"--audit-log and --baseline cannot be given together"}},
		"a script":   {[]string{"--audit-log", plain, "-o", "restart"}, "", cli.ExitUnknown, []string{"--audit-log and -o restart cannot be given together"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := clitest.Run(t.Context(), c.stdin, append([]string{"audit"}, c.args...), NewCommand)
			if got.Code != c.code {
				t.Errorf("exit code %d, want %d: %s", got.Code, c.code, got.Err)
			}
			for _, want := range c.says {
				if !strings.Contains(got.Out+got.Err, want) {
					t.Errorf("%q is not in\n%s%s", want, got.Out, got.Err)
				}
			}
		})
	}
	var hostile strings.Builder
	for i, text := range hostileTexts() {
		hostile.WriteString(logLine(t, text, text, text, 403, fmt.Sprintf("ValidatingAdmissionPolicy '%s' denied request: %s", strings.ReplaceAll(text, "'", ""), text), map[string]string{
			"w/validation_failure": `[{"message":"` + fmt.Sprint(i) + `"}]`, text + "/excepted-by": text,
		}))
	}
	checkInert(t, clitest.Run(t.Context(), hostile.String(), []string{"audit", "--audit-log", "-"}, NewCommand).Out)
}
