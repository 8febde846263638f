package differential_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/randfill"

	"github.com/gatehouse-dev/gatehouse/test/support/dispatcher"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// generator makes random policies and requests. Equal seeds give equal ones.
type generator struct {
	*rand.Rand
	fill *randfill.Filler
	// paths are what expressions name of the objects of requests, names what they name of the policy.
	paths, names []string
}

func newGenerator(seed int64) *generator {
	g := &generator{Rand: rand.New(rand.NewSource(seed))}
	g.fill = randfill.NewWithSeed(seed).NilChance(0.6).NumElements(0, 2).MaxDepth(9).Funcs(
		func(s *string, _ randfill.Continue) { *s = g.text() },
		func(q *resource.Quantity, _ randfill.Continue) {
			*q = resource.MustParse(g.of("0", "1", "500m", "1Gi", "2500m", "1e3", "-3", "0.1", "9223372036854775807"))
		},
		func(t *metav1.Time, _ randfill.Continue) { *t = metav1.NewTime(time.Unix(g.Int63n(2e9), 0).UTC()) },
		func(t *metav1.MicroTime, _ randfill.Continue) {
			*t = metav1.NewMicroTime(time.Unix(g.Int63n(2e9), g.Int63n(1e6)*1000).UTC())
		},
		func(v *intstr.IntOrString, _ randfill.Continue) {
			*v = intstr.FromInt32(int32(g.Intn(70000)))
			if g.maybe(0.5) {
				*v = intstr.FromString(g.of("http", "25%", "", "80"))
			}
		},
		func(f *metav1.FieldsV1, _ randfill.Continue) { f.SetRawString(`{"f:metadata":{}}`) },
		func(r *runtime.RawExtension, _ randfill.Continue) { r.Raw = []byte(`{"a":` + g.value() + `}`) },
		func(m *metav1.ObjectMeta, _ randfill.Continue) { *m = g.metadata() },
		func(l *metav1.LabelSelector, _ randfill.Continue) { *l = metav1.LabelSelector{MatchLabels: g.labels()} },
		func(d *metav1.Duration, _ randfill.Continue) {
			d.Duration = time.Duration(g.Intn(5000)) * time.Millisecond
		},
	)
	return g
}

func (g *generator) maybe(chance float64) bool { return g.Float64() < chance }

func (g *generator) of(list ...string) string { return list[g.Intn(len(list))] }

// list returns some of the texts, not none.
func (g *generator) list(all ...string) []string {
	out := slices.Clone(all)
	g.Shuffle(len(out), func(i, k int) { out[i], out[k] = out[k], out[i] })
	return out[:1+g.Intn(len(out))]
}

// text returns a text as users write them.
func (g *generator) text() string {
	return g.of("", "a", "b", "web", "shop", "checkout", "NaN", "Infinity", "true", "*", "80", "-1", "1.5", "80%", "1Gi", "500m", "1e3", "0x10",
		"2026-01-02T03:04:05Z", "2026-01-02T03:04:05,5Z", "2026-13-02", "1h", "1h30m", "P1D", "é", "日本", "a\u0000b", "line\nbreak", " padded ",
		"registry.example/web:1", "c2VzYW1l", "10.0.0.1", "::1", "10.0.0.0/8", "https://a.example/x?y=1", "1.2.3", "{\"a\":1}", "👍🏽", "ß", "\\", "\"", "'")
}

// value returns the JSON text of a value as it may stand in a custom resource.
func (g *generator) value() string {
	if g.maybe(0.3) {
		return string(mustMarshal(g.text()))
	}
	return g.of("null", "true", "false", "0", "-1", "1", "1.0", "1.5", "-0.0", "3", "80", "9007199254740993", "9223372036854775807", "-9223372036854775808",
		"18446744073709551616", "1e30", "1e-7", "[]", "{}", "[null]", `["a","b"]`, `[1,"a",null]`, "[1,2,3]", "[1.5,2]", `{"a":null}`, `{"a":{"b":[]}}`,
		`[{"name":"a","v":1},{"name":"b"}]`, `{"a":1,"b":"x","c":[true]}`, "[[1],[2]]", `{"":1,"with-dash":2,"null":3}`)
}

func (g *generator) labels() map[string]string {
	out := map[string]string{}
	for range g.Intn(3) {
		out[g.of("team", "env", "app")] = g.of("a", "b", "prod", "test", "checkout", "")
	}
	return out
}

func (g *generator) metadata() metav1.ObjectMeta {
	m := metav1.ObjectMeta{Labels: g.labels(), Generation: int64(g.Intn(3))}
	if g.maybe(0.4) {
		m.Annotations = map[string]string{g.of("owner", "example.com/note"): g.text()}
	}
	if g.maybe(0.6) {
		m.CreationTimestamp, m.UID = metav1.NewTime(time.Unix(1.7e9, 0).UTC()), "5d53"
	}
	if g.maybe(0.2) {
		m.Finalizers = []string{"example.com/f"}
	}
	if g.maybe(0.2) {
		m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "u", Controller: new(g.maybe(0.5))}}
	}
	return m
}

// target is a kind of request.
type target struct {
	resource    schema.GroupVersionResource
	subresource string
	kind        schema.GroupVersionKind
	namespaced  bool
	operations  []string
}

// targets returns the kinds of requests that are made, some about resources of which the API server
// serves several versions.
func targets() []target {
	var out []target
	for line := range strings.Lines(`v1 pods Pod namespaced CREATE,UPDATE,DELETE
v1 configmaps ConfigMap namespaced CREATE,UPDATE,DELETE
v1 secrets Secret namespaced CREATE,UPDATE,DELETE
v1 services Service namespaced CREATE,UPDATE,DELETE
v1 namespaces Namespace cluster CREATE,UPDATE,DELETE
v1 nodes Node cluster CREATE,UPDATE,DELETE
v1 events Event namespaced CREATE,UPDATE,DELETE
events.k8s.io/v1 events Event namespaced CREATE,UPDATE,DELETE
apps/v1 deployments Deployment namespaced CREATE,UPDATE,DELETE
batch/v1 jobs Job namespaced CREATE,UPDATE,DELETE
autoscaling/v1 horizontalpodautoscalers HorizontalPodAutoscaler namespaced CREATE,UPDATE,DELETE
autoscaling/v2 horizontalpodautoscalers HorizontalPodAutoscaler namespaced CREATE,UPDATE,DELETE
networking.k8s.io/v1 ingresses Ingress namespaced CREATE,UPDATE,DELETE
networking.k8s.io/v1 servicecidrs ServiceCIDR cluster CREATE,UPDATE,DELETE
networking.k8s.io/v1beta1 servicecidrs ServiceCIDR cluster CREATE,UPDATE,DELETE
rbac.authorization.k8s.io/v1 clusterroles ClusterRole cluster CREATE,UPDATE,DELETE
resource.k8s.io/v1 resourceclaims ResourceClaim namespaced CREATE,UPDATE,DELETE
resource.k8s.io/v1beta1 resourceclaims ResourceClaim namespaced CREATE,UPDATE,DELETE
resource.k8s.io/v1beta2 resourceclaims ResourceClaim namespaced CREATE,UPDATE,DELETE
storage.k8s.io/v1 storageclasses StorageClass cluster CREATE,UPDATE,DELETE
example.com/v1 things Thing namespaced CREATE,UPDATE,DELETE
example.com/v1beta1 things Thing namespaced CREATE,UPDATE,DELETE
example.com/v1 gadgets Gadget cluster CREATE,UPDATE,DELETE
v1 pods/status Pod namespaced UPDATE
v1 pods/ephemeralcontainers Pod namespaced UPDATE
v1 pods/exec PodExecOptions namespaced CONNECT
v1 pods/eviction policy/v1/Eviction namespaced CREATE
v1 serviceaccounts/token authentication.k8s.io/v1/TokenRequest namespaced CREATE
apps/v1 deployments/scale autoscaling/v1/Scale namespaced UPDATE
autoscaling/v2 horizontalpodautoscalers/status HorizontalPodAutoscaler namespaced UPDATE
autoscaling/v1 horizontalpodautoscalers/status HorizontalPodAutoscaler namespaced UPDATE
example.com/v1 things/status Thing namespaced UPDATE
example.com/v1beta1 things/status Thing namespaced UPDATE
example.com/v1 things/scale autoscaling/v1/Scale namespaced UPDATE
example.com/v1beta1 things/scale autoscaling/v1/Scale namespaced UPDATE`) {
		fields := strings.Fields(line)
		gv, _ := schema.ParseGroupVersion(fields[0])
		name, subresource, _ := strings.Cut(fields[1], "/")
		kind := gv.WithKind(fields[2])
		if i := strings.LastIndex(fields[2], "/"); i > 0 {
			kind = schema.FromAPIVersionAndKind(fields[2][:i], fields[2][i+1:])
		}
		out = append(out, target{gv.WithResource(name), subresource, kind, fields[3] == "namespaced", strings.Split(fields[4], ",")})
	}
	return out
}

// object returns an object as the API server has it, and its text as it sends it.
func (g *generator) object(kind schema.GroupVersionKind, name, namespace string) (runtime.Object, []byte) {
	object, err := clientgoscheme.Scheme.New(kind)
	if err != nil {
		u := g.custom(kind, name, namespace)
		raw := mustMarshal(u)
		check(u.UnmarshalJSON(raw)) // It has 1 for 1.0, which is documented.
		return u, raw
	}
	g.fill.Fill(object)
	object.GetObjectKind().SetGroupVersionKind(kind)
	if m, ok := object.(metav1.Object); ok {
		m.SetName(name)
		m.SetNamespace(namespace)
	}
	raw := mustMarshal(object)
	// The API server has read the object from a text.
	object, _ = reflect.TypeAssert[runtime.Object](reflect.New(reflect.TypeOf(object).Elem()))
	check(json.Unmarshal(raw, object))
	return object, mustMarshal(object)
}

func mustMarshal(v any) []byte {
	raw, err := json.Marshal(v)
	check(err)
	return raw
}

// custom returns a custom resource.
func (g *generator) custom(kind schema.GroupVersionKind, name, namespace string) *unstructured.Unstructured {
	text := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":%s`, kind.GroupVersion(), kind.Kind, mustMarshal(g.metadata()))
	for _, field := range []string{"spec", "status", "data", "a", "extra"} {
		switch {
		case g.maybe(0.4):
			text += fmt.Sprintf(`,%q:%s`, field, g.value())
		case g.maybe(0.6):
			text += fmt.Sprintf(`,%q:{"a":%s,"b":%s,"list":[%s,%s],"replicas":%s}`, field, g.value(), g.value(), g.value(), g.value(), g.value())
		}
	}
	u := new(unstructured.Unstructured)
	check(u.UnmarshalJSON([]byte(text + "}")))
	u.SetName(name)
	u.SetNamespace(namespace)
	return u
}

func (g *generator) request(t target) dispatcher.Asked {
	name, namespace := g.of("web", "cart", "x"), ""
	if t.namespaced {
		namespace = g.of("shop", "lab")
	}
	if t.kind.Kind == "Namespace" {
		name = g.of("shop", "lab")
	}
	operation := admissionv1.Operation(g.of(t.operations...))
	var out dispatcher.Asked
	var raw, oldRaw []byte
	out.Object, raw = g.object(t.kind, name, namespace)
	switch {
	case operation == admissionv1.Update && g.maybe(0.5):
		out.OldObject, oldRaw = g.object(t.kind, name, namespace)
	case operation == admissionv1.Update: // Most updates change little.
		out.OldObject, oldRaw = out.Object.DeepCopyObject(), slices.Clone(raw)
	case operation == admissionv1.Delete:
		out.OldObject, oldRaw, out.Object, raw = out.Object, raw, nil, nil
		if t.kind.Kind == "Namespace" {
			stored, _ := known().Namespace(name)
			stored.SetGroupVersionKind(t.kind)
			out.OldObject, oldRaw = stored, mustMarshal(stored)
		}
	}
	if t.kind.Kind == "Namespace" {
		namespace = name
	}
	if operation == admissionv1.Create && t.subresource == "" && t.kind.Kind != "Namespace" && g.maybe(0.2) {
		name = "" // the API server gives the name, from generateName
	}
	req := admissionv1.AdmissionRequest{
		UID: "7c0f8d9e", Name: name, Namespace: namespace, Operation: operation,
		Kind: metav1.GroupVersionKind(t.kind), Resource: metav1.GroupVersionResource(t.resource), SubResource: t.subresource,
		RequestKind: new(metav1.GroupVersionKind(t.kind)), RequestResource: new(metav1.GroupVersionResource(t.resource)), RequestSubResource: t.subresource,
		UserInfo: authenticationv1.UserInfo{Username: g.of("alice", "bob", "system:serviceaccount:shop:web", ""), UID: g.of("", "1"), Groups: g.list("devs", "ops", "system:authenticated")},
		Object:   runtime.RawExtension{Raw: raw}, OldObject: runtime.RawExtension{Raw: oldRaw},
	}
	if g.maybe(0.5) {
		req.UserInfo.Extra = map[string]authenticationv1.ExtraValue{"scopes": g.list("a", "b"), g.of("none", "more"): {}}
	}
	if g.maybe(0.6) {
		req.DryRun = new(g.maybe(0.5))
	}
	if operation != admissionv1.Connect && g.maybe(0.6) {
		kind, field := map[admissionv1.Operation]string{admissionv1.Create: "CreateOptions", admissionv1.Update: "UpdateOptions"}[operation], g.of("", `,"fieldManager":"kubectl"`, `,"fieldValidation":"Strict"`)
		if operation == admissionv1.Delete {
			kind, field = "DeleteOptions", g.of("", `,"gracePeriodSeconds":0`, `,"propagationPolicy":"Background"`)
		}
		req.Options.Raw = fmt.Appendf(nil, `{"kind":%q,"apiVersion":"meta.k8s.io/v1"%s}`, kind, field)
	}
	out.Sent = admission.Request{AdmissionRequest: req}
	g.collect("object", raw)
	g.collect("oldObject", oldRaw)
	return out
}

// plainField matches members that can be selected by their names.
var plainField = regexp.MustCompile(`^[a-zA-Z]\w*$`)

// collect finds paths in an object that expressions can name.
func (g *generator) collect(root string, raw []byte) {
	var walk func(path string, v any, depth int)
	walk = func(path string, v any, depth int) {
		g.paths = append(g.paths, path)
		if depth > 7 {
			return
		}
		switch v := v.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				next := fmt.Sprintf("%s[%q]", path, key)
				if plainField.MatchString(key) && !slices.Contains([]string{"null", "namespace"}, key) {
					next = path + "." + key
				}
				walk(next, v[key], depth+1)
			}
		case []any:
			for i := range v {
				walk(fmt.Sprintf("%s[%d]", path, i), v[i], depth+1)
			}
		}
	}
	var v any
	if len(raw) > 0 && json.Unmarshal(raw, &v) == nil {
		walk(root, v, 0)
	}
}

// world are policies and bindings, and requests that they are about.
type world struct {
	policies []policy.Policy
	bindings []policy.Binding
	requests []dispatcher.Asked
}

func (w *world) spec() policy.Spec {
	return policy.Spec{Policies: w.policies, Bindings: w.bindings, Objects: known(), Authorizer: randomAuthorizer{}, Previous: emptySet()}
}

func (g *generator) world() *world {
	w := &world{}
	all := targets()
	about := []target{all[g.Intn(len(all))], all[g.Intn(len(all))]}
	for range 1 + g.Intn(6) {
		w.requests = append(w.requests, g.request(about[g.Intn(2)]))
	}
	for i := range 1 + g.Intn(4) {
		p := admissionregistrationv1.ValidatingAdmissionPolicy{}
		p.Name = fmt.Sprintf("p%d", i)
		p.Spec = g.policySpec(w.requests)
		w.policies = append(w.policies, policy.Policy{Source: p.Name, ValidatingAdmissionPolicy: p})
		for k := range max(1, g.Intn(4)) {
			w.bindings = append(w.bindings, g.binding(&p, fmt.Sprintf("b%d-%d", i, k), w.requests))
		}
	}
	return w
}
