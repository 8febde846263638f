package template_test

import (
	"encoding/json"
	"iter"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/template"
)

// renderings returns trees with one parameter each, alone and in a text.
func renderings(t testing.TB, s *template.Scope) map[string]*template.Tree {
	t.Helper()
	trees := map[string]*template.Tree{}
	for _, name := range s.ParameterNames() {
		expression := "params." + name
		if name == "paths" {
			expression += ".join(',')"
		}
		trees[name] = compile(t, s, `{"alone":"${`+expression+`}","text":"<${`+expression+`}>","list":["${`+expression+`}"]}`, reflect.TypeFor[map[string]any]())
	}
	return trees
}

// rendered holds what a tree of renderings gives against its structure.
func rendered(t *testing.T, tree *template.Tree, params template.Params, value string) {
	t.Helper()
	out, err := tree.Append(nil, &template.Input{Params: params})
	if err != nil {
		t.Fatalf("%q: %v", value, err)
	}
	var got struct {
		Alone any    `json:"alone"`
		Text  string `json:"text"`
		List  []any  `json:"list"`
	}
	if err := json.Unmarshal(out, &got); err != nil || len(got.List) != 1 || got.List[0] != got.Alone {
		t.Fatalf("%q gives %s: %v", value, out, err)
	}
	switch alone := got.Alone.(type) {
	case string:
		if got.Text != "<"+alone+">" {
			t.Fatalf("%q gives %s", value, out)
		}
	case float64, bool:
	default:
		t.Fatalf("%q gives %s", value, out)
	}
}

// FuzzTree: no template brings the compiler down; what is rendered is JSON of the
// same structure, whatever the pod says.
func FuzzTree(f *testing.F) {
	for _, seed := range []string{
		`{"containers":[{"name":"a","image":"${params.image}","env":[{"name":"X","value":"${pod.metadata.labels['a']}"}]}]}`,
		`["${pod.metadata.?labels[?'a']}",1,"$${x}","${null}",{"a":"x${pod.metadata.name}"}]`,
		`{"hostname":"${'}'}","priority":"${params.count}"}`, `"${"`, `{"${a}":1}`, `{"a":1,"a":2}`, `"${dyn(pod)}"`, `{"a":"${pod.spec}"}`, `null`, ``, `"${1/0}"`,
		`{"overhead":{"cpu":"${pod.metadata.name}Mi"}}`, `[[[["${params.on}"]]]]`,
		`"${optional.of(1)` + strings.Repeat(".optMap(x,x)", 40) + `.value()}"`, `"${[1]` + strings.Repeat(".map(a,{a:a})", 20) + `.size()}"`,
	} {
		f.Add(seed, `{"metadata":{"name":"n","labels":{"a":"\",\"x\":\""}}}`)
	}
	s := scope(f)
	f.Fuzz(func(t *testing.T, raw, pod string) {
		value, err := rawjson.Parse([]byte(pod))
		if err != nil || value.Kind() != rawjson.Object {
			return
		}
		params, _ := s.Resolve(nil, nil)
		for _, into := range []reflect.Type{reflect.TypeFor[any](), reflect.TypeFor[corev1.PodSpec]()} {
			tree, found := s.Tree("t", []byte(raw), into)
			if (tree == nil) != (len(found) > 0) {
				t.Fatalf("%q gives a tree %v and findings %v", raw, tree != nil, found)
			}
			if tree == nil {
				continue
			}
			if raw == "" {
				raw = "null"
			}
			sameStructure(t, []byte(raw), tree.Sample(), into)
			if out, err := tree.Append(nil, &template.Input{Pod: value, Params: params, NamespaceName: "n"}); err == nil {
				sameStructure(t, []byte(raw), out, into)
				if static, ok := tree.Static(); ok && string(static) != string(out) {
					t.Fatalf("%s is not %s", static, out)
				}
			}
		}
	})
}

// sameStructure holds what is rendered against its template: it is JSON, fits the
// type, and has no member and no element that the template has not.
func sameStructure(t *testing.T, raw, out []byte, into reflect.Type) {
	t.Helper()
	template, err := rawjson.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	value, err := rawjson.Parse(out)
	if err != nil {
		t.Fatalf("%s gives %s: %v", raw, out, err)
	}
	if err := json.Unmarshal(out, reflect.New(into).Interface()); err != nil && into != reflect.TypeFor[any]() {
		t.Fatalf("%s gives %s: %v", raw, out, err)
	}
	compare(t, template, value)
}

func compare(t *testing.T, template, value rawjson.Value) {
	t.Helper()
	switch template.Kind() {
	case rawjson.Object:
		if value.Kind() != rawjson.Object || value.Len() > template.Len() {
			t.Fatalf("%s gives %s", template, value)
		}
		members := map[string]rawjson.Value{}
		for name, member := range template.Members() {
			members[strings.ReplaceAll(name.Text(), "$${", "${")] = member
		}
		for name, member := range value.Members() {
			of, ok := members[name.Text()]
			if !ok {
				t.Fatalf("%s gives %s", template, value)
			}
			compare(t, of, member)
		}
	case rawjson.Array:
		if value.Kind() != rawjson.Array || value.Len() > template.Len() {
			t.Fatalf("%s gives %s", template, value)
		}
		if value.Len() < template.Len() {
			return // which ones are left out is not told
		}
		next, stop := iter.Pull2(value.Elements())
		defer stop()
		for _, element := range template.Elements() {
			_, of, _ := next()
			compare(t, element, of)
		}
	case rawjson.String:
		if value.Kind() == rawjson.Object || value.Kind() == rawjson.Array {
			t.Fatalf("%s gives %s", template, value)
		}
	default:
		if string(template) != string(value) {
			t.Fatalf("%s gives %s", template, value)
		}
	}
}
