package sidecar_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// fuzzed returns the worlds of fuzz targets: all would make each try slow.
func fuzzed(f *testing.F) []*checker {
	f.Helper()
	all := slices.DeleteFunc(checkers(f), func(c *checker) bool {
		return c.name != "mesh.yaml, Keep conflicts, Keep same names" && c.name != "names.yaml, Skip conflicts, Replace same names" &&
			c.name != "fields.yaml, Keep conflicts, Refuse same names"
	})
	if len(all) != 3 {
		f.Fatalf("%d worlds", len(all))
	}
	return all
}

func fuzzPod(t testing.TB, annotations map[string]string) []byte {
	t.Helper()
	return []byte(`{"metadata":{"name":"checkout","labels":{"app":"checkout"},"annotations":` + string(asJSON(t, annotations)) +
		`},"spec":{"initContainers":[{"name":"setup","image":"example/app:1"}],"containers":[{"name":"app","image":"example/app:1","env":[{"name":"MESH","value":"mine"}]},{"name":"agent","image":"example/app:1"}],"tolerations":null}}`)
}

// FuzzReview feeds bytes that never were a pod.
func FuzzReview(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `null`, ` [] `, `{"spec":null}`, `{"spec":{"containers":[{"name":"app"}]}}`,
		`{"metadata":{"annotations":{"sidecar.gatehouse.dev/inject":"true","sidecar.gatehouse.dev/status":"{}"},"labels":{"tier":"web"}},"spec":{"initContainers":[{"name":"setup"}],"volumes":[{"name":"scratch","emptyDir":{}}]}}`,
		`{"spec":{"containers":[{"name":"app","ports":[{"containerPort":2020,"hostPort":1}],"securityContext":{"windowsOptions":{"hostProcess":true}}}],"restartPolicy":"Never"}}`,
		`{"spec":{"dnsConfig":{"options":[],"options":[]},"containers":[{"name":"app","env":[{"name":"A","name":"B"}],"resources":{"requests":{},"requests":null}}]}}`,
		podOfSize(1500),
	} {
		f.Add([]byte(seed))
	}
	for seed := range uint64(20) {
		f.Add([]byte(newGenerator(seed, true).pod()))
	}
	all := fuzzed(f)
	f.Fuzz(func(t *testing.T, pod []byte) {
		for _, c := range all {
			c.all(t, sidecar.ForPod("restricted", pod))
		}
	})
}

// FuzzStatus feeds a status annotation that nobody has written.
func FuzzStatus(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(newGenerator(seed, true).status())
	}
	f.Add(`{"profiles":[{"name":"names","revision":"x","containers":["agent"],"added":["/spec/containers/name=app/env/name=MESH"]}],"created":["/spec"],"originals":{"/spec/tolerations":{}}}`)
	f.Add(`{"profiles":[{"name":"names","revision":"x","initContainers":["setup"],"added":["/metadata/annotations/sidecar.gatehouse.dev~1inject","/spec/tolerations/="]}]}`)
	all := fuzzed(f)
	f.Fuzz(func(t *testing.T, status string) {
		if strings.ToValidUTF8(status, "") != status {
			return // It could not come: an annotation is text.
		}
		pod := fuzzPod(t, map[string]string{v1alpha1.StatusAnnotation: status, "own": "1"})
		for _, c := range all {
			c.all(t, sidecar.ForPod("shop", pod))
			c.removed(t, pod, nil)
		}
	})
}

// FuzzInjectWord feeds what a pod says about injection.
func FuzzInjectWord(f *testing.F) {
	for _, seed := range []string{"true", "false", "", "mesh", "-mesh,logs", "mesh,-mesh", " mesh , asked", ",", "-", "--mesh", "no", "logs-next", "true,mesh", "\x00"} {
		f.Add(seed)
	}
	all := fuzzed(f)
	f.Fuzz(func(t *testing.T, word string) {
		for _, c := range all {
			d := c.all(t, sidecar.ForPod("shop", fuzzPod(t, map[string]string{v1alpha1.InjectAnnotation: word})))
			names := []string{"true", "false"}
			for i := range c.profiles {
				names = append(names, c.profiles[i].Name)
			}
			known := true
			for name := range strings.SplitSeq(strings.ToValidUTF8(word, "\uFFFD"), ",") {
				known = known && slices.Contains(names, strings.TrimPrefix(strings.TrimSpace(name), "-"))
			}
			if !known && len(d.Refusals) == 0 {
				t.Errorf("%q is taken for a word: %+v", word, d)
			}
		}
	})
}

// FuzzParameters feeds the annotations that set parameters: whatever a pod says,
// what is added has the structure that the template has.
func FuzzParameters(f *testing.F) {
	f.Add("debug", "8443", "250m", "1m", "true", "3", "hello", "a", "checkout")
	f.Add("info", "15001", "100m", "5s", "false", "2", `"},"command":["evil"],"x":{"`, `","`, `"]`)
	f.Add("loud", "0x10", "1e3", "-1s", "yes", "65", "${params.level}", "", "\u2028<&>")
	f.Add("\x00", "1e4", "1Ki", "1h", "T", "+1", "$${", "a,b", "\xff")
	c := fuzzed(f)[1]
	if !strings.HasPrefix(c.name, "mesh") {
		f.Fatal(c.name)
	}
	f.Fuzz(func(t *testing.T, level, port, cpu, drain, trace, workers, note, hosts, app string) {
		decide := func(values map[string]string, app string) (sidecar.Decision, any) {
			annotations := make(map[string]string, len(values))
			for name, value := range values {
				annotations["mesh.sidecar.gatehouse.dev/"+name] = value
			}
			pod := bytes.Replace(fuzzPod(t, annotations), []byte(`"app":"checkout"`), append([]byte(`"app":`), rawjson.AppendString(nil, app)...), 1)
			d, out := c.decide(t, sidecar.ForPod("shop", pod))
			spec := asObject(treeOf(t, out))["spec"]
			return d, skeleton(spec)
		}
		d, got := decide(map[string]string{
			"level": level, "port": port, "cpu": cpu, "drain": drain, "trace": trace, "workers": workers, "note": note, "hosts": hosts,
		}, app)
		if d.Err != nil {
			t.Errorf("no text of a pod is an error: %v", d.Err)
		}
		if !slices.Contains(appliedIn(d), "mesh") || len(d.Refusals) > 0 {
			return
		}
		plain, want := decide(nil, "checkout")
		if !slices.Contains(appliedIn(plain), "mesh") {
			t.Fatalf("the defaults are not applied: %+v", plain)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the structure is\n%v\nand should be\n%v", got, want)
		}
	})
}

// skeleton returns a tree with the kinds of scalars in their place.
func skeleton(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, value := range v {
			out[name] = skeleton(value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = skeleton(value)
		}
		return out
	default:
		return reflect.TypeOf(v)
	}
}

// FuzzOrderOfKeys writes a pod with its keys in one order and in the opposite
// one: the decisions are alike.
func FuzzOrderOfKeys(f *testing.F) {
	for seed := range uint64(30) {
		f.Add([]byte(newGenerator(seed, seed%2 == 0).pod()))
	}
	all := fuzzed(f)
	f.Fuzz(func(t *testing.T, pod []byte) {
		if _, err := rawjson.Parse(pod); err != nil {
			return
		}
		v := treeOf(t, pod)
		if !finite(v) {
			return // A message names the first number that cannot be read.
		}
		ways := [][]byte{ordered(nil, v, false), ordered(nil, v, true)}
		for _, c := range all {
			var decisions [2]sidecar.Decision
			var results [2]any
			for i, way := range ways {
				d, out := c.decide(t, sidecar.ForPod("baseline", way))
				d.Patches = nil
				decisions[i], results[i] = d, withParsedStatus(treeOf(t, out))
			}
			if (decisions[0].Err != nil) != (decisions[1].Err != nil) {
				t.Errorf("%s: %v, %v", pod, decisions[0].Err, decisions[1].Err)
			}
			decisions[0].Err, decisions[1].Err = nil, nil
			sameDecision(t, "the decision", decisions[0], decisions[1])
			if !reflect.DeepEqual(results[0], results[1]) {
				t.Errorf("%s becomes %v, %v", pod, results[0], results[1])
			}
		}
	})
}

// finite reports whether every number can be read.
func finite(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, below := range v {
			if !finite(below) {
				return false
			}
		}
	case []any:
		return !slices.ContainsFunc(v, func(below any) bool { return !finite(below) })
	case json.Number:
		_, err := v.Float64()
		return err == nil
	}
	return true
}

// ordered writes a tree with the keys of objects up or down the alphabet.
func ordered(dst []byte, v any, down bool) []byte {
	switch v := v.(type) {
	case map[string]any:
		names := slices.Sorted(maps.Keys(v))
		if down {
			slices.Reverse(names)
		}
		dst = append(dst, '{')
		for i, name := range names {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = ordered(append(rawjson.AppendString(dst, name), ':'), v[name], down)
		}
		return append(dst, '}')
	case []any:
		dst = append(dst, '[')
		for i, value := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = ordered(dst, value, down)
		}
		return append(dst, ']')
	case string:
		return rawjson.AppendString(dst, v)
	case json.Number:
		return append(dst, v.String()...)
	case bool:
		if v {
			return append(dst, "true"...)
		}
		return append(dst, "false"...)
	default:
		return append(dst, "null"...)
	}
}

// withParsedStatus puts the tree of the status annotation in its place: values
// that the pod had are kept in it as they were written.
func withParsedStatus(pod any) any {
	annotations := asObject(asObject(asObject(pod)["metadata"])["annotations"])
	if text, ok := annotations[v1alpha1.StatusAnnotation].(string); ok {
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		var status any
		if d.Decode(&status) == nil {
			annotations[v1alpha1.StatusAnnotation] = status
		}
	}
	return pod
}
