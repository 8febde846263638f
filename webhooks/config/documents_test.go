package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// TestDocuments reads what Load would read of a directory, and single files.
func TestDocuments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"b.yaml":             "a: 1\n---\n# nothing\n---\n- x\n",
		"a/c.json":           `{"a": 9007199254740993} {"b": 1, "b": 2} "text"`,
		"broken.yml":         "a: [",
		".hidden.yaml":       "a: 1",
		"kustomization.yaml": "a: 1",
		"readme.txt":         "a: 1",
		"large.json":         strings.Repeat(" ", 48<<20+1),
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		"": `a/c.json#1 map[a:9007199254740993]
a/c.json#3 text
b.yaml#1 map[a:1]
b.yaml#2 [x]
large.json: is larger than 48 MiB (hint: split it into several files)
a/c.json#2: b: the key is given twice (hint: remove one of the two)
broken.yml: near line 1: did not find expected node content (hint: check the brackets, and put text that begins with [ or { in quotes)
`,
		"b.yaml":     "b.yaml#1 map[a:1]\nb.yaml#2 [x]\n",
		"readme.txt": "readme.txt map[a:1]\n",
		"nowhere":    "nowhere: cannot be read: no such file or directory\n",
		"large.json": "large.json: is larger than 48 MiB (hint: split it into several files)\n",
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			documents, found := config.Documents(filepath.Join(dir, path))
			var b strings.Builder
			for _, d := range documents {
				if name, _, _ := strings.Cut(d.Source, "#"); name != filepath.ToSlash(d.File) {
					t.Errorf("the file of %s is %s", d.Source, d.File)
				}
				fmt.Fprintf(&b, "%s %v\n", d.Source, d.Value)
			}
			for _, f := range found {
				b.WriteString(f.String() + "\n")
			}
			if got := strings.ReplaceAll(b.String(), filepath.ToSlash(dir)+"/", ""); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}
