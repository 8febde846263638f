package policy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/defaults"
	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/baseline"
)

const (
	imagesRule = `validations: [{name: images, expression: "object.spec.containers.all(c, c.image.startsWith('good/'))", message: good images only}]`

	baselineNamespace = "gatehouse-system"
)

func imagesName() baseline.RuleName {
	return baseline.RuleName{Kind: "AdmissionPolicy", Policy: "pods", Rule: "validations[images]"}
}

func baselineNow() time.Time { return time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC) }

// violationsOf returns the violations of the creation of an object with their entries.
func violationsOf(t testing.TB, set *policy.Set, object string) []policy.Violation {
	t.Helper()
	d := set.Decide(context.Background(), policy.Input{Request: review(t, object), Entries: true})
	if d.Err != nil {
		t.Fatal(d.Err)
	}
	return d.Violations
}

// entry returns the entry of the only violation of an object.
func entry(t testing.TB, set *policy.Set, object string) baseline.Entry {
	t.Helper()
	all := violationsOf(t, set, object)
	if len(all) != 1 || all[0].Entry == nil {
		t.Fatalf("got %+v of %s", all, object)
	}
	return *all[0].Entry
}

// baselineOf returns a baseline of the violations of objects.
func baselineOf(t testing.TB, set *policy.Set, expires time.Time, objects ...string) policy.Baseline {
	t.Helper()
	document := &v1alpha1.PolicyBaseline{
		ObjectMeta: metav1.ObjectMeta{Name: "strict", Namespace: baselineNamespace},
		Spec:       v1alpha1.PolicyBaselineSpec{Reason: "rollout", ExpiresAt: metav1.NewTime(expires)},
	}
	for _, object := range objects {
		for _, v := range violationsOf(t, set, object) {
			document.Spec.Rules = append(document.Spec.Rules, v1alpha1.BaselineRule{Kind: v.Kind, Policy: v.Policy, Rule: v.Rule, Entries: []string{v.Entry.String()}})
		}
	}
	b, problems := policy.NewBaseline(document)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return *b
}

// withBaselines compiles documents with baselines.
func withBaselines(t testing.TB, documents string, now func() time.Time, all ...policy.Baseline) *policy.Set {
	t.Helper()
	spec := specOf(t, documents)
	spec.Baselines, spec.Now = all, now
	set, err := policy.Compile(spec)
	must(t, err)
	return set
}

// pod returns a pod with this metadata and image.
func podOf(metadata, image string) string {
	return `{apiVersion: v1, kind: Pod, metadata: {` + metadata + `}, spec: {containers: [{name: a, image: ` + image + `}]}}`
}

const (
	webTemplate   = `template: {metadata: {labels: {app: web}}, spec: {containers: [{name: a, image: bad/x}]}}`
	webDeployment = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {selector: {matchLabels: {app: web}}, ` + webTemplate + `}}`
	nightly       = `{apiVersion: batch/v1, kind: CronJob, metadata: {name: nightly, namespace: shop}, spec: {schedule: "0 3 * * *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: bad/x}]}}}}}}`
)

func made(kind, owner, name, labels string) string {
	version := map[string]string{"ReplicaSet": "apps/v1", "Job": "batch/v1", "DaemonSet": "apps/v1", "StatefulSet": "apps/v1", "Node": "v1"}[kind]
	return fmt.Sprintf("name: %s, namespace: shop, labels: {%s}, ownerReferences: [{apiVersion: %s, kind: %s, name: %s, uid: u, controller: true}]", name, labels, version, kind, owner)
}

// TestBaseline allows what is in a baseline, and nothing else.
func TestBaseline(t *testing.T) {
	t.Parallel()
	documents := podsOnly(imagesRule)
	web := podOf(made("ReplicaSet", "web-5d4f7", "web-5d4f7-x7k2p", "app: web, pod-template-hash: 5d4f7"), "bad/x")
	expires := time.Date(2027, 3, 31, 0, 0, 0, 0, time.UTC)
	ofDeployment := baselineOf(t, compile(t, documents), expires, webDeployment, nightly)
	allowed := "allowed; AdmissionPolicy 'pods': good images only (allowed until 2027-03-31T00:00:00Z by PolicyBaseline gatehouse-system/strict)"
	template := "allowed; AdmissionPolicy 'pods': spec.template: good images only (allowed until 2027-03-31T00:00:00Z by PolicyBaseline gatehouse-system/strict)"
	const denied = "AdmissionPolicy 'pods' denied request: good images only"
	for _, tt := range []struct{ name, object, want string }{
		{"the workload", webDeployment, template},
		{"its ReplicaSet", strings.NewReplacer("Deployment", "ReplicaSet", "name: web,", "name: web-5d4f7,", "labels: {app: web}", "labels: {app: web, pod-template-hash: 5d4f7}").Replace(webDeployment), template},
		{"a pod of it", web, allowed},
		{"a pod that is made anew", strings.Replace(web, "x7k2p", "aaaaa", 1), allowed},
		{"a pod of another ReplicaSet of it", strings.ReplaceAll(web, "5d4f7", "7c777"), allowed},
		{"a changed value that the rule does not read", strings.Replace(web, "name: a,", "name: a, args: [x],", 1), allowed},
		{"an image that is mended", strings.Replace(web, "bad/x", "good/x", 1), "allowed"},
		{"a changed image", strings.Replace(web, "bad/x", "bad/y", 1), denied},
		{"another container", strings.Replace(web, "containers: [", "containers: [{name: b, image: good/b}, ", 1), denied},
		{"another namespace", strings.Replace(web, "namespace: shop", "namespace: other", 1), denied},
		{"a new Deployment with the same image", strings.ReplaceAll(web, "web-5d4f7", "new-5d4f7"), denied},
		{"a pod without an owner", podOf("name: web, namespace: shop", "bad/x"), denied},
		{"a pod with the name of a ReplicaSet alone", podOf(made("ReplicaSet", "web-5d4f7", "web-5d4f7-x7k2p", "app: web"), "bad/x"), denied},
		{"a pod whose owner is no controller", strings.Replace(web, "controller: true", "controller: false", 1), denied},
		{"a DaemonSet of this name", podOf(made("DaemonSet", "web", "web-x7k2p", "app: web"), "bad/x"), denied},
		{"a CronJob", nightly, strings.Replace(template, "spec.template", "spec.jobTemplate.spec.template", 1)},
		{"a pod of its Job", podOf(made("Job", "nightly-29912345", "nightly-29912345-abcde", "job-name: nightly-29912345"), "bad/x"), allowed},
		{"a pod of another Job", podOf(made("Job", "nightly-20261128", "nightly-20261128-abcde", "job-name: nightly-20261128"), "bad/x"), denied},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set := withBaselines(t, documents, baselineNow, ofDeployment)
			response := decide(t, set, review(t, tt.object))
			got := message(response)
			if response.Allowed {
				got = strings.Join(append([]string{"allowed"}, response.Warnings...), "; ")
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if annotated := response.AuditAnnotations[policy.BaselinedByKey]; (annotated == "gatehouse-system/strict:pods/validations[images]") != strings.Contains(tt.want, "until") {
				t.Errorf("annotated %q", annotated)
			}
			// Without an entry, no verdict changes.
			empty := ofDeployment
			empty.Rules = []baseline.Rule{{RuleName: imagesName()}}
			with, without := decide(t, withBaselines(t, documents, baselineNow, empty), review(t, tt.object)), decide(t, compile(t, documents), review(t, tt.object))
			if toJSON(t, with) != toJSON(t, without) {
				t.Errorf("with an empty baseline %s\nwithout %s", toJSON(t, with), toJSON(t, without))
			}
		})
	}
}

// TestBaselineInForce has a baseline that is there and does not allow.
func TestBaselineInForce(t *testing.T) {
	t.Parallel()
	documents := podsOnly(imagesRule)
	pod := podOf("name: a, namespace: shop", "bad/x")
	expires := baselineNow().Add(time.Hour)
	inForce := baselineOf(t, compile(t, documents), expires, pod)
	const denied = "AdmissionPolicy 'pods' denied request: good images only"
	change := func(change func(*policy.Baseline)) policy.Baseline {
		b := inForce
		change(&b)
		return b
	}
	own := "{apiVersion: gatehouse.dev/v1alpha1, kind: PolicyConfiguration, exceptions: {ownNamespaces: [%s]}}"
	for _, tt := range []struct {
		name, more string
		baseline   policy.Baseline
		now        func() time.Time
		want       string
	}{
		{name: "in force", baseline: inForce, now: baselineNow},
		{name: "expired", baseline: inForce, now: func() time.Time { return expires }, want: denied + " (PolicyBaseline gatehouse-system/strict allowed this until 2026-11-28T13:00:00Z)"},
		{name: "without a clock", baseline: inForce, want: denied + " (PolicyBaseline gatehouse-system/strict allowed this until 2026-11-28T13:00:00Z)"},
		{name: "in another namespace", baseline: change(func(b *policy.Baseline) { b.Namespace = "shop" }), now: baselineNow, want: denied},
		{name: "in its own namespace", more: fmt.Sprintf(own, "shop"), baseline: change(func(b *policy.Baseline) { b.Namespace = "shop" }), now: baselineNow},
		{name: "in a namespace that is its own", more: fmt.Sprintf(own, "other"), baseline: change(func(b *policy.Baseline) { b.Namespace = "other" }), now: baselineNow, want: denied},
		{name: "of another rule", baseline: change(func(b *policy.Baseline) {
			b.Rules = []baseline.Rule{b.Rules[0]}
			b.Rules[0].Rule = "validations[other]"
		}), now: baselineNow, want: denied},
		{name: "of a rule that says something else", more: strings.Replace(documents, "good/", "better/", 1), baseline: inForce, now: baselineNow, want: denied},
		{name: "of a rule that is written otherwise", more: strings.Replace(documents, "all(c, c", "all(c,  c", 1), baseline: inForce, now: baselineNow},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			all := documents
			switch {
			case strings.Contains(tt.more, "PolicyConfiguration"):
				all = documents + "\n---\n" + tt.more
			case tt.more != "":
				all = tt.more
			}
			set := withBaselines(t, all, tt.now, tt.baseline)
			if response := decide(t, set, review(t, pod)); message(response) != tt.want {
				t.Errorf("got  %s\nwant %s", message(response), tt.want)
			}
		})
	}
}

// TestUnbaselined has the rules that no baseline can cover, with the reasons.
func TestUnbaselined(t *testing.T) {
	t.Parallel()
	owned := podOf(made("ReplicaSet", "web-5d4f7", "web-5d4f7-x7k2p", "pod-template-hash: 5d4f7"), "bad/x")
	for _, tt := range []struct{ expression, want string }{
		{"object.spec.containers.size() > 1", ""},
		{"has(object.metadata.labels.app)", ""},
		{"object.metadata.namespace == 'other' && request.kind.kind == 'Pod'", ""},
		{"false", ""},
		{"request.userInfo.username == 'bob'", "it reads request.userInfo"},
		{"request.operation == 'DELETE'", "it reads request.operation"},
		{"oldObject != null", "it reads oldObject"},
		{"namespaceObject.metadata.name == 'x'", "it reads namespaceObject"},
		{"!authorizer.path('/x').check('get').allowed() && variables.user == 'x'", "it reads request.userInfo, authorizer"},
		{"object == {}", "it reads the whole object"},
		{"object.all(k, k == 'x')", "it reads the whole object"},
		{"object.metadata.all(k, k == 'x')", "it reads all of metadata"},
		{"has(object.metadata.uid)", "it reads metadata.uid, which changes by itself"},
		{"object.metadata.name == 'web'", "it reads metadata.name, which changes by itself"},
		{"request.name == 'web'", "it reads request.name, which changes by itself"},
		{"'pod-template-hash' in object.metadata.labels && false", "it reads metadata.labels.pod-template-hash, which changes by itself"},
		{"has(object.status) && object.status.phase == 'x'", "it reads status, which changes by itself"},
		{"has(object.spec.nodeName)", "it reads spec.nodeName, which changes by itself"},
	} {
		t.Run(tt.expression, func(t *testing.T) {
			t.Parallel()
			set := compile(t, documents("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}", podsOnly(fmt.Sprintf("variables: [{name: user, expression: request.userInfo.username}], validations: [{expression: %q}]", tt.expression))))
			all := violationsOf(t, set, owned)
			if len(all) != 1 || all[0].Unbaselined != tt.want || (all[0].Entry == nil) != (tt.want != "") {
				t.Errorf("got %+v, want %q", all, tt.want)
			}
		})
	}
	// A pod of its own is known by its name.
	set := compile(t, podsOnly(`validations: [{expression: "object.metadata.name == 'web' || request.name == 'web'"}]`))
	if got := entry(t, set, podOf("name: a, namespace: shop", "x")); got.Object != "shop/Pod/a" {
		t.Errorf("got %+v", got)
	}
	if all := violationsOf(t, set, podOf("generateName: a-, namespace: shop", "x")); len(all) != 1 || all[0].Unbaselined != "its name is generated, and no workload makes it" {
		t.Errorf("got %+v", all)
	}
	// What the client named is what is sent, if the request does not say otherwise.
	bare := review(t, owned)
	kinds := compile(t, podsOnly(`validations: [{expression: "request.requestKind.kind == 'X' || request.requestResource.resource == 'x'"}]`))
	want := entry(t, kinds, owned)
	bare.RequestKind, bare.RequestResource = nil, nil
	if all := kinds.Decide(context.Background(), policy.Input{Request: bare, Entries: true}).Violations; len(all) != 1 || all[0].Entry == nil || *all[0].Entry != want {
		t.Errorf("got %+v, want %s", all, want)
	}
	// A digest must not tell what is in a Secret, not even to who guesses it.
	secrets := compile(t, denyAll("p", `matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}]},
		validations: [{expression: "has(object.metadata.labels.team)"}, {expression: "'password' in object.data && object.data.password != 'eA=='"}]`, ""))
	all := violationsOf(t, secrets, `{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: shop}, data: {password: eA==}}`)
	if len(all) != 2 || all[0].Entry == nil || all[1].Entry != nil || !strings.HasPrefix(all[1].Unbaselined, "it reads the data of a Secret") {
		t.Errorf("got %+v", all)
	}
	// A policy that could not be evaluated at all has no rule that is violated.
	params := documents(`
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: p}
spec: {paramKind: {apiVersion: v1, kind: ConfigMap}, matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}, validations: [{expression: "params.data.x == object.kind"}]}`,
		`{apiVersion: gatehouse.dev/v1alpha1, kind: AdmissionPolicyBinding, metadata: {name: b}, spec: {policyName: p, validationActions: [Deny], paramRef: {name: x, namespace: shop, parameterNotFoundAction: Deny}}}`)
	if all := violationsOf(t, compile(t, params), owned); len(all) != 1 || all[0].Unbaselined != "the policy could not be evaluated" {
		t.Errorf("got %+v", all)
	}
	known := documents(params, `{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: shop}, data: {x: y}}`)
	if all := violationsOf(t, compile(t, known), owned); len(all) != 1 || all[0].Unbaselined != "it reads params" {
		t.Errorf("got %+v", all)
	}
}

// TestBaselineDiagnostics has what is wrong with a baseline, none of which lets anything pass.
func TestBaselineDiagnostics(t *testing.T) {
	t.Parallel()
	documents := podsOnly(imagesRule)
	pod := podOf("name: a, namespace: shop", "bad/x")
	right := baselineOf(t, compile(t, documents), baselineNow().Add(time.Hour), pod)
	const at = "PolicyBaseline/gatehouse-system/strict: "
	for _, tt := range []struct {
		name   string
		change func(*policy.Baseline)
		want   []string
		broken bool
	}{
		{name: "right", change: func(*policy.Baseline) {}},
		{name: "no reason", change: func(b *policy.Baseline) { b.Spec.Reason = " " }, want: []string{"error: " + at + "spec.reason: is required (hint: explain the baseline to readers of the audit log)"}, broken: true},
		{name: "no end", change: func(b *policy.Baseline) { b.Spec.ExpiresAt = metav1.Time{} }, want: []string{"error: " + at + "spec.expiresAt: is required (hint: set the time until which the violations are to be mended)"}, broken: true},
		{name: "another kind of policy", change: func(b *policy.Baseline) { b.Rules[0].Kind = "Policy" }, want: []string{`error: ` + at + `spec.rules[0].kind: "Policy" is not allowed; allowed are "ValidatingAdmissionPolicy", "AdmissionPolicy"`}, broken: true},
		{name: "no such policy", change: func(b *policy.Baseline) { b.Rules[0].Policy = "gone" }, want: []string{`warning: ` + at + `spec.rules[0].policy: there is no AdmissionPolicy "gone" (hint: "gatehouse audit --baseline FILE --prune" drops its entries)`}},
		{name: "no such rule", change: func(b *policy.Baseline) { b.Rules[0].Rule = "validations[gone]" }, want: []string{`warning: ` + at + `spec.rules[0].rule: the policy has no rule "validations[gone]" (hint: "gatehouse audit --baseline FILE --prune" drops its entries)`}},
		{name: "a namespace that does not count", change: func(b *policy.Baseline) { b.Namespace = "shop" }, want: []string{`warning: PolicyBaseline/shop/strict: metadata.namespace: baselines in "shop" do nothing (hint: allowed are "gatehouse-system", see exceptions of PolicyConfiguration)`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := right
			b.Rules = []baseline.Rule{right.Rules[0]}
			tt.change(&b)
			spec := specOf(t, documents)
			spec.Baselines, spec.Now, spec.KeepBroken = []policy.Baseline{b}, baselineNow, true
			set, err := policy.Compile(spec)
			must(t, err)
			if got := lines(set.Warnings()); strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
			if got := decide(t, set, review(t, pod)); got.Allowed != (tt.want == nil) {
				t.Errorf("allowed %v", got.Allowed)
			}
			spec.KeepBroken = false
			if _, err := policy.Compile(spec); (err != nil) != tt.broken {
				t.Errorf("got %v", err)
			}
		})
	}
	spec := specOf(t, documents)
	spec.Baselines = []policy.Baseline{right, right}
	if _, err := policy.Compile(spec); err == nil || !strings.Contains(err.Error(), `"strict" is taken by another document`) {
		t.Errorf("got %v", err)
	}
	d := withBaselines(t, documents, baselineNow, right).Decide(context.Background(), policy.Input{Request: review(t, pod), Explain: true})
	if rule := d.Evaluations[0].Rules[0]; rule.Outcome != policy.Baselined || rule.Baseline != "gatehouse-system/strict" || d.Violations[0].Refuses() {
		t.Errorf("got %+v", rule)
	}
}

// TestBaselineOfLargeObjects reads no more of an object than a review may.
func TestBaselineOfLargeObjects(t *testing.T) {
	t.Parallel()
	const rules = 300
	list := strings.TrimSuffix(strings.Repeat(`{expression: "object.data == {}", message: m}, `, rules), ", ")
	set := compile(t, denyAll("p", `matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}, validations: [`+list+"]", ""))
	large := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"shop"},"data":{"a":%q}}`, strings.Repeat("x", 1<<20))
	read, left := 0, 0
	for _, v := range violationsOf(t, set, large) {
		if v.Entry != nil {
			read++
		} else if v.Unbaselined == "the object is too large" {
			left++
		}
	}
	if read == 0 || read > 32 || read+left < rules {
		t.Errorf("%d violations have entries, and %d have none", read, left)
	}
}

// stableRules read much of a pod, and none of them anything that is not in a baseline.
func stableRules() []string {
	return []string{
		"false",
		"object.spec.containers.all(c, c.image == 'x')",
		"size(object.spec.containers) > 100",
		"object.spec.containers.all(c, has(c.resources.limits) && 'memory' in c.resources.limits && c.imagePullPolicy == 'x')",
		"!has(object.spec.volumes) && object.spec.volumes.all(v, !has(v.hostPath) && v.name == 'x')",
		"object.metadata.labels.size() > 100",
		"object.metadata.?annotations.orValue({}).size() > 100",
		"object.spec == {}",
		"object.spec.?tolerations.orValue([]).size() > 100",
		"object.spec.?securityContext.runAsNonRoot.orValue(false) == true",
		"object.spec.serviceAccountName == 'x'",
		"variables.all.map(c, c.name).join(',') == 'x'",
	}
}

func stableSet(t testing.TB) *policy.Set {
	t.Helper()
	return compile(t, stablePolicy())
}

func stablePolicy() string {
	var rules []string
	for _, text := range stableRules() {
		rules = append(rules, fmt.Sprintf("{expression: %q, message: m}", text))
	}
	return podsOnly("podSecurity: {level: restricted}, variables: [{name: all, expression: 'object.spec.containers + object.spec.?initContainers.orValue([])'}], validations: [" + strings.Join(rules, ", ") + "]")
}

// digests returns the entries of an object by their rules.
func digests(t testing.TB, set *policy.Set, object map[string]any) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, v := range violationsOf(t, set, toJSON(t, object)) {
		if v.Entry == nil {
			t.Fatalf("%s: %s", v.Rule, v.Unbaselined)
		}
		out[v.Rule] = v.Entry.String()
	}
	return out
}

// TestDigestIsStable has the same digests for random pods of one Deployment, whoever has written what into them.
func TestDigestIsStable(t *testing.T) {
	t.Parallel()
	set := stableSet(t)
	empty := policy.Baseline{PolicyBaseline: v1alpha1.PolicyBaseline{
		ObjectMeta: metav1.ObjectMeta{Name: "empty", Namespace: baselineNamespace},
		Spec:       v1alpha1.PolicyBaselineSpec{Reason: "r", ExpiresAt: metav1.NewTime(baselineNow().Add(time.Hour))},
	}}
	for rule := range digests(t, set, map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"containers": []any{}}}) {
		empty.Rules = append(empty.Rules, baseline.Rule{RuleName: baseline.RuleName{Kind: "AdmissionPolicy", Policy: "pods", Rule: rule}, Digests: []baseline.Digest{{}}})
	}
	withEmpty := withBaselines(t, stablePolicy(), baselineNow, empty)
	random := rand.New(rand.NewPCG(48, 2))
	for range 150 {
		labels := map[string]any{"app": "web", fmt.Sprint("l", random.IntN(5)): "x"}
		metadata := map[string]any{"labels": labels}
		if random.IntN(2) == 0 {
			metadata["annotations"] = map[string]any{"a": "b"}
		}
		container := func(name string) map[string]any {
			c := map[string]any{"name": name, "image": []any{"bad/x", "bad/y:1", "good/z@sha256:" + strings.Repeat("a", 64)}[random.IntN(3)]}
			if random.IntN(2) == 0 {
				c["resources"] = map[string]any{"limits": map[string]any{"cpu": "1000m", "memory": "1Gi"}}
			}
			if random.IntN(2) == 0 {
				c["securityContext"] = map[string]any{"privileged": true, "runAsUser": 0}
			}
			if random.IntN(3) == 0 {
				c["ports"] = []any{map[string]any{"containerPort": 80, "hostPort": random.IntN(3)}}
			}
			return c
		}
		spec := map[string]any{"containers": []any{container("a"), container("b")}, "hostNetwork": random.IntN(2) == 0}
		if random.IntN(2) == 0 {
			spec["volumes"] = []any{map[string]any{"name": "v", "hostPath": map[string]any{"path": "/x"}}, map[string]any{"name": "e"}}
		}
		template := map[string]any{"metadata": metadata, "spec": spec}
		workload := map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web", "namespace": "shop"},
			"spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}}, "template": template},
		}
		want := digests(t, set, workload)
		if len(want) < len(stableRules()) {
			t.Fatalf("got %v", want)
		}
		check := func(name string, object map[string]any) {
			t.Helper()
			request := review(t, toJSON(t, object))
			if got, want := decide(t, withEmpty, request), decide(t, set, request); toJSON(t, got) != toJSON(t, want) {
				t.Fatalf("%s: with an empty baseline %s, without %s", name, toJSON(t, got), toJSON(t, want))
			}
			for rule, digest := range digests(t, set, object) {
				// Without its defaults, an object can violate fewer rules: the port of a node is one.
				if want[rule] != "" && digest != want[rule] {
					t.Fatalf("%s: %s has %s, and the Deployment has %s: %s", rule, name, digest, want[rule], toJSON(t, object))
				}
			}
		}
		filled := copyOf(t, workload)
		defaults.Apply(filled)
		check("the Deployment with defaults", filled)
		for _, hash := range []string{"5d4f7", "7c777"} {
			pod := copyOf(t, template)
			pod["apiVersion"], pod["kind"] = "v1", "Pod"
			meta := pod["metadata"].(map[string]any)
			meta["name"], meta["generateName"], meta["namespace"] = fmt.Sprintf("web-%s-%05d", hash, random.IntN(99999)), "web-"+hash+"-", "shop"
			meta["labels"].(map[string]any)["pod-template-hash"] = hash
			meta["ownerReferences"] = []any{map[string]any{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-" + hash, "uid": hash, "controller": true}}
			check("a pod", pod)
			defaults.Apply(pod)
			check("a pod with defaults", pod)
			meta = pod["metadata"].(map[string]any)
			meta["uid"], meta["resourceVersion"], meta["creationTimestamp"] = "u", fmt.Sprint(random.IntN(1000)), "2026-11-28T12:00:00Z"
			meta["managedFields"] = []any{map[string]any{"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1"}}
			pod["status"] = map[string]any{"phase": "Running"}
			running := pod["spec"].(map[string]any)
			running["nodeName"], running["priority"] = "node-1", 7
			text := strings.ReplaceAll(toJSON(t, pod), "kube-api-access-00000", fmt.Sprintf("kube-api-access-%05d", random.IntN(99999)))
			pod = nil
			must(t, json.Unmarshal([]byte(text), &pod))
			check("a pod that runs", pod)
		}
		// Every copy elsewhere has others.
		copied := copyOf(t, workload)
		copied["metadata"].(map[string]any)["namespace"] = "other"
		for rule, digest := range digests(t, set, copied) {
			for _, of := range want {
				_, a, _ := strings.Cut(of, "@")
				if _, b, _ := strings.Cut(digest, "@"); a == b {
					t.Fatalf("%s: a copy in another namespace has the digest of the object", rule)
				}
			}
		}
	}
}

func copyOf(t testing.TB, object map[string]any) (out map[string]any) {
	t.Helper()
	must(t, kjson.UnmarshalCaseSensitivePreserveInts([]byte(toJSON(t, object)), &out))
	return out
}

// TestDigestOfInjection has the same digest for a template, which is checked after the injection, and for its pods, which come with the
// sidecar, its defaults and the record of the injection.
func TestDigestOfInjection(t *testing.T) {
	t.Parallel()
	spec := specOf(t, stablePolicy())
	const sidecar = `{"name":"proxy","image":"mesh/proxy:1"}`
	spec.Inject = func(_ context.Context, _, workload string, pod []byte) ([]byte, string, error) {
		if workload != "Deployment/web" {
			return nil, "", errors.New("of no workload")
		}
		text := strings.Replace(string(pod), `"containers":[`, `"containers":[`+sidecar+`,`, 1)
		return []byte(strings.Replace(text, `"metadata":{`, `"metadata":{"annotations":{"sidecar.gatehouse.dev/status":"{}"},`, 1)), "", nil
	}
	set, err := policy.Compile(spec)
	must(t, err)
	parse := func(text string) (object map[string]any) {
		must(t, yaml.Unmarshal([]byte(text), &object))
		return object
	}
	want := digests(t, set, parse(webDeployment))
	pod := parse(podOf(made("ReplicaSet", "web-5d4f7", "web-5d4f7-x7k2p", "app: web, pod-template-hash: 5d4f7")+", annotations: {sidecar.gatehouse.dev/status: '{\"mesh\": {}}'}", "bad/x"))
	containers := pod["spec"].(map[string]any)
	containers["containers"] = append([]any{parse(sidecar)}, containers["containers"].([]any)...)
	defaults.Apply(pod)
	if got := digests(t, set, pod); toJSON(t, got) != toJSON(t, want) || len(want) < 10 {
		t.Errorf("the pod has\n%s\nand the template\n%s", toJSON(t, got), toJSON(t, want))
	}
	if without := digests(t, compile(t, stablePolicy()), parse(webDeployment)); without["validations[2]"] == want["validations[2]"] {
		t.Error("the sidecar does not count")
	}
}

// TestDigestOfRules has the digests that every version must give: another one makes the baselines of the rule invalid, which a
// changelog must say.
func TestDigestOfRules(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for rule, digest := range digests(t, stableSet(t), map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "a", "namespace": "shop", "labels": map[string]any{"a": "b"}},
		"spec": map[string]any{"hostNetwork": true, "containers": []any{map[string]any{"name": "a", "image": "b", "securityContext": map[string]any{"privileged": true}}}},
	}) {
		if rule != "validations[2]" && rule != "validations[7]" { // of whole containers, to which a version of Kubernetes adds defaults
			fmt.Fprintln(&all, rule, digest)
		}
	}
	got := strings.Split(strings.TrimSpace(all.String()), "\n")
	slices.Sort(got)
	if want := strings.TrimSpace(readFile(t, "testdata/digests.txt")); strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
}

// TestDigestOfPower: an entry of a rule about power over the node holds the programs too, and one of another rule does not.
func TestDigestOfPower(t *testing.T) {
	t.Parallel()
	set := stableSet(t)
	having := func(context, container string) map[string]string {
		var object map[string]any
		must(t, yaml.Unmarshal([]byte("{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop}, spec: {hostNetwork: true, containers: [{name: a, securityContext: {"+context+"}, "+container+"}]}}"), &object))
		return digests(t, set, object)
	}
	of := func(container string) map[string]string { return having("privileged: true", container) }
	const before = "image: registry.example/a:1, command: [run], args: [x]"
	want := of(before)
	const power, lacks = "capabilities: {add: [SYS_ADMIN]}", "podSecurity.capabilities_restricted"
	if a, b := having(power, before)[lacks], having(power, "image: registry.example/a:1, command: [sh]")[lacks]; a == "" || a == b {
		t.Errorf("an added capability has the entry %s with any program", a)
	}
	for name, tt := range map[string]struct {
		container string
		same      bool
	}{
		"the same":             {before, true},
		"another tag":          {"image: registry.example/a:2, command: [run], args: [x]", true},
		"another image":        {"image: registry.example/b:1, command: [run], args: [x]", false},
		"another registry":     {"image: evil.example/a:1, command: [run], args: [x]", false},
		"another command":      {"image: registry.example/a:1, command: [sh], args: [x]", false},
		"other arguments":      {"image: registry.example/a:1, command: [run], args: [x, y]", false},
		"joined differently":   {"image: registry.example/a:1, command: [run, x]", false},
		"an image that is not": {"image: \"registry.example/a:1 \", command: [run], args: [x]", false},
	} {
		got := of(tt.container)
		for _, rule := range []string{"podSecurity.privileged", "podSecurity.hostNamespaces"} {
			if want[rule] == "" || (got[rule] == want[rule]) != tt.same {
				t.Errorf("%s: %s is %s, and was %s", name, rule, got[rule], want[rule])
			}
		}
		for _, rule := range []string{"podSecurity.runAsNonRoot", "podSecurity.capabilities_restricted"} {
			if want[rule] == "" || got[rule] != want[rule] {
				t.Errorf("%s: %s is %s, and was %s", name, rule, got[rule], want[rule])
			}
		}
	}
}

// TestDigestOfUpgrade has the same digests for what three versions of Kubernetes have made of the same pods.
func TestDigestOfUpgrade(t *testing.T) {
	t.Parallel()
	set := stableSet(t)
	recorded := func(version string) (list []map[string]any) {
		text := readFile(t, filepath.Join("..", "kinds", "defaults", "testdata", "kubernetes-"+version, "pods.json"))
		must(t, kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &list))
		return list
	}
	want := recorded("1.37")
	if len(want) < 5 {
		t.Fatal("nothing is recorded")
	}
	for _, version := range []string{"1.35", "1.36"} {
		for i, old := range recorded(version) {
			name := fmt.Sprint("pod-", i)
			for _, pod := range []map[string]any{old, want[i]} {
				pod["metadata"].(map[string]any)["name"] = name
			}
			if got, now := digests(t, set, old), digests(t, set, want[i]); toJSON(t, got) != toJSON(t, now) {
				t.Errorf("%s of %s has\n%s\nand of 1.37\n%s", name, version, toJSON(t, got), toJSON(t, now))
			}
		}
	}
}

// TestDigestChanges changes one value after the other: the digest changes if, and only if, the rule reads it.
func TestDigestChanges(t *testing.T) {
	t.Parallel()
	const object = `
apiVersion: example.com/v1
kind: Thing
metadata: {name: a, namespace: shop, labels: {team: t, app: web}, annotations: {a: b}}
spec: {a: 1, b: {c: x, d: 2.5}, list: [{e: 1, f: 2}, {e: 3, f: 4}], empty: {}, text: "line"}
status: {ready: true}`
	for _, tt := range []struct {
		expression string
		reads      []string
	}{
		{"object.spec.a == 7", []string{"spec.a"}},
		{"has(object.spec.b) && object.spec.b.c == 'q'", []string{"spec.b", "spec.b.c"}},
		{"object.spec.b == {}", []string{"spec.b", "spec.b.c", "spec.b.d"}},
		{"object.spec.list.all(x, x.e == 7)", []string{"spec.list", "spec.list.0", "spec.list.1", "spec.list.0.e", "spec.list.1.e"}},
		{"size(object.spec.list) > 7", []string{"spec.list", "spec.list.0", "spec.list.1", "spec.list.0.e", "spec.list.0.f", "spec.list.1.e", "spec.list.1.f"}},
		{"object.metadata.labels.team == 'q'", []string{"metadata.labels", "metadata.labels.team"}},
		{"object.metadata.labels.exists(k, k == 'q')", []string{"metadata.labels", "metadata.labels.team", "metadata.labels.app"}},
		{"object.spec.text.startsWith('q') && object.spec.a > 0", []string{"spec.text", "spec.a"}},
		{"variables.v > 7", []string{"spec.a"}},
		{"false", nil},
	} {
		t.Run(tt.expression, func(t *testing.T) {
			t.Parallel()
			set := compile(t, fmt.Sprintf(`
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: things}
spec: {matchConstraints: {resourceRules: [{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [things]}]},
  validationActions: [Deny], variables: [{name: v, expression: object.spec.a}], validations: [{expression: %q}]}`, tt.expression))
			var tree map[string]any
			must(t, yaml.Unmarshal([]byte(object), &tree))
			want := entry(t, set, object)
			var paths []string
			var visit func(path string, value any)
			visit = func(path string, value any) {
				paths = append(paths, strings.TrimPrefix(path, "."))
				switch v := value.(type) {
				case map[string]any:
					for name := range v {
						visit(path+"."+name, v[name])
					}
				case []any:
					for i := range v {
						visit(fmt.Sprint(path, ".", i), v[i])
					}
				}
			}
			visit("", tree["spec"])
			for i := range paths {
				paths[i] = strings.TrimSuffix("spec."+paths[i], ".")
			}
			paths = append(paths, "metadata.labels.team", "metadata.labels.app", "metadata.labels", "metadata.annotations", "metadata.annotations.a", "status")
			for _, path := range paths {
				changed := copyOf(t, tree)
				change(changed, strings.Split(path, "."))
				all := violationsOf(t, set, toJSON(t, changed))
				if len(all) == 0 {
					continue // it is mended
				}
				isRead := false
				for _, read := range tt.reads {
					isRead = isRead || path == read || strings.HasPrefix(read, path+".")
				}
				if got := *all[0].Entry; (got.Digest != want.Digest) != isRead {
					t.Errorf("%s: the digest changes: %v, want %v", path, got.Digest != want.Digest, isRead)
				}
			}
		})
	}
}

// change changes the value at a path to another of another kind.
func change(in any, path []string) {
	switch v := in.(type) {
	case map[string]any:
		if len(path) == 1 {
			if _, is := v[path[0]].(map[string]any); is {
				v[path[0]] = map[string]any{"changed": "x"}
			} else {
				v[path[0]] = "changed"
			}
			return
		}
		change(v[path[0]], path[1:])
	case []any:
		i := int(path[0][0] - '0')
		if len(path) == 1 {
			v[i] = "changed"
			return
		}
		change(v[i], path[1:])
	}
}

// TestReadsOfChecks is about upstream's own pods, of all versions: two with the same values of what a check reads have the same result
// of it.
func TestReadsOfChecks(t *testing.T) {
	t.Parallel()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission").Output()
	must(t, err)
	root := strings.TrimSpace(string(dir))
	set := compile(t, podsOnly("podSecurity: {level: restricted}"))
	results := map[string]map[string]bool{} // by check and values, the verdicts
	pods := 0
	for _, level := range []string{"baseline", "restricted"} {
		for _, verdict := range []string{"pass", "fail"} {
			files, err := filepath.Glob(filepath.Join(root, "test", "testdata", level, "v1.3[0-9]", verdict, "*.yaml"))
			must(t, err)
			for _, file := range files {
				text, err := os.ReadFile(file)
				must(t, err)
				var tree map[string]any
				must(t, yaml.Unmarshal(text, &tree))
				metadata := tree["metadata"].(map[string]any)
				metadata["name"], metadata["namespace"] = "a", "shop" // so that the names do not tell the pods apart
				pods++
				failed := map[string]bool{}
				for _, v := range violationsOf(t, set, toJSON(t, tree)) {
					if v.Entry == nil {
						t.Fatalf("%s: %s: %s", file, v.Rule, v.Unbaselined)
					}
					failed[v.Rule] = true
				}
				subject, err := baseline.NewSubject(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, "shop", baseline.Owner{}, []byte(toJSON(t, tree)))
				must(t, err)
				for _, check := range podsecurity.Checks() {
					reads, annotations := policy.ReadsOfCheck(check)
					if reads == nil {
						t.Fatalf("it is not known what %s reads", check)
					}
					key := check + " " + subject.Entry(baseline.RuleID{Annotations: annotations}, reads).String()
					if results[key] == nil {
						results[key] = map[string]bool{}
					}
					results[key][fmt.Sprint(failed["podSecurity."+check])] = true
				}
			}
		}
	}
	if pods < 500 {
		t.Fatalf("only %d pods", pods)
	}
	for key, verdicts := range results {
		if len(verdicts) > 1 {
			t.Errorf("pods that pass and pods that fail have the same values: %s", key)
		}
	}
}

// TestBaselineMemory has a large baseline in little memory.
func TestBaselineMemory(t *testing.T) { //nolint:paralleltest // it measures
	const entries, most = 50_000, 4 << 20
	before := heap()
	spec := specOf(t, podsOnly(imagesRule))
	for i := range entries / baseline.MaxEntries {
		document := v1alpha1.PolicyBaseline{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("b", i), Namespace: baselineNamespace},
			Spec:       v1alpha1.PolicyBaselineSpec{Reason: "r", ExpiresAt: metav1.NewTime(baselineNow())},
		}
		rule := v1alpha1.BaselineRule{Kind: "AdmissionPolicy", Policy: "pods", Rule: "validations[images]"}
		for k := range baseline.MaxEntries {
			rule.Entries = append(rule.Entries, fmt.Sprintf("namespace-%d/Deployment/deployment-%d@sha256:%064x", i, k, i*1_000_003+k*7919))
		}
		document.Spec.Rules = []v1alpha1.BaselineRule{rule}
		b, problems := policy.NewBaseline(&document)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		spec.Baselines = append(spec.Baselines, *b)
	}
	set, err := policy.Compile(spec)
	must(t, err)
	got := heap() - before
	t.Logf("%d bytes", got)
	if got > most {
		t.Errorf("%d entries take %d bytes, the maximum is %d", entries, got, most)
	}
	if response := decide(t, set, review(t, podOf("name: a, namespace: shop", "bad/x"))); response.Allowed {
		t.Error("a pod that is in none is allowed")
	}
}

// heap returns how much memory is in use.
func heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func BenchmarkBaseline(b *testing.B) {
	for _, bench := range []struct{ name, image string }{{"no violation", "good/x"}, {"violation", "bad/x"}} {
		for _, with := range []int{0, 1, 50} {
			b.Run(fmt.Sprintf("%s/%d baselines", bench.name, with), func(b *testing.B) {
				spec := specOf(b, podsOnly(imagesRule))
				spec.Now = baselineNow
				for i := range with {
					rule := baseline.Rule{RuleName: imagesName()}
					for k := range baseline.MaxEntries {
						rule.Digests = append(rule.Digests, baseline.Digest{byte(k >> 2), byte(k), byte(i)})
					}
					spec.Baselines = append(spec.Baselines, policy.Baseline{Rules: []baseline.Rule{rule}, PolicyBaseline: v1alpha1.PolicyBaseline{
						ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("b", i), Namespace: baselineNamespace},
						Spec:       v1alpha1.PolicyBaselineSpec{Reason: "r", ExpiresAt: metav1.NewTime(baselineNow().Add(time.Hour))},
					}})
				}
				set, err := policy.Compile(spec)
				must(b, err)
				pod := review(b, strings.ReplaceAll(readFile(b, "testdata/pod.json"), "registry.example.com/", bench.image))
				b.ReportAllocs()
				for b.Loop() {
					set.Decide(context.Background(), policy.Input{Request: pod})
				}
			})
		}
	}
}

// TestBaselineTried explains why a baseline of the rule does not allow a violation.
func TestBaselineTried(t *testing.T) {
	t.Parallel()
	documents := podsOnly(imagesRule)
	set := compile(t, documents)
	old := baselineOf(t, set, baselineNow().Add(-time.Hour), podOf("name: a, namespace: shop", "bad/x"))
	old.Name = "old"
	other := baselineOf(t, set, baselineNow().Add(time.Hour), podOf("name: a, namespace: shop", "bad/y"))
	set = withBaselines(t, documents, baselineNow, old, other)
	for image, want := range map[string][]policy.TriedException{
		"bad/x": {
			{Baseline: "gatehouse-system/old", Why: "it expired at 2026-11-28T11:00:00Z"},
			{Baseline: "gatehouse-system/strict", Why: "it has no entry for this object with the values that the rule reads in it"},
		},
		"bad/y": nil,
	} {
		d := set.Decide(context.Background(), policy.Input{Request: review(t, podOf("name: a, namespace: shop", image)), Explain: true})
		if got := d.Evaluations[0].Rules[0].Tried; !slices.Equal(got, want) {
			t.Errorf("%s: got\n%q\nwant\n%q", image, got, want)
		}
	}
}
