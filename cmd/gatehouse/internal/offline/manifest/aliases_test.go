package manifest

import (
	"fmt"
	"strings"
	"testing"

	sigsyaml "sigs.k8s.io/yaml"
)

// What aliases stand for is bounded, in a file of one document and of many, before it is copied.
func TestAliases(t *testing.T) {
	document := func(anchor string, aliases int) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nx: &a " + anchor + "\ny: [" + strings.Repeat("*a,", aliases) + "]\n"
	}
	nested := "---\nl0: &l0 [x]\n"
	for i := range 9 {
		nested += fmt.Sprintf("l%d: &l%d [%s]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*l%d,", i), 10))
	}
	merges := "---\na0: &a0 {k: v}\n"
	for i := range 30 {
		merges += fmt.Sprintf("a%d: &a%d {x: {<<: *a%d}, y: {<<: *a%d}}\n", i+1, i+1, i, i)
	}
	for name, test := range map[string]struct {
		text string
		bad  bool
	}{
		"a long text, often":         {document(strings.Repeat("x", 100_000), 3000), true},
		"binary":                     {document("!!binary "+strings.Repeat("QUFB", 25_000), 3000), true},
		"a long key":                 {document("{"+strings.Repeat("x", 100_000)+": 1}", 3000), true},
		"in many documents":          {strings.Repeat("---\n"+document(strings.Repeat("x", 1900), 630), 35), true},
		"lists of lists":             {nested, true},
		"merges of merges":           {merges, true},
		"not readable with comments": {document(strings.Repeat("x", 1000), 40) + "a: 'b\n", true},
		"usual":                      {document("{cpu: 100m, memory: 1Gi}", 200), false},
		"a megabyte":                 {document(strings.Repeat("x", 10_000), 100), false},
		"a script":                   {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: \"ls * && rm a* & b*\"}\n", false},
		"no alias":                   {document(strings.Repeat("x", 10<<20), 0), false},
	} {
		t.Run(name, func(t *testing.T) {
			bad := false
			for _, o := range Read("a.yaml", []byte(test.text), workloads(t)).Objects {
				bad = bad || o.Unreadable != nil
			}
			if bad != test.bad {
				t.Errorf("a document is refused: %v, want %v", bad, test.bad)
			}
		})
	}
}

// FuzzExpansion takes any text as a document: what is within the bound is no larger as JSON.
func FuzzExpansion(f *testing.F) {
	for _, seed := range []string{
		"a: &a x\nb: [*a, *a]", "a: &a {k: v}\nb: {<<: *a}", "a: &a [*a]", "&a : *a", "a: &a !!binary QUFB\nb: *a", "? &a {b: c}\n: *a", "a: '&*'", "--- &a\n- *a\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		bound := NewExpansion(len(data))
		if bound.Take(data) != nil {
			return
		}
		const escape = 6 // \u003c
		if text, err := sigsyaml.YAMLToJSON(data); err == nil && len(text) > escape*bound.most {
			t.Errorf("%d bytes became %d", len(data), len(text))
		}
	})
}
