package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strconv"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestStandardOutputWritesYAML(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ written, want string }{
		"nothing":     {"", ""},
		"one value":   {"{\n  \"b\": [1, 2.5],\n  \"a\": \"<&> yes\"\n}\n", "a: <&> yes\nb:\n- 1\n- 2.5\n"},
		"lines":       {"{\"a\":1}\n{\"a\":9007199254740993}\n", "a: 1\n---\na: 9007199254740993\n"},
		"empty":       {"{}\n[]\n", "{}\n---\n[]\n"},
		"text":        {"no JSON\n", "no JSON\n"},
		"broken JSON": {"{\"a\":1}\n{\"b\":", "{\"a\":1}\n{\"b\":"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			o := &standardOutput{Writer: &out, yaml: true}
			for _, b := range []byte(c.written) {
				if _, err := o.Write([]byte{b}); err != nil {
					t.Fatal(err)
				}
			}
			if out.Len() > 0 {
				t.Errorf("written before Flush: %s", &out)
			}
			if err := o.Flush(); err != nil || out.String() != c.want {
				t.Errorf("got %q, %v, want %q", out.String(), err, c.want)
			}
		})
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, os.ErrInvalid }

func TestStandardOutputReportsAFullDisk(t *testing.T) {
	t.Parallel()
	o := &standardOutput{Writer: fullDisk{}, yaml: true}
	_, _ = o.Write([]byte("{}\n")) // it is held back
	if err := o.Flush(); !errors.Is(err, os.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][2]string{
		"/usr/bin/gatehouse":             {"gatehouse", "check"},
		"kubectl-gatehouse.exe":          {"kubectl gatehouse", "check"},
		"/x/kubectl_complete-gatehouse":  {"kubectl gatehouse", "__complete"},
		"kubectl_complete-gatehouse.exe": {"kubectl gatehouse", "__complete"},
	} {
		if args := Arguments([]string{name, "check", ""}); DisplayName(name) != want[0] || args[0] != want[1] || args[len(args)-1] != "" {
			t.Errorf("%s: got %q, %q", name, DisplayName(name), args)
		}
	}
}

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
