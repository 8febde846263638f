package console

import (
	"html"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
)

// strict is the policy of the directory of tests, with a rule that refuses nothing.
const strict = `apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: labels}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE, DELETE], resources: [pods]}]}
  validations: [{expression: 'request.operation != "CONNECT"', message: never}]
  validationActions: [Deny]
`

func refusing() string { return withRule(`request.userInfo.username == "ann"`) }

// withRule returns the policy with another rule.
func withRule(expression string) string {
	return strings.Replace(strict, `request.operation != "CONNECT"`, expression, 1)
}

const tryPod = `apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec: {containers: [{name: web, image: "web:1"}]}
`

func TestTry(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("TOP-SECRET"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newPolicyConsole(t, flags{config: writeFiles(t, map[string]string{"all.yaml": strict + "---\n" + strings.Replace(strict, "name: labels", "name: other", 1)})})
	for name, tc := range map[string]struct {
		form   url.Values
		status int
		want   []string
	}{
		"what is active": {url.Values{"manifests": {tryPod}, "documents": {strict}}, 200, []string{"Lint finds nothing", "admitted Pod/web shop", "AdmissionPolicy other: evaluated", "Nothing is injected"}},
		"a change": {
			url.Values{"manifests": {tryPod}, "documents": {refusing()}},
			200,
			[]string{"refused Pod/web shop", "AdmissionPolicy labels, validations[0]: never"},
		},
		"another user":   {url.Values{"manifests": {tryPod}, "documents": {refusing()}, "user": {"ann"}}, 200, []string{"admitted Pod/web shop"}},
		"a deletion":     {url.Values{"manifests": {tryPod}, "documents": {refusing()}, "operation": {"DELETE"}}, 200, []string{"refused Pod/web shop", "Sidecars are injected when a pod is created"}},
		"an update":      {url.Values{"manifests": {tryPod}, "documents": {withRule(`object == null || object.metadata.name == "ann"`)}, "operation": {"UPDATE"}, "old": {tryPod}}, 200, []string{"warned Pod/web shop", "existing: AdmissionPolicy labels"}},
		"half an update": {url.Values{"manifests": {tryPod}, "documents": {strict}, "operation": {"UPDATE"}}, 400, []string{"an UPDATE needs the objects before it"}},
		"a mistake":      {url.Values{"manifests": {tryPod}, "documents": {withRule("request.nope")}}, 200, []string{"error: ", `there is no field "nope"`}},
		"no YAML":        {url.Values{"manifests": {tryPod}, "documents": {"a: [1"}}, 200, []string{"error: "}},
		"a file": {
			url.Values{"manifests": {tryPod}, "documents": {"apiVersion: gatehouse.dev/v1alpha1\nkind: AuthenticationConfiguration\njwt: {issuers: [{keysFile: " + secret + "}]}"}},
			400,
			[]string{"cannot be tried"},
		},
		"a file in a list": {
			url.Values{"manifests": {tryPod}, "documents": {"apiVersion: v1\nkind: List\nitems: [{apiVersion: gatehouse.dev/v1alpha1, kind: \"Authentication\\x43onfiguration\", jwt: {issuers: [{issuer: {url: \"https://a.example\", audiences: [a]}, keysFile: " + secret + "}]}}]"}},
			400,
			[]string{"cannot be tried"},
		},
		"a file behind an escape": {
			url.Values{"manifests": {tryPod}, "documents": {"apiVersion: gatehouse.dev/v1alpha1\nkind: \"Authentication\\x43onfiguration\"\njwt: {issuers: [{keysFile: " + secret + "}]}"}},
			400,
			[]string{"cannot be tried"},
		},
		"no recording": {url.Values{"do": {"replay"}, "documents": {strict}}, 400, []string{"there is no recording to replay"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := &policyConsole{c.console, t}
			status, page, text := c.get("POST", "/try", tc.form)
			if status != tc.status {
				t.Errorf("status %d", status)
			}
			c.wants(html.UnescapeString(text), tc.want...)
			for _, bad := range []string{"TOP-SECRET", c.work} {
				if strings.Contains(page, bad) {
					t.Errorf("the page has %q: %s", bad, text)
				}
			}
		})
	}
	c.wantsNoFiles()
}

func TestTryPrefilled(t *testing.T) {
	t.Parallel()
	c := newPolicyConsole(t, flags{config: writeFiles(t, map[string]string{"all.yaml": strict + "---\n# a comment\n" + strings.Replace(strict, "name: labels", "name: other", 1)})})
	_, page, _ := c.get("GET", "/try?begin=AdmissionPolicy//other", nil)
	c.wants(page, "# a comment", `<option value="AdmissionPolicy//other" selected>`)
	_, page, _ = c.get("GET", "/try?begin=AdmissionPolicy%2F%2Flabels", nil)
	c.wants(page, "metadata: {name: labels}")
	if status, _, text := c.get("GET", "/try?begin=AdmissionPolicy//nobody", nil); status != http.StatusNotFound {
		t.Error(status, text)
	}
}

func TestTryReplay(t *testing.T) {
	t.Parallel()
	var reviews []*record.Review
	for n, name := range []string{"web", "<b>job</b>", "web"} {
		reviews = append(reviews, podReview(n, "validate", name, "shop", "ben", "{}"))
	}
	recording := writeRecording(t, strict, reviews...)
	c := newPolicyConsole(t, flags{config: writeFiles(t, map[string]string{"all.yaml": strict}), recordings: []string{recording}})
	_, _, text := c.get("POST", "/try", url.Values{"documents": {refusing()}, "do": {"replay"}})
	c.wants(text, "3 reviews: the candidate", "100.0 % newly refused", "newly refused: AdmissionPolicy labels, validations[0]", "in namespace shop", "Pod/web", "after: denied", "&lt;b&gt;job")
	_, _, text = c.get("POST", "/try", url.Values{"documents": {strict}, "do": {"replay"}})
	c.wants(text, "3 100.0 % unchanged")
	_, _, text = c.get("POST", "/try", url.Values{"documents": {withRule("nope")}, "do": {"replay"}})
	if !strings.Contains(text, "is not declared") || strings.Contains(text, c.work) {
		t.Error("a candidate with errors", text)
	}
	c.wantsNoFiles()
}
