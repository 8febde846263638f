package property_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kjson "sigs.k8s.io/json"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
)

// fuzzed returns the worlds of fuzz targets: all would make each try slow.
func fuzzed(f *testing.F) []*world {
	f.Helper()
	return worlds(f, "mesh Keep Keep", "names Skip Replace", "fields Keep Refuse")
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

// FuzzParameters feeds the annotations that set parameters: whatever a pod says,
// what is added has the structure that the template has.
func FuzzParameters(f *testing.F) {
	f.Add("debug", "8443", "250m", "1m", "true", "3", "hello", "a", "checkout")
	f.Add("info", "15001", "100m", "5s", "false", "2", `"},"command":["evil"],"x":{"`, `","`, `"]`)
	f.Add("loud", "0x10", "1e3", "-1s", "yes", "65", "${params.level}", "", "\u2028<&>")
	f.Add("\x00", "1e4", "1Ki", "1h", "T", "+1", "$${", "a,b", "\xff")
	c := worlds(f, "mesh Keep Keep")[0]
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
		if !isMeshApplied(d) || len(d.Refusals) > 0 {
			return
		}
		plain, want := decide(nil, "checkout")
		if !isMeshApplied(plain) {
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

func isMeshApplied(d sidecar.Decision) bool {
	return slices.ContainsFunc(d.Verdicts, func(v sidecar.Verdict) bool { return v.Profile == "mesh" && v.Reason == sidecar.Applied })
}

// longNumber matches numbers of which the API server makes others, or that take minutes or cannot be read.
var longNumber = regexp.MustCompile(`[eE][+-]?\d{2,}|\d{10,}`)

// FuzzCanonicalize brings pod specs into the form in which the API server writes them: they mean the same, and
// stay as they are.
func FuzzCanonicalize(f *testing.F) {
	for file, texts := range documents(f) {
		for _, text := range texts {
			f.Add(profile(f, file, text).Spec.Template.Spec.Raw)
		}
	}
	f.Add([]byte(`{"tolerations":[{"key":"","tolerationSeconds":0}],"nodeSelector":{"b":""},"hostPID":false,"overhead":{"cpu":0.001}}`))
	f.Add([]byte(`{"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1}]}},"containers":[{"command":[],"ports":[{"hostPort":-0}]}]}`))
	typed := reflect.TypeFor[corev1.PodSpec]()
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := rawjson.Parse(text)
		// Null says nothing in a template; in a map of texts it is an empty one to the API server.
		if err != nil || v.Kind() != rawjson.Object || longNumber.Match(text) || repeats(v) || bytes.Contains(text, []byte("null")) {
			return
		}
		var want, got corev1.PodSpec
		if strict, err := kjson.UnmarshalStrict(text, &want); err != nil || len(strict) > 0 {
			return
		}
		canonical := merge.Canonicalize(text, typed)
		if err := json.Unmarshal(canonical, &got); err != nil || !equality.Semantic.DeepEqual(got, want) {
			t.Errorf("%s means another thing than %s: %v", canonical, text, err)
		}
		if twice := merge.Canonicalize(canonical, typed); string(twice) != string(canonical) {
			t.Errorf("%s becomes %s", canonical, twice)
		}
	})
}
