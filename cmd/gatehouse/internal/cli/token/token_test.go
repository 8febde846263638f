package token

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

var tokenNoon = time.Date(2026, 11, 20, 12, 0, 0, 500, time.UTC)

func newTokenFlags(edit func(*tokenFlags)) *tokenFlags {
	f := &tokenFlags{
		id: "ci", user: "jane", ttl: 24 * time.Hour, output: "yaml",
		now: func() time.Time { return tokenNoon }, random: new(support.Counter),
	}
	if edit != nil {
		edit(f)
	}
	return f
}

func TestTokenIssueJSON(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		var out, remarks bytes.Buffer
		f := newTokenFlags(func(f *tokenFlags) { f.config, f.output = dir, "json" })
		if err := f.issue(t.Context(), cli.Streams{Out: &out, Err: &remarks}); err != nil {
			t.Fatal(err)
		}
		var got map[string]json.RawMessage
		if err := json.Unmarshal(out.Bytes(), &got); err != nil || len(got) != 2 {
			t.Fatalf("%v: %s", err, &out)
		}
		document, err := yaml.JSONToYAML(got["document"])
		if err != nil || string(document) != clitest.CIDocument || string(got["token"]) != `"`+clitest.CIToken+`"` {
			t.Errorf("%v: %s", err, &out)
		}
		if remarks.Len() > 0 {
			t.Errorf("remarks: %q", &remarks)
		}
	}
}

// What the command writes is what the server reads, with every flag.
func TestTokenIssueIsAccepted(t *testing.T) {
	var out, remarks bytes.Buffer
	cmd := NewCommand(cli.Streams{Out: &out, Err: &remarks})
	cmd.SetArgs([]string{
		"issue", "--user", "jane", "--uid", "4711", "--group", "dev", "--group", "a,b",
		"--extra", "example.org/team=blue", "--extra", "example.org/team=green=ish", "--extra", "example.org/empty=",
		"--audience", "https://kubernetes.default.svc", "--audience", "vault",
	})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	var document v1alpha1.AccessToken
	if err := yaml.UnmarshalStrict(out.Bytes(), &document); err != nil {
		t.Fatal(err)
	}
	if len(document.Name) != 12 {
		t.Errorf("id %q, want 12 characters", document.Name)
	}
	end := document.Spec.ExpiresAt.Time
	set, err := authn.Compile(authn.Spec{
		Tokens: []authn.Token{{AccessToken: document}},
		Now:    func() time.Time { return end.Add(-30*24*time.Hour + 2*time.Second) },
	})
	if err != nil {
		t.Fatal(err)
	}
	got := set.Decide(t.Context(), authn.Input{Token: strings.TrimSuffix(remarks.String(), "\n"), Audiences: []string{"vault"}})
	want := authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{"vault"}, User: authenticationv1.UserInfo{
		Username: "jane", UID: "4711", Groups: []string{"dev", "a,b"},
		Extra: map[string]authenticationv1.ExtraValue{"example.org/team": {"blue", "green=ish"}, "example.org/empty": {""}},
	}}
	if !reflect.DeepEqual(got.Status, want) {
		t.Errorf("got %+v\nwant %+v", got.Status, want)
	}
}

func TestTokenIssueRefusals(t *testing.T) {
	cases := []struct {
		name string
		edit func(*tokenFlags)
		code int
		says []string
	}{
		{"reserved group", func(f *tokenFlags) { f.groups = []string{"dev", "system:masters"} }, cli.ExitNo, []string{
			`no token was issued:`, `AccessToken/ci: spec.user.groups[1]: "system:masters" is reserved`,
		}},
		{"everything at once", func(f *tokenFlags) {
			f.id, f.user, f.audiences, f.extra = "CI", " System:Anonymous", []string{""}, []string{"k8s.io/a=b"}
		}, cli.ExitNo, []string{
			`metadata.name: "CI" must be a DNS-1123 label`, `spec.user.username: " System:Anonymous" is reserved`,
			`spec.audiences[0]`, `spec.user.extra["k8s.io/a"]`,
		}},
		{"empty user", func(f *tokenFlags) { f.user = "" }, cli.ExitNo, []string{`spec.user.username: "" must not be empty`}},
		{"id that leaves the directory", func(f *tokenFlags) { f.id = "../x" }, cli.ExitNo, []string{`metadata.name: "../x" must be a DNS-1123 label`}},
		{"no time", func(f *tokenFlags) { f.ttl = 0 }, cli.ExitUnknown, []string{"--ttl 0s: must be a second or more"}},
		{"negative time", func(f *tokenFlags) { f.ttl = -time.Hour }, cli.ExitUnknown, []string{"--ttl -1h0m0s"}},
		{"extra without a value", func(f *tokenFlags) { f.extra = []string{"a", "b=c", "d"} }, cli.ExitUnknown, []string{`--extra "a": must be KEY=VALUE`, `--extra "d"`}},
		{"all flags at once", func(f *tokenFlags) { f.extra, f.ttl = []string{"a"}, 0 }, cli.ExitUnknown, []string{
			"--extra \"a\": must be KEY=VALUE (hint: --extra example.org/team=blue)\n--ttl 0s: must be a second or more",
		}},
		{"no directory", func(f *tokenFlags) { f.config = filepath.Join(f.config, "none") }, cli.ExitUnknown, []string{"--config: ", "no such file"}},
		{"too little randomness", func(f *tokenFlags) { f.random = strings.NewReader("0123456789") }, cli.ExitUnknown, []string{"random bytes: "}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			f := newTokenFlags(func(f *tokenFlags) { f.config = dir })
			c.edit(f)
			var out, remarks bytes.Buffer
			err := f.issue(t.Context(), cli.Streams{Out: &out, Err: &remarks})
			if err == nil {
				t.Fatal("a token was issued")
			}
			code := cli.ExitUnknown
			if exit, ok := errors.AsType[*cli.ExitError](err); ok {
				code = exit.Code
			}
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, want := range c.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nlacks %q", err, want)
				}
			}
			if out.Len()+remarks.Len() > 0 {
				t.Errorf("something was printed: %q %q", &out, &remarks)
			}
			if entries, _ := os.ReadDir(dir); len(entries) > 0 {
				t.Errorf("something was written: %v", entries)
			}
		})
	}
}

// failing is a pipe whose reader has gone.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// A token that could not be shown is lost, so its document must not stay.
func TestTokenIssueTakesBackWhatNobodySaw(t *testing.T) {
	dir := t.TempDir()
	err := newTokenFlags(func(f *tokenFlags) { f.config = dir }).issue(t.Context(), cli.Streams{Out: failing{}, Err: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "broken pipe") {
		t.Errorf("got %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("left behind: %v", entries)
	}
}

// A token in a cluster is called good once a server has said so, and not before.
func TestTokenListOfTokensNobodyReportedOf(t *testing.T) {
	t.Parallel()
	token := func(name, group, expires, status string) string {
		return fmt.Sprintf(`{"apiVersion":"gatehouse.dev/v1alpha1","kind":"AccessToken","metadata":{"name":%q,"generation":1,"creationTimestamp":"2026-11-20T12:00:00Z"},`+
			`"spec":{"sha256":"%064d","user":{"username":"jane","groups":[%q]},"expiresAt":%q}%s}`, name, 1, group, expires, status)
	}
	const (
		later    = "2999-01-01T00:00:00Z"
		compiled = `,"status":{"conditions":[{"type":"Compiled","status":"True","observedGeneration":1,"reason":"Compiled","message":"","lastTransitionTime":"2026-11-20T12:00:00Z"}]}`
	)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		items, kind := "", "TokenRevocation"
		if strings.HasSuffix(r.URL.Path, "/accesstokens") {
			kind = "AccessToken"
			items = strings.Join([]string{
				token("used", "devs", later, compiled), token("new", "devs", later, ""), token("root", "system:masters", later, ""), token("over", "devs", "2026-11-20T13:00:00Z", ""),
			}, ",")
		}
		_, _ = fmt.Fprintf(w, `{"apiVersion":"gatehouse.dev/v1alpha1","kind":"%sList","metadata":{},"items":[%s]}`, kind, items)
	}))
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"clusters":[{"name":"c","cluster":{"server":"` + server.URL + `"}}],"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := clitest.Run(t.Context(), "", []string{"token", "list", "--kubeconfig", kubeconfig}, NewCommand)
	var states []string
	for line := range strings.Lines(got.Out) {
		fields := strings.Fields(line)
		states = append(states, fields[0]+" "+fields[len(fields)-1])
	}
	if want := []string{"ID STATE", "new pending", "over expired", "root pending", "used good"}; got.Code != cli.ExitYes || !slices.Equal(states, want) {
		t.Errorf("exit code %d, states %q, want %q", got.Code, states, want)
	}
	if got.Err != "" {
		t.Errorf("standard error is %q", got.Err)
	}
}

// TestTokenIssueWaits: a token is shown when every replica accepts it, or with what is known.
func TestTokenIssueWaits(t *testing.T) {
	t.Parallel()
	condition := func(kind, status, message string) map[string]any {
		return map[string]any{"type": kind, "status": status, "reason": "X", "message": message, "observedGeneration": int64(1)}
	}
	for name, c := range map[string]struct {
		wait   bool
		status []any // the conditions of one reading after the other, the last one for ever
		err    error
		reads  int
		want   string // the error
		says   string // on standard error
	}{
		"everywhere at once": {wait: true, status: []any{condition("Ready", "True", "")}, reads: 1},
		"later":              {wait: true, status: []any{nil, condition("Ready", "Unknown", "b waits"), condition("Ready", "True", "")}, reads: 3},
		"without waiting":    {status: []any{nil}},
		"no report":          {wait: true, status: []any{nil}, want: "it is unknown whether every replica accepts it: no replica has reported on it"},
		"not everywhere":     {wait: true, status: []any{condition("Ready", "Unknown", "b waits")}, want: "it is unknown whether every replica accepts it: b waits"},
		"refused":            {wait: true, status: []any{condition("Compiled", "False", "spec.x: wrong")}, want: "the token was issued, and no replica accepts it: spec.x: wrong"},
		"no right":           {wait: true, err: apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("accesstokens").GroupResource(), "ci", nil), reads: 1, says: "cannot decide whether every replica accepts the token yet: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := fakeapi.New(
				fakeapi.Resource{GroupVersionResource: v1alpha1.GroupVersion.WithResource("accesstokens"), Kind: "AccessToken"},
				fakeapi.Resource{GroupVersionResource: v1alpha1.GroupVersion.WithResource("tokenrevocations"), Kind: "TokenRevocation"},
			)
			reads := 0
			api.Intercept = func(r *fakeapi.Request) (any, error) {
				if r.Verb != "get" || r.Resource != "accesstokens" {
					return nil, nil
				}
				found := c.status
				if reads++; c.err != nil {
					return nil, c.err
				}
				conditions := []any{}
				if one := found[min(reads, len(found))-1]; one != nil {
					conditions = append(conditions, one)
				}
				return map[string]any{
					"apiVersion": v1alpha1.GroupVersion.String(), "kind": "AccessToken", "metadata": map[string]any{"name": "ci", "generation": int64(1)},
					"status": map[string]any{"conditions": conditions},
				}, nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			var out, remarks bytes.Buffer
			f := newTokenFlags(func(f *tokenFlags) { f.wait, f.Kubeconfig = c.wait, fakeapi.Kubeconfig(t, api) })
			err := f.issue(ctx, cli.Streams{Out: &out, Err: &remarks})
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("the error is %v, want %q", err, c.want)
			}
			if out.String() != clitest.CIToken+"\n" || !strings.Contains(remarks.String(), c.says) || c.reads > 0 && reads != c.reads {
				t.Errorf("after %d readings it shows %q and %q", reads, &out, &remarks)
			}
		})
	}
}
