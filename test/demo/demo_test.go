package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// tokenText is a well-formed token: 40 characters of secret and 7 of check.
const tokenText = "gatehouse_jane-laptop_jjnw7stfislagoqckdg7rlmyrzkiil72g2ems5dzzfy2psy"

func TestShorten(t *testing.T) {
	const short = "gatehouse_jane-laptop_jjnw…"
	for name, test := range map[string]struct{ text, want string }{
		"alone":             {tokenText, short},
		"in a command":      {"kubectl --token " + tokenText + " auth whoami", "kubectl --token " + short + " auth whoami"},
		"in quotes":         {`{"token":"` + tokenText + `"}`, `{"token":"` + short + `"}`},
		"several":           {tokenText + "\n" + tokenText, short + "\n" + short},
		"id with dashes":    {"gatehouse_a-b-c_" + tokenText[len("gatehouse_jane-laptop_"):], "gatehouse_a-b-c_jjnw…"},
		"followed by more":  {tokenText + "x", short + "x"},
		"in another word":   {"X" + tokenText, "X" + short},
		"a name like a tag": {"registry.example/gatehouse_demo", "registry.example/gatehouse_demo"},
		"nothing":           {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := shorten(test.text); got != test.want {
				t.Errorf("shorten(%q) = %q, want %q", test.text, got, test.want)
			}
		})
	}
}

func TestUsage(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		code int
		want string
	}{
		"help":         {[]string{"--help"}, exitYes, "leave everything running until Ctrl-C"},
		"unknown flag": {[]string{"--loud"}, exitUnknown, "-loud (hint: see demo --help)"},
		"argument":     {[]string{"keep"}, exitUnknown, `unexpected argument "keep"`},
		"no binary":    {[]string{"--gatehouse", "no/such/file"}, exitNo, "no/such/file (hint: run 'make build')"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, err bytes.Buffer
			if code := run(t.Context(), test.args, &out, &err); code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			if !strings.Contains(err.String(), test.want) {
				t.Errorf("standard error is %q, want %q in it", err.String(), test.want)
			}
		})
	}
}

// TestDemo is what 'make demo' does, whole.
func TestDemo(t *testing.T) {
	dir := temporary(t)
	var out, progress bytes.Buffer
	code := run(t.Context(), nil, &out, &progress)
	if code != exitYes {
		t.Errorf("exit code %d\n%s\n%s", code, out.String(), progress.String())
	}
	if text := out.String(); shorten(text) != text {
		t.Errorf("the transcript holds a token:\n%s", text)
	}
	checkEmpty(t, dir)
}

// TestInterrupted ends the demonstration while it starts, and while everything is
// left running.
func TestInterrupted(t *testing.T) {
	for name, at := range map[string]string{
		"starting": `\$ kube-apiserver `,
		"kept":     `In another terminal`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := temporary(t)
			ctx, cancel := context.WithCancel(t.Context())
			out := &trigger{at: regexp.MustCompile(at), do: cancel}
			var progress bytes.Buffer
			code := run(ctx, []string{"--keep"}, out, &progress)
			want := exitInterrupted
			if name == "kept" {
				want = exitYes // that is how it is meant to end
			}
			if code != want {
				t.Errorf("exit code %d, want %d\n%s\n%s", code, want, out.text.String(), progress.String())
			}
			checkEmpty(t, dir)
		})
	}
}

// trigger does something when it has been written something.
type trigger struct {
	text bytes.Buffer
	at   *regexp.Regexp
	do   func()
}

func (w *trigger) Write(text []byte) (int, error) {
	w.text.Write(text)
	if w.at.Match(w.text.Bytes()) {
		w.do()
	}
	return len(text), nil
}

// temporary makes the directory that the demonstration makes its own in. Its
// path has the test's name, which is short because a socket below it must have a
// short path.
func temporary(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	return dir
}

// checkEmpty checks that no file is left, and no program that was started with
// one of the directory.
func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range left {
		t.Errorf("%s is left behind", entry.Name())
	}
	// Only Linux has it; elsewhere nothing is found.
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range commands {
		text, err := os.ReadFile(command)
		if err == nil && bytes.Contains(text, []byte(dir)) {
			t.Errorf("%s runs on: %s", filepath.Dir(command), bytes.ReplaceAll(text, []byte{0}, []byte(" ")))
		}
	}
}
