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
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
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

// writeRecording writes a recording with the configuration that decided, unless that is "".
func writeRecording(t *testing.T, configuration string, reviews ...*record.Review) string {
	t.Helper()
	digest := ""
	if configuration != "" {
		digest = "abc"
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "all.gatehouse.zst")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := record.NewWriter(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := []*record.Line{{Header: &record.Header{Format: record.FormatVersion, Program: "v1", Replica: "replica-1"}}}
	if digest != "" {
		lines = append(lines, &record.Line{Config: &record.Configuration{Digest: digest, Documents: configuration}})
	}
	for _, r := range reviews {
		r.Config = digest
		lines = append(lines, &record.Line{Review: r})
	}
	for _, line := range lines {
		text, err := record.AppendLine(nil, line)
		if err == nil {
			_, err = w.Write(text)
		}
		if err != nil {
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
	c.await(func(v *decisionsView) bool { return v.IsReady() })
	return c
}

// await looks at the recordings until a condition holds.
func (c *policyConsole) await(is func(*decisionsView) bool) {
	c.t.Helper()
	support.Eventually(c.t, "the recordings are read", func() error {
		if v := c.lookAtDecisions(); !is(v) {
			return fmt.Errorf("%d decisions, %d of %d files, %q", len(v.Rows), v.Read, v.Files, v.Problems)
		}
		return nil
	})
}

func TestDecisions(t *testing.T) {
	t.Parallel()
	path := writeRecording(t, "", testReviews()...)
	c := newDecisionConsole(t, flags{recordings: []string{path}})
	for _, tt := range []struct {
		name, query string
		status      int
		want, not   []string
	}{
		{"all", "", 200, []string{"5 decisions from", "cart-1", "cart-2", "pay-3", "token-id", "refused: team-label", "record show " + path}, []string{"Pause", "No decision"}},
		{"namespace", "namespace=shop", 200, []string{"2 of 5 decisions", "cart-1", "--namespace shop"}, []string{"pay-3"}},
		{"several values", "namespace=shop&namespace=billing", 200, []string{"3 of 5", "--namespace shop --namespace billing"}, nil},
		{"user", "user=bert", 200, []string{"1 of 5", "pay-3"}, []string{"cart-1"}},
		{"outcome", "decision=denied&user=anna", 200, []string{"1 of 5", "cart-1"}, []string{"cart-2"}},
		{"policy", "policy=SidecarProfile/logs", 200, []string{"1 of 5", "cart-2", "--policy SidecarProfile/logs"}, []string{"cart-1"}},
		{"name", "name=CART", 200, []string{"2 of 5", "--name CART"}, []string{"pay-3"}},
		{"time", "since=2026-11-20T12:00:03Z&until=2026-11-20T12:00:04Z", 200, []string{"1 of 5", "pay-3"}, []string{"token-id"}},
		{"nothing", "user=nobody", 200, []string{"0 of 5", "No decision matches the filter"}, nil},
		{"no time", "since=yesterday", 400, []string{"since \"yesterday\": must be a time"}, nil},
		{"page too high", "page=99", 200, []string{"5 decisions from", "cart-1"}, nil},
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
	recorded := writeRecording(t, decisionsConfig, testReviews()...)
	bare := writeRecording(t, "", testReviews()...)
	shown := writeFiles(t, map[string]string{"all.yaml": strings.Replace(policiesConfig, "variables.team != ''", "true", 1)})
	for _, tt := range []struct {
		name  string
		flags flags
		id    string
		want  []string
	}{
		{"refused", flags{recordings: []string{recorded}}, "uid-1", []string{
			"Outcome denied", "answered in 1.234ms", "Who anna", "CREATE Pod shop/cart-1 , endpoint validate", "the label team is missing",
			"Because of AdmissionPolicy team-label refused", "variables.team", "name: cart-1", "replay --show=uid-1 " + recorded,
		}},
		{"injected", flags{recordings: []string{recorded}}, "uid-2", []string{"Outcome allowed", "SidecarProfile logs", "What was changed", "image: registry.example/logs:1"}},
		{"warned", flags{recordings: []string{bare}}, "uid-3", []string{"denied request: no limits", "cannot decide", "AdmissionPolicy limits warned"}},
		{"login", flags{recordings: []string{bare}}, "replica-1-4", []string{"TokenReview", "id: token-id", "builders", "Who ci"}},
		{"shown configuration", flags{recordings: []string{recorded}, config: shown}, "uid-1", []string{"by the configuration that decided", "by " + shown, "after: allowed", "--config " + shown}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newDecisionConsole(t, tt.flags)
			status, page, _ := c.get("GET", "/decisions/review?file=all.gatehouse.zst&id="+tt.id, nil)
			text := strings.Join(strings.Fields(html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, " "))), " ")
			if status != 200 {
				t.Fatalf("status %d: %s", status, text)
			}
			c.wants(text, tt.want...)
		})
	}
	t.Run("not found", func(t *testing.T) {
		t.Parallel()
		c := newDecisionConsole(t, flags{recordings: []string{bare}})
		for _, query := range []string{"file=all.gatehouse.zst&id=none", "file=all.gatehouse.zst&id=uid", "file=passwd&id=uid-1", ""} {
			if status, _, text := c.get("GET", "/decisions/review?"+query, nil); status != 404 {
				t.Errorf("%s: status %d: %s", query, status, text)
			}
		}
	})
}

// TestFilterShowsEscapedText filters by the name of a stranger, as the link has it and as the form sends it.
func TestFilterShowsEscapedText(t *testing.T) {
	t.Parallel()
	const user = "gpj\u202eexe\x1b[31m"
	c := newPolicyConsole(t, flags{recordings: []string{writeRecording(t, "", podReview(1, "validate", "cart", "shop", user, "{}"))}})
	for _, value := range []string{user, cli.OneLine(user)} {
		support.Eventually(t, "the decision", func() error {
			_, page, text := c.get("GET", "/decisions?"+url.Values{"user": {value}}.Encode(), nil)
			if strings.ContainsAny(page, "\u202e\x1b") || !strings.Contains(page, `value="gpj\u202eexe\x1b[31m"`) || !strings.Contains(text, "1 of 1 decisions") {
				return fmt.Errorf("the page is %s", page)
			}
			return nil
		})
	}
}

// TestRecordingsChange: a file that grows is read again, one that has no end is none of the problems, and one that is removed is gone.
func TestRecordingsChange(t *testing.T) {
	t.Parallel()
	whole, err := os.ReadFile(writeRecording(t, "", testReviews()...))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("1-a.gatehouse.zst", whole[:len(whole)-10])
	write("2-b.gatehouse.zst", whole)
	write("3-c.gatehouse.zst", []byte("no recording"))
	c := newDecisionConsole(t, flags{recordings: []string{dir}})
	c.await(func(v *decisionsView) bool {
		return v.IsReady() && v.IsLive && len(v.Rows) == 5 && len(v.Problems) == 1 && strings.Contains(v.Problems[0], "is no recording")
	})
	write("1-a.gatehouse.zst", whole)
	c.await(func(v *decisionsView) bool { return len(v.Rows) == 10 && len(v.Problems) == 1 })
	if err := os.Remove(filepath.Join(dir, "2-b.gatehouse.zst")); err != nil {
		t.Fatal(err)
	}
	c.await(func(v *decisionsView) bool { return len(v.Rows) == 5 && v.Files == 2 })
}

// TestNewestAreKept: of more rows than are kept, the newest stay.
func TestNewestAreKept(t *testing.T) {
	t.Parallel()
	var l recordings
	for file := range 3 {
		var rows []*row
		for n := range maxRows / 2 {
			rows = append(rows, &row{Time: decidedAt.Add(time.Duration(3*n+file) * time.Second), file: fmt.Sprint(file)})
		}
		l.replace(fmt.Sprint(file), rows)
	}
	last := decidedAt.Add(time.Duration(3*(maxRows/2-1)+2) * time.Second)
	if !l.isDropped || len(l.rows) != maxRows || !l.rows[maxRows-1].Time.Equal(last) {
		t.Errorf("%d rows, dropped %t, the newest of %s", len(l.rows), l.isDropped, l.rows[len(l.rows)-1].Time)
	}
}

// A violation is shown once: the policy with its rules, and what the answer says about it below.
func TestReasons(t *testing.T) {
	t.Parallel()
	denied := func(name, rule string) cause { return cause{"AdmissionPolicy", name, rule, "refused"} }
	for name, c := range map[string]struct {
		row  row
		want []reason
	}{
		"nothing": {row{}, nil},
		"one violation": {
			row{Message: "AdmissionPolicy 'a' denied request: no label", Causes: []cause{denied("a", "label")}},
			[]reason{{"AdmissionPolicy", "a", "refused", []string{"label"}, []string{"no label"}}},
		},
		"several of two policies": {
			row{
				Message: "3 violations: 1. AdmissionPolicy 'a' denied request: no label\n2. AdmissionPolicy 'b' with binding 'a' denied request: x: y\n3. AdmissionPolicy 'a' denied request: no team",
				Causes:  []cause{denied("a", "label"), denied("a", "team"), denied("b", "")},
			},
			[]reason{
				{"AdmissionPolicy", "a", "refused", []string{"label", "team"}, []string{"no label", "no team"}},
				{"AdmissionPolicy", "b", "refused", nil, []string{"x: y"}},
			},
		},
		"a warning of nobody": {
			row{Warnings: []string{"deprecated"}, Causes: []cause{{"SidecarProfile", "logs", "", "injected"}}},
			[]reason{{"SidecarProfile", "logs", "injected", nil, nil}, {Texts: []string{"deprecated"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := c.row.Reasons(); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
