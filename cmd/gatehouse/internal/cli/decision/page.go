package decision

import (
	_ "embed"
	"html/template"
)

//go:embed page.html
var pageHead string

// NewPage parses a page of HTML that loads nothing and has no script: its template "head" forbids both and has the style.
// html/template escapes texts for the place where they are. The functions make characters visible that browsers do not show.
func NewPage(name, page string, functions template.FuncMap) (*template.Template, error) {
	parsed, err := template.New(name).Funcs(functions).Parse(page)
	if err != nil {
		return nil, err
	}
	return parsed.Parse(pageHead)
}
