package console

import (
	"context"
	"net/http"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
)

// partTimeout bounds what a part of a page waits for.
const partTimeout = 10 * time.Second

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
	// Path is that of the parts, and Query that of the page with its "?".
	Path, Query string
	Parts       []part
}

// addParts adds a page of parts at a pattern. Below the path, each part is a page too, for browsers without JavaScript.
func (c *console) addParts(pattern, path, title string, parts []part) {
	c.web.Page(pattern, func(r *http.Request) (*web.View, error) {
		data := &partsPage{Path: path, Parts: parts}
		if r.URL.RawQuery != "" {
			data.Query = "?" + r.URL.RawQuery
		}
		return &web.View{Title: title, Template: "parts", Data: data}, nil
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
