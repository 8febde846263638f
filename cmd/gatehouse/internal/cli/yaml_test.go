package cli

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestYAMLIsInert converts texts of strangers, which must come back from what is shown.
func TestYAMLIsInert(t *testing.T) {
	t.Parallel()
	want := map[string]any{"a\u202eb": "gpj\u202eexe\x1b[31m", "lines": "one\n\u2066two\n", "plain": "tab\tand\nline", "flag": "\U000e0041"}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	out, err := JSONToYAML(text)
	if err != nil || bytes.ContainsFunc(out, func(r rune) bool { return !strconv.IsPrint(r) && r != '\n' && r != '\t' }) {
		t.Fatalf("%q, %v", out, err)
	}
	var got map[string]any
	if err := yaml.Unmarshal(out, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s\nis %q (%v), want %q", out, got, err, want)
	}
}

// TestInertHasNoEscapedLineBreak: a message of several lines is read as one.
func TestInertHasNoEscapedLineBreak(t *testing.T) {
	t.Parallel()
	if got, want := Inert("2 violations:\n1. a\r\n2. \x1b[31m\n"), `2 violations: 1. a 2. \x1b[31m`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
