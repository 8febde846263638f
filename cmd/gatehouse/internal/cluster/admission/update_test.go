package admission_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	crdadmission "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/admission"
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

// TestAnyOrder applies objects that depend on each other, the last first.
func TestAnyOrder(t *testing.T) {
	t.Parallel()
	for _, document := range []string{
		exception("gatehouse-system", "{policies: [{name: p, rules: ['validations[0]']}], match: {names: [a]}, reason: r}"),
		binding("{policyName: p, validationActions: [Deny], paramRef: {name: x, namespace: default, parameterNotFoundAction: Deny}}"),
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
			r := crdadmission.New(func() *config.Config { return c })
			return text(t, r.Review(t.Context(), about(t, document, ""), true))
		}
		with, without := ask(configOf(t, ci, stopped)), ask(configOf(t))
		if with != without || with != "allowed\n" {
			t.Errorf("%s\nis answered with %q where there is such a token, and with %q where there is none", document, with, without)
		}
	}
}

// TestTooLate gives no answer when the time is over.
func TestTooLate(t *testing.T) {
	t.Parallel()
	c := configOf(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	r := crdadmission.New(func() *config.Config {
		cancel(errors.New("the time is over"))
		return c
	})
	for range 3 { // while it works, and before
		if got := text(t, r.Review(ctx, about(t, profile("a", "a", ""), ""), true)); got != "cannot decide: no decision in time: the time is over" {
			t.Errorf("got %s", got)
		}
	}
	if got := text(t, r.Review(t.Context(), about(t, profile("a", "a", ""), ""), true)); got != "allowed\n" {
		t.Errorf("got %s", got)
	}
}
