package policy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand"
	"reflect"
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

	"github.com/gatehouse-dev/gatehouse/webhooks/equivalent"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// generator makes random policies, what they look up, and requests. Equal seeds
// give equal ones.
type generator struct {
	*rand.Rand
	fill *randfill.Filler
	// paths are what expressions name of the object of the request.
	paths []string
	// known is the context of the world that is being made.
	known objects
}

func newGenerator(seed int64) *generator {
	g := &generator{Rand: rand.New(rand.NewSource(seed))}
	g.fill = randfill.NewWithSeed(seed).NilChance(0.6).NumElements(0, 2).MaxDepth(9).Funcs(
		func(s *string, _ randfill.Continue) { *s = g.text() },
		func(q *resource.Quantity, _ randfill.Continue) {
			*q = resource.MustParse(g.of("0", "1", "500m", "1Gi", "2500m", "1e3", "-3", "0.1", "9223372036854775807"))
		},
		func(t *metav1.Time, _ randfill.Continue) {
			if g.maybe(0.7) {
				*t = metav1.NewTime(time.Unix(g.Int63n(2e9), 0).UTC())
			}
		},
		func(t *metav1.MicroTime, _ randfill.Continue) {
			if g.maybe(0.7) {
				*t = metav1.NewMicroTime(time.Unix(g.Int63n(2e9), g.Int63n(1e6)*1000).UTC())
			}
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
	if len(out) == 0 && g.maybe(0.5) {
		return nil
	}
	return out
}

func (g *generator) metadata() metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: g.of("web", "cart", "x"), Labels: g.labels(), Generation: int64(g.Intn(3))}
	if g.maybe(0.4) {
		m.Annotations = map[string]string{g.of("owner", "example.com/note"): g.text()}
	}
	if g.maybe(0.6) {
		m.CreationTimestamp, m.UID = metav1.NewTime(time.Unix(1.7e9, 0).UTC()), "5d53"
	}
	if g.maybe(0.1) {
		m.DeletionTimestamp = new(metav1.NewTime(time.Unix(1.8e9, 0).UTC()))
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
	operations  []admissionv1.Operation
}

// targets returns the kinds of requests that are made. Webhook configurations, which
// are never evaluated here, are not among them.
func targets() []target {
	var out []target
	add := func(group, version, resource, subresource, kind string, namespaced bool, operations ...admissionv1.Operation) {
		gv := schema.GroupVersion{Group: group, Version: version}
		kindOf := gv.WithKind(kind)
		if group, version, found := strings.Cut(kind, "/"); found {
			version, kind, _ := strings.Cut(version, "/")
			kindOf = schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
		}
		out = append(out, target{gv.WithResource(resource), subresource, kindOf, namespaced, operations})
	}
	all := []admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Delete}
	for _, k := range []struct {
		group, version, resource, kind string
		namespaced                     bool
	}{
		{"", "v1", "pods", "Pod", true},
		{"", "v1", "configmaps", "ConfigMap", true},
		{"", "v1", "secrets", "Secret", true},
		{"", "v1", "services", "Service", true},
		{"", "v1", "namespaces", "Namespace", false},
		{"", "v1", "nodes", "Node", false},
		{"", "v1", "events", "Event", true},
		{"events.k8s.io", "v1", "events", "Event", true},
		{"", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true},
		{"", "v1", "resourcequotas", "ResourceQuota", true},
		{"apps", "v1", "deployments", "Deployment", true},
		{"apps", "v1", "statefulsets", "StatefulSet", true},
		{"batch", "v1", "jobs", "Job", true},
		{"batch", "v1", "cronjobs", "CronJob", true},
		{"autoscaling", "v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler", true},
		{"autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", true},
		{"networking.k8s.io", "v1", "ingresses", "Ingress", true},
		{"networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", true},
		{"networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR", false},
		{"networking.k8s.io", "v1beta1", "servicecidrs", "ServiceCIDR", false},
		{"policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true},
		{"rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false},
		{"rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", true},
		{"resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", true},
		{"resource.k8s.io", "v1beta1", "resourceclaims", "ResourceClaim", true},
		{"resource.k8s.io", "v1beta2", "resourceclaims", "ResourceClaim", true},
		{"storage.k8s.io", "v1", "storageclasses", "StorageClass", false},
		{"scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", false},
		{"example.com", "v1", "things", "Thing", true},
		{"example.com", "v1beta1", "things", "Thing", true},
		{"example.com", "v1", "gadgets", "Gadget", false},
	} {
		add(k.group, k.version, k.resource, "", k.kind, k.namespaced, all...)
	}
	update := admissionv1.Update
	add("", "v1", "pods", "status", "Pod", true, update)
	add("", "v1", "pods", "ephemeralcontainers", "Pod", true, update)
	add("", "v1", "pods", "exec", "PodExecOptions", true, admissionv1.Connect)
	add("", "v1", "pods", "eviction", "policy/v1/Eviction", true, admissionv1.Create)
	add("", "v1", "pods", "binding", "Binding", true, admissionv1.Create)
	add("", "v1", "serviceaccounts", "token", "authentication.k8s.io/v1/TokenRequest", true, admissionv1.Create)
	add("apps", "v1", "deployments", "scale", "autoscaling/v1/Scale", true, update)
	add("", "v1", "replicationcontrollers", "scale", "autoscaling/v1/Scale", true, update)
	for _, version := range []string{"v1", "v2"} {
		add("autoscaling", version, "horizontalpodautoscalers", "status", "HorizontalPodAutoscaler", true, update)
	}
	for _, version := range []string{"v1", "v1beta1"} {
		add("example.com", version, "things", "status", "Thing", true, update)
		add("example.com", version, "things", "scale", "autoscaling/v1/Scale", true, update)
	}
	return out
}

// object returns an object as clients send it, and its text as API servers send it.
func (g *generator) object(t *target, name, namespace string) (runtime.Object, []byte) {
	var object runtime.Object
	if typed, err := clientgoscheme.Scheme.New(t.kind); err == nil {
		g.fill.Fill(typed)
		typed.GetObjectKind().SetGroupVersionKind(t.kind)
		if m, ok := typed.(metav1.Object); ok {
			if m.GetName() == "" || name != "" {
				m.SetName(name)
			}
			m.SetNamespace(namespace)
		}
		object = typed
	} else {
		object = &unstructured.Unstructured{Object: g.custom(t.kind, name, namespace)}
	}
	raw := mustMarshal(object)
	// An API server has read the object from a text. What it writes of a custom
	// resource has 1 for 1.0, which is documented.
	if u, custom := object.(*unstructured.Unstructured); custom {
		if err := u.UnmarshalJSON(raw); err != nil {
			panic(err)
		}
	} else {
		again := reflect.New(reflect.TypeOf(object).Elem()).Interface()
		if err := json.Unmarshal(raw, again); err != nil {
			panic(fmt.Sprintf("%v: %v: %s", t.kind, err, raw))
		}
		object, _ = again.(runtime.Object)
		object.GetObjectKind().SetGroupVersionKind(t.kind)
		raw = mustMarshal(object)
	}
	return object, raw
}

func mustMarshal(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

// custom returns a custom resource.
func (g *generator) custom(kind schema.GroupVersionKind, name, namespace string) map[string]any {
	text := `{"metadata":` + string(mustMarshal(g.metadata()))
	for _, field := range []string{"spec", "status", "data", "a", "extra"} {
		switch {
		case g.maybe(0.4):
			text += fmt.Sprintf(`,%q:%s`, field, g.value())
		case g.maybe(0.6):
			text += fmt.Sprintf(`,%q:{"a":%s,"b":%s,"list":[%s,%s],"replicas":%s}`, field, g.value(), g.value(), g.value(), g.value(), g.value())
		}
	}
	u := new(unstructured.Unstructured)
	if err := u.UnmarshalJSON([]byte(text + fmt.Sprintf(`,"apiVersion":%q,"kind":%q}`, kind.GroupVersion(), kind.Kind))); err != nil {
		panic(err)
	}
	u.SetName(name)
	u.SetNamespace(namespace)
	return u.Object
}

// asked is a request, as the API server has it and as it sends it.
type asked struct {
	object, oldObject runtime.Object
	sent              admission.Request
}

func (g *generator) request(t target) asked {
	name, namespace := g.of("web", "cart", "x"), ""
	if t.namespaced {
		namespace = g.of("shop", "lab")
	}
	operation := t.operations[g.Intn(len(t.operations))]
	var out asked
	var raw, oldRaw []byte
	out.object, raw = g.object(&t, name, namespace)
	if operation == admissionv1.Update {
		out.oldObject, oldRaw = g.object(&t, name, namespace)
		if g.maybe(0.5) {
			// Most updates change little.
			out.oldObject, oldRaw = out.object.DeepCopyObject(), slices.Clone(raw)
		}
	}
	if operation == admissionv1.Delete {
		out.oldObject, oldRaw, out.object, raw = out.object, raw, nil, nil
	}
	if t.kind.Kind == "Namespace" {
		namespace = name
		if stored, ok := g.known.Namespace(name); ok && operation == admissionv1.Delete {
			// What is deleted is what there is.
			stored.SetGroupVersionKind(t.kind)
			out.oldObject, oldRaw = stored, mustMarshal(stored)
		}
	}
	if operation == admissionv1.Create && t.subresource == "" && g.maybe(0.2) {
		name = "" // the API server gives the name, from generateName
	}
	req := admissionv1.AdmissionRequest{
		UID: "7c0f8d9e", Name: name, Namespace: namespace, Operation: operation,
		Kind: metav1.GroupVersionKind(t.kind), Resource: metav1.GroupVersionResource(t.resource), SubResource: t.subresource,
		RequestKind: new(metav1.GroupVersionKind(t.kind)), RequestResource: new(metav1.GroupVersionResource(t.resource)), RequestSubResource: t.subresource,
		UserInfo: authenticationv1.UserInfo{Username: g.of("alice", "bob", "system:serviceaccount:shop:web", ""), UID: g.of("", "1"), Groups: g.list("devs", "ops", "system:authenticated")},
		Object:   runtime.RawExtension{Raw: raw}, OldObject: runtime.RawExtension{Raw: oldRaw},
	}
	if g.maybe(0.2) {
		req.UserInfo.Groups = nil
	}
	if g.maybe(0.5) {
		req.UserInfo.Extra = map[string]authenticationv1.ExtraValue{"example.com/team": {"checkout"}}
		if g.maybe(0.3) {
			req.UserInfo.Extra["scopes"] = g.list("a", "b")
		}
		if g.maybe(0.1) {
			req.UserInfo.Extra["none"] = authenticationv1.ExtraValue{}
		}
	}
	switch dry := g.Intn(3); dry {
	case 0:
	default:
		req.DryRun = new(dry == 1)
	}
	if operation != admissionv1.Connect && g.maybe(0.6) {
		kind := map[admissionv1.Operation]string{admissionv1.Create: "CreateOptions", admissionv1.Update: "UpdateOptions", admissionv1.Delete: "DeleteOptions"}[operation]
		fields := ""
		if operation == admissionv1.Delete {
			fields = g.of("", `,"gracePeriodSeconds":0`, `,"propagationPolicy":"Background"`)
		} else {
			fields = g.of("", `,"fieldManager":"kubectl"`, `,"fieldValidation":"Strict","fieldManager":"x"`)
		}
		req.Options.Raw = fmt.Appendf(nil, `{"kind":%q,"apiVersion":"meta.k8s.io/v1"%s}`, kind, fields)
	}
	g.send(&req, &t)
	out.sent = admission.Request{AdmissionRequest: req}
	g.collect(raw, oldRaw, req.Object.Raw, req.OldObject.Raw)
	return out
}

// send converts the objects of the request as an API server does for a webhook that
// names another version.
func (g *generator) send(req *admissionv1.AdmissionRequest, t *target) {
	others := equivalent.Of(t.resource)
	if len(others) < 2 || g.maybe(0.5) || t.kind.GroupVersion() != t.resource.GroupVersion() {
		return
	}
	to := others[g.Intn(len(others))].GroupVersionResource
	if !equivalent.Convertible(t.resource, to) {
		return
	}
	for _, raw := range [][]byte{req.Object.Raw, req.OldObject.Raw} {
		// Version v1 of an autoscaler puts the metrics into another order, which is
		// documented.
		if len(raw) > 0 && string(converted(converted(raw, t.resource, to), to, t.resource)) != string(raw) {
			return
		}
	}
	for _, object := range []*runtime.RawExtension{&req.Object, &req.OldObject} {
		if len(object.Raw) == 0 {
			continue
		}
		object.Raw = converted(object.Raw, t.resource, to)
	}
	req.Resource = metav1.GroupVersionResource(to)
	req.Kind = metav1.GroupVersionKind{Group: to.Group, Version: to.Version, Kind: t.kind.Kind}
}

// converted returns an object as one of another resource.
func converted(raw []byte, from, to schema.GroupVersionResource) []byte {
	text, err := rawjson.Parse(raw)
	if err == nil {
		raw, err = equivalent.Convert(text, from, to)
	}
	if err != nil {
		panic(err)
	}
	return raw
}

// collect finds paths in objects that expressions can name.
func (g *generator) collect(objects ...[]byte) {
	g.paths = nil
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
				if isPlainField(key) {
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
	for i, raw := range objects {
		var v any
		if len(raw) > 0 && json.Unmarshal(raw, &v) == nil {
			walk([]string{"object", "oldObject"}[i%2], v, 0)
		}
	}
}

// isPlainField reports whether a member can be selected by its name.
func isPlainField(key string) bool {
	for i, r := range key {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return key != "" && !slices.Contains([]string{
		"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if",
		"import", "let", "loop", "package", "namespace", "return", "var", "void", "while",
	}, key)
}

// world are policies and bindings, and what they look up.
type world struct {
	policies []policy.Policy
	bindings []policy.Binding
	objects  objects
	requests []asked
}

func (w *world) spec() policy.Spec {
	return policy.Spec{Policies: w.policies, Bindings: w.bindings, Objects: w.objects, Authorizer: randomAuthorizer{}}
}

// world makes a world with some policies, and some requests, of which expressions
// name fields.
func (g *generator) world() *world {
	w := &world{objects: g.context()}
	g.known = w.objects
	var paths []string
	all := targets()
	about := []target{all[g.Intn(len(all))], all[g.Intn(len(all))]}
	for range 1 + g.Intn(6) {
		w.requests = append(w.requests, g.request(about[g.Intn(2)]))
		paths = append(paths, g.paths...)
	}
	g.paths = paths
	for i := range 1 + g.Intn(4) {
		p := admissionregistrationv1.ValidatingAdmissionPolicy{}
		p.Name = fmt.Sprintf("p%d", i)
		p.Spec = g.policySpec(w.requests)
		w.policies = append(w.policies, policy.Policy{Source: p.Name, ValidatingAdmissionPolicy: p})
		for k := range g.Intn(3) {
			if i == 0 {
				k++ // one policy at least is in force
			}
			w.bindings = append(w.bindings, g.binding(&p, fmt.Sprintf("b%d-%d", i, k), w.requests))
		}
		if i == 0 {
			w.bindings = append(w.bindings, g.binding(&p, "b0", w.requests))
		}
	}
	return w
}

// context are namespaces, params and a definition.
func (g *generator) context() objects {
	var out objects
	add := func(text string) *unstructured.Unstructured {
		u := new(unstructured.Unstructured)
		if err := u.UnmarshalJSON([]byte(text)); err != nil {
			panic(fmt.Sprintf("%v: %s", err, text))
		}
		out = append(out, u)
		return u
	}
	for _, name := range []string{"shop", "lab", "web", "cart", "x"} {
		n := add(fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q,"uid":"u"},"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Active"}}`, name))
		labels := g.labels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels["kubernetes.io/metadata.name"] = name
		n.SetLabels(labels)
		if g.maybe(0.5) {
			n.SetAnnotations(map[string]string{"owner": g.text()})
		}
	}
	for _, namespace := range []string{"shop", "lab"} {
		for _, name := range g.list("limits", "words", "more") {
			data := mustMarshal(map[string]string{"a": g.text(), "b": g.text(), "maxReplicas": g.of("3", "80", "x")})
			add(fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q},"data":%s}`, name, namespace, data)).SetLabels(g.labels())
		}
		if g.maybe(0.7) {
			out = append(out, &unstructured.Unstructured{Object: g.custom(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Limit"}, g.of("limits", "words"), namespace)})
		}
	}
	for _, name := range g.list("limits", "words") {
		out = append(out, &unstructured.Unstructured{Object: g.custom(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "ClusterLimit"}, name, "")})
	}
	add(`{"apiVersion":"storage.k8s.io/v1","kind":"StorageClass","metadata":{"name":"limits"},"provisioner":"x","parameters":{"a":"b"}}`).SetLabels(g.labels())
	add(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gadgets.example.com"},"spec":{"versions":[{"name":"v1","served":true}]}}`)
	add(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.example.com"},"spec":{"group":"example.com","names":{"kind":"Thing","plural":"things"},"scope":"Namespaced",` +
		`"versions":[{"name":"v1","served":true,"storage":true},{"name":"v1beta1","served":true,"storage":false},{"name":"v1alpha1","served":false,"storage":false}]}}`)
	return out
}
