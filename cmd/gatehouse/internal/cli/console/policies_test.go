package console

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/offline"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/record"
	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

const testAddress = "127.0.0.1:8642"

var testSecrets = web.NewSecrets()

// policyConsole is a console without a listener.
type policyConsole struct {
	*console

	t *testing.T
}

// newPolicyConsole returns a console with the commands that the pages about policies run.
func newPolicyConsole(t *testing.T, f flags) *policyConsole {
	t.Helper()
	run := func(ctx context.Context, args []string, s cli.Streams) int {
		return cli.Run(ctx, args, s, offline.NewLintCommand, offline.NewCheckCommand, offline.NewExplainCommand, offline.NewInjectCommand, record.NewReplayCommand, record.NewCommand)
	}
	c, err := newConsole(t.Context(), &f, run, t.TempDir(), testAddress, testSecrets, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.background.Wait) // the context of the test has ended then
	c.now = func() time.Time { return time.Date(2030, 12, 28, 0, 0, 0, 0, time.UTC) }
	return &policyConsole{c, t}
}

// get returns the answer to a request of the browser, with its text: tags are removed, and space is one blank.
func (c *policyConsole) get(method, target string, form url.Values) (status int, page, text string) {
	c.t.Helper()
	r := httptest.NewRequest(method, testSecrets.Base+target, strings.NewReader(form.Encode()))
	r.Host = testAddress
	r.Header.Set("Cookie", "gatehouse-console-8642="+testSecrets.Session)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	c.web.ServeHTTP(w, r)
	page = strings.ReplaceAll(w.Body.String(), testSecrets.Base, "")
	return w.Code, page, strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, "")), " ")
}

// wants checks that a page has texts.
func (c *policyConsole) wants(text string, want ...string) {
	c.t.Helper()
	for _, part := range want {
		if !strings.Contains(text, part) {
			c.t.Errorf("there is no %q in %s", part, text)
		}
	}
}

// wantsNoFiles checks that computations have removed their files.
func (c *policyConsole) wantsNoFiles() {
	c.t.Helper()
	if left, err := filepath.Glob(filepath.Join(c.work, "try-*")); err != nil || len(left) > 0 {
		c.t.Errorf("files are left: %v, %v", left, err)
	}
}

const exampleDir = "../../../../../manifests/examples/policies"

// writeFiles writes files into a new directory.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	c := newPolicyConsole(t, flags{config: exampleDir})
	status, _, text := c.get("GET", "/policies", nil)
	if status != http.StatusOK {
		t.Fatal(status, text)
	}
	c.wants(text, "4 policies and profiles", "max-replicasValidatingAdmissionPolicyCREATE, UPDATE of deployments.appsAudit, Denyvalid0",
		"expires in 3 days", "gatehouse lint --config", "exception.yaml")
	if _, _, text = c.get("GET", "/policies?q=team", nil); strings.Contains(text, "max-replicasV") {
		t.Error("the filter does nothing", text)
	}
	if status, _, _ = c.get("GET", "/policies/AdmissionPolicy/workloads", nil); status != http.StatusNotFound {
		t.Error("a policy of another kind", status)
	}
	if status, _, text = newPolicyConsole(t, flags{recordings: []string{"x"}}).get("GET", "/policies", nil); status != http.StatusNotFound || !strings.Contains(text, "--config DIR") {
		t.Error("without a configuration", status, text)
	}
}

// TestMutatingPolicies lists policies that change objects, which no exception names, and shows one with its binding.
func TestMutatingPolicies(t *testing.T) {
	t.Parallel()
	c := newPolicyConsole(t, flags{config: "../../../../../manifests/policies/mutating"})
	_, _, text := c.get("GET", "/policies?q=ndots", nil)
	c.wants(text, "1 policies and profiles", "MutatingAdmissionPolicyCREATE of podsMutatevalid-")
	_, _, text = c.get("GET", "/policies/MutatingAdmissionPolicy/ndots", nil)
	c.wants(text, "ActionsMutate", "policyName: ndots")
	e := &object{}
	e.Spec.Policies = []v1alpha1.ExceptedPolicy{{Name: "a"}}
	p := &object{Kind: "MutatingAdmissionPolicy"}
	p.Name = "a"
	if found := exceptionsOf(p, []*object{e}); len(found) > 0 {
		t.Error("an exception", found)
	}
}

// TestBaselines lists a baseline among the exceptions, with what is left of it.
func TestBaselines(t *testing.T) {
	t.Parallel()
	const entry = "shop/Deployment/web@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	dir := writeFiles(t, map[string]string{
		"policy.yaml":   "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionPolicy\nmetadata: {name: a}\nspec:\n  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}\n  validations: [{name: r, expression: \"false\"}]\n  validationActions: [Deny]\n",
		"baseline.yaml": "apiVersion: gatehouse.dev/v1alpha1\nkind: PolicyBaseline\nmetadata: {name: b, namespace: gatehouse-system}\nspec: {reason: old images, expiresAt: \"2031-01-01T00:00:00Z\", rules: [{kind: AdmissionPolicy, policy: a, rule: \"validations[r]\", entries: [" + entry + "]}]}\n",
	})
	c := newPolicyConsole(t, flags{config: dir})
	for _, page := range []string{"/policies", "/policies/AdmissionPolicy/a"} {
		_, _, text := c.get("GET", page, nil)
		c.wants(text, "gatehouse-system/b", "PolicyBaseline, ", "a validations[r]: 1 violation left", "old images", "expires in 4 days")
	}
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for left, want := range map[time.Duration]expiry{
		-time.Hour:                 {Text: "expired", Class: "bad"},
		time.Hour:                  {Text: "expires in 0 days", Class: "notice"},
		25 * time.Hour:             {Text: "expires in 1 day", Class: "notice"},
		6*24*time.Hour + 1:         {Text: "expires in 6 days", Class: "notice"},
		100 * 24 * time.Hour:       {Text: "expires in 100 days"},
		24*time.Hour - time.Second: {Text: "expires in 0 days", Class: "notice"},
	} {
		at := metav1.NewTime(now.Add(left))
		want.At = at.Time
		if got := newExpiry(&at, now); got != want {
			t.Errorf("%s: got %+v, want %+v", left, got, want)
		}
	}
}

func TestPaginate(t *testing.T) {
	t.Parallel()
	list := make([]int, 120)
	for i := range list {
		list[i] = i
	}
	for query, want := range map[string]struct {
		first, rows    int
		previous, next string
	}{
		"":             {0, 50, "", "?page=2"},
		"?page=2&q=a":  {50, 50, "?page=1&q=a", "?page=3&q=a"},
		"?page=9":      {100, 20, "?page=2", ""},
		"?page=-1":     {0, 50, "", "?page=2"},
		"?page=nobody": {0, 50, "", "?page=2"},
	} {
		rows, p := paginate(httptest.NewRequest(http.MethodGet, "/"+query, nil), "page", list)
		if rows[0] != want.first || len(rows) != want.rows || p.Previous != want.previous || p.Next != want.next {
			t.Errorf("%q: got %d rows from %d, %+v", query, len(rows), rows[0], p)
		}
	}
}

// TestNoDataIsNoZero: a page without data says so, and shows no numbers.
func TestNoDataIsNoZero(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]flags{
		"There is no recording":            {config: exampleDir},
		"The recordings have no decisions": {recordings: []string{writeRecording(t, "")}},
	} {
		c := newPolicyConsole(t, f)
		support.Eventually(t, want, func() error {
			if _, _, text := c.get("GET", "/decisions", nil); !strings.Contains(text, want) || strings.Contains(text, "0 decisions") {
				return errors.New(text)
			}
			return nil
		})
	}
}
