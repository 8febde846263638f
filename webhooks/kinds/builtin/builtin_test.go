package builtin_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apiserver/pkg/cel/common"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"

	celvalue "github.com/gatehouse-dev/gatehouse/webhooks/cel/value"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/builtin"
)

// TestTypeOf holds that every kind that Kubernetes' clients know is known, and
// others are not.
func TestTypeOf(t *testing.T) {
	t.Parallel()
	kinds := 0
	for kind := range clientgoscheme.Scheme.AllKnownTypes() {
		if kind.Group == "" && kind.Version == "v1" && kind.Kind == "Status" || kind.Version == "__internal" {
			continue
		}
		if kinds++; builtin.TypeOf(kind) == nil {
			t.Errorf("%s has no type", kind)
		}
	}
	if kinds < 300 {
		t.Errorf("only %d kinds", kinds)
	}
	for kind, want := range map[schema.GroupVersionKind]bool{
		{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}: true,
		{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}:             false,
		{Group: "autoscaling", Version: "v1", Kind: "Scale"}:                             true,
		{Group: "example.com", Version: "v1", Kind: "Pod"}:                               false,
		{Version: "v2", Kind: "Pod"}:                                                     false,
		{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}:           false,
	} {
		if got := builtin.TypeOf(kind) != nil; got != want {
			t.Errorf("%s: known %t, want %t", kind, got, want)
		}
	}
}

// TestSameAsUpstream holds, for every kind, the values of an object of which every
// field is set against the API server's values: what is in them, and what the
// operators do that differ between typed and untyped values.
func TestSameAsUpstream(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	scheme.AddKnownTypes(apiextensionsv1.SchemeGroupVersion, &apiextensionsv1.CustomResourceDefinition{})
	for kind := range scheme.AllKnownTypes() {
		if kind.Version == runtime.APIVersionInternal || strings.HasSuffix(kind.Kind, "List") || strings.HasSuffix(kind.Kind, "Options") || kind.Kind == "WatchEvent" {
			continue
		}
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			object, err := scheme.New(kind)
			if err != nil {
				t.Fatal(err)
			}
			filler().Fill(object)
			text, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			if object, err = scheme.New(kind); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, object); err != nil {
				t.Fatal(err)
			}
			if text, err = json.Marshal(object); err != nil {
				t.Fatal(err)
			}
			parsed, err := rawjson.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			got, want := behave(celvalue.Typed(parsed, builtin.TypeOf(kind))), behave(common.SchemalessTypedToVal(object))
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// filler sets every field of a value. Types that hold themselves end at a depth.
func filler() *randfill.Filler {
	const raw = `{"a":[1,2.5,{"b":{}}]}`
	return randfill.NewWithSeed(1).NilChance(0).NumElements(1, 1).MaxDepth(12).Funcs(
		func(s *string, _ randfill.Continue) { *s = "x" },
		func(b *bool, _ randfill.Continue) { *b = true },
		func(q *resource.Quantity, _ randfill.Continue) { *q = resource.MustParse("1536Mi") },
		func(t *metav1.Time, _ randfill.Continue) { *t = metav1.Unix(1_700_000_000, 0) },
		func(t *metav1.MicroTime, _ randfill.Continue) {
			*t = metav1.NewMicroTime(metav1.Unix(1_700_000_000, 0).Time)
		},
		func(v *intstr.IntOrString, _ randfill.Continue) { *v = intstr.FromInt32(7) },
		func(r *runtime.RawExtension, _ randfill.Continue) { r.Raw = []byte(raw) },
		func(f *metav1.FieldsV1, _ randfill.Continue) { f.SetRawString(`{"f:a":{}}`) },
		func(j *apiextensionsv1.JSON, _ randfill.Continue) { j.Raw = []byte(raw) },
		func(f *float64, _ randfill.Continue) { *f = 3 },
	)
}

// behave writes what a value is, what is in it, and what operators come to that
// differ between kinds of values.
func behave(v ref.Val) string {
	_, zeroer := v.(traits.Zeroer)
	probe := func(result ref.Val) string { return fmt.Sprintf("%v", result) }
	itself := v
	switch v := v.(type) {
	case traits.Mapper:
		lines := []string{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			lines = append(lines, fmt.Sprintf("%v: %s", key, behave(v.Get(key))))
		}
		slices.Sort(lines)
		return fmt.Sprintf("map of %v, zeroer %t, 1 in it %s, it[1] %s, it == 1 %s, it == it %s {\n%s\n}", v.Size(), zeroer,
			probe(v.Contains(types.Int(1))), probe(v.Get(types.Double(1))), probe(v.Equal(types.Int(1))), probe(v.Equal(itself)), strings.Join(lines, "\n"))
	case traits.Lister:
		lines := []string{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			lines = append(lines, behave(it.Next()))
		}
		return fmt.Sprintf("list of %v, zeroer %t, it[0.0] %t, it[7] %s, it == 1 %s, it == it %s, 1 in it %s [\n%s\n]", v.Size(), zeroer,
			types.IsError(v.Get(types.Double(0))), probe(v.Get(types.Int(7))), probe(v.Equal(types.Int(1))), probe(v.Equal(itself)), probe(v.Contains(types.Int(1))),
			strings.Join(lines, "\n"))
	default:
		return fmt.Sprintf("%T %v", v, v.Value())
	}
}
