package console

import (
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

const decisionsConfig = policiesConfig + `---
apiVersion: gatehouse.dev/v1alpha1
kind: SidecarProfile
metadata:
  name: logs
  annotations: {gatehouse.dev/owner: "team logs"}
spec:
  injection: OptOut
  template:
    spec:
      containers:
        - {name: logs, image: registry.example/logs:1}
`

const policiesConfig = `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata:
  name: team-label
  annotations: {gatehouse.dev/owner: "team platform"}
spec:
  matchConstraints:
    resourceRules:
      - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  variables:
    - {name: team, expression: "object.metadata.?labels[?'team'].orValue('')"}
  validations:
    - {name: team, expression: "variables.team != ''", message: the label team is missing}
  validationActions: [Deny]
---
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: other}
spec:
  matchConstraints:
    resourceRules:
      - {apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [services]}
  validations:
    - {expression: "false"}
  validationActions: [Deny]
`

const hostileText = "<script>alert(1)</script>\x1b[31m\u202e&'\""

var decidedAt = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// podReview returns the review of a pod.
func podReview(n int, endpoint, name, namespace, user, labels string) *record.Review {
	id := fmt.Sprintf("uid-%d", n)
	quote := func(text string) string {
		return string(must(json.Marshal(text)))
	}
	return &record.Review{
		ID: id, Time: decidedAt.Add(time.Duration(n) * time.Second), Took: 1234 * time.Microsecond, Endpoint: endpoint, Decision: review.Allowed, Response: json.RawMessage(`{"allowed":true}`),
		Request: fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":%q,"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},`+
			`"namespace":%s,"name":%s,"operation":"CREATE","userInfo":{"username":%s},"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":%s,"namespace":%s,"labels":%s},"spec":{"containers":[{"name":"app","image":"registry.example/app:1"}]}},"oldObject":null}}`,
			id, quote(namespace), quote(name), quote(user), quote(name), quote(namespace), labels),
	}
}

// decisionsRecording writes a recording with its configuration beside it if there is one.
func decisionsRecording(t *testing.T, digest string, reviews ...*record.Review) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "all.gatehouse.zst")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := record.NewWriter(file, &record.Header{Format: record.FormatVersion, Source: record.FromServer, Program: "v1", Replica: "replica-1", Config: digest, Redaction: record.Redaction{Key: "k1"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reviews {
		if err := w.Write(&record.Line{Review: r}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour) // nobody writes it
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	if digest != "" {
		if err := os.WriteFile(filepath.Join(dir, record.ConfigurationName(digest)), []byte(decisionsConfig), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// testReviews are a refusal, an injection, a warning, a login, and hostile texts.
func testReviews() []*record.Review {
	refused := podReview(1, "validate", "cart-1", "shop", "anna", "{}")
	refused.Decision = review.Denied
	refused.Response = json.RawMessage(`{"allowed":false,"status":{"message":"AdmissionPolicy 'team-label' denied request: the label team is missing","details":{"causes":[{"reason":"team","message":"AdmissionPolicy 'team-label' denied request: the label team is missing"}]}}}`)
	refused.Lookups = &record.Lookups{Namespaces: []record.NamespaceLookup{{Name: "shop"}}, Objects: []record.ObjectLookup{{Name: "limits", Namespace: "shop", Error: "forbidden"}}, Authorizer: []record.Authorization{{Attributes: "create pods", Decision: "allow"}}}
	withNamespace := &record.Lookups{Namespaces: []record.NamespaceLookup{{Name: "shop"}}}
	injected := podReview(2, "mutate", "cart-2", "shop", "anna", `{"team":"a"}`)
	injected.Response = json.RawMessage(`{"allowed":true,"patch":[{"op":"add","path":"/spec/containers/-","value":{"name":"logs","image":"registry.example/logs:1"}}],"auditAnnotations":{"profiles":"logs=applied"}}`)
	injected.Lookups = withNamespace
	warned := podReview(3, "validate", "pay-3", "billing", "bert", `{"team":"a"}`)
	warned.Response = json.RawMessage(`{"allowed":true,"warnings":["AdmissionPolicy 'limits' denied request: no limits"]}`)
	login := &record.Review{
		ID: "replica-1-4", Time: decidedAt.Add(4 * time.Second), Endpoint: "authenticate", Decision: review.Allowed, Token: &record.Token{Backend: "JWT", Source: "ci-issuer", ID: "token-id"},
		Response: json.RawMessage(`{"status":{"authenticated":true,"user":{"username":"ci","groups":["builders"]}}}`),
	}
	evil := podReview(5, "validate", hostileText, hostileText, hostileText, `{"team":`+string(must(json.Marshal(hostileText)))+`}`)
	evil.ID, evil.Decision = "a/"+hostileText, review.Denied
	evil.Response = must(json.Marshal(map[string]any{"allowed": false, "warnings": []string{hostileText}, "status": map[string]any{"message": hostileText, "details": map[string]any{"causes": []any{map[string]any{"reason": hostileText, "message": "AdmissionPolicy '" + hostileText + "' x"}}}}}))
	return []*record.Review{refused, injected, warned, login, evil}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// newDecisionConsole returns a console that has read its recordings.
func newDecisionConsole(t *testing.T, f flags) *policyConsole {
	t.Helper()
	c := newPolicyConsole(t, f)
	c.await(func(v *logView) bool { return v.IsReady })
	return c
}

// await looks at the recordings until a condition holds.
func (c *policyConsole) await(is func(*logView) bool) {
	c.t.Helper()
	support.Eventually(c.t, "the recordings are read", func() error {
		c.log.look(c.ctx, c.background.Go)
		if v := c.log.view(c.ctx, time.Time{}, time.Time{}); !is(v) {
			return fmt.Errorf("%d decisions, ready %t, live %t, files %+v", v.Count, v.IsReady, v.IsLive, v.Files)
		}
		return nil
	})
}

func TestDecisions(t *testing.T) {
	t.Parallel()
	path := decisionsRecording(t, "", testReviews()...)
	c := newDecisionConsole(t, flags{recordings: []string{path}})
	for _, tt := range []struct {
		name, query string
		status      int
		want, not   []string
	}{
		{"all", "", 200, []string{"5 requests from", "cart-1", "cart-2", "pay-3", "token-id", "AdmissionPolicy/team-label", "record show " + path}, []string{"Pause", "No decision"}},
		{"namespace", "namespace=shop", 200, []string{"2 of 5 requests", "cart-1", "--namespace shop"}, []string{"pay-3"}},
		{"several values", "namespace=shop&namespace=billing", 200, []string{"3 of 5", "--namespace shop --namespace billing"}, nil},
		{"user", "user=bert", 200, []string{"1 of 5", "pay-3"}, []string{"cart-1"}},
		{"outcome", "decision=denied&user=anna", 200, []string{"1 of 5", "cart-1"}, []string{"cart-2"}},
		{"policy", "policy=SidecarProfile/logs", 200, []string{"1 of 5", "cart-2", "--policy SidecarProfile/logs"}, []string{"cart-1"}},
		{"name", "name=CART", 200, []string{"2 of 5", "--name CART"}, []string{"pay-3"}},
		{"time", "since=2026-11-20T12:00:03Z&until=2026-11-20T12:00:04Z", 200, []string{"1 of 5", "pay-3"}, []string{"token-id"}},
		{"nothing", "user=nobody", 200, []string{"0 of 5", "No decision matches the filter"}, nil},
		{"no time", "since=yesterday", 400, []string{"since \"yesterday\": must be a time"}, nil},
		{"page too high", "page=99", 200, []string{"5 requests", "cart-1"}, nil},
		{"forced live", "live=1", 200, []string{"The list is live", "Pause"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := &policyConsole{c.console, t}
			status, page, text := c.get("GET", "/decisions?"+tt.query, nil)
			if status != tt.status {
				t.Errorf("status %d: %s", status, text)
			}
			text = strings.ReplaceAll(text, "&#34;", `"`)
			c.wants(text, tt.want...)
			for _, not := range tt.not {
				if strings.Contains(page, not) {
					t.Errorf("there is %q in %s", not, page)
				}
			}
		})
	}
}

func TestDecision(t *testing.T) {
	t.Parallel()
	recorded := decisionsRecording(t, "abc", testReviews()...)
	bare := decisionsRecording(t, "", testReviews()...)
	shown := writeFiles(t, map[string]string{"all.yaml": strings.Replace(policiesConfig, "variables.team != ''", "true", 1)})
	for _, tt := range []struct {
		name   string
		flags  flags
		target string
		want   []string
		not    []string
	}{
		{
			"refused",
			flags{recordings: []string{recorded}},
			"uid-1",
			[]string{
				"Outcome denied", "answered in 1.23ms", "Who anna", "CREATE Pod shop/cart-1", "endpoint validate , replica replica-1", "the label team is missing",
				"Decided again by the configuration that decided, which is beside the recording: denied .", "AdmissionPolicy team-label refused", "variables.team",
				"name: cart-1", "replay --show uid-1 " + recorded,
			},
			[]string{"This is not the recorded answer"},
		},
		{
			"injected",
			flags{recordings: []string{recorded}},
			"uid-2",
			[]string{"allowed", "patched", "SidecarProfile logs: applied", "What was changed", "image: registry.example/logs:1"},
			nil,
		},
		{"warned", flags{recordings: []string{bare}}, "uid-3", []string{"warned", "denied request: no limits", "It is not decided again: the configuration that decided is not beside the recording", "AdmissionPolicy limits warned"}, nil},
		{"login", flags{recordings: []string{bare}}, "replica-1-4", []string{"What login", "JWT , source ci-issuer , ID token-id", "builders", "Who ci"}, nil},
		{
			"shown configuration",
			flags{recordings: []string{bare}, config: shown},
			"uid-1",
			[]string{"Decided again by the configuration that this console shows: allowed", "This is not the recorded answer", "--config " + shown + " --show uid-1"},
			nil,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newDecisionConsole(t, tt.flags)
			status, page, _ := c.get("GET", "/decisions/"+tt.target, nil)
			text := strings.Join(strings.Fields(html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, " "))), " ")
			if status != 200 {
				t.Fatalf("status %d: %s", status, text)
			}
			c.wants(text, tt.want...)
			for _, not := range tt.not {
				if strings.Contains(text, not) {
					t.Errorf("there is %q in %s", not, text)
				}
			}
		})
	}
	t.Run("not found", func(t *testing.T) {
		t.Parallel()
		c := newDecisionConsole(t, flags{recordings: []string{bare}})
		if status, _, text := c.get("GET", "/decisions/none", nil); status != 404 {
			t.Errorf("status %d: %s", status, text)
		}
	})
	t.Run("another row", func(t *testing.T) {
		t.Parallel()
		c := newDecisionConsole(t, flags{recordings: []string{bare}})
		for query, want := range map[string]int{"file=all.gatehouse.zst&row=1": 404, "file=all.gatehouse.zst&row=9": 404, "file=all.gatehouse.zst&row=0": 200, "file=all.gatehouse.zst": 200, "file=passwd&row=0": 200} {
			if status, _, text := c.get("GET", "/decisions/uid-1?"+query, nil); status != want {
				t.Errorf("%s: status %d: %s", query, status, text)
			}
		}
	})
}

// TestFilterShowsEscapedText filters by the name of a stranger, as the link has it and as the form sends it.
func TestFilterShowsEscapedText(t *testing.T) {
	t.Parallel()
	const user = "gpj\u202eexe\x1b[31m"
	c := newPolicyConsole(t, flags{recordings: []string{decisionsRecording(t, "", podReview(1, "validate", "cart", "shop", user, "{}"))}})
	for _, value := range []string{user, cli.OneLine(user)} {
		support.Eventually(t, "the decision", func() error {
			_, page, text := c.get("GET", "/decisions?"+url.Values{"user": {value}}.Encode(), nil)
			if strings.ContainsAny(page, "\u202e\x1b") || !strings.Contains(page, `value="gpj\u202eexe\x1b[31m"`) || !strings.Contains(text, "1 of 1 requests") {
				return fmt.Errorf("the page is %s", page)
			}
			return nil
		})
	}
}

// TestAllReasonsOfARequest has one row for the calls of a request, with each reason of a refusal and no escaped line break.
func TestAllReasonsOfARequest(t *testing.T) {
	t.Parallel()
	mutate, validate := podReview(1, "mutate", "cart", "shop", "jane", "{}"), podReview(2, "validate", "cart", "shop", "jane", "{}")
	validate.Decision = review.Denied
	message := "6 violations:"
	for n := range 6 {
		message += fmt.Sprintf("\n%d. the reason of rule %d", n+1, n+1)
	}
	validate.Response = json.RawMessage(`{"allowed":false,"status":{"message":` + string(must(json.Marshal(message))) + `}}`)
	c := newPolicyConsole(t, flags{recordings: []string{decisionsRecording(t, "", mutate, validate)}})
	support.Eventually(t, "the request", func() error {
		_, page, text := c.get("GET", "/decisions", nil)
		if !strings.Contains(text, "1 requests") || strings.Count(text, "the reason of rule") != 6 || strings.Contains(page, `\n`) {
			return fmt.Errorf("the page is %s", text)
		}
		return nil
	})
}
