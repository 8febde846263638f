package console

import (
	"bytes"
	"context"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
)

const (
	// partTimeout bounds what a part of a page waits for, and computeTimeout what a page computes while the browser waits.
	partTimeout    = 10 * time.Second
	computeTimeout = 30 * time.Second
)

// functions are those of the templates.
func functions() template.FuncMap {
	return template.FuncMap{
		"time":         func(t time.Time) string { return cli.FormatTime(&t) },
		"name":         cli.InertName,
		"short":        func(text string) string { return cli.Inert(web.Unwrap(text)) },
		"multiline":    multiline,
		"outcome":      outcomeText,
		"outcomeClass": outcomeClass,
		"operations":   operations,
	}
}

// multiline returns a text of several lines. Other characters that cannot be printed are escaped.
func multiline(text string) string {
	lines := strings.Split(strings.ReplaceAll(strings.TrimSpace(text), "\t", "    "), "\n")
	for i, line := range lines {
		lines[i] = cli.OneLine(strings.TrimSuffix(line, "\r"))
	}
	return strings.Join(lines, "\n")
}

// part is a part of a page. It loads by itself, so that the page does not wait for the cluster.
type part struct {
	// Name is the end of its URL, and Title its heading.
	Name, Title string
	// Every is how often it is loaded again, as htmx has it, "" for never.
	Every string

	template string
	load     func(r *http.Request) (partData, error)
}

// partData is what a part shows.
type partData struct {
	// Data is for the template of the part.
	Data any
	// Notes say what could not be read.
	Notes []string
	// Command are the words of a command that prints the same, if there is one.
	Command []string
}

// partsPage is what the template "parts" gets.
type partsPage struct {
	// Path is that of the parts.
	Path  string
	Parts []part
}

// addParts adds a page of parts at a pattern. Below the path, each part is a page too, for browsers without JavaScript.
func (c *console) addParts(pattern, path, title string, parts []part) {
	c.web.Page(pattern, func(*http.Request) (*web.View, error) {
		return &web.View{Title: title, Template: "parts", Data: &partsPage{path, parts}}, nil
	})
	for _, p := range parts {
		show := func(r *http.Request) (*web.View, error) {
			ctx, cancel := context.WithTimeout(r.Context(), partTimeout)
			defer cancel()
			data, err := p.load(r.WithContext(ctx))
			if err != nil {
				// Not a failure of the page: htmx shows no answer with another status.
				data.Notes = append(data.Notes, explain(err))
				return &web.View{Title: p.Title, Template: "part-notes", Data: data}, nil
			}
			return &web.View{Title: p.Title, Template: p.template, Data: data}, nil
		}
		c.web.Page("GET "+path+"/"+p.Name, show)
		c.web.Fragment("GET "+path+"/"+p.Name+"/part", show)
	}
}

// pageRows is the number of rows on a page of a list.
const pageRows = 50

// pager says which part of a list is shown, for the template "pages".
type pager struct {
	Page, Pages, Total int
	// Previous and Next are links, "" for none.
	Previous, Next string
}

// paginate returns the page of a list that a parameter of the URL names.
func paginate[T any](r *http.Request, parameter string, list []T) ([]T, pager) {
	query := r.URL.Query()
	p := pager{Page: 1, Pages: max(1, (len(list)+pageRows-1)/pageRows), Total: len(list)}
	if n, err := strconv.Atoi(query.Get(parameter)); err == nil {
		p.Page = min(max(n, 1), p.Pages)
	}
	if p.Page > 1 {
		p.Previous = "?" + withParameter(query, strconv.Itoa(p.Page-1), parameter)
	}
	if p.Page < p.Pages {
		p.Next = "?" + withParameter(query, strconv.Itoa(p.Page+1), parameter)
	}
	begin := (p.Page - 1) * pageRows
	return list[begin:min(begin+pageRows, len(list))], p
}

// withParameter returns a query with another value of a parameter, none for "", and without others.
func withParameter(query url.Values, value, parameter string, without ...string) string {
	copied := maps.Clone(query)
	for _, name := range append(without, parameter) {
		copied.Del(name)
	}
	if value != "" {
		copied.Set(parameter, value)
	}
	return copied.Encode()
}

// maxDiffLines bounds the lines of a difference.
const maxDiffLines = 2000

// diffLine is a line of the template "diff".
type diffLine struct{ Class, Text string }

// diffOf returns the difference between two texts, none if they are the same.
func diffOf(before, after []byte) (out []diffLine) {
	text := string(diff.Diff("before", endLine(before), "after", endLine(after)))
	_, text, _ = strings.Cut(text, "\n") // a line that repeats the names
	for line := range strings.Lines(text) {
		class := ""
		switch line[0] {
		case '-':
			class = "removed"
		case '+':
			class = "added"
		}
		if out = append(out, diffLine{class, strings.TrimSuffix(line, "\n")}); len(out) == maxDiffLines {
			return append(out, diffLine{"", "… and more lines that are not shown"})
		}
	}
	return out
}

// endLine returns a text whose last line ends, so that all lines can be compared.
func endLine(text []byte) []byte {
	if len(text) == 0 || bytes.HasSuffix(text, []byte("\n")) {
		return text
	}
	return append(bytes.Clone(text), '\n')
}
