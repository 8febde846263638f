package admission_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// example is a document of the repository's.
type example struct {
	file, text string
	fields     map[string]any
}

// examples are all documents below the repository's directories of examples and
// policies that may be custom resources, as JSON.
func examples(t *testing.T) []example {
	t.Helper()
	var all []example
	for _, dir := range []string{"examples", "policies"} {
		must(t, filepath.WalkDir(filepath.Join("../../../../../manifests", dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
				return err
			}
			data, err := os.ReadFile(path)
			must(t, err)
			reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
			for {
				document, err := reader.Read()
				if errors.Is(err, io.EOF) {
					return nil
				}
				must(t, err)
				var fields map[string]any
				must(t, yaml.Unmarshal(document, &fields))
				kind, _ := fields["kind"].(string)
				if fields["apiVersion"] != "gatehouse.dev/v1alpha1" || plurals()[kind] == "" {
					continue
				}
				text, err := json.Marshal(fields)
				must(t, err)
				all = append(all, example{path, string(text), fields})
			}
		}))
	}
	if len(all) < 20 {
		t.Fatalf("there are only %d examples", len(all))
	}
	return all
}

// TestExamples applies every example, alone and where all of its directory is in
// use.
func TestExamples(t *testing.T) {
	t.Parallel()
	empty := reviewer(configOf(t))
	for _, e := range examples(t) {
		c, found := config.Inspect(filepath.Dir(e.file))
		must(t, found.Err())
		for where, got := range map[string]string{
			"alone":         text(t, empty.Review(t.Context(), about(t, e.text, ""), true)),
			"in its place":  text(t, reviewer(c).Review(t.Context(), about(t, e.text, ""), true)),
			"as an update ": text(t, reviewer(c).Review(t.Context(), about(t, e.text, strings.Replace(e.text, `"spec":{`, `"spec":{"x":1,`, 1)), true)),
		} {
			if !strings.HasPrefix(got, "allowed\n") {
				t.Errorf("%s, %s: %s", e.file, where, got)
			}
		}
	}
}

// TestAsLint breaks every example in many ways. What lint reports as an error of
// such a document alone is refused, and everything else is allowed.
func TestAsLint(t *testing.T) {
	t.Parallel()
	r := reviewer(configOf(t))
	dir := t.TempDir()
	file := filepath.Join(dir, "document.json")
	broken, whole, n := 0, 0, 0
	for _, e := range examples(t) {
		for path := range paths(e.fields, nil) {
			if path[0] == "apiVersion" || path[0] == "kind" {
				continue
			}
			for _, value := range []any{nil, "", "x", int64(5), []any{}, map[string]any{"x": "y"}} {
				// Some of all, another value in each place.
				if n++; n%61 != 0 {
					continue
				}
				document, err := json.Marshal(changed(e.fields, path, value))
				must(t, err)
				must(t, os.WriteFile(file, document, 0o600))
				found := lint(dir)
				// It may come with the next object.
				found = slices.DeleteFunc(found, func(f diagnostic.Diagnostic) bool {
					return f.Field == "spec.rollout.replaces" && strings.Contains(f.Message, "is not the name of a sidecar profile")
				})
				kind, _ := e.fields["kind"].(string)
				got := text(t, r.Review(t.Context(), rawRequest(plurals()[kind], admissionv1.Create, string(document), ""), true))
				if found.Err() == nil {
					whole++
				} else {
					broken++
				}
				if allowed := strings.HasPrefix(got, "allowed\n"); allowed != (found.Err() == nil) {
					t.Fatalf("%s with %v as %s: lint says\n%v\nand the answer is\n%s", e.file, value, strings.Join(path, "."), found, got)
				}
				for _, f := range found {
					if f.Severity == diagnostic.Error && !strings.Contains(got, f.Redacted().Message) && !strings.Contains(got, "… and ") && len(f.Message) < 300 {
						t.Fatalf("%s with %v as %s: lint says\n%v\nand the answer is\n%s", e.file, value, strings.Join(path, "."), found, got)
					}
				}
			}
		}
	}
	if broken < 30 || whole < 3 {
		t.Errorf("%d documents with errors and %d without", broken, whole)
	}
}

// lint is what the command of that name says, but for its own warnings.
func lint(dir string) diagnostic.List {
	c, found := config.Inspect(dir)
	snapshot, err := webhooks.Compile(webhooks.Spec{Sidecar: c.Sidecar, Policy: c.Policy, Authn: c.Authn})
	if list, ok := errors.AsType[diagnostic.List](err); ok {
		return append(found, list.WithoutFollowers(found)...)
	}
	return append(found, snapshot.Warnings().WithoutFollowers(found)...)
}

// paths are the paths of everything in a tree.
func paths(tree any, above []string) func(yield func([]string) bool) {
	return func(yield func([]string) bool) { walk(tree, above, yield) }
}

func walk(tree any, above []string, yield func([]string) bool) bool {
	if len(above) > 0 && !yield(above) {
		return false
	}
	switch tree := tree.(type) {
	case map[string]any:
		for _, name := range sorted(tree) {
			if !walk(tree[name], append(slices.Clip(above), name), yield) {
				return false
			}
		}
	case []any:
		for i := range tree {
			if !walk(tree[i], append(slices.Clip(above), strconv.Itoa(i)), yield) {
				return false
			}
		}
	}
	return true
}

func sorted(tree map[string]any) []string {
	names := make([]string, 0, len(tree))
	for name := range tree {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// changed is a copy of a tree with another value at the path, and without it if
// the value is nil.
func changed(tree any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	switch tree := tree.(type) {
	case map[string]any:
		out := make(map[string]any, len(tree))
		for name, member := range tree {
			switch {
			case name != path[0]:
				out[name] = member
			case len(path) > 1 || value != nil:
				out[name] = changed(member, path[1:], value)
			}
		}
		return out
	case []any:
		out := make([]any, len(tree))
		for i, element := range tree {
			if out[i] = element; strconv.Itoa(i) == path[0] {
				out[i] = changed(element, path[1:], value)
			}
		}
		return out
	default:
		return tree
	}
}
