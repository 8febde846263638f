package testrunner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// write puts files into a new directory, whose path it returns.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const (
	head = "apiVersion: gatehouse.dev/v1alpha1\nkind: Test\n"
	pod  = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: []}}"
	good = head + "metadata: {name: good}\ncases:\n- {name: a, object: " + pod + ", expect: {verdict: Allowed}}\n"
)

// TestLoadRefuses holds what must not pass for a test.
func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	// expecting is a document with one case and this expectation.
	expecting := func(expect string) string {
		return head + "metadata: {name: t}\ncases: [{name: c, object: " + pod + ", expect: " + expect + "}]\n"
	}
	// having is a document with one case and these fields.
	having := func(fields string) string {
		return head + "metadata: {name: t}\ncases: [{name: c, expect: {verdict: Allowed}, " + fields + "}]\n"
	}
	for name, c := range map[string]struct{ text, want string }{
		"no test":                        {"apiVersion: v1\nkind: ConfigMap\n", `there is no document of kind Test here (hint: a test has apiVersion gatehouse.dev/v1alpha1 and kind Test)`},
		"empty file":                     {"", `there is no document of kind Test here (hint: a test has apiVersion gatehouse.dev/v1alpha1 and kind Test)`},
		"broken text":                    {"a: b: c", "from line 1 on: mapping values are not allowed in this context (hint: put text with a colon and a space in it in quotes, and check the indentation)"},
		"other version":                  {"apiVersion: gatehouse.dev/v1\nkind: Test", `Test: apiVersion: "gatehouse.dev/v1" is not a version of Test that is read (hint: write gatehouse.dev/v1alpha1)`},
		"no version":                     {"kind: Test", `Test: apiVersion: "" is not a version of Test that is read (hint: write gatehouse.dev/v1alpha1)`},
		"misspelt kind":                  {"apiVersion: gatehouse.dev/v1alpha1\nkind: Tests", `Test: kind: "Tests" is not a kind of gatehouse.dev (hint: did you mean "Test"?)`},
		"no cases":                       {head + "metadata: {name: t}", "Test/t: cases: is missing or empty, so nothing is tested"},
		"empty cases":                    {head + "metadata: {name: t}\ncases: []", "Test/t: cases: is missing or empty, so nothing is tested"},
		"namespace":                      {strings.Replace(good, "{name: good}", "{name: t, namespace: shop}", 1), `Test/t: metadata.namespace: unknown field (hint: did you mean "cases.namespace"?)`},
		"unknown field":                  {having("objct: " + pod), `Test/t: cases[0].objct: unknown field (hint: did you mean "object"?)`},
		"value of another kind":          {having("inject: 1"), `Test/t: cases[0].inject: "1" is a number, expected true or false`},
		"no time":                        {having("now: yesterday"), `Test/t: cases[0].now: "yesterday" is not a time such as 2026-12-31T23:59:59Z`},
		"case without name":              {strings.Replace(good, "name: a,", "name: ' ',", 1), "Test/good: cases[0].name: is missing (hint: the name says what is shown)"},
		"case twice":                     {good + "- {name: a, object: " + pod + ", expect: {verdict: Allowed}}\n", `Test/good: cases[1].name: "a" is the name of cases[0], too (hint: give one of the two another name)`},
		"test twice":                     {good + "---\n" + good, `Test/good: metadata.name: "good" is the name of another test, in "FILE#1" (hint: give one of the two another name)`},
		"operation":                      {having("operation: create"), `Test/t: cases[0].operation: "create" is not allowed; allowed are CREATE, UPDATE, DELETE, CONNECT (hint: did you mean "CREATE"?)`},
		"object and file":                {having("object: " + pod + ", objectFile: pod.yaml"), "Test/t: cases[0].objectFile: is given, and object too (hint: remove one of the two)"},
		"file that is not there":         {having("oldObjectFile: nowhere.yaml"), "Test/t: cases[0].oldObjectFile: DIR/nowhere.yaml: cannot be read: no such file or directory"},
		"directory":                      {having("objectFile: ."), `Test/t: cases[0].objectFile: "." is a directory, and must be a file that holds one object`},
		"file with two objects":          {having("objectFile: two.yaml"), `Test/t: cases[0].objectFile: "two.yaml" holds 2 documents, and must hold one object`},
		"broken file":                    {having("objectFile: broken.yaml"), `Test/t: cases[0].objectFile: DIR/broken.yaml: line 2: the key "a" is given twice (hint: remove one of the two)`},
		"nothing expected":               {expecting("{}"), "Test/t: cases[0].expect: expects nothing, so the case cannot fail (hint: say at least the verdict: Allowed, Denied, CannotDecide)"},
		"no expectation":                 {head + "metadata: {name: t}\ncases: [{name: c, object: " + pod + "}]", "Test/t: cases[0].expect: expects nothing, so the case cannot fail (hint: say at least the verdict: Allowed, Denied, CannotDecide)"},
		"null":                           {expecting("{violations: null, warnings: null}"), "Test/t: cases[0].expect: expects nothing, so the case cannot fail (hint: say at least the verdict: Allowed, Denied, CannotDecide)"},
		"unknown verdict":                {expecting("{verdict: Refused}"), `Test/t: cases[0].expect.verdict: "Refused" is not allowed; allowed are Allowed, Denied, CannotDecide`},
		"misspelt verdict":               {expecting("{verdict: denied}"), `Test/t: cases[0].expect.verdict: "denied" is not allowed; allowed are Allowed, Denied, CannotDecide (hint: did you mean "Denied"?)`},
		"message twice":                  {expecting("{violations: [{message: a, messageContains: a}]}"), "Test/t: cases[0].expect.violations[0].messageContains: is given, and message too (hint: remove one of the two)"},
		"context that is no object":      {strings.Replace(good, "cases:", "context: [1]\ncases:", 1), "Test/good: context[0]: is not a Kubernetes object (hint: it has apiVersion, kind and metadata.name)"},
		"context without a name":         {strings.Replace(good, "cases:", "context: [{apiVersion: v1, kind: Namespace}]\ncases:", 1), "Test/good: context[0]: is not a Kubernetes object (hint: it has apiVersion, kind and metadata.name)"},
		"context with labels of numbers": {strings.Replace(good, "cases:", "context: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {b: 1}}}]\ncases:", 1), `Test/good: context[0].metadata.labels.b: "1" is a number, expected a string (hint: put it in quotes)`},
		"context that is misspelt":       {strings.Replace(good, "cases:", "context: [{apiVersion: v1, kind: Namespace, metadata: {name: a}, sepc: {}}]\ncases:", 1), `Test/good: context[0].sepc: unknown field (hint: did you mean "spec"?)`},
		"context given twice":            {strings.Replace(good, "cases:", "context: [{apiVersion: v1, kind: Namespace, metadata: {name: a}}, {apiVersion: v1, kind: Namespace, metadata: {name: a}}]\ncases:", 1), `Test/good: context[1]: the Namespace "a" is given twice (hint: remove one of the two)`},
		"policy as context":              {strings.Replace(good, "cases:", "context: [{apiVersion: gatehouse.dev/v1alpha1, kind: PolicyException, metadata: {name: a, namespace: b}}]\ncases:", 1), "Test/good: context[0].kind: a PolicyException is nothing that policies look up (hint: put it into the --config directory)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.ToSlash(write(t, map[string]string{"test.yaml": c.text, "two.yaml": "a: b\n---\na: b", "broken.yaml": "a: b\na: c\n"}))
			all, found := Load([]string{dir + "/test.yaml"}, false)
			err := found.Err()
			if err == nil {
				t.Fatalf("%d cases were read", len(all))
			}
			got := strings.ReplaceAll(strings.ReplaceAll(err.Error(), dir+"/test.yaml", "FILE"), dir, "DIR")
			for _, source := range []string{"FILE", "FILE#1", "FILE#2"} {
				got = strings.TrimPrefix(got, source+": ")
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestLoadReportsEverything puts several mistakes into several files.
func TestLoadReportsEverything(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{
		"a.yaml": head + "metadata: {name: a}\ncases: [{name: x, object: {}, expect: {}}, {object: {}, operation: X, expect: {verdict: Z}}]\n",
		"b.yaml": "{",
	})
	_, found := Load([]string{dir, filepath.Join(dir, "nowhere")}, false)
	err := found.Err()
	if err == nil {
		t.Fatal("no error")
	}
	got := strings.ReplaceAll(err.Error(), filepath.ToSlash(dir), "DIR")
	for _, want := range []string{
		"DIR/a.yaml: Test/a: cases[0].expect: expects nothing", "Test/a: cases[1].expect.verdict: \"Z\"", "Test/a: cases[1].name: is missing",
		"Test/a: cases[1].operation: \"X\"", "DIR/b.yaml: ", "DIR/nowhere: cannot be read: no such file or directory",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if lines := strings.Count(got, "\n") + 1; lines != 6 {
		t.Errorf("there are %d findings:\n%s", lines, got)
	}
}
