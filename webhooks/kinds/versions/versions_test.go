package versions_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	kindversions "github.com/gatehouse-dev/gatehouse/webhooks/kinds/versions"
)

// resourceOf returns the resource of a kind.
func resourceOf(kind schema.GroupVersionKind) schema.GroupVersionResource {
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	return resource
}

func lines(t testing.TB, name string) [][]byte {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSpace(raw), []byte("\n"))
}

func decoded(t testing.TB, text []byte) any {
	t.Helper()
	var out any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

// typed decodes an object into its Go type, in which what is absent is what is empty.
func typed(t testing.TB, text []byte) runtime.Object {
	t.Helper()
	out, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

// TestConvertsAsUpstream holds Convert against what the API server's own code makes
// of the same objects: test/controlplane/convert writes testdata/upstream.jsonl,
// which is not to be made from what comes out here.
func TestConvertsAsUpstream(t *testing.T) {
	t.Parallel()
	inputs, wants := lines(t, "testdata/inputs.jsonl"), lines(t, "testdata/upstream.jsonl")
	if len(inputs) != len(wants) || len(inputs) < 50 {
		t.Fatalf("%d inputs, %d outputs", len(inputs), len(wants))
	}
	for i, line := range inputs {
		var input struct {
			Object json.RawMessage
			To     string
		}
		if err := json.Unmarshal(line, &input); err != nil {
			t.Fatal(err)
		}
		var about metav1.TypeMeta
		if err := json.Unmarshal(input.Object, &about); err != nil {
			t.Fatal(err)
		}
		to, _ := schema.ParseGroupVersion(input.To)
		text, err := rawjson.Parse(input.Object)
		if err != nil {
			t.Fatal(err)
		}
		from := resourceOf(about.GroupVersionKind())
		got, err := kindversions.Convert(text, from, to.WithResource(from.Resource))
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if !apiequality.Semantic.DeepEqual(typed(t, got), typed(t, wants[i])) {
			t.Errorf("%s:\n     got %s\nupstream %s", line, got, wants[i])
		}
	}
}

// TestSameShape holds what Convertible says against the Go types of every kind
// that has several versions: those of which the JSON differs in apiVersion alone are
// convertible, and no others but autoscalers and Events.
func TestSameShape(t *testing.T) {
	t.Parallel()
	kinds := map[schema.GroupVersionResource]reflect.Type{}
	for kind, goType := range scheme.Scheme.AllKnownTypes() {
		if kind.Version != runtime.APIVersionInternal && strings.HasPrefix(goType.PkgPath(), "k8s.io/api/") {
			kinds[resourceOf(kind)] = goType
		}
	}
	compared := 0
	for a, typeA := range kinds {
		for _, b := range kindversions.Of(a) {
			typeB := kinds[b.GroupVersionResource]
			if typeB == nil || a == b.GroupVersionResource {
				continue
			}
			compared++
			want := sameShape(typeA, typeB, map[[2]reflect.Type]bool{}) || a.Resource == "horizontalpodautoscalers" || a.Resource == "events"
			if got := kindversions.Convertible(a, b.GroupVersionResource); got != want {
				t.Errorf("Convertible(%v, %v) = %v, the types say %v", a, b.GroupVersionResource, got, want)
			}
		}
	}
	if compared < 40 {
		t.Errorf("only %d pairs were compared", compared)
	}
}

// sameShape reports whether two types have the same JSON.
func sameShape(a, b reflect.Type, seen map[[2]reflect.Type]bool) bool {
	if a == b || seen[[2]reflect.Type{a, b}] {
		return true
	}
	seen[[2]reflect.Type{a, b}] = true
	if a.Kind() != b.Kind() {
		return false
	}
	switch a.Kind() { //nolint:exhaustive // the others have no parts
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return sameShape(a.Elem(), b.Elem(), seen)
	case reflect.Map:
		return sameShape(a.Key(), b.Key(), seen) && sameShape(a.Elem(), b.Elem(), seen)
	case reflect.Struct:
		fields := map[string]reflect.Type{}
		for f := range a.Fields() {
			fields[f.Tag.Get("json")] = f.Type
		}
		for f := range b.Fields() {
			other, has := fields[f.Tag.Get("json")]
			if !has || !sameShape(other, f.Type, seen) {
				return false
			}
		}
		return a.NumField() == b.NumField()
	default:
		return true
	}
}

func TestOf(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ group, version, resource, want string }{
		{"", "v1", "pods", "/v1"},
		{"apps", "v1", "deployments", "apps/v1"},
		{"apps", "v1beta1", "deployments", ""},
		{"apps", "v1", "frobnicators", ""},
		{"example.com", "v1", "things", ""},
		{"autoscaling", "v1", "horizontalpodautoscalers", "autoscaling/v2 autoscaling/v1"},
		{"autoscaling", "v2beta2", "horizontalpodautoscalers", ""},
		{"", "v1", "events", "/v1 events.k8s.io/v1"},
		{"events.k8s.io", "v1", "events", "/v1 events.k8s.io/v1"},
		{"events.k8s.io", "v1beta1", "events", ""},
		{"storage.k8s.io", "v1", "storageclasses", "storage.k8s.io/v1"},
		{"storage.k8s.io", "v1beta1", "volumeattributesclasses", "storage.k8s.io/v1 storage.k8s.io/v1beta1?"},
		{"resource.k8s.io", "v1", "resourceclaims", "resource.k8s.io/v1 resource.k8s.io/v1beta2? resource.k8s.io/v1beta1?"},
	} {
		var got []string
		for _, e := range kindversions.Of(schema.GroupVersionResource{Group: test.group, Version: test.version, Resource: test.resource}) {
			text := e.Group + "/" + e.Version
			if !e.Standard {
				text += "?"
			}
			got = append(got, text)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("Of(%s/%s %s) = %s, want %s", test.group, test.version, test.resource, strings.Join(got, " "), test.want)
		}
	}
}

func TestServes(t *testing.T) {
	t.Parallel()
	for kind, want := range map[schema.GroupVersionKind]string{
		{Version: "v1", Kind: "ConfigMap"}:                                               "true true",
		{Version: "v1", Kind: "Endpoints"}:                                               "true true",
		{Version: "v2", Kind: "ConfigMap"}:                                               "false true",
		{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"}:           "true true",
		{Group: "autoscaling", Version: "v2beta2", Kind: "HorizontalPodAutoscaler"}:      "false true",
		{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}:               "true true",
		{Group: "networking.k8s.io", Version: "v1", Kind: "IPAddress"}:                   "true true",
		{Group: "networking.k8s.io", Version: "v1beta1", Kind: "Ingress"}:                "false true",
		{Group: "apps", Version: "v1", Kind: "Frobnicator"}:                              "false true",
		{Group: "example.com", Version: "v1", Kind: "Limit"}:                             "false false",
		{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "Gateway"}:             "false false",
		{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}: "true true",
	} {
		serves, known := kindversions.Serves(kind)
		if got := fmt.Sprint(serves, known); got != want {
			t.Errorf("Serves(%v) = %s, want %s", kind, got, want)
		}
	}
}

// FuzzConvert holds that a conversion there and back is one that changes nothing
// any more when it is done again.
func FuzzConvert(f *testing.F) {
	for _, line := range lines(f, "testdata/inputs.jsonl") {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var input struct {
			Object json.RawMessage
			To     string
		}
		var about metav1.TypeMeta
		if json.Unmarshal(line, &input) != nil || json.Unmarshal(input.Object, &about) != nil {
			return
		}
		text, err := rawjson.Parse(input.Object)
		to, _ := schema.ParseGroupVersion(input.To)
		if err != nil || text.Kind() != rawjson.Object {
			return
		}
		from := resourceOf(about.GroupVersionKind())
		there := to.WithResource(from.Resource)
		if !slices.ContainsFunc(kindversions.Of(from), func(e kindversions.Resource) bool { return e.GroupVersionResource == there }) {
			return
		}
		both := func(text []byte) []byte {
			converted, err := kindversions.Convert(text, from, there)
			if err != nil {
				return nil
			}
			back, err := kindversions.Convert(converted, there, from)
			if err != nil {
				t.Fatalf("%s: %v", converted, err)
			}
			return back
		}
		if once := both(text); once != nil {
			if twice := both(once); !reflect.DeepEqual(decoded(t, once), decoded(t, twice)) {
				t.Errorf("%s:\n once %s\ntwice %s", text, once, twice)
			}
		}
	})
}
