package admission_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	crdadmission "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/admission"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// broken is a profile that does not compile.
const broken = head + "kind: SidecarProfile\nmetadata: {name: a}\nspec: {injection: Maybe}\n"

// TestWhatIsAlwaysAllowed has requests about a broken object that change nothing
// of what it says, and such as are not about objects at all.
func TestWhatIsAlwaysAllowed(t *testing.T) {
	t.Parallel()
	with := func(metadata string) string {
		return strings.Replace(broken, "{name: a}", "{name: a, "+metadata+"}", 1)
	}
	refused := "is invalid"
	for _, tc := range []struct {
		name          string
		document, old string
		operation     admissionv1.Operation
		resource, sub string
		want          string
	}{
		{name: "a creation", document: broken, want: refused},
		{name: "nothing changes", document: broken, old: broken, want: "allowed\n"},
		{name: "labels", document: with("labels: {a: b}"), old: broken, want: "allowed\n"},
		{name: "annotations and managed fields", document: with("annotations: {a: b}, managedFields: [{manager: x}]"), old: with("managedFields: []"), want: "allowed\n"},
		{name: "a finalizer", document: with("deletionTimestamp: '2026-01-01T00:00:00Z'"), old: with("deletionTimestamp: '2026-01-01T00:00:00Z', finalizers: [x]"), want: "allowed\n"},
		{name: "its spec, on its way out", document: with("deletionTimestamp: '2026-01-01T00:00:00Z'") + "x: 1\n", old: with("deletionTimestamp: '2026-01-01T00:00:00Z'"), want: "allowed\n"},
		{name: "no deletion", document: with("deletionTimestamp: null") + "x: 1\n", old: broken, want: refused},
		{name: "a creation that says it goes", document: with("deletionTimestamp: '2026-01-01T00:00:00Z'"), want: refused},
		{name: "status", document: broken + "status: {observedGeneration: 2}\n", old: broken, want: "allowed\n"},
		{name: "the status subresource", document: broken + "x: 1\n", old: broken, sub: "status", want: "allowed\n"},
		{name: "no better", document: strings.Replace(broken, "Maybe", "Perhaps", 1), old: broken, want: refused},
		{name: "mended", document: profile("a", "a", ""), old: broken, want: "allowed\n"},
		{name: "deletion", document: broken, operation: admissionv1.Delete, want: "allowed\n"},
		{name: "another resource", document: broken, resource: "tests", want: "allowed\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			req := about(t, tc.document, tc.old)
			if tc.operation != "" {
				req.Operation = tc.operation
			}
			if tc.resource != "" {
				req.Resource.Resource = tc.resource
			}
			req.SubResource = tc.sub
			if got := text(t, reviewer(configOf(t)).Review(t.Context(), req, true)); got != tc.want && (tc.want != refused || !strings.Contains(got, refused)) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
	t.Run("another group", func(t *testing.T) {
		t.Parallel()
		req := about(t, broken, "")
		req.Resource.Group = "example.com"
		if got := text(t, reviewer(configOf(t)).Review(t.Context(), req, true)); got != "allowed\n" {
			t.Errorf("got %s", got)
		}
	})
}

// TestBrokenNeighbours lets an object be mended whatever is wrong with others.
func TestBrokenNeighbours(t *testing.T) {
	t.Parallel()
	neighbours := []string{
		strings.Replace(broken, "{name: a}", "{name: broken}", 1),
		profile("v", "v", "  placement: {before: [w]}\n"), profile("w", "w", "  placement: {before: [v]}\n"),
		profile("one", "same", ""), profile("two", "same", ""),
		admissionPolicy("broken", "  validations: [{expression: 'object.'}]\n"),
		binding("broken", "{policyName: p}"),
		exception("gatehouse-system", "broken", "{policies: [{name: p}], match: {}, reason: r}"),
		token("broken", "{sha256: x, user: {username: ''}, expiresAt: '2099-01-01T00:00:00Z'}"),
		revocation("broken", "{user: ''}"),
	}
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(strings.Join(neighbours, "\n---\n")), 0o600))
	c, _ := config.Inspect(dir)
	for _, tc := range []struct{ name, document, want string }{
		{"a profile", profile("a", "a", ""), "allowed\n"},
		{"a part of a circle", profile("w", "w", ""), "allowed\n"},
		{"still a part of it", profile("w", "z", "  placement: {before: [v]}\n"), "SidecarProfile \"w\" is invalid: spec: breaks SidecarProfile/v: spec.placement: the placement of profiles has a cycle: v before w before v\n"},
		{"one of the same", profile("two", "other", ""), "allowed\n"},
		{"a policy", admissionPolicy("p", rules+deny), "allowed\n"},
		{"the broken policy", admissionPolicy("broken", rules+deny), "allowed\n"},
		{"a binding of a broken policy", binding("b", "{policyName: broken, validationActions: [Deny]}"), "allowed\n"},
		{"an exception from a broken policy", exception("gatehouse-system", "x", "{policies: [{name: broken, rules: ['validations[0]']}], match: {names: [a]}, reason: r}"), "allowed\n"},
		{"a token", token("ci", "{sha256: "+hash+", user: {username: ci}, expiresAt: '2099-01-01T00:00:00Z'}"), "allowed\n"},
		{"a revocation", revocation("r", "{user: jane, issuedBefore: '2020-01-01T00:00:00Z'}"), "allowed\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := text(t, reviewer(c).Review(t.Context(), about(t, tc.document, ""), true)); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// TestAnyOrder applies objects that depend on each other, the last first.
func TestAnyOrder(t *testing.T) {
	t.Parallel()
	for _, document := range []string{
		exception("gatehouse-system", "x", "{policies: [{name: p, rules: ['validations[0]']}], match: {names: [a]}, reason: r}"),
		binding("b", "{policyName: p, validationActions: [Deny], paramRef: {name: x, namespace: default, parameterNotFoundAction: Deny}}"),
		admissionPolicy("p", rules+"  paramKind: {apiVersion: v1, kind: ConfigMap}\n"),
		profile("canary", "mesh", "  rollout: {percent: 10, replaces: mesh}\n  placement: {after: [logs]}\n"),
		profile("mesh", "mesh", "  presets: [{name: p, configMap: {namespace: mesh, name: c}}]\n"),
		revocation("r", "{user: jane, issuedBefore: '2020-01-01T00:00:00Z'}"),
	} {
		if got := text(t, reviewer(configOf(t)).Review(t.Context(), about(t, document, ""), true)); !strings.HasPrefix(got, "allowed\n") {
			t.Errorf("%s\nalone is refused: %s", document, got)
		}
	}
}

// TestNotSent adds what the caller remarks.
func TestNotSent(t *testing.T) {
	t.Parallel()
	c := configOf(t)
	r := crdadmission.New(crdadmission.Options{
		Current: func() *config.Config { return c },
		NotSent: func(any) []string { return []string{"it is not sent", "it is not sent"} },
	})
	want := "allowed\nwarning: AdmissionPolicy/p: it is not sent\n"
	if got := text(t, r.Review(t.Context(), about(t, admissionPolicy("p", rules+deny), ""), true)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestBesideADirectory warns of what a document of the directory stands in for.
func TestBesideADirectory(t *testing.T) {
	t.Parallel()
	for _, document := range []string{
		profile("a", "a", ""), admissionPolicy("p", rules+deny),
		exception("gatehouse-system", "x", "{policies: [{name: p}], match: {names: [a]}, reason: r}"),
		binding("b", "{policyName: p, validationActions: [Deny]}"),
	} {
		c := configOf(t, document, admissionPolicy("q", rules+deny))
		r := crdadmission.New(crdadmission.Options{Current: func() *config.Config { return c }})
		got := text(t, r.Review(t.Context(), about(t, document, ""), true))
		if !strings.HasPrefix(got, "allowed\n") || !strings.Contains(got, `: the configuration directory has a document of the same name, in "all.yaml#1", which takes precedence`) {
			t.Errorf("%s: got %s", document, got)
		}
	}
}

// TestAnswersDoNotTellWhoHasTokens asks about tokens and revocations, as anybody who reaches the port can, with and without
// a token of that id and that user.
func TestAnswersDoNotTellWhoHasTokens(t *testing.T) {
	t.Parallel()
	ci := token("ci", "{sha256: "+hash+", user: {username: ci}, expiresAt: '2099-01-01T00:00:00Z'}")
	stopped := revocation("r", "{user: ci, issuedBefore: '2020-01-01T00:00:00Z'}")
	for _, document := range []string{
		token("ci", "{sha256: "+strings.Repeat("a", 64)+", user: {username: x}, expiresAt: '2099-01-01T00:00:00Z'}"),
		revocation("r", "{user: nobody, issuedBefore: '2020-01-01T00:00:00Z'}"),
		revocation("s", "{user: ci, issuedBefore: '2020-01-01T00:00:00Z'}"),
	} {
		ask := func(c *config.Config) string {
			// All names are those of tokens or begin so.
			c.Authn.Directories = []authn.NamedDirectory{{Config: &v1alpha1.Directory{Name: "corp", UsernamePrefix: "corp:"}}}
			r := crdadmission.New(crdadmission.Options{Current: func() *config.Config { return c }})
			return text(t, r.Review(t.Context(), about(t, document, ""), true))
		}
		with, without := ask(configOf(t, ci, stopped)), ask(configOf(t))
		if with != without || with != "allowed\n" {
			t.Errorf("%s\nis answered with %q where there is such a token, and with %q where there is none", document, with, without)
		}
	}
}

// TestTooLate gives no answer when the time is over, and takes no further work
// while what it was for goes on.
func TestTooLate(t *testing.T) {
	t.Parallel()
	c := configOf(t)
	var calls atomic.Int32
	release, entered := make(chan struct{}), make(chan struct{}, 100)
	r := crdadmission.New(crdadmission.Options{Current: func() *config.Config {
		if calls.Add(1) <= 2 {
			entered <- struct{}{}
			<-release
		}
		return c
	}})
	req := about(t, profile("a", "a", ""), "")
	for range 2 {
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			<-entered
			cancel(errors.New("the time is over"))
		}()
		if got := text(t, r.Review(ctx, req, true)); got != "cannot decide: no decision in time: the time is over" {
			t.Errorf("got %s", got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := text(t, r.Review(ctx, req, true)); got != "cannot decide: no decision in time: context canceled" {
		t.Errorf("got %s", got)
	}
	if n := calls.Load(); n != 2 {
		t.Errorf("%d reviews were worked on, want 2", n)
	}
	close(release)
	if got := text(t, r.Review(t.Context(), req, true)); got != "allowed\n" {
		t.Errorf("got %s", got)
	}
}

// TestPanic lets the caller know of a panic, and goes on.
func TestPanic(t *testing.T) {
	t.Parallel()
	c := configOf(t)
	var calls atomic.Int32
	r := crdadmission.New(crdadmission.Options{Current: func() *config.Config {
		if calls.Add(1) <= 5 {
			panic("oh")
		}
		return c
	}})
	req := about(t, profile("a", "a", ""), "")
	for range 5 {
		func() {
			defer func() {
				if got, _ := recover().(string); !strings.HasPrefix(got, "oh\n") || !strings.Contains(got, "goroutine") {
					t.Errorf("panicked with %q", got)
				}
			}()
			r.Review(t.Context(), req, true)
		}()
	}
	if got := text(t, r.Review(t.Context(), req, true)); got != "allowed\n" {
		t.Errorf("got %s", got)
	}
}
