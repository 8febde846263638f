package offline

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/kustomize"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// positions finds diagnostics in the files of a configuration.
type positions struct {
	dir       string
	workloads *manifest.Workloads
	// files are those that were read again, nil for one that cannot be.
	files map[string]*manifest.File
}

func newPositions(dir string) *positions {
	workloads, _ := manifest.NewWorkloads() // none is wrong
	return &positions{dir: dir, workloads: workloads, files: map[string]*manifest.File{}}
}

// locate sets the position of a diagnostic. It returns the lines that show a mistake in an expression with a caret below it, or none.
func (p *positions) locate(d *diagnostic.Diagnostic) []string {
	if name, _, _ := strings.Cut(d.Source, "#"); name == config.ClusterSource || kustomize.IsFile(path.Base(name)) { // what is rendered has no lines
		d.File = name
		return nil
	}
	name, document, item := p.parseSource(d.Source)
	if name == "" {
		if d.File = filepath.ToSlash(d.Source); d.File != "" && d.Source != p.dir {
			d.File = filepath.ToSlash(filepath.Join(p.dir, filepath.FromSlash(d.Source))) // a file that cannot be read
		}
		return nil
	}
	d.File = filepath.ToSlash(filepath.Join(p.dir, filepath.FromSlash(name)))
	f := p.file(name)
	switch {
	case f == nil:
		return nil
	case d.Line > 0: // a text that cannot be parsed has its line, and no fields
		d.Column = 1
		return nil
	}
	steps := append(strict.Steps(strings.ReplaceAll(item, "/", ".")), strict.Steps(d.Field)...)
	at, _ := f.Position(document, steps...)
	d.Line, d.Column = at.Line, at.Column
	if d.In.Line == 0 {
		return nil
	}
	lines := strings.Split(d.In.Text, "\n")
	return underline(lines[min(d.In.Line, len(lines))-1], d.In.Column)
}

// parseSource returns the parts of a diagnostic's Source: the file, the number of the document in it and the item of a list. The file
// is empty if the Source is none.
func (p *positions) parseSource(source string) (file string, document int, item string) {
	isFile := func(name string) bool {
		info, err := os.Stat(filepath.Join(p.dir, filepath.FromSlash(name)))
		return name != "" && err == nil && info.Mode().IsRegular()
	}
	if isFile(source) {
		return source, 1, ""
	}
	at := strings.LastIndexByte(source, '#')
	if at < 0 || !isFile(source[:at]) {
		return "", 0, ""
	}
	number, rest, _ := strings.Cut(source[at+1:], "/")
	if n, err := strconv.Atoi(number); err == nil {
		return source[:at], n, rest
	}
	return source[:at], 1, source[at+1:]
}

func (p *positions) file(name string) *manifest.File {
	if f, read := p.files[name]; read {
		return f
	}
	var f *manifest.File
	if text, err := cli.ReadFile(filepath.Join(p.dir, filepath.FromSlash(name)), maxManifest); err == nil {
		f = manifest.Read(name, text, p.workloads)
	}
	p.files[name] = f
	return f
}

// underline returns a line of an expression, and below it a caret at the column.
func underline(line string, column int) []string {
	const (
		before = 60 // characters in front of the column
		most   = 100
	)
	line = diagnostic.Diagnostic{Message: line}.Redacted().Message
	text, start := []rune(strings.TrimRight(line, "\r")), 0
	if len(text) > most && column > before {
		start = min(column-before, len(text))
	}
	text = text[start:min(start+most, len(text))]
	for i, r := range text {
		if !unicode.IsPrint(r) { // a tab would move the caret
			text[i] = ' '
		}
	}
	return []string{
		"  | " + string(text),
		"  | " + strings.Repeat(" ", max(min(column-start, len(text)+1)-1, 0)) + "^",
	}
}

// sortByPosition puts diagnostics into the order of the files, and then of the lines.
func sortByPosition(found []finding) {
	slices.SortStableFunc(found, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// text returns the diagnostic as editors read it, "file:line:column: severity: message".
func (f *finding) text() string {
	d := f.Redacted()
	place := ""
	if d.File != "" {
		place = d.File
		for _, n := range []int{d.Line, d.Column} {
			if n > 0 {
				place += ":" + strconv.Itoa(n)
			}
		}
		place += ": "
	}
	line := cli.OneLine(place) + string(d.Severity) + ": " + cli.OneLine(f.message())
	return strings.Join(append([]string{line}, f.shown...), "\n")
}

// message returns the diagnostic without its position.
func (f *finding) message() string {
	d := f.Diagnostic
	d.Message = strings.TrimPrefix(d.Text(), fmt.Sprintf("line %d: ", d.Line))
	d.Source, d.In = "", diagnostic.Place{}
	return d.String()
}
