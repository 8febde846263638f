package audit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
)

// entries is a sink that writes a line for each violation: its status, rule and entry, or why there is none, and whether the object makes
// no pod any more.
type entries struct{ lines []string }

func (*entries) Object(audit.Object) {}

func (*entries) Injection(audit.Object, string, audit.Injection) {}

func (e *entries) Result(r audit.Result) {
	about := r.NotCovered
	if r.Entry != nil {
		about, _, _ = strings.Cut(r.Entry.String(), "@")
	}
	line := fmt.Sprintf("%s %s %s: %s", r.Status, r.Object.Kind, r.Object.Name, about)
	if r.HasEnded {
		line += ", ended"
	}
	if r.Baseline != "" {
		line += " (" + r.Baseline + ")"
	}
	e.lines = append(e.lines, line)
}

// TestEntries: with Options.Entries a violation has its entry, or the reason why it has none, and what a baseline allows is skipped.
func TestEntries(t *testing.T) {
	t.Parallel()
	server := func() *fakeapi.Server {
		s := fakeapi.New(pods, namespaces, deployments, resource("apps", "v1", "replicasets", "ReplicaSet", true), resource("batch", "v1", "jobs", "Job", true))
		const spec = `spec: {containers: [{name: a, image: bad/x}]}`
		owned := func(kind, name string) string {
			return `ownerReferences: [{apiVersion: apps/v1, kind: ` + kind + `, name: ` + name + `, uid: u, controller: true}]`
		}
		replicaSet := func(name, replicas string) string {
			return `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web-` + name + `, namespace: shop, ` + owned("Deployment", "web") + `}, spec: {replicas: ` + replicas +
				`, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b, pod-template-hash: ` + name + `}}, ` + spec + `}}}`
		}
		job := func(name, status string) string {
			return `{apiVersion: batch/v1, kind: Job, metadata: {name: ` + name + `, namespace: shop}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: bad/x}]}}}, status: ` + status + `}`
		}
		put(
			t, s, `{apiVersion: v1, kind: Namespace, metadata: {name: shop}}`,
			`{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, `+spec+`}}}`,
			replicaSet("5d4f7", "0"), replicaSet("7c9b8", "2"),
			`{apiVersion: v1, kind: Pod, metadata: {name: web-7c9b8-x, namespace: shop, labels: {a: b, pod-template-hash: 7c9b8}, `+owned("ReplicaSet", "web-7c9b8")+`}, `+spec+`}`,
			`{apiVersion: v1, kind: Pod, metadata: {name: bare, namespace: shop}, `+spec+`, status: {phase: Succeeded}}`,
			job("one", `{conditions: [{type: Complete, status: "True"}]}`), job("two", `{active: 1}`),
		)
		return s
	}
	images := policyOf("images", "pods", `validations: [{name: registry, expression: "object.spec.containers.all(c, c.image.startsWith('good/'))"}]`)
	teams := strings.Replace(policyOf("teams", "pods", `validations: [{expression: "'team' in namespaceObject.metadata.?labels.orValue({})"}]`), "matchConstraints: {", "workloadTemplates: Ignore, matchConstraints: {objectSelector: {matchLabels: {a: b}}, ", 1)
	run := func(documents ...string) (lines, found []string) {
		var e entries
		o := options(t, server(), documents...)
		o.Entries = true
		if _, err := audit.Run(t.Context(), o, collecting{&e, &found}); err != nil {
			t.Fatal(err)
		}
		return e.lines, found
	}
	got, found := run(images, teams)
	want := []string{
		"fail Deployment web: shop/Deployment/web", "fail Job one: shop/Job/one, ended", "fail Job two: shop/Job/two", "fail Pod bare: shop/Pod/bare, ended",
		"fail Pod web-7c9b8-x: it reads namespaceObject", "fail Pod web-7c9b8-x: shop/Deployment/web",
		"fail ReplicaSet web-5d4f7: shop/Deployment/web, ended", "fail ReplicaSet web-7c9b8: shop/Deployment/web",
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// The Deployment, its ReplicaSets and its pods have one entry.
	slices.Sort(found)
	if distinct := slices.Compact(slices.Clone(found)); len(found) != 7 || len(distinct) != 4 {
		t.Errorf("got the entries\n%s", strings.Join(found, "\n"))
	}
	allowed := `{apiVersion: gatehouse.dev/v1alpha1, kind: PolicyBaseline, metadata: {name: b, namespace: gatehouse-system}, spec: {reason: old, expiresAt: "2099-01-01T00:00:00Z", rules: [
  {kind: AdmissionPolicy, policy: images, rule: "validations[registry]", entries: ["` + found[0] + `"]}]}}`
	got, again := run(images, allowed)
	if slices.Sort(again); !slices.Equal(again, found) {
		t.Errorf("with a baseline, the entries are\n%s\nwant\n%s", strings.Join(again, "\n"), strings.Join(found, "\n"))
	}
	skipped := slices.DeleteFunc(got, func(line string) bool { return !strings.HasPrefix(line, "skip ") })
	if len(skipped) != 4 || slices.ContainsFunc(skipped, func(line string) bool {
		return !strings.HasSuffix(line, " (gatehouse-system/b)") || !strings.Contains(line, "shop/Deployment/web")
	}) {
		t.Errorf("the baseline allows\n%s", strings.Join(skipped, "\n"))
	}
}

// collecting is a sink that collects entries for another one.
type collecting struct {
	audit.Sink
	entries *[]string
}

func (c collecting) Result(r audit.Result) {
	if r.Entry != nil {
		*c.entries = append(*c.entries, r.Entry.String())
	}
	c.Sink.Result(r)
}
