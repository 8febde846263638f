package compile

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/testrunner"
	"github.com/gatehouse-dev/gatehouse/test/support/arbitrary"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

func now() time.Time { return time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC) }

// pair are the policies of a configuration, and what they were compiled to, both as Gatehouse decides by them: that it decides by
// ValidatingAdmissionPolicies as the API server is what webhooks/policy/differential proves.
type pair struct {
	ours, native *policy.Set
	out          *Output
}

func newPair(t testing.TB, c *config.Config) *pair {
	t.Helper()
	out, err := Compile(c, Options{Kubernetes: "1.36", Now: now()})
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{out: out}
	c.Policy.Now = now
	if p.ours, err = policy.Compile(c.Policy); err != nil {
		t.Fatal(err)
	}
	spec := out.Spec("1.36")
	spec.Objects, spec.Authorizer, spec.Now = c.Policy.Objects, c.Policy.Authorizer, now
	if p.native, err = policy.Compile(spec); err != nil {
		t.Fatal(err)
	}
	return p
}

// violated returns what of a decision counts, by the names of the sources.
func (p *pair) violated(set *policy.Set, req admission.Request) []string {
	d := set.Decide(context.Background(), policy.Input{Request: req, Violations: true})
	var out []string
	if d.Err != nil {
		out = append(out, "error: "+d.Err.Error())
	}
	for i := range d.Violations {
		v := &d.Violations[i]
		if v.Outcome != policy.Violated && v.Outcome != policy.Failed {
			continue
		}
		from, rule := v.Kind+"/"+v.Policy, v.Rule
		if set == p.native {
			for k := range p.out.Documents {
				doc := &p.out.Documents[k]
				var index int
				if doc.Policy == nil || doc.Policy.Name != v.Policy {
					continue
				}
				if from = doc.From; strings.HasPrefix(v.Rule, "validations[") {
					if _, err := fmt.Sscanf(v.Rule, "validations[%d]", &index); err == nil {
						rule = doc.Rules[index]
					}
				}
			}
		}
		// A violation and a failure have the same consequences.
		out = append(out, fmt.Sprintf("%s %s %v", from, rule, v.Actions))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// difference returns how the two decide otherwise, "" if they do not.
func (p *pair) difference(req admission.Request) string {
	ours, native := p.violated(p.ours, req), p.violated(p.native, req)
	if slices.Equal(ours, native) {
		return ""
	}
	return fmt.Sprintf("%s %s %s\n   ours %q\n native %q\n object %s\n    old %s", req.Operation, req.Resource.Resource, req.Name, ours, native, req.Object.Raw, req.OldObject.Raw)
}

// ask returns the request that writes an object.
func ask(operation admissionv1.Operation, kind schema.GroupVersionKind, resource string, object, old map[string]any) admission.Request {
	req := admissionv1.AdmissionRequest{
		UID: "u", Kind: metav1.GroupVersionKind(kind), Resource: metav1.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: resource}, Operation: operation,
	}
	req.RequestKind, req.RequestResource = &req.Kind, &req.Resource
	req.UserInfo.Username = "jane"
	raw := func(o map[string]any) runtime.RawExtension {
		if o == nil {
			return runtime.RawExtension{}
		}
		text, _ := json.Marshal(o) //nolint:errchkjson // decoded JSON
		return runtime.RawExtension{Raw: text}
	}
	of := unstructured.Unstructured{Object: object}
	if object == nil {
		of.Object = old
	}
	req.Name, req.Namespace = of.GetName(), of.GetNamespace()
	req.Object, req.OldObject = raw(object), raw(old)
	return admission.Request{AdmissionRequest: req}
}

var (
	podKind        = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	deploymentKind = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	cronJobKind    = schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "CronJob"}
)

func deploymentOf(pod map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "d", "namespace": "shop"},
		"spec": map[string]any{"replicas": int64(1), "template": templateOf(pod)},
	}
}

func templateOf(pod map[string]any) map[string]any {
	template := map[string]any{"spec": pod["spec"]}
	metadata, _ := pod["metadata"].(map[string]any)
	kept := map[string]any{}
	for _, name := range []string{"labels", "annotations"} {
		if metadata[name] != nil {
			kept[name] = metadata[name]
		}
	}
	if len(kept) > 0 {
		template["metadata"] = kept
	}
	return template
}

func cronJobOf(pod map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": "batch/v1", "kind": "CronJob", "metadata": map[string]any{"name": "d", "namespace": "shop"},
		"spec": map[string]any{"jobTemplate": map[string]any{"spec": map[string]any{"template": templateOf(pod)}}},
	}
}

// standardPolicy returns a configuration with a policy of a level.
func standardPolicy(t testing.TB, level, version string) *config.Config {
	t.Helper()
	var document v1alpha1.AdmissionPolicy
	if err := yaml.UnmarshalStrict(fmt.Appendf(nil, `{apiVersion: gatehouse.dev/v1alpha1, kind: AdmissionPolicy, metadata: {name: pods}, spec: {
 matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods, pods/ephemeralcontainers]}]},
 podSecurity: {level: %s, version: %s}, validationActions: [Deny]}}`, level, version), &document); err != nil {
		t.Fatal(err)
	}
	return &config.Config{Policy: policy.Spec{AdmissionPolicies: []policy.AdmissionPolicy{{Source: "p.yaml", AdmissionPolicy: document}}}}
}

// TestPodSecurityFixtures holds the checks as CEL against upstream's, for every fixture of upstream's own tests and for changed ones, as pods
// and as templates.
func TestPodSecurityFixtures(t *testing.T) {
	t.Parallel()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "test", "testdata", "*", "*", "*", "*.yaml"))
	if err != nil || len(files) < 4000 {
		t.Fatal(len(files), err)
	}
	random := rand.New(rand.NewSource(1))
	pairs, asked, denied := map[string]*pair{}, 0, 0
	for i, file := range files {
		parts := strings.Split(filepath.ToSlash(file), "/")
		level, version := parts[len(parts)-4], parts[len(parts)-3]
		p := pairs[level+version]
		if p == nil {
			p = newPair(t, standardPolicy(t, level, version))
			pairs[level+version] = p
		}
		text, err := os.ReadFile(file) // #nosec G304 -- of a module
		if err != nil {
			t.Fatal(err)
		}
		var pod map[string]any
		if err := yaml.Unmarshal(text, &pod); err != nil {
			t.Fatal(err)
		}
		for n := range 2 {
			if n > 0 {
				mutate(random, pod["spec"])
				mutate(random, pod["metadata"])
			}
			metadata, _ := pod["metadata"].(map[string]any)
			metadata["namespace"] = "shop"
			requests := []admission.Request{ask(admissionv1.Create, podKind, "pods", pod, nil)}
			const sample = 10
			if i%sample == 0 {
				requests = append(requests, ask(admissionv1.Create, deploymentKind, "deployments", deploymentOf(pod), nil),
					ask(admissionv1.Create, cronJobKind, "cronjobs", cronJobOf(pod), nil))
			}
			for _, req := range requests {
				if asked++; len(p.violated(p.ours, req)) > 0 {
					denied++
				}
				if difference := p.difference(req); difference != "" && !strings.Contains(difference, `"error: `) {
					t.Errorf("%s: %s", strings.Join(parts[len(parts)-4:], "/"), difference)
				}
			}
		}
		if t.Failed() {
			break
		}
	}
	t.Logf("%d requests, %d denied", asked, denied)
}

// mutate changes something in a value at random: it removes a member, or gives it another value of its type.
func mutate(random *rand.Rand, value any) {
	switch v := value.(type) {
	case map[string]any:
		if len(v) == 0 {
			return
		}
		name := sortedKeys(v)[random.Intn(len(v))]
		if name == "name" || name == "namespace" {
			return
		}
		switch inner := v[name].(type) {
		case map[string]any, []any:
			if random.Intn(8) > 0 {
				mutate(random, inner)
				return
			}
			delete(v, name)
		case bool:
			v[name] = !inner
		case string:
			v[name] = []string{"", "RuntimeDefault", "Unconfined", "ALL", "NET_BIND_SERVICE", "SYS_ADMIN", "windows", "x"}[random.Intn(8)]
		default:
			v[name] = []any{int64(0), int64(1), nil}[random.Intn(3)]
			if v[name] == nil {
				delete(v, name)
			}
		}
	case []any:
		if len(v) > 0 {
			mutate(random, v[random.Intn(len(v))])
		}
	}
}

// unnamed returns the rules on which the two decide otherwise though the report calls them native.
func (p *pair) unnamed(req admission.Request) (rules []string) {
	ours, native := p.violated(p.ours, req), p.violated(p.native, req)
	for _, one := range slices.Concat(ours, native) {
		// Of an update, Gatehouse compares why a rule could not be evaluated before, see General.
		if slices.Contains(ours, one) && (slices.Contains(native, one) || req.Operation == admissionv1.Update && p.fails(req, one)) {
			continue
		}
		isNative := true
		for _, item := range p.out.Items {
			of, rule, _ := strings.Cut(one, " ")
			if of == item.Kind+"/"+item.Name && item.Status != Native && (strings.HasPrefix(rule, " ") || strings.HasPrefix(rule, item.Rule+" ") || strings.HasPrefix(rule, item.Rule+".")) {
				isNative = false
			}
		}
		if isNative {
			rules = append(rules, one)
		}
	}
	return rules
}

// fails reports whether a rule, as violated has it, cannot be evaluated.
func (p *pair) fails(req admission.Request, rule string) bool {
	d := p.ours.Decide(context.Background(), policy.Input{Request: req, Violations: true})
	return slices.ContainsFunc(d.Violations, func(v policy.Violation) bool {
		return v.Outcome == policy.Failed && rule == fmt.Sprintf("%s/%s %s %v", v.Kind, v.Policy, v.Rule, v.Actions)
	})
}

// variants returns requests that are like one: with the pod in templates, and updates of what is a little different.
func variants(random *rand.Rand, req admission.Request, times int) []admission.Request {
	out := []admission.Request{req}
	if req.SubResource != "" || req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return out
	}
	decode := func() map[string]any {
		var object map[string]any
		if err := json.Unmarshal(req.Object.Raw, &object); err != nil {
			panic(err)
		}
		return object
	}
	kind, resource := schema.GroupVersionKind(req.Kind), req.Resource.Resource
	shapes := []func(map[string]any) admission.Request{func(o map[string]any) admission.Request { return ask(admissionv1.Create, kind, resource, o, nil) }}
	update := []func(a, b map[string]any) admission.Request{func(a, b map[string]any) admission.Request { return ask(admissionv1.Update, kind, resource, a, b) }}
	if kind == podKind {
		shapes = append(shapes,
			func(o map[string]any) admission.Request {
				return ask(admissionv1.Create, deploymentKind, "deployments", deploymentOf(o), nil)
			},
			func(o map[string]any) admission.Request {
				return ask(admissionv1.Create, cronJobKind, "cronjobs", cronJobOf(o), nil)
			})
		update = append(update[:0], func(a, b map[string]any) admission.Request {
			return ask(admissionv1.Update, deploymentKind, "deployments", deploymentOf(a), deploymentOf(b))
		}, func(a, b map[string]any) admission.Request { // the API server refuses other changes of a pod
			changed := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": a["metadata"], "spec": b["spec"]}
			return ask(admissionv1.Update, podKind, "pods", changed, b)
		})
	}
	for range times {
		object, old := decode(), decode()
		for range random.Intn(3) {
			mutate(random, object["spec"])
			mutate(random, object["metadata"])
		}
		for _, shape := range shapes {
			out = append(out, shape(object))
		}
		for _, of := range update {
			out = append(out, of(object, old), of(old, object), of(object, object))
		}
	}
	for i := range out {
		out[i].UserInfo, out[i].Namespace = req.UserInfo, req.Namespace
	}
	return out
}

// TestSameAsGatehouse holds compiled policies against their sources, for the cases of the library and of the examples and for changed ones: where
// the decisions differ, the report has named the rule.
func TestSameAsGatehouse(t *testing.T) {
	t.Parallel()
	folders, err := filepath.Glob(library + "/*")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := filepath.Glob(library + "/../examples/*")
	if err != nil {
		t.Fatal(err)
	}
	random, asked, different := rand.New(rand.NewSource(1)), 0, 0
	for _, dir := range slices.Concat(folders, examples) {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			continue
		}
		c, err := config.Load(dir)
		if err != nil {
			continue // it is no configuration of its own
		}
		cases, _ := testrunner.Load([]string{dir}, true)
		pairs := map[*testrunner.Context]*pair{}
		for _, one := range cases {
			p := pairs[one.Context]
			if p == nil {
				of := *c
				if one.Context != nil {
					of = *one.Context.Over(c)
				}
				p = newPair(t, &of)
				pairs[one.Context] = p
			}
			req, err := request.NewResources(nil).Build(one.Spec)
			if err != nil {
				t.Fatal(err)
			}
			for _, variant := range variants(random, req, 8) {
				asked++
				if rules := p.unnamed(variant); len(rules) > 0 {
					different++
					t.Errorf("%s: %s %s: %q\n%s", dir, one.Source, one.Name, rules, p.difference(variant))
				}
			}
		}
	}
	t.Logf("%d requests, %d with an unnamed difference", asked, different)
}

// namespaces are shop and lab.
type namespaces struct{ policy.Objects }

func (namespaces) Namespace(name string) (*corev1.Namespace, bool) {
	switch name {
	case "shop":
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"env": "prod", "team": "a"}}}, true
	case "lab":
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, true
	}
	return nil, false
}

// TestRandomSameAsGatehouse is TestSameAsGatehouse for random configurations with exceptions.
func TestRandomSameAsGatehouse(t *testing.T) {
	t.Parallel()
	const configurations = 200
	asked, different := 0, 0
	for seed := range int64(configurations) {
		random := rand.New(rand.NewSource(seed))
		c := arbitrary.Configuration(random, arbitrary.Names{Policy: "p", Shop: "shop", Lab: "lab"}, now())
		c.Policy.Objects = namespaces{}
		if _, err := policy.Compile(c.Policy); err != nil {
			continue // an exception that selects nothing
		}
		p := newPair(t, c)
		for range 4 {
			pod := arbitrary.Pod(random)
			pod["metadata"].(map[string]any)["namespace"] = "shop"
			req := ask(admissionv1.Create, podKind, "pods", pod, nil)
			req.Namespace, req.UserInfo.Username = []string{"shop", "lab"}[random.Intn(2)], []string{"jane", "root"}[random.Intn(2)]
			for _, variant := range variants(random, req, 3) {
				asked++
				if rules := p.unnamed(variant); len(rules) > 0 {
					if different++; different < 5 {
						x, _ := json.Marshal(c.Policy.Exceptions)                //nolint:errchkjson // for people
						s, _ := json.Marshal(c.Policy.AdmissionPolicies[0].Spec) //nolint:errchkjson // for people
						t.Errorf("seed %d: %q\n%s\n%s\n%s", seed, rules, p.difference(variant), s, x)
					}
				}
			}
		}
	}
	t.Logf("%d requests, %d with an unnamed difference", asked, different)
}
