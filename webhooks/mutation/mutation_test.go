package mutation_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
)

const label = `Object{metadata: Object.metadata{labels: {"x": "y"}}}`

func compile(t testing.TB, text string) *mutation.Set {
	t.Helper()
	set, err := mutation.Compile(documents(t, text+namespaces))
	must(t, err)
	return set
}

// TestNeverTrue: a policy whose match condition is never true does nothing.
func TestNeverTrue(t *testing.T) {
	t.Parallel()
	for condition, want := range map[string]string{
		"1 == 2 && has(object.metadata.labels)": `spec.matchConditions[0].expression: "1 == 2 && has(object.metadata.labels)" is never true, so the policy does nothing`,
		"has(object.metadata.labels)":           "",
	} {
		found := compile(t, one("a", "matchConditions: [{name: c, expression: '"+condition+"'}]", label)).Warnings()
		if got := found.Error(); !strings.HasSuffix(got, want) || (len(found) > 0) != (want != "") || len(found) > 0 && !found[0].NoEffect {
			t.Errorf("%s: got %q", condition, got)
		}
	}
}

func TestCompileDiagnostics(t *testing.T) {
	t.Parallel()
	replaced := func(old, by string) string { return strings.Replace(one("a", "", label), old, by, 1) }
	for _, tc := range []struct{ name, documents, want string }{
		{"valid", one("a", "", label), ""},
		{"no reinvocation policy", replaced("  reinvocationPolicy: Never\n", ""), "spec.reinvocationPolicy: is required"},
		{"other reinvocation policy", one("a", "reinvocationPolicy: Always", label), `spec.reinvocationPolicy: "Always" is not allowed; allowed are "Never", "IfNeeded"`},
		{"no mutations", strings.Replace(one("a", "")+one("b", "", label), "  mutations:\n", "", 1), "MutatingAdmissionPolicy/a: spec.mutations: is required"},
		{"no patch type", replaced("patchType: ApplyConfiguration", "patchType: ''"), "spec.mutations[0].patchType: is required"},
		{"other patch type", replaced("patchType: ApplyConfiguration", "patchType: Merge"), `spec.mutations[0].patchType: "Merge" is not allowed`},
		{"other patch", replaced("patchType: ApplyConfiguration", "patchType: JSONPatch"), `spec.mutations[0].applyConfiguration: is not allowed with patchType "JSONPatch"`},
		{"blank expression", one("a", "", " "), "spec.mutations[0].applyConfiguration.expression: is required"},
		{"deletion", one("a", "matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE, DELETE], resources: [pods]}]}", label), `spec.matchConstraints.resourceRules[0].operations[1]: "DELETE" has no object to change`},
		{"no constraints", one("a", "matchConstraints: null", label), "spec.matchConstraints: is required"},
		{"no object", one("a", "", `{"a": "b"}`), "spec.mutations[0].applyConfiguration.expression"},
		{"no patches", one("a", "", `["a"]`), "spec.mutations[0].jsonPatch.expression"},
		{"type in a condition", one("a", "matchConditions: [{name: c, expression: 'Object{} == null'}]", label), "spec.matchConditions[0].expression"},
		{"type in a variable", one("a", "variables: [{name: v, expression: 'JSONPatch{}'}]", label), "spec.variables[0].expression"},
		{"variables in a condition", one("a", "variables: [{name: v, expression: '1'}]\nmatchConditions: [{name: c, expression: 'variables.v == 1'}]", label), `"variables" cannot be used in match conditions`},
		{"no params", one("a", "", `Object{metadata: Object.metadata{labels: params.data}}`), `"params" is not declared`},
		{"unknown name", one("a", "", `Object{metadata: Object.metadata{labels: obj.metadata.labels}}`), `"obj" is not declared (hint: did you mean "object"?)`},
		{"name twice", one("a", "", label) + one("a", "", label), `"a" is taken by another document`},
		{"binding names nothing", one("a", "", label) + strings.Replace(strings.Split(one("b", "", label), "---\n")[1], "policyName: b", "policyName: ''", 1), "MutatingAdmissionPolicyBinding/b-b: spec.policyName: is required"},
		{"too large", one("a", "", `Object{metadata: Object.metadata{labels: {"x": "`+strings.Repeat("a", 20_000)+`"}}}`), "spec.mutations[0].applyConfiguration.expression"},
	} {
		_, err := mutation.Compile(documents(t, tc.documents))
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestKeepBroken(t *testing.T) {
	t.Parallel()
	spec := documents(t, one("a", "failurePolicy: Ignore", `Object{metadata: none}`)+one("b", "", label)+namespaces)
	spec.KeepBroken = true
	set, err := mutation.Compile(spec)
	must(t, err)
	if len(set.Warnings()) != 1 {
		t.Errorf("warnings %v", set.Warnings())
	}
	d := set.Decide(t.Context(), mutation.Input{Request: request(t, pod, "", nil)})
	if d.Refusal != nil || len(d.Failures) != 1 || !d.Failures[0].Ignored || len(d.Patch) != 1 {
		t.Errorf("decision %+v", d)
	}
	spec.Previous, spec.Policies = set, spec.Policies[1:]
	again, err := mutation.Compile(spec)
	must(t, err)
	if d := again.Decide(t.Context(), mutation.Input{Request: request(t, pod, "", nil)}); len(d.Failures) != 0 || len(d.Patch) != 1 || again.IsEmpty() {
		t.Errorf("decision %+v", d)
	}
	stopped := errors.New("stopped")
	spec.Previous, spec.Stop = nil, func() error { return stopped }
	if _, err := mutation.Compile(spec); !errors.Is(err, stopped) {
		t.Errorf("error %v", err)
	}
}

// TestUnknownFieldsStay holds that what a Go type does not know, and how values are written, stays as it was sent.
func TestUnknownFieldsStay(t *testing.T) {
	t.Parallel()
	const object = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop","labels":null,"new":{"a":1}},"spec":{"hostNetwork":false,"future":[{"b":2.50}],
		"containers":[{"name":"one","image":"i:1","imagePullPolicy":"IfNotPresent","resources":{"limits":{"cpu":"1000m"},"requests":{"cpu":"1000m"}},"later":"x"},{"name":"two","image":"i:1","imagePullPolicy":"IfNotPresent","later":"y"}]}}`
	in := request(t, pod, "", func(r *admission.Request) { r.Object.Raw = []byte(object) })
	for _, tc := range []struct{ mutation, want string }{
		{label, `[{"op":"replace","path":"/metadata/labels","value":{"x":"y"}}]`},
		{`[JSONPatch{op: "remove", path: "/spec/containers/0"}]`, `[{"op":"remove","path":"/spec/containers/0"}]`},
		{`[JSONPatch{op: "replace", path: "/spec/containers/0/name", value: "new"}]`, ``},
		{`Object{spec: Object.spec{containers: [Object.spec.containers{name: "two", image: "i:2"}]}}`, `[{"op":"replace","path":"/spec/containers/1/image","value":"i:2"}]`},
		{
			`[JSONPatch{op: "add", path: "/spec/containers/0", value: {"name": "zero", "image": "i:1"}}, JSONPatch{op: "add", path: "/spec/hostNetwork", value: true}]`,
			`[{"op":"add","path":"/spec/containers/0","value":{"image":"i:1","imagePullPolicy":"IfNotPresent","name":"zero","resources":{},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}},{"op":"replace","path":"/spec/hostNetwork","value":true}]`,
		},
		{`Object{}`, `null`},
	} {
		set := compile(t, one("a", "", tc.mutation))
		d := set.Decide(t.Context(), mutation.Input{Request: in})
		if d.Err != nil || d.Refusal != nil {
			t.Fatalf("%s: %+v", tc.mutation, d)
		}
		if got := toJSON(t, d.Patch); tc.want != "" && got != tc.want {
			t.Errorf("%s\n got %s\nwant %s", tc.mutation, got, tc.want)
		}
		if d.Object == nil {
			continue
		}
		for _, kept := range []string{`"new":{"a":1}`, `"future":[{"b":2.50}]`, `"later":"y"`} {
			if !strings.Contains(string(d.Object), kept) {
				t.Errorf("%s: %s is lost: %s", tc.mutation, kept, d.Object)
			}
		}
	}
}

// panicking are Schemas that panic.
type panicking struct{}

func (panicking) TypeConverter(schema.GroupVersionKind) managedfields.TypeConverter {
	panic("no schema")
}

func (panicking) Default(*unstructured.Unstructured) {}

func (panicking) Err(schema.GroupVersionKind) error { return nil }

// unread are Schemas that have not been read.
type unread struct{ panicking }

func (unread) TypeConverter(schema.GroupVersionKind) managedfields.TypeConverter { return nil }

func (unread) Err(schema.GroupVersionKind) error { return errors.New("not read") }

func TestBounds(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("0123456789", 100)
	doubled := make([]string, 0, 40)
	for i := range 40 {
		doubled = append(doubled, fmt.Sprintf(`JSONPatch{op: "copy", from: "/metadata", path: "/metadata/annotations/%d"}`, i))
	}
	for _, tc := range []struct {
		name, documents, object, want string
		change                        func(*mutation.Spec)
	}{
		{name: "size", documents: one("a", "", `Object{metadata: Object.metadata{annotations: {"x": "`+large+`"}}}`), want: "bytes, allowed are 2000", change: func(s *mutation.Spec) { s.MaxObject = 2000 }},
		{name: "copies", documents: one("a", "", "["+strings.Join(doubled, ", ")+"]"), want: "the patch copies too often"},
		{name: "operations", documents: one("a", "", `[] + lists.range(10500).map(i, JSONPatch{op: "test", path: "/kind", value: "Pod"})`), want: "the patch has 10500 operations, allowed are 10000"},
		{name: "panic", documents: one("a", "", label), object: widget, want: "internal error: no schema", change: func(s *mutation.Spec) { s.Schemas = panicking{} }},
		{name: "unread schema", documents: one("a", "", label), object: widget, want: "no schema for example.com/v1, Kind=Widget: not read", change: func(s *mutation.Spec) { s.Schemas = unread{} }},
		{name: "unknown namespace", documents: one("a", "", `Object{metadata: Object.metadata{labels: namespaceObject.metadata.labels}}`), want: `namespace "shop" is not known, and namespaceObject is used`, change: func(s *mutation.Spec) { s.Objects = nil }},
		{name: "version", documents: one("a", "matchConstraints: {resourceRules: [{apiGroups: [example.com], apiVersions: [v2], operations: [CREATE], resources: [widgets]}]}", label), object: widget, want: "failed to convert object version"},
	} {
		// The policy that fails is ignored; the one behind it works.
		for _, ignored := range []bool{false, true} {
			text := tc.documents
			if ignored {
				text = strings.Replace(text, "  reinvocationPolicy", "  failurePolicy: Ignore\n  reinvocationPolicy", 1)
			}
			object, patch := tc.object, 1
			if object == "" {
				object = pod
			}
			spec := documents(t, text+one("b", "", `[JSONPatch{op: "add", path: "/metadata/finalizers", value: ["x/y"]}]`)+namespaces)
			if tc.change != nil {
				tc.change(&spec)
			}
			set, err := mutation.Compile(spec)
			must(t, err)
			d := set.Decide(t.Context(), mutation.Input{Request: request(t, object, "", nil)})
			both := tc.name == "panic" || tc.name == "unread schema" // need the schema
			if both {
				patch = 0
			}
			if len(d.Failures) == 0 || !strings.Contains(d.Failures[0].Message, tc.want) || d.Failures[0].Ignored != ignored {
				t.Errorf("%s: %+v", tc.name, d)
			}
			if refused := d.Refusal != nil; refused == ignored && !both || ignored && len(d.Patch) != patch || refused && (d.Patch != nil || d.Response().Allowed) {
				t.Errorf("%s, ignored %v: %+v", tc.name, ignored, d)
			}
		}
	}
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d := compile(t, one("a", "failurePolicy: Ignore", label)).Decide(ctx, mutation.Input{Request: request(t, pod, "", nil)})
	if response := d.Response(); !errors.Is(d.Err, context.Canceled) || response.Allowed || response.Result.Code != 500 || d.Patch != nil {
		t.Errorf("decision %+v", d)
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	set := compile(t, one("a", "reinvocationPolicy: IfNeeded", label, `Object{metadata: Object.metadata{annotations: {"count": "2"}}}`)+
		one("b", "", `Object{metadata: Object.metadata{labels: {"x": "z"}}}`, `[JSONPatch{op: "remove", path: "/metadata/annotations"}]`)+
		one("c", "matchConditions: [{name: never, expression: 'false'}]", label)+
		one("d", "matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [services]}]}", label)+
		one("e", "failurePolicy: Ignore", `Object{metadata: Object.metadata{labels: {"x": object.none}}}`))
	d := set.Decide(t.Context(), mutation.Input{Request: request(t, pod, "", nil), Explain: true})
	var got []string
	for _, e := range d.Evaluations {
		text := fmt.Sprint(e.Policy, " ", e.Why, " ", e.Detail, " ", e.Again)
		for _, m := range e.Mutations {
			text += fmt.Sprint(" ", m.Index, toJSON(t, m.Changes), m.Error != "")
		}
		got = append(got, text)
	}
	want := []string{
		`d OtherRequest  false`,
		`a Evaluated  false 0[{"path":"/metadata/labels/x","after":"\"y\""}]false 1[{"path":"/metadata/annotations/count","before":"\"1\"","after":"\"2\""}]false`,
		`b Evaluated  false 0[{"path":"/metadata/labels/x","before":"\"y\"","after":"\"z\""}]false 1[{"path":"/metadata/annotations","before":"{\"count\":\"2\"}"}]false`,
		`c ConditionNotMet never false`,
		`e Evaluated  false 0nulltrue`,
		`d OtherRequest  true`,
		`a Evaluated  true 0[{"path":"/metadata/labels/x","before":"\"z\"","after":"\"y\""}]false 1[{"path":"/metadata/annotations","after":"{\"count\":\"2\"}"}]false`,
		`c ConditionNotMet never true`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got, want := fmt.Sprint(d.LastChanges()), "[{/metadata/labels/x a a-b 0} {/metadata/annotations a a-b 1}]"; got != want {
		t.Errorf("last changes %s, want %s", got, want)
	}
}

func TestConflicts(t *testing.T) {
	t.Parallel()
	set := compile(t, one("a", "", `[JSONPatch{op: "add", path: "/spec/containers/0/args/-", value: "a"}]`)+
		one("b", "", `[JSONPatch{op: "add", path: "/spec/containers/0/args/-", value: "b"}]`)+
		one("c", "", label)+
		one("d", "matchConditions: [{name: c, expression: \"'x' in object.metadata.labels\"}]", `Object{metadata: Object.metadata{annotations: {"seen": "yes"}}}`)+
		one("e", "", `Object{metadata: Object.metadata{labels: {"free": "yes"}}}`)+
		one("f", "", `[JSONPatch{op: "test", path: "/metadata/labels/free", value: "yes"}, JSONPatch{op: "remove", path: "/metadata/labels/free"}]`))
	found, complete := set.Conflicts(t.Context(), mutation.Input{Request: request(t, pod, "", nil)})
	var got []string
	for _, c := range found {
		got = append(got, fmt.Sprint(c.First, c.Second, c.Paths))
	}
	if want := []string{"ab[/spec/containers/0/args/2 /spec/containers/0/args/3]", "cd[/metadata/annotations/seen]", "ef[/metadata/labels/free]"}; !complete || !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestScale holds what an API server of 1.37.0 answers: the schemas of autoscaling/v1 do not have the kind of a subresource of others.
func TestScale(t *testing.T) {
	t.Parallel()
	const want = "policy 'a' with binding 'a-b' denied request: error applying patch: failed to convert patch object to typed object: no corresponding type for autoscaling/v1, Kind=Scale"
	d := compile(t, one("a", "", `Object{spec: Object.spec{replicas: 7}}`)).Decide(t.Context(), mutation.Input{Request: request(t, scale, "", scaleOf)})
	if d.Refusal == nil || d.Refusal.Message != want || d.Refusal.Code != 403 {
		t.Errorf("got %+v, want %s", d.Refusal, want)
	}
}

func BenchmarkDecide(b *testing.B) {
	const patch = `[JSONPatch{op: "add", path: "/metadata/labels/z", value: "1"}]`
	others := ""
	for i := range 9 {
		others += one(fmt.Sprint("other-", i), "matchConstraints: {objectSelector: {matchLabels: {app: other}}, resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}", label)
	}
	var variables strings.Builder
	for i := range 25 {
		fmt.Fprintf(&variables, ", {name: CHECKOUT_SETTING_%d, value: \"https://setting-%d.shop.svc.cluster.local:8443/v1\"}", i, i)
	}
	large := strings.Replace(pod, `{name: B, value: "2"}`, `{name: B, value: "2"}`+variables.String(), 1)
	for _, tc := range []struct{ name, documents string }{
		{"apply", one("a", "", label)},
		{"apply to containers", one("a", "", `Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, imagePullPolicy: "Always"})}}`)},
		{"patch", one("a", "", patch)},
		{"patch of a container", one("a", "", `[JSONPatch{op: "replace", path: "/spec/containers/0/image", value: "registry.example.com/" + object.spec.containers[0].image}]`)},
		{"one of ten applies", others + one("a", "", label)},
		{"one of ten patches", others + one("a", "", patch)},
		{"no match", one("a", "matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}", label)},
	} {
		spec := documents(b, tc.documents+namespaces)
		set, err := mutation.Compile(spec)
		must(b, err)
		in, u := request(b, large, "", nil), newUpstream(b, spec)
		b.Run(tc.name+"/ours", func(b *testing.B) {
			for b.Loop() {
				set.Decide(b.Context(), mutation.Input{Request: in})
			}
		})
		b.Run(tc.name+"/upstream", func(b *testing.B) {
			for b.Loop() {
				u.dispatch(b, in) // without the answer's patch
			}
		})
	}
}

// TestVersions holds that policies that name two versions of a resource see what each other did.
func TestVersions(t *testing.T) {
	t.Parallel()
	const autoscaler = "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: h, namespace: shop}\nspec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}}\n"
	of := func(version string) string {
		return "matchConstraints: {resourceRules: [{apiGroups: [autoscaling], apiVersions: [" + version + "], operations: [CREATE], resources: [horizontalpodautoscalers]}]}"
	}
	set := compile(t, one("a", of("v1"), `Object{spec: Object.spec{maxReplicas: object.spec.maxReplicas + 1, targetCPUUtilizationPercentage: 50}}`)+one("b", of("v2"), `Object{spec: Object.spec{maxReplicas: object.spec.maxReplicas * 2}}`))
	d := set.Decide(t.Context(), mutation.Input{Request: request(t, autoscaler, "", func(r *admission.Request) { r.Resource.Resource = "horizontalpodautoscalers" })})
	var object struct {
		Spec struct {
			MaxReplicas int
			Metrics     []struct {
				Resource struct {
					Target struct{ AverageUtilization int }
				}
			}
		}
	}
	if d.Err != nil || d.Refusal != nil {
		t.Fatalf("decision %+v", d)
	}
	must(t, json.Unmarshal(d.Object, &object))
	if object.Spec.MaxReplicas != 8 || len(object.Spec.Metrics) != 1 || object.Spec.Metrics[0].Resource.Target.AverageUtilization != 50 {
		t.Errorf("object %s", d.Object)
	}
}

// TestOtherResources holds that a request about a resource that no policy names is decided without reading its object, and one
// about an equivalent resource is not.
func TestOtherResources(t *testing.T) {
	t.Parallel()
	set := compile(t, one("a", "matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods/status]}]}", label))
	for resource, reads := range map[string]bool{"pods": true, "widgets": false} {
		r := admission.Request{}
		r.Operation, r.SubResource, r.Object.Raw = "CREATE", "status", []byte("no JSON")
		r.Resource.Version, r.Resource.Resource = "v1", resource
		if d := set.Decide(t.Context(), mutation.Input{Request: r}); (d.Err != nil) != reads {
			t.Errorf("%s: %v", resource, d.Err)
		}
	}
	all := compile(t, one("a", "", label))
	r := admission.Request{}
	r.Operation, r.Object.Raw = "CREATE", []byte("no JSON")
	r.Resource.Version, r.Resource.Resource = "v1", "widgets"
	if d := all.Decide(t.Context(), mutation.Input{Request: r}); d.Err == nil {
		t.Error("a policy about all resources was left out")
	}
}
