package testrunner

import (
	"bytes"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// FuzzDocument reads documents that nobody has written, and holds every case that
// passes for one to the promise of the package: it can fail.
func FuzzDocument(f *testing.F) {
	for _, expect := range []string{
		`{"verdict":"Allowed"}`, `{}`, `{"violations":[{"policy":"p","rule":"r","messageContains":"m"}]}`, `{"violations":[{"message":""}]}`,
		`{"verdict":"Denied","warnings":["a","b"],"auditAnnotations":{"a":"b"},"exceptions":["a/b"]}`, `{"exceptions":[]}`, `{"violations":[{}]}`,
		`{"verdict":"CannotDecide","violations":[]}`, `{"verdict":"Denied","violations":[]}`,
	} {
		f.Add([]byte(`{"apiVersion":"gatehouse.dev/v1alpha1","kind":"Test","metadata":{"name":"t"},"cases":[{"name":"c","object":{},"expect":` + expect + `}]}`))
	}
	f.Add([]byte(`{"apiVersion":"gatehouse.dev/v1alpha1","kind":"Test","policies":["p","AdmissionPolicy/p",""],"cases":[{"name":"c","object":{},"expect":{"verdict":"Denied"}}]}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"List","items":[{"kind":"Test"},{"apiVersion":"gatehouse.dev/v1alpha1","kind":"TestList","items":[{},1]}]}`))
	f.Add([]byte(`{"apiVersion":"gatehouse.dev/v1alpha1","kind":"Test","metadata":{"name":"t"},"context":[{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n"}}],"cases":[{"name":"c","user":{},"now":"2026-01-01T00:00:00Z","expect":{"warnings":[]}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if bytes.Contains(data, []byte(`bjectFile`)) || bytes.Contains(data, []byte(`\u`)) {
			return // no files are read here
		}
		value, err := rawjson.Parse(data)
		if err != nil {
			return
		}
		tree, err := value.Decode()
		if err != nil {
			return
		}
		l := loader{documents: map[string]string{}}
		l.document("test.json", "test.json", tree)
		if l.found.Err() != nil {
			return
		}
		if l.tests > 0 && len(l.cases) == 0 {
			t.Error("a test has no case, and that is no finding")
		}
		for _, c := range l.cases {
			if c.Test == "" || c.Name == "" {
				t.Errorf("%q has no name", c.Title())
			}
			other := v1alpha1.TestAllowed
			if c.Expect.Verdict == other {
				other = v1alpha1.TestDenied
			}
			if len(Judge(&c.Expect, &Outcome{Verdict: other})) == 0 {
				t.Errorf("%s cannot fail: %+v", c.Title(), c.Expect)
			}
		}
	})
}
