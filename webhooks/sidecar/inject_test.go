package sidecar_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// optOut returns a profile for every pod, with a body in YAML.
func optOut(name, body string) string {
	return "metadata: {name: " + name + "}\nspec:\n  injection: OptOut\n  " + strings.ReplaceAll(strings.TrimSpace(body), "\n", "\n  ") + "\n"
}

// native returns a container of a template, in YAML: a native sidecar, with more
// members behind it.
func native(name, more string) string {
	return "{name: " + name + ", image: example/" + name + ", restartPolicy: Always, startupProbe: {exec: {command: [ok]}}" + more + "}"
}

// objects are what is known of a cluster.
type objects struct {
	namespaces map[string]*corev1.Namespace
	configMaps map[string]map[string]string // by namespace/name
}

func (o objects) Namespace(name string) (*corev1.Namespace, bool) {
	ns, known := o.namespaces[name]
	return ns, known
}

func (o objects) ConfigMapData(namespace, name string) (map[string]string, bool) {
	data, known := o.configMaps[namespace+"/"+name]
	return data, known
}

// shop returns a cluster of one namespace, whose metadata is written in YAML.
func shop(t testing.TB, metadata string) objects {
	t.Helper()
	var m metav1.ObjectMeta
	if err := yaml.UnmarshalStrict([]byte(metadata), &m); err != nil {
		t.Fatal(err)
	}
	m.Name = "shop"
	return objects{namespaces: map[string]*corev1.Namespace{"shop": {ObjectMeta: m}}}
}

// input returns a pod in the namespace shop, in YAML, that is to be created. A pod
// without a spec gets an empty one.
func input(t testing.TB, pod string) sidecar.Input {
	t.Helper()
	text := toJSON(t, pod)
	if !strings.Contains(text, `"spec":`) {
		text = strings.TrimSuffix(strings.TrimSuffix(text, "}"), ",") + `,"spec":{}}`
		text = strings.Replace(text, "{,", "{", 1)
	}
	return sidecar.ForPod("shop", []byte(text))
}

// inject decides about a pod written in YAML and returns what becomes of it. It
// holds the decision against what is true of all: it is the same if it is to be
// explained, made again it changes nothing, and undone it has changed nothing.
func inject(t testing.TB, set *sidecar.Set, pod string) (sidecar.Decision, string) {
	t.Helper()
	in := input(t, pod)
	d := set.Decide(t.Context(), in)
	checkExplained(t, set, in, &d)
	checkIndexed(t, set, in, &d)
	if d.Err != nil || len(d.Refusals) > 0 {
		if d.Patches != nil {
			t.Errorf("patches %v beside %v", d.Patches, said(&d))
		}
		return d, string(in.Request.Object.Raw)
	}
	patched := apply(t, string(in.Request.Object.Raw), d.Patches)
	if d.Patches == nil {
		return d, patched
	}
	second := in
	second.Request.Object.Raw = []byte(patched)
	if again := set.Decide(t.Context(), second); again.Err != nil || len(again.Refusals) > 0 || again.Patches != nil {
		t.Errorf("asked again about\n%s\n%v\n%s", patched, again.Patches, said(&again))
	}
	checkRemoved(t, patched, string(in.Request.Object.Raw))
	return d, patched
}

// checkRemoved wants a pod, once all is taken out of it that profiles have added,
// to be the other one.
func checkRemoved(t testing.TB, patched, want string) {
	t.Helper()
	removal, err := sidecar.Remove([]byte(patched))
	if err != nil || len(removal.Left) > 0 {
		t.Errorf("removal from\n%s\nleaves %v, %v", patched, removal.Left, err)
	}
	if restored := apply(t, patched, removal.Patches); !reflect.DeepEqual(tree(t, restored), tree(t, want)) {
		t.Errorf("removal from\n%s\nmakes\n%s\nand not\n%s", patched, restored, want)
	}
}

// checkIndexed wants the same decision if there is an Index of the AdmissionReview.
func checkIndexed(t testing.TB, set *sidecar.Set, in sidecar.Input, want *sidecar.Decision) {
	t.Helper()
	text := slices.Concat([]byte(`{"request":{"uid":"u","object":`), in.Request.Object.Raw, []byte(`}}`))
	in.Index = new(rawjson.Index)
	if in.Index.Read(text) != nil {
		return
	}
	in.Request.Object.Raw = rawjson.Value(text).Get("request", "object")
	if got := set.Decide(t.Context(), in); said(&got) != said(want) || !reflect.DeepEqual(got.Patches, want.Patches) {
		t.Errorf("with an index it says and does\n%s\n%v\nwithout\n%s\n%v", said(&got), got.Patches, said(want), want.Patches)
	}
}

// checkExplained wants the same decision with explanations, but for verdicts
// about profiles that are left out otherwise.
func checkExplained(t testing.TB, set *sidecar.Set, in sidecar.Input, d *sidecar.Decision) {
	t.Helper()
	in.Explain = true
	explained := set.Decide(t.Context(), in)
	if got, want := said(&explained), said(d); got != want {
		t.Errorf("explained it says\n%s\nand else\n%s", got, want)
	}
	if !reflect.DeepEqual(explained.Patches, d.Patches) {
		t.Errorf("explained it does\n%v\nand else\n%v", explained.Patches, d.Patches)
	}
	if explained.NotSelected != 0 || len(explained.Verdicts) != len(d.Verdicts)+d.NotSelected {
		t.Errorf("explained it has %d verdicts and leaves out %d, and else %d and %d", len(explained.Verdicts), explained.NotSelected, len(d.Verdicts), d.NotSelected)
	}
	for _, v := range explained.Verdicts {
		if v.Explanation == nil {
			t.Errorf("nothing is explained about %s", v.Profile)
		}
		plain := slices.IndexFunc(d.Verdicts, func(p sidecar.Verdict) bool { return p.Profile == v.Profile })
		if plain < 0 {
			if v.Reason != sidecar.NamespaceNotSelected && v.Reason != sidecar.ObjectNotSelected {
				t.Errorf("profile %s is left out, and explained it is %s", v.Profile, v.Reason)
			}
			continue
		}
		if v.Explanation = nil; v != d.Verdicts[plain] {
			t.Errorf("explained the verdict is %+v, and else %+v", v, d.Verdicts[plain])
		}
	}
}

// said returns everything that a decision says to people, a line each.
func said(d *sidecar.Decision) string {
	var lines []string
	if d.Err != nil {
		lines = append(lines, "cannot decide: "+d.Err.Error())
	}
	for _, f := range d.Refusals {
		lines = append(lines, "refused: "+f.String())
	}
	for _, w := range d.Warnings {
		lines = append(lines, "warning: "+w)
	}
	return strings.Join(lines, "\n")
}

// reasons returns the reasons of all verdicts.
func reasons(d *sidecar.Decision) string {
	all := make([]string, len(d.Verdicts))
	for i, v := range d.Verdicts {
		all[i] = v.Profile + "=" + string(v.Reason)
	}
	return strings.Join(all, ",")
}

// check compares text and shows both.
func check(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got\n%s\nwant\n%s", what, got, want)
	}
}

// tree returns JSON, with numbers as they are written.
func tree(t testing.TB, text string) any {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// podTree is a pod as a tree.
type podTree map[string]any

func toTree(t testing.TB, pod string) podTree {
	t.Helper()
	root, ok := tree(t, pod).(map[string]any)
	if !ok {
		t.Fatalf("%s is no object", pod)
	}
	return root
}

// containers returns the containers in one list.
func (p podTree) containers(list string) []map[string]any {
	spec, _ := p["spec"].(map[string]any)
	elements, _ := spec[list].([]any)
	all := make([]map[string]any, len(elements))
	for i := range elements {
		all[i], _ = elements[i].(map[string]any)
	}
	return all
}

// checkPod compares a pod with one written in YAML, but for the status
// annotation and for what was made to put it in.
func checkPod(t testing.TB, got, want string) {
	t.Helper()
	is := toTree(t, got)
	if metadata, ok := is["metadata"].(map[string]any); ok {
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			if delete(annotations, "sidecar.gatehouse.dev/status"); len(annotations) == 0 {
				delete(metadata, "annotations")
			}
		}
		if len(metadata) == 0 {
			delete(is, "metadata")
		}
	}
	if wanted := tree(t, toJSON(t, want)); !reflect.DeepEqual(map[string]any(is), wanted) {
		t.Errorf("got\n%s\nwant\n%s", toYAML(t, is), toYAML(t, wanted))
	}
}

func toYAML(t testing.TB, v any) string {
	t.Helper()
	out, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// sorted returns the keys of a map, in order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
