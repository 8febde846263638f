package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the root of the repository.
const root = "../.."

// page is a document, and the fenced blocks in it.
type page struct {
	path   string // from the root
	lines  []string
	blocks []block
}

// block is a fenced block of a page. Its info string is a language and, after a space, its parameters: the file that a
// ```yaml block shows, or what a ```sh block needs.
type block struct {
	language, parameter string
	text                string // without the indentation of the fence
	indentation         string
	first, last         int // its fences, as indexes of lines
}

var fence = regexp.MustCompile("^( *)```([a-z]*) ?(.*)$")

// readPage reads a page, whose path is from the root.
func readPage(t *testing.T, path string) *page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path)) // #nosec G304 -- of this repository
	if err != nil {
		t.Fatal(err)
	}
	p := &page{path: path, lines: strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")}
	open := false
	for i, line := range p.lines {
		m := fence.FindStringSubmatch(line)
		switch {
		case m == nil && open:
			b := &p.blocks[len(p.blocks)-1]
			b.text += strings.TrimPrefix(line, b.indentation) + "\n"
		case m == nil:
		case open:
			p.blocks[len(p.blocks)-1].last = i
			open = false
		default:
			p.blocks = append(p.blocks, block{indentation: m[1], language: m[2], parameter: m[3], first: i})
			open = true
		}
	}
	if open {
		t.Fatalf("%s: the last fenced block does not end", path)
	}
	return p
}

// place names a line for messages.
func (p *page) place(line int) string { return fmt.Sprintf("%s:%d", p.path, line+1) }

// prose returns the lines outside of fenced blocks: all others are empty.
func (p *page) prose() []string {
	lines := slices.Clone(p.lines)
	for _, b := range p.blocks {
		for i := b.first; i <= b.last; i++ {
			lines[i] = ""
		}
	}
	return lines
}

// section returns the prose below a heading, up to the next heading of its level.
func (p *page) section(heading string) string {
	_, text, _ := strings.Cut(strings.Join(p.prose(), "\n"), "\n"+heading+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// pages returns the pages of a folder in docs.
func pages(t *testing.T, folder string) []*page {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "docs", folder, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := make([]*page, 0, len(files))
	for _, file := range files {
		all = append(all, readPage(t, filepath.ToSlash(filepath.Join("docs", folder, filepath.Base(file)))))
	}
	return all
}
