package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestREADME: the table of the chart's README is that of its values and their schema.
func TestREADME(t *testing.T) {
	t.Parallel()
	const chart = "../gatehouse"
	want, err := render(chart)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(chart, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("the table of values in the chart's README is not up to date (hint: make chart)")
	}
}

// TestTable: rows have the order of values.yaml, and what only one of the two files has is an error.
func TestTable(t *testing.T) {
	t.Parallel()
	const description = `{"properties":{"b":{"properties":{"c":{"description":"one | two"},"d":{"description":"a list"}}},"a":{"description":"a number"},"global":{}}}`
	for name, c := range map[string]struct{ values, want, problem string }{
		"in order":       {"b:\n  d: [x]\n  c: {y: z}\na: 1\n", "| `b.d` | a list | `[\"x\"]` |\n| `b.c` | one \\| two | `{\"y\":\"z\"}` |\n| `a` | a number | `1` |\n", ""},
		"undocumented":   {"b: {c: 1, d: 2, e: 3}\na: 1\n", "", "b.e: values.yaml has it, values.schema.json does not"},
		"without values": {"b: {c: 1}\n", "", "a: values.schema.json has it, values.yaml does not\nb.d: values.schema.json has it, values.yaml does not"},
		"empty":          {"", "", "values.yaml is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of := &schema{}
			if err := json.Unmarshal([]byte(description), of); err != nil {
				t.Fatal(err)
			}
			got, err := table([]byte(c.values), of)
			if c.problem != "" {
				if err == nil || err.Error() != c.problem {
					t.Errorf("the error is %v, want %s", err, c.problem)
				}
				return
			}
			if want := "| value | meaning | default |\n|---|---|---|\n" + c.want; err != nil || got != want {
				t.Errorf("the table is\n%s (%v), want\n%s", got, err, want)
			}
		})
	}
}
