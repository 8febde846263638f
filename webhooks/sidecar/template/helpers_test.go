package template_test

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	celbound "github.com/gatehouse-dev/gatehouse/webhooks/cel/bound"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/template"
)

// pod is one that expressions look at.
const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-1","namespace":"shop","creationTimestamp":"2026-01-02T03:04:05Z",
	"labels":{"app":"web"},"annotations":{"quote":"a\"b\\c","newline":"a\nb","nul":"a\u0000b","placeholder":"${params.level}","json":"{\"x\":[1]}",
	"yaml":"x: y\n- z","port":"99999999999","comma":"\",\"evil\":\"1","script":"</script>\u2028","empty":""}},
	"spec":{"hostNetwork":false,"priority":10,"containers":[
		{"name":"app","image":"app:1","ports":[{"name":"http","containerPort":8080}],"resources":{"limits":{"cpu":"500m","memory":67108864}},
		 "livenessProbe":{"httpGet":{"path":"/","port":"http"}}},
		{"name":"log","image":"log:1"}]}}`

func environment(t testing.TB) *template.Environment {
	t.Helper()
	e, err := template.NewEnvironment(nil)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func text(s string) *v1alpha1.ParameterValue { return &v1alpha1.ParameterValue{Text: s} }

// parameters returns some of each type, all with defaults.
func parameters() []v1alpha1.SidecarParameter {
	return []v1alpha1.SidecarParameter{
		{Name: "level", Type: v1alpha1.EnumParameter, Enum: []string{"info", "debug"}, Default: text("info")},
		{Name: "image", Type: v1alpha1.StringParameter, Default: text("proxy:1")},
		{Name: "count", Type: v1alpha1.IntegerParameter, Default: text("3")},
		{Name: "port", Type: v1alpha1.PortParameter, Default: text("8181")},
		{Name: "on", Type: v1alpha1.BooleanParameter, Default: text("true")},
		{Name: "cpu", Type: v1alpha1.QuantityParameter, Default: text("100m")},
		{Name: "wait", Type: v1alpha1.DurationParameter, Default: text("5s")},
		{Name: "paths", Type: v1alpha1.ListParameter, Default: text("/a, /b")},
	}
}

func presets() []v1alpha1.SidecarPreset {
	return []v1alpha1.SidecarPreset{{Name: "mesh", ConfigMap: v1alpha1.ObjectReference{Namespace: "mesh-system", Name: "mesh"}}}
}

func scope(t testing.TB) *template.Scope {
	t.Helper()
	s, found := environment(t).Scope(new(celbound.Budget), "proxy", parameters(), presets())
	if len(found) > 0 {
		t.Fatal(found)
	}
	return s
}

// given looks values up in a map, as Resolve asks for them.
func given(values map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
}

// input returns the pod in the namespace shop, with the parameters that the pod sets.
func input(t testing.TB, s *template.Scope, values map[string]string) *template.Input {
	t.Helper()
	value, err := rawjson.Parse([]byte(pod))
	if err != nil {
		t.Fatal(err)
	}
	params, invalid := s.Resolve(given(values), nil)
	if len(invalid) > 0 {
		t.Fatal(invalid)
	}
	return &template.Input{
		Context:   t.Context(),
		Pod:       value,
		Namespace: &template.Namespace{Name: "shop", Labels: map[string]string{"team": "a"}},
		Params:    params,
		Presets: func(string) (map[string]string, error) {
			return map[string]string{"address": "mesh.example:15012"}, nil
		},
	}
}

// compile returns a tree without findings.
func compile(t testing.TB, s *template.Scope, raw string, into reflect.Type) *template.Tree {
	t.Helper()
	tree, found := s.Tree("spec.template.spec", []byte(raw), into)
	if len(found) > 0 {
		t.Fatal(found)
	}
	return tree
}

func lines(found diagnostic.List) string {
	texts := make([]string, len(found))
	for i, f := range found {
		texts[i] = f.String()
	}
	return strings.Join(texts, "\n")
}

type (
	anything = map[string]any
	podSpec  = corev1.PodSpec
)
