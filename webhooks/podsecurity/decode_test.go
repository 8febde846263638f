package podsecurity_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

func decode(t testing.TB, text string) (*podsecurity.Pod, error) {
	t.Helper()
	json, err := yaml.YAMLToJSON([]byte(text))
	must(t, err)
	value, err := rawjson.Parse(json)
	must(t, err)
	return podsecurity.Decode(value)
}

// TestDecodeFixtures holds that the checks see in the part that is read what
// they see in the whole.
func TestDecodeFixtures(t *testing.T) {
	t.Parallel()
	e := evaluator(t)
	for _, f := range fixtures(t) {
		name, version, _ := f.standard()
		l := level(t, name, version)
		pod, err := decode(t, f.text)
		must(t, err)
		got := e.Violations(l, &pod.Metadata, &pod.Spec)
		if want := e.Violations(l, &f.pod.ObjectMeta, &f.pod.Spec); !slices.Equal(got, want) {
			t.Errorf("%s:\ngot  %q\nwant %q", f.file, got, want)
		}
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, text string
		// want is a part of the error, or of the volumes that restricted refuses.
		want string
	}{
		{"nothing", `{}`, ""},
		{"null", `{metadata: null, spec: null}`, ""},
		{"volume without a source", `{spec: {volumes: [{name: a}]}}`, ""},
		{"volume with null for a source", `{spec: {volumes: [{name: a, hostPath: null}]}}`, ""},
		{"secret", `{spec: {volumes: [{name: a, secret: {secretName: b, items: 5}}]}}`, ""},
		{"source to come", `{spec: {volumes: [{name: a, fromTheFuture: {}}]}}`, `"unknown"`},
		{"hostPath", `{spec: {volumes: [{name: a, secret: null, hostPath: {path: /}}]}}`, `"hostPath"`},
		{"fields that no check looks at", `{metadata: {name: 5}, spec: {affinity: 5, containers: [{env: 5}]}}`, ""},
		{"metadata is no object", `{metadata: 5}`, "not a pod: json: "},
		{"spec is no object", `{spec: []}`, "not a pod: json: "},
		{"containers is no list", `{spec: {containers: {}}}`, "not a pod: json: "},
		{"container is no object", `{spec: {containers: [5]}}`, "not a pod: json: "},
		{"number for a name", `{spec: {containers: [{name: 5}]}}`, "not a pod: json: "},
	} {
		pod, err := decode(t, tc.text)
		var got string
		if err != nil {
			got = err.Error()
		} else {
			for _, v := range evaluator(t).Violations(level(t, "restricted", ""), &pod.Metadata, &pod.Spec) {
				if v.Check == "restrictedVolumes" {
					got = v.Detail
				}
			}
		}
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

// What a decoder may read in one way or another is not read at all: a pod is not
// admitted for one value and run with the other.
func TestDecodeTwice(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"spec":{"hostNetwork":true},"spec":{}}`,
		`{"spec":{"hostNetwork":true,"hostNetwork":false}}`,
		`{"spec":{"containers":[{"name":"a","securityContext":{"privileged":true},"securityContext":{}}]}}`,
		`{"metadata":{"annotations":{"a":"b","a":"c"}}}`,
	} {
		value, err := rawjson.Parse([]byte(text))
		must(t, err)
		if _, err := podsecurity.Decode(value); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}

// FuzzDecode holds that the checks see in the part that is read what they see in
// the whole, if that can be read.
func FuzzDecode(f *testing.F) {
	for i, fixture := range fixtures(f) {
		if i%100 == 0 {
			text, err := yaml.YAMLToJSON([]byte(fixture.text))
			must(f, err)
			f.Add(text)
		}
	}
	f.Add([]byte(`{"spec":{"volumes":[{"name":"a","fromTheFuture":{}}],"hostUsers":false}}`))
	e := evaluator(f)
	levels := []podsecurity.Level{level(f, "baseline", "v1.0"), level(f, "restricted", "latest")}
	f.Fuzz(func(t *testing.T, text []byte) {
		value, err := rawjson.Parse(text)
		if err != nil || value.Kind() != rawjson.Object {
			return
		}
		got, err := podsecurity.Decode(value)
		whole := new(corev1.Pod)
		duplicates, wholeErr := kjson.UnmarshalStrict(text, whole, kjson.DisallowDuplicateFields)
		if wholeErr != nil || len(duplicates) > 0 {
			return // not what the API server would send
		}
		if _, treeErr := value.Decode(); treeErr != nil {
			return // a key twice where the decoder above does not look
		}
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		for i := range whole.Spec.Volumes {
			if whole.Spec.Volumes[i].VolumeSource == (corev1.VolumeSource{}) {
				return // whether it has an unknown source, only the text shows
			}
		}
		for _, l := range levels {
			before, after := e.Violations(l, &whole.ObjectMeta, &whole.Spec), e.Violations(l, &got.Metadata, &got.Spec)
			if !slices.Equal(before, after) {
				t.Fatalf("%q at %s:\ngot  %q\nwant %q", text, l, after, before)
			}
		}
	})
}
