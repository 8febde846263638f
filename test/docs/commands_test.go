package docs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// The parameters of a ```sh block that this test does not run.
const (
	needsCluster = "cluster" // suites with a cluster exercise it
	isServer     = "server"  // it runs until the reader stops it
	needsOther   = "other"   // it needs another program, or the reader's own files
)

// exampleLink is the link of a page to the directory in which its commands run.
var exampleLink = regexp.MustCompile(`\]\(\.\./\.\./(manifests/[^)#]+)\)`)

// TestCommands runs the commands of every task, in a copy of the first directory that the page links below "What you need", and
// compares what they print with the ```console or ```text block below. A line "..." stands for any lines. ```yaml FILE is a file
// of that directory; one that is not there is written, as the reader does. UPDATE_GOLDEN=1 writes what is printed into the pages.
func TestCommands(t *testing.T) {
	t.Parallel()
	binary, err := gatehouse.Binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages(t, "tasks") {
		t.Run(strings.TrimSuffix(filepath.Base(p.path), ".md"), func(t *testing.T) {
			t.Parallel()
			p.run(t, filepath.Dir(binary))
		})
	}
}

func (p *page) run(t *testing.T, programs string) {
	dir := t.TempDir()
	for _, m := range exampleLink.FindAllStringSubmatch(p.section("## What you need"), -1) {
		if info, err := os.Stat(filepath.Join(root, m[1])); err == nil && info.IsDir() {
			dir = filepath.Join(dir, filepath.Base(m[1]))
			if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, m[1]))); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	home := t.TempDir()
	changed := map[int]string{}
	for i, b := range p.blocks {
		switch {
		case b.language == "yaml" && b.parameter != "":
			p.file(t, dir, &b)
		case b.language != "sh":
		case b.parameter == needsCluster, b.parameter == isServer, b.parameter == needsOther:
		case b.parameter != "":
			t.Errorf("%s: %q is none of %q", p.place(b.first), b.parameter, []string{needsCluster, isServer, needsOther})
		default:
			command := exec.CommandContext(t.Context(), "sh", "-c", b.text) // #nosec G204 -- of this repository
			command.Dir = dir
			command.Env = []string{
				"PATH=" + programs + string(filepath.ListSeparator) + os.Getenv("PATH"), "HOME=" + home, "KUBECONFIG=" + os.DevNull, "TZ=UTC", "LC_ALL=C",
			}
			out, err := command.CombinedOutput()
			if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) { // 1 is the answer no
				t.Errorf("%s: %v\n%s", p.place(b.first), err, out)
			}
			shown := p.output(i)
			if shown == nil {
				continue
			}
			if got := string(out); !matches(strings.Split(got, "\n"), strings.Split(shown.text, "\n")) {
				changed[i+1] = got
				if os.Getenv("UPDATE_GOLDEN") != "1" || strings.Contains(shown.text, "\n...\n") {
					t.Errorf("%s: the command prints\n%s\nand the page shows\n%s", p.place(b.first), got, shown.text)
				}
			}
		}
	}
	if os.Getenv("UPDATE_GOLDEN") == "1" {
		p.write(t, changed)
	}
}

// file compares the file that a block shows with the one in a directory, or writes it.
func (p *page) file(t *testing.T, dir string, b *block) {
	path := filepath.Join(dir, b.parameter)
	text, err := os.ReadFile(path) // #nosec G304 -- of this repository
	switch {
	case errors.Is(err, os.ErrNotExist):
		if !strings.Contains(strings.Join(p.prose(), "\n"), "`"+b.parameter+"`") {
			t.Errorf("%s: the reader does not see that this is the file %s", p.place(b.first), b.parameter)
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(b.text), 0o600)); err != nil {
			t.Fatal(err)
		}
	case err != nil:
		t.Fatal(err)
	case string(text) != b.text:
		t.Errorf("%s: %s is\n%s\nand the page shows\n%s", p.place(b.first), b.parameter, text, b.text)
	}
}

// output returns the block with what the commands of a block print: the next one, if nothing is between them.
func (p *page) output(commands int) *block {
	if commands+1 == len(p.blocks) {
		return nil
	}
	next := &p.blocks[commands+1]
	for _, line := range p.lines[p.blocks[commands].last+1 : next.first] {
		if strings.TrimSpace(line) != "" {
			return nil
		}
	}
	if next.language != "console" && next.language != "text" {
		return nil
	}
	return next
}

// matches reports whether lines are those that a page shows, in which "..." stands for any lines.
func matches(lines, shown []string) bool {
	for len(shown) > 0 && strings.TrimSpace(shown[0]) != "..." {
		if len(lines) == 0 || lines[0] != shown[0] {
			return false
		}
		lines, shown = lines[1:], shown[1:]
	}
	if len(shown) == 0 {
		return len(lines) == 0
	}
	for i := range len(lines) + 1 {
		if matches(lines[i:], shown[1:]) {
			return true
		}
	}
	return false
}

// write writes the page with other texts of some blocks.
func (p *page) write(t *testing.T, texts map[int]string) {
	lines := slices.Clone(p.lines)
	for i, b := range slices.Backward(p.blocks) {
		text, ok := texts[i]
		if !ok {
			continue
		}
		var now []string
		for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
			if line != "" {
				line = b.indentation + line
			}
			now = append(now, line)
		}
		lines = slices.Replace(lines, b.first+1, b.last, now...)
	}
	if len(texts) > 0 {
		if err := os.WriteFile(filepath.Join(root, p.path), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
