package manifest

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"

	"golang.org/x/tools/txtar"
	"gomodules.xyz/jsonpatch/v2"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// FuzzEdit reads any text as manifests and changes every pod in it: that never
// panics, what cannot be done is a list of diagnostics, what was not changed keeps
// every byte, and what was changed says what the API server's library makes of
// it, when it is read again.
func FuzzEdit(f *testing.F) {
	files, err := filepath.Glob("testdata/edit/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, name := range files {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		patch := `[{"op":"add","path":"/metadata/annotations","value":{"a":"b"}},{"op":"add","path":"/spec/containers/0","value":{"name":"x","args":["a\nb"]}}]`
		for _, file := range archive.Files {
			if file.Name == "patch" {
				patch = string(file.Data)
			}
		}
		f.Add(archive.Files[0].Data, []byte(patch))
	}
	for _, text := range []string{
		"kind: Pod\napiVersion: v1\nspec: {}\nspec: {}", "? kind\n: Pod\n? apiVersion\n: v1\n? spec\n: {}", "--- |\n  {kind: Pod}\n--- &a [*a]",
		"kind: Pod\napiVersion: v1\nspec: {containers: [a: b, ? c]}", "{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"spec\":{\"a\":[]}}\n# end",
		"\ufeff\ufeffkind: Pod", "kind: Pod\rapiVersion: v1\rspec:\r  a: b", "kind: Pod\napiVersion: v1\nspec: !!map\n  containers: !!seq []",
		"kind: List\nitems: [{kind: Pod, apiVersion: v1, spec: {x: }}, 1]", "kind: Pod\napiVersion: v1\nspec: &s\n  <<: {a: b}\n  c: !!binary aGk=\n",
	} {
		f.Add([]byte(text), []byte(`[{"op":"add","path":"/spec/containers","value":[1]},{"op":"add","path":"/metadata","value":{"labels":{"a":null}}}]`))
	}
	f.Fuzz(func(t *testing.T, data, patch []byte) {
		var list diagnostic.List
		before := string(data)
		file, err := tryParse("app.yaml", data, workloads(t))
		if err != nil {
			if !errors.As(err, &list) || list.Err() == nil {
				t.Fatalf("not a list of findings: %v", err)
			}
			for _, o := range Read("app.yaml", data, workloads(t)).Objects {
				if o.Line() < 1 || len(o.Errors()) == 0 && o.Unreadable != nil {
					t.Fatalf("an object in line %d, %v", o.Line(), o.Unreadable)
				}
			}
			return
		}
		if same, err := file.Text(); err != nil || string(same) != before {
			t.Fatalf("unchanged, but %v\n%q\n%q", err, same, before)
		}
		var ops []jsonpatch.Operation
		if json.Unmarshal(patch, &ops) != nil {
			return
		}
		for _, o := range file.Objects {
			if o.NoPod == "" {
				_ = o.Apply(ops) // what does not fit is not asked for
			}
		}
		text, err := file.Text()
		if err != nil {
			if !errors.As(err, &list) || list.Err() == nil {
				t.Fatalf("not a list of findings: %v", err)
			}
			return
		}
		if string(data) != before {
			t.Fatal("the input was changed")
		}
		again, err := tryParse("app.yaml", text, workloads(t))
		if err != nil || len(again.documents) != len(file.documents) {
			t.Fatalf("cannot be read again: %v\n%q\n%q", err, before, text)
		}
		for i, d := range file.documents {
			if len(d.changes) == 0 {
				if string(d.text) != string(again.documents[i].text) {
					t.Fatalf("document %d was touched:\n%q\n%q", i+1, before, text)
				}
				continue
			}
			expected, err := applyChanges(d.value, d.changes)
			if err != nil {
				t.Fatal(err)
			}
			if !sameValue(expected, again.documents[i].value) {
				t.Fatalf("document %d is %s and not %s:\n%q\n%q", i+1, again.documents[i].value, expected, before, text)
			}
		}
	})
}
