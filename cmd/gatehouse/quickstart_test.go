package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// shown is a block of commands, or of commands with their output, or of what is to be written into a file.
var shown = regexp.MustCompile("(?ms)^```(sh|console|yaml)\n(.*?)^```$")

// TestQuickStart does what README's quick start says, step by step and from an empty directory: what is printed is what README shows.
func TestQuickStart(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "\n## Quick start without a cluster\n")
	section, _, _ = strings.Cut(section, "\n## ")
	const clone = "git clone https://github.com/gatehouse-dev/gatehouse && cd gatehouse\n"
	checkout := filepath.Join(t.TempDir(), "gatehouse")
	kinds := ""
	for _, block := range shown.FindAllStringSubmatch(section, -1) {
		kind, text := block[1], block[2]
		kinds += " " + kind
		switch kind {
		case "sh":
			commands, isClone := strings.CutPrefix(text, clone)
			if !isClone {
				t.Fatalf("the first command is not %q: %q", clone, text)
			}
			cloneHere(t, checkout)
			if printed, err := shell(t, checkout, commands); err != nil {
				t.Fatalf("%s: %v\n%s", commands, err, printed)
			}
		case "console":
			command, want, _ := strings.Cut(strings.TrimPrefix(text, "$ "), "\n")
			printed, err := shell(t, checkout, command)
			if printed != want {
				t.Errorf("%s: got (%v)\n%swant\n%s", command, err, printed, want)
			}
		case "yaml":
			replaceImage(t, filepath.Join(checkout, "manifests/examples/quickstart/deployment.yaml"), text)
		}
	}
	if want := " sh console console yaml console"; kinds != want {
		t.Errorf("the quick start shows%s, want%s", kinds, want)
	}
}

// cloneHere copies this repository as it is checked out, without what was built.
func cloneHere(t *testing.T, into string) {
	t.Helper()
	const root = "../.."
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case name == "bin" || name == ".git":
			if entry.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(into, name), 0o750)
		case !entry.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path) // #nosec G304 G122 -- of this repository
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(into, name), text, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// shell runs commands as somebody types them, and returns what they print.
func shell(t *testing.T, dir, commands string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "sh", "-ec", commands) // #nosec G204 -- of README
	command.Dir = dir
	printed, err := command.CombinedOutput()
	return string(printed), err
}

// replaceImage replaces the line of a manifest that has the image by others.
func replaceImage(t *testing.T, path, by string) {
	t.Helper()
	manifest, err := os.ReadFile(path) // #nosec G304 -- of the checkout
	if err != nil {
		t.Fatal(err)
	}
	changed := regexp.MustCompile(`(?m)^ +image: .*\n`).ReplaceAllLiteralString(string(manifest), by)
	if err := os.WriteFile(path, []byte(changed), 0o600); err != nil { // #nosec G703 -- of the checkout
		t.Fatal(err)
	}
}
