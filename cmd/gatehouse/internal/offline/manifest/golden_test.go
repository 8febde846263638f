package manifest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"gomodules.xyz/jsonpatch/v2"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
)

// sidecar is what most goldens add: a container in front, one behind, an
// annotation and a volume.
func sidecar(t testing.TB, pod []byte) []jsonpatch.Operation {
	t.Helper()
	v, err := rawjson.Parse(pod)
	if err != nil {
		t.Fatal(err)
	}
	var ops []jsonpatch.Operation
	insert := func(list, index, value string) {
		if at := v.Get("spec", list); at.Kind() == rawjson.Array {
			ops = append(ops, operation("add", "/spec/"+list+"/"+index, value))
			return
		}
		ops = append(ops, operation("add", "/spec/"+list, "["+value+"]"))
	}
	if v.Get("metadata", "annotations").Kind() == rawjson.Object {
		ops = append(ops, operation("add", "/metadata/annotations/sidecar.gatehouse.dev~1status", `"{\"profiles\":[{\"name\":\"logs\"}]}"`))
	} else {
		ops = append(ops, operation("add", "/metadata/annotations", `{"sidecar.gatehouse.dev/status":"{\"profiles\":[{\"name\":\"logs\"}]}"}`))
	}
	insert("initContainers", "0", `{"name":"logs","image":"registry.example/logs:1","restartPolicy":"Always","args":["--level","on","--file=a b"],"startupProbe":{"tcpSocket":{"port":1}},"resources":{}}`)
	insert("containers", "-", `{"name":"tail","image":"registry.example/tail:1","command":["sh","-c","while true; do\n  date\ndone\n"]}`)
	insert("volumes", "-", `{"name":"logs","emptyDir":{}}`)
	return ops
}

func operation(op, path, value string) jsonpatch.Operation {
	if op == "remove" {
		return jsonpatch.Operation{Operation: op, Path: path}
	}
	return jsonpatch.Operation{Operation: op, Path: path, Value: json.RawMessage(value)}
}

// inverse undoes operations on a pod.
func inverse(t testing.TB, pod []byte, ops []jsonpatch.Operation) []jsonpatch.Operation {
	t.Helper()
	value, err := rawjson.Parse(pod)
	if err != nil {
		t.Fatal(err)
	}
	var undo []jsonpatch.Operation
	for i := range ops {
		c, err := newChange(&ops[i])
		if err != nil {
			t.Fatal(err)
		}
		parent, last := c.path[:strings.LastIndexByte(c.path, '/')], c.path[strings.LastIndexByte(c.path, '/')+1:]
		in, old := lookup(value, parent), lookup(value, c.path)
		switch {
		case c.op == "add" && last == "-":
			undo = append(undo, operation("remove", parent+"/"+strconv.Itoa(in.Len()), ""))
		case c.op == "add" && in.Kind() == rawjson.Array, c.op == "add" && old.Kind() == rawjson.Invalid:
			undo = append(undo, operation("remove", c.path, ""))
		case c.op == "remove":
			undo = append(undo, operation("add", c.path, string(old)))
		default:
			undo = append(undo, operation("replace", c.path, string(old)))
		}
		if value, err = applyChanges(value, []change{c}); err != nil {
			t.Fatal(err)
		}
	}
	slices.Reverse(undo)
	return undo
}

func lookup(v rawjson.Value, pointer string) rawjson.Value {
	for _, step := range steps(pointer) {
		if v.Kind() == rawjson.Array {
			var next rawjson.Value
			for i, element := range v.Elements() {
				if strconv.Itoa(i) == step {
					next = element
				}
			}
			v = next
			continue
		}
		v = v.Get(step)
	}
	return v
}

// workloads are the built-in ones and one custom kind.
func workloads(t testing.TB) *Workloads {
	t.Helper()
	w, err := NewWorkloads(workload.Kind{Group: "argoproj.io", Kind: "Rollout", Template: []string{"spec", "template"}})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// tryParse returns the errors of a file's objects as an error.
func tryParse(name string, data []byte, w *Workloads) (*File, error) {
	f := Read(name, data, w)
	var found diagnostic.List
	for _, o := range f.Objects {
		if o.Unreadable != nil {
			found = append(found, *o.Unreadable)
		}
	}
	return f, found.Err()
}

func parse(t testing.TB, data []byte) *File {
	t.Helper()
	f, err := tryParse("app.yaml", data, workloads(t))
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	return f
}

// edit changes every pod of a file.
func edited(t testing.TB, data []byte, patch func(pod []byte) []jsonpatch.Operation) []byte {
	t.Helper()
	f := parse(t, data)
	for _, o := range f.Objects {
		if o.NoPod == "" {
			if err := o.Apply(patch(o.Pod("default"))); err != nil {
				t.Fatal(err)
			}
		}
	}
	text, err := f.Text()
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	return text
}

// TestEdit compares with the goldens in testdata/edit: what becomes of a text.
// Every one of them must also be what it was after the change is undone, line
// ends of other kinds and a missing last one included, unless more is done than
// to add something, or its comment says that something is written anew or out.
func TestEdit(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/edit/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var in, want []byte
			patch := func(pod []byte) []jsonpatch.Operation { return sidecar(t, pod) }
			for _, file := range archive.Files {
				switch file.Name {
				case "in":
					in = file.Data
				case "patch":
					patch = func([]byte) (ops []jsonpatch.Operation) {
						if err := json.Unmarshal(file.Data, &ops); err != nil {
							t.Fatal(err)
						}
						return ops
					}
				case "want":
					want = file.Data
				default:
					t.Fatalf("%s: unknown file", file.Name)
				}
			}
			got := edited(t, in, patch)
			if !bytes.Equal(got, want) {
				if os.Getenv("UPDATE_GOLDEN") == "" {
					t.Errorf("got:\n%s\nwant:\n%s", got, want)
				} else {
					archive.Files = slices.DeleteFunc(archive.Files, func(f txtar.File) bool { return f.Name == "want" })
					archive.Files = append(archive.Files, txtar.File{Name: "want", Data: got})
					if err := os.WriteFile(name, txtar.Format(archive), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			adds := !slices.ContainsFunc(archive.Files, func(f txtar.File) bool { return f.Name == "patch" && strings.Contains(string(f.Data), `"re`) })
			undone := adds && !strings.Contains(string(archive.Comment), "written")
			for variant, change := range map[string]func([]byte) []byte{
				"as it is":               func(text []byte) []byte { return text },
				"CRLF":                   func(text []byte) []byte { return bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")) },
				"without last line end":  func(text []byte) []byte { return bytes.TrimSuffix(text, []byte("\n")) },
				"with a byte order mark": func(text []byte) []byte { return append([]byte("\ufeff"), text...) },
			} {
				before := change(slices.Clone(in))
				after := edited(t, before, patch)
				if !bytes.Equal(after, change(slices.Clone(got))) {
					t.Errorf("%s: got\n%q\nwant\n%q", variant, after, change(slices.Clone(got)))
				}
				if !undone {
					continue
				}
				var undo [][]jsonpatch.Operation
				for _, o := range parse(t, before).Objects {
					if o.NoPod == "" {
						undo = append(undo, inverse(t, o.Pod("default"), patch(o.Pod("default"))))
					}
				}
				back := edited(t, after, func([]byte) []jsonpatch.Operation {
					next := undo[0]
					undo = undo[1:]
					return next
				})
				if !bytes.Equal(back, before) {
					t.Errorf("%s: undone:\n%s\nwas:\n%s", variant, back, before)
				}
			}
		})
	}
}
