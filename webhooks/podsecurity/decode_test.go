package podsecurity_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/race"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
)

func decode(t testing.TB, text string) (*podsecurity.Pod, error) {
	t.Helper()
	json, err := yaml.YAMLToJSON([]byte(text))
	must(t, err)
	value, err := rawjson.Parse(json)
	must(t, err)
	return decodeBoth(t, value)
}

// decodeBoth returns what Decode makes of a pod, and holds that DecodeIndexed makes the same.
func decodeBoth(t testing.TB, value rawjson.Value) (*podsecurity.Pod, error) {
	t.Helper()
	pod, err := podsecurity.Decode(value)
	var x rawjson.Index
	if x.Read(value) == nil {
		indexed, indexedErr := podsecurity.DecodeIndexed(&x, 0)
		if fmt.Sprint(indexedErr) != fmt.Sprint(err) || !reflect.DeepEqual(indexed, pod) {
			t.Errorf("%s: with an index %+v, %v, without %+v, %v", value, indexed, indexedErr, pod, err)
		}
	}
	return pod, err
}

func TestDecode(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, text string
		// want is the error, or what restricted says of the volumes.
		want string
	}{
		{"nothing", `{}`, ""},
		{"null", `null`, ""},
		{"null in it", `{metadata: null, spec: null}`, ""},
		{"volume without a source", `{spec: {volumes: [{name: a}]}}`, ""},
		{"volume with null for a source", `{spec: {volumes: [{name: a, hostPath: null, fromTheFuture: null}]}}`, ""},
		{"volume that is null", `{spec: {volumes: [null]}}`, ""},
		{"secret", `{spec: {volumes: [{name: a, secret: {secretName: b, items: 5}}]}}`, ""},
		{"source to come", `{spec: {volumes: [{name: a, fromTheFuture: {}}]}}`, `volume "a" uses restricted volume type "unknown"`},
		{"source to come, and null", `{spec: {volumes: [{name: a, fromTheFuture: {}, other: null}]}}`, `volume "a" uses restricted volume type "unknown"`},
		{"source to come, among others", `{spec: {volumes: [{name: a, fromTheFuture: {}, secret: {}}]}}`, ""},
		{"hostPath", `{spec: {volumes: [{name: a, secret: null, hostPath: {path: /}}]}}`, `volume "a" uses restricted volume type "hostPath"`},
		{"other case", `{spec: {volumes: [{name: a, HostPath: {path: /}}]}}`, `volume "a" uses restricted volume type "unknown"`},
		{"fields that no check looks at", `{metadata: {name: 5}, spec: {affinity: 5, containers: [{env: 5, ports: [{containerPort: x}]}]}, status: []}`, ""},
		{"other case of a field", `{spec: {HostNetwork: 5}, Spec: 5}`, ""},
		{"no object", `[]`, "not a pod: must be an object, not an array"},
		{"metadata is no object", `{metadata: 5}`, "not a pod: metadata: must be an object, not a number"},
		{"spec is no object", `{spec: []}`, "not a pod: spec: must be an object, not an array"},
		{"annotation is no string", `{metadata: {annotations: {a.b/c: 5}}}`, `not a pod: metadata.annotations["a.b/c"]: must be a string, not a number`},
		{"containers is no list", `{spec: {containers: {}}}`, "not a pod: spec.containers: must be an array, not an object"},
		{"container is no object", `{spec: {containers: [{name: a}, 5]}}`, "not a pod: spec.containers[1]: must be an object, not a number"},
		{"number for a name", `{spec: {containers: [{name: 5}]}}`, "not a pod: spec.containers[0].name: must be a string, not a number"},
		{"string for a boolean", `{spec: {hostPID: "false"}}`, "not a pod: spec.hostPID: must be a boolean, not a string"},
		{"source is no object", `{spec: {volumes: [{name: a, secret: true}]}}`, "not a pod: spec.volumes[0].secret: must be an object, not a boolean"},
		{"port that does not fit", `{spec: {initContainers: [{ports: [{}, {hostPort: 2147483648}]}]}}`, `not a pod: spec.initContainers[0].ports[1].hostPort: "2147483648" is not a 32-bit integer`},
		{"user that is no integer", `{spec: {securityContext: {runAsUser: 1.5}}}`, `not a pod: spec.securityContext.runAsUser: "1.5" is not a 64-bit integer`},
		{"the first of two", `{spec: {hostPID: 5, hostIPC: 5}}`, "not a pod: spec.hostIPC: must be a boolean, not a number"},
	} {
		pod, err := decode(t, tc.text)
		var got string
		if err != nil {
			got = err.Error()
			if pod != nil {
				t.Errorf("%s: a pod beside an error", tc.name)
			}
		} else {
			for _, v := range evaluator(t).Violations(level(t, "restricted", ""), &pod.Metadata, &pod.Spec) {
				if v.Check == "restrictedVolumes" {
					got = v.Detail
				}
			}
		}
		if got != tc.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tc.name, got, tc.want)
		}
	}
	pod, err := podsecurity.Decode(nil)
	if err != nil || !reflect.DeepEqual(pod, new(podsecurity.Pod)) {
		t.Errorf("absent: got %v, %v", pod, err)
	}
}

// What a decoder may read in one way or another is not read at all: a pod is not
// admitted for one value and run with the other.
func TestDecodeTwice(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ text, want string }{
		{`{"spec":{"hostNetwork":true},"spec":{}}`, `not a pod: member "spec" occurs twice in one object`},
		{`{"spec":{"hostNetwork":true,"hostNetw\u006frk":false}}`, `not a pod: spec: member "hostNetwork" occurs twice in one object`},
		{`{"spec":{"hostNetwork":true,"hostNetwork":null}}`, `not a pod: spec: member "hostNetwork" occurs twice in one object`},
		{`{"spec":{"containers":[{},{"securityContext":{"privileged":true},"securityContext":{}}]}}`, `not a pod: spec.containers[1]: member "securityContext" occurs twice in one object`},
		{`{"spec":{"volumes":[{"hostPath":{},"hostPath":null,"secret":{}}]}}`, `not a pod: spec.volumes[0]: member "hostPath" occurs twice in one object`},
		{`{"metadata":{"annotations":{"a.b/c":"b","a.b\/c":"c"}}}`, `not a pod: metadata.annotations: member "a.b/c" occurs twice in one object`},
		{`{"metadata":{"annotations":{"a.k8s.io/b":"b","a.k8s.io/b":"b"}}}`, `not a pod: metadata.annotations: member "a.k8s.io/b" occurs twice in one object`},
		{`{"spec":{"containers":[{"image":"a","image":"b"}]}}`, `not a pod: spec.containers[0]: member "image" occurs twice in one object`},
		{`{"spec":{"volumes":[{"fromTheFuture":{},"fromTheFuture":{}}]}}`, `not a pod: spec.volumes[0]: member "fromTheFuture" occurs twice in one object`},
		{`{"status":{},"status":{}}`, `not a pod: member "status" occurs twice in one object`},
		{`{"spec":{` + many(100) + `,"n0":0}}`, `not a pod: spec: member "n0" occurs twice in one object`},
		{`{"spec":{` + many(63) + `,"containers":[{"a":0,"a":0}]}}`, `not a pod: spec.containers[0]: member "a" occurs twice in one object`},
		{`{"spec":{` + many(100) + `,"containers":[{"a":0,"b":0}]}}`, ""},
		// What is passed by is not looked into.
		{`{"status":{"a":0,"a":0},"metadata":{"labels":{"a":"b","a":"c"}},"spec":{"containers":[{"env":[{"name":"a","name":"b"}]}],"volumes":[{"secret":{"items":0,"items":0}}]}}`, ""},
	} {
		value, err := rawjson.Parse([]byte(tc.text))
		must(t, err)
		var got string
		if _, err = podsecurity.Decode(value); err != nil {
			got = err.Error()
			if _, ok := errors.AsType[*rawjson.DuplicateKeyError](err); !ok {
				t.Errorf("%s: is no DuplicateKeyError", tc.text)
			}
		}
		if got != tc.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tc.text, got, tc.want)
		}
	}
}

// TestDecodeCost holds that next to nothing is kept of a usual pod, and that the
// names of one with very many members are compared once.
func TestDecodeCost(t *testing.T) {
	usual, err := os.ReadFile("../policy/testdata/pod.json")
	must(t, err)
	for _, tc := range []struct {
		name, text string
		most       float64
	}{
		{"usual", string(usual), 50},
		{"wide", `{"spec":{` + many(1000) + `}}`, 1500},
	} {
		value, err := rawjson.Parse([]byte(tc.text))
		must(t, err)
		if n := testing.AllocsPerRun(10, func() {
			_, err := podsecurity.Decode(value)
			must(t, err)
		}); n > tc.most {
			t.Errorf("%s: %v allocations", tc.name, n)
		}
	}
}

// many are n members.
func many(n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf(`"n%d":0`, i))
	}
	return strings.Join(out, ",")
}

// oracle reads what is looked at with the API server's decoder.
type oracle struct {
	// read is the type that is decoded into.
	read reflect.Type
}

func (o oracle) decode(value rawjson.Value) (*corev1.Pod, error) {
	if twice(o.read, value) {
		return nil, errors.New("a member twice")
	}
	read := reflect.New(o.read)
	if err := kjson.UnmarshalCaseSensitivePreserveInts(value, read.Interface()); err != nil {
		return nil, err
	}
	text, err := json.Marshal(read.Interface())
	if err != nil {
		return nil, err
	}
	pod := new(corev1.Pod)
	if err := json.Unmarshal(text, pod); err != nil {
		return nil, err
	}
	maps.DeleteFunc(pod.Annotations, func(name, _ string) bool { return !reserved(name) })
	for i, volume := range value.Get("spec", "volumes").Elements() {
		source := false
		for member, value := range volume.Members() {
			source = source || !member.Is("name") && value.Kind() != rawjson.Null
		}
		if !source {
			pod.Spec.Volumes[i].EmptyDir = new(corev1.EmptyDirVolumeSource)
		}
	}
	return pod, nil
}

// twice reports whether a member is there twice in an object that is looked into.
func twice(read reflect.Type, value rawjson.Value) bool {
	//nolint:exhaustive // no others have members
	switch read.Kind() {
	case reflect.Pointer:
		return twice(read.Elem(), value)
	case reflect.Slice:
		for _, element := range value.Elements() {
			if twice(read.Elem(), element) {
				return true
			}
		}
	case reflect.Map:
		_, found := value.DuplicateKey()
		return found
	case reflect.Struct:
		if read.NumField() == 0 {
			return false // that it is there is all that is looked at
		}
		if _, found := value.DuplicateKey(); found {
			return true
		}
		for field := range read.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if twice(field.Type, value.Get(name)) {
				return true
			}
		}
	}
	return false
}

// reserved reports whether an annotation is Kubernetes' own.
func reserved(name string) bool {
	return strings.Contains(name, "kubernetes.io/") || strings.Contains(name, "k8s.io/")
}

// agrees holds that Decode reads a text, or refuses it, as the oracle does.
func (o oracle) agrees(t *testing.T, value rawjson.Value) {
	t.Helper()
	got, err := decodeBoth(t, value)
	want, wantErr := o.decode(value)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%s:\ngot  %v\nwant %v", value, err, wantErr)
	}
	if err == nil && (!equality.Semantic.DeepEqual(got.Metadata, want.ObjectMeta) || !equality.Semantic.DeepEqual(got.Spec, want.Spec)) {
		t.Fatalf("%s:\ngot  %+v\nwant %+v", value, got, want)
	}
}

// whole returns a pod that has every field that is looked at.
func whole(t testing.TB) rawjson.Value {
	t.Helper()
	pod := reflect.New(readType(reflect.TypeFor[podsecurity.Pod]()))
	fill(pod.Elem())
	text, err := json.Marshal(pod.Interface())
	must(t, err)
	value, err := rawjson.Parse(text)
	must(t, err)
	return value
}

// TestDecodeEvery holds that every field that a check looks at is read, and as
// the API server's decoder does: with each of a pod's values replaced by one of
// every kind, each of its members repeated, and each renamed.
func TestDecodeEvery(t *testing.T) {
	t.Parallel()
	pod, o := whole(t), oracle{readType(reflect.TypeFor[podsecurity.Pod]())}
	o.agrees(t, pod)
	cases := 0
	try := func(parts ...[]byte) {
		if cases++; race.Enabled && cases%8 != 0 {
			return // one goroutine does all of this
		}
		value, err := rawjson.Parse(slices.Concat(parts...))
		must(t, err)
		o.agrees(t, value)
	}
	var walk func(c rawjson.Cursor)
	walk = func(c rawjson.Cursor) {
		start, kind := c.At(), c.Kind()
		after := c
		after.Skip()
		for _, other := range []string{`null`, `true`, `false`, `""`, `"b"`, `0`, `-0`, `1.0`, `1e2`, `99999999999`, `99999999999999999999`, `[]`, `[null]`, `{}`, `{"a":null}`} {
			try(pod[:start], []byte(other), pod[after.At():])
		}
		if kind != rawjson.Object && kind != rawjson.Array {
			return
		}
		first := true
		for c.Enter(); c.Next(); c.Skip() {
			if kind == rawjson.Object {
				at := c.At()
				name := c.Name()
				one := c
				one.Skip()
				try(pod[:at], one.Since(at), []byte(","), pod[at:])
				try(pod[:at], []byte(`"a":0,"a":1,`), pod[at:])
				try(pod[:at], []byte(`"a`), name[1:], pod[at+len(name):])
				try(pod[:at], name[:2], []byte(strings.ToUpper(string(name[2:]))), pod[at+len(name):])
			} else if !first {
				continue // as the one before
			}
			first = false
			walk(c)
		}
	}
	walk(pod.Cursor())
	if cases < 2000 {
		t.Errorf("only %d cases", cases)
	}
}

// FuzzDecode holds Decode against the API server's decoder.
func FuzzDecode(f *testing.F) {
	for i, fixture := range fixtures(f) {
		if i%100 == 0 {
			f.Add([]byte(fixture.raw))
		}
	}
	pod := whole(f)
	f.Add([]byte(pod))
	var spaced bytes.Buffer
	must(f, json.Indent(&spaced, pod, "\r", "\t "))
	f.Add(spaced.Bytes())
	f.Add([]byte(`{"spec":{"volumes":[{"name":"a","fromTheFuture":{}}],"hostUsers":false}}`))
	f.Add([]byte(`{"spec":{"securityContext":{"runAsUser":9223372036854775808,"run\u0041sUser":null}}}`))
	o := oracle{readType(reflect.TypeFor[podsecurity.Pod]())}
	f.Fuzz(func(t *testing.T, text []byte) {
		if value, err := rawjson.Parse(text); err == nil {
			o.agrees(t, value)
		}
	})
}
