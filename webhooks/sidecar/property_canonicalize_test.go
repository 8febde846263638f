package sidecar_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kjson "sigs.k8s.io/json"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// long are numbers of which the API server makes others, or that take minutes.
var long = regexp.MustCompile(`[eE][+-]?\d{2,}|\d{10,}`)

// FuzzWritten brings pod specs into the form in which the API server writes them:
// all that is in it is in what the API server writes, and it means the same.
func FuzzWritten(f *testing.F) {
	paths, err := filepath.Glob(richProfiles)
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for i, document := range regexp.MustCompile(`(?m)^---$`).Split(string(text), -1) {
			f.Add(profile(f, path+string(rune('0'+i)), document).Spec.Template.Spec.Raw)
		}
	}
	f.Add([]byte(`{"tolerations":[{"key":"","tolerationSeconds":0},null],"nodeSelector":{"a":null,"b":""},"hostPID":false,"overhead":{"cpu":0.0001}}`))
	f.Add([]byte(`{"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1},{"preference":null}]}},"containers":[{"command":[],"args":[null],"ports":[{"hostPort":-0}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := rawjson.Parse(text)
		if err != nil || v.Kind() != rawjson.Object || long.Match(text) || repeats(v) {
			return
		}
		theirs, ok := specOf(t, text)
		if !ok {
			return
		}
		written := sidecar.AsWritten(text)
		again, ok := specOf(t, written)
		// Null says nothing in a template; in a map of texts it is an empty one to
		// the API server.
		if !ok || !within(again, theirs) || !bytes.Contains(text, []byte("null")) && !within(theirs, again) {
			t.Errorf("%s means another thing than %s", written, text)
		}
		if !within(treeOf(t, written), theirs) {
			t.Errorf("%s is not in %v", written, theirs)
		}
		if twice := sidecar.AsWritten(written); string(twice) != string(written) {
			t.Errorf("%s becomes %s", written, twice)
		}
	})
}

// specOf returns a spec as the API server writes it, without what has no name there.
func specOf(t *testing.T, text []byte) (any, bool) {
	t.Helper()
	var spec corev1.PodSpec
	if strict, err := kjson.UnmarshalStrict(text, &spec); err != nil || len(strict) > 0 {
		return nil, false
	}
	return treeOf(t, asJSON(t, spec)), true
}

// within reports whether all of a is in b. Quantities are equal to a thousandth, to
// which the API server rounds them.
func within(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		for name, value := range a {
			other, there := b[name]
			ok = ok && there && within(value, other)
		}
		return ok
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !within(a[i], b[i]) {
				return false
			}
		}
		return true
	case string:
		b, ok := b.(string)
		x, errX := resource.ParseQuantity(a)
		y, errY := resource.ParseQuantity(b)
		if !ok || errX != nil || errY != nil {
			return ok && a == b
		}
		x.RoundUp(resource.Milli)
		y.RoundUp(resource.Milli)
		return x.Cmp(y) == 0
	default:
		return reflect.DeepEqual(a, b)
	}
}
