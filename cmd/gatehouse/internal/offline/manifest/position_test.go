package manifest

import (
	"os"
	"strings"
	"testing"
)

func TestLine(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/lines.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, parsed := string(data), parse(t, data)
	const deployment, inline, service, anchored, aliased, inJSON, last = 0, 1, 2, 3, 4, 5, 6
	if len(parsed.Objects) != 7 {
		t.Fatalf("%d objects", len(parsed.Objects))
	}
	for name, c := range map[string]struct {
		object int
		path   string
		want   string // how the line begins
	}{
		"an object":                      {deployment, "", "apiVersion: apps/v1"},
		"a member":                       {deployment, "spec template", "  template:"},
		"a value named like a member":    {deployment, "template", "apiVersion: apps/v1"},
		"an element":                     {deployment, "spec template spec containers 1", "      - image: b"},
		"a member of an element":         {deployment, "spec template spec containers 0 image", "        image: a"},
		"what is not there":              {deployment, "spec template spec volumes 7", "    spec:"},
		"behind a scalar":                {deployment, "kind x", "kind: Deployment"},
		"no index":                       {deployment, "spec template spec containers x", "      containers:"},
		"in the line of a marker":        {inline, "metadata name", "--- {apiVersion"},
		"an item":                        {service, "", "- apiVersion: v1"},
		"an item with an anchor":         {anchored, "kind", "  kind: Pod"},
		"an element in flow style":       {anchored, "spec containers 0 name", "    {name: x}]}"},
		"an item that is an alias":       {aliased, "spec containers", "- *a"},
		"an item in JSON":                {inJSON, "", `  {"apiVersion": "v1", "kind": "Pod",`},
		"a member in JSON":               {inJSON, "spec", `   "spec":`},
		"an element in JSON":             {inJSON, "spec containers 1", `       {"name": "b"}]}}`},
		"what is not there in JSON":      {inJSON, "spec volumes", `   "spec":`},
		"the next value in the document": {last, "kind", `{"apiVersion": "v1", "kind": "Pod"}`},
	} {
		t.Run(name, func(t *testing.T) { // a File is not for two at once
			line := parsed.Objects[c.object].Line(strings.Fields(c.path)...)
			got := strings.Split(text, "\n")[line-1]
			if !strings.HasPrefix(got, c.want) {
				t.Errorf("line %d is %q, want %q", line, got, c.want)
			}
		})
	}
}

func TestPosition(t *testing.T) {
	t.Parallel()
	workloads, err := NewWorkloads()
	if err != nil {
		t.Fatal(err)
	}
	const yaml = "a: 1\n--- # nothing\n---\nnull\n--- {b: [é, {c: 2}]}\n---\nd: x\ne:\n  - f: y\n"
	const json = "{\"a\": {\"b\": [1,\n 2]}} {\"c\": 3}"
	for name, c := range map[string]struct {
		text   string
		number int
		path   string
		want   Position
	}{
		"a document":                       {yaml, 1, "", Position{1, 1}},
		"null does not count":              {yaml, 2, "", Position{5, 5}},
		"behind a marker, and a character": {yaml, 2, "b 1 c", Position{5, 14}},
		"a member of an element":           {yaml, 3, "e 0 f", Position{9, 5}},
		"what is not there":                {yaml, 3, "e 0 g", Position{9, 5}},
		"no such document":                 {yaml, 4, "", Position{}},
		"JSON":                             {json, 1, "a b 1", Position{2, 2}},
		"JSON in the middle of a line":     {json, 2, "c", Position{2, 8}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := Read("a.yaml", []byte(c.text), workloads).Position(c.number, strings.Fields(c.path)...)
			if got != c.want || ok != (c.want != Position{}) {
				t.Errorf("got %v, %v, want %v", got, ok, c.want)
			}
		})
	}
}

// TestReadRendered counts lines behind the comment of a template.
func TestReadRendered(t *testing.T) {
	t.Parallel()
	workloads, err := NewWorkloads()
	if err != nil {
		t.Fatal(err)
	}
	file := ReadRendered("standard input", []byte("---\n# Source: a/templates/b.yaml\nkind: Pod\nmetadata: {name: x}\n---\nkind: Pod\n# Source: of nothing\n"), workloads, &Rendered{})
	first, second := file.Objects[0], file.Objects[1]
	if first.File != "a/templates/b.yaml" || first.Source != first.File || !first.Rendered || first.Position("metadata", "name") != (Position{2, 12}) {
		t.Errorf("got %q, %q, %v, %v", first.File, first.Source, first.Rendered, first.Position("metadata", "name"))
	}
	if second.File != "standard input" || second.Source != "standard input#2" || second.Rendered || second.Line() != 6 {
		t.Errorf("got %q, %q, %v, %d", second.File, second.Source, second.Rendered, second.Line())
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ document, want string }{
		"as written":           {`{"kind": "Pod", "apiVersion": "v1", "x": 1.50}`, `{"kind": "Pod", "apiVersion": "v1", "x": 1.50}`},
		"of a typed list":      {`{"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {"name": "a"}}]}`, `{"metadata":{"name": "a"},"apiVersion":"v1","kind":"Pod"}`},
		"of one that says one": {`{"kind": "PodList", "apiVersion": "v1", "items": [{"kind": "Pod", "apiVersion": null}]}`, `{"kind":"Pod","apiVersion":"v1"}`},
		"empty, of a list":     {`{"kind": "PodList", "apiVersion": "v1", "items": [{}]}`, `{"apiVersion":"v1","kind":"Pod"}`},
		"no object":            {`{"kind": "List", "apiVersion": "v1", "items": [7]}`, ``},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := parse(t, []byte(c.document))
			if got := string(file.Objects[0].JSON()); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
