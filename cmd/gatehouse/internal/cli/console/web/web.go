// Package web serves the pages of a console to the browser of the user who started it, and refuses all other requests.
//
// The server renders the pages as HTML, and everything that a page loads is in the program. A page changes nothing: it
// only reads, or computes something from what a form sends.
package web

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"net/http"
	"strings"
	"sync"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/internal/shell"
)

//go:embed assets templates
var files embed.FS

// maxForm bounds what a form sends, in bytes.
const maxForm = 4 << 20

// Section is an entry of the navigation.
type Section struct{ Path, Title string }

// Options are what a Server needs.
type Options struct {
	// Address is the host and port on which it is served: the only Host header that is accepted, beside localhost with this port.
	Address string
	Secrets Secrets
	// Renewed is called with the next first URL when one was used. It may be nil.
	Renewed func(url string)
	// Sections are the navigation, in order.
	Sections []Section
	// About says where the data come from, for the head of each page. It may be nil.
	About func() string
	// Templates are HTML templates that define each View.Template, in files that end in .html.
	Templates fs.FS
	// Functions are those of the templates beside "inert" and "command".
	Functions template.FuncMap
	// Program is the name of the program, for commands.
	Program string
}

// View is what a page shows.
type View struct {
	Title string
	// Template is the name of the template, and Data what it gets.
	Template string
	Data     any
	// Command are the words of the command that prints the same, without the name of the program. None for no command.
	Command []string
	// Status is the HTTP status, 0 for 200.
	Status int
}

// Page computes a view. An *Error is shown as it is. Other errors are shown with status 502: what the page shows comes from outside.
type Page func(*http.Request) (*View, error)

// Error is an error with an HTTP status. Its message is for the user.
type Error struct {
	Status int
	Err    error
}

// Error returns the message.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// NotFound returns an Error with status 404.
func NotFound(format string, args ...any) error {
	return &Error{http.StatusNotFound, fmt.Errorf(format, args...)}
}

// BadRequest returns an Error with status 400.
func BadRequest(format string, args ...any) error {
	return &Error{http.StatusBadRequest, fmt.Errorf(format, args...)}
}

// Server serves pages. It is an http.Handler, and safe for concurrent use once all pages are added.
type Server struct {
	options   Options
	templates *template.Template
	mux       *http.ServeMux
	guarded   http.Handler
	// bases writes the base path into links.
	bases *strings.Replacer
	// spending guards the token.
	spending sync.Mutex
}

// New returns a Server without pages.
func New(o Options) (*Server, error) {
	functions := template.FuncMap{
		"inert": func(text string) string { return cli.OneLine(Unwrap(text)) },
		"command": func(words []string) string {
			line := []string{o.Program}
			for _, word := range words {
				line = append(line, shell.Quote(word))
			}
			return strings.Join(line, " ")
		},
	}
	maps.Copy(functions, o.Functions)
	all, err := template.New("").Funcs(functions).ParseFS(files, "templates/*.html")
	if err == nil {
		all, err = all.ParseFS(o.Templates, "*.html")
	}
	if err != nil {
		return nil, fmt.Errorf("parse the templates of the console: %w", err)
	}
	s := &Server{options: o, templates: all, mux: http.NewServeMux()}
	var links []string
	for _, attribute := range []string{` href="`, ` src="`, ` action="`, ` hx-get="`, ` hx-post="`, ` content="0; url=`} {
		links = append(links, attribute+"/", attribute+o.Secrets.Base+"/")
	}
	s.bases = strings.NewReplacer(links...)
	s.guarded = s.guard(s.mux)
	assets, err := fs.Sub(files, "assets")
	if err != nil {
		return nil, err
	}
	s.mux.Handle("GET /assets/", http.StripPrefix("/assets/", http.FileServerFS(assets)))
	s.Page("GET /", func(r *http.Request) (*View, error) { return nil, NotFound("there is no page %s", r.URL.Path) })
	return s, nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.guarded.ServeHTTP(w, r) }

// Page adds a page for a pattern of http.ServeMux.
func (s *Server) Page(pattern string, page Page) { s.handle(pattern, page, s.renderPage) }

// Fragment adds a part of a page, which a page loads by itself.
func (s *Server) Fragment(pattern string, page Page) { s.handle(pattern, page, s.renderFragment) }

func (s *Server) handle(pattern string, page Page, render func(*View, *http.Request) ([]byte, error)) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		view, err := page(r)
		if r.Context().Err() != nil {
			return // nobody waits for the answer
		}
		if err != nil {
			view = failure(err)
		}
		s.write(w, r, view, render)
	})
}

// write writes a view.
func (s *Server) write(w http.ResponseWriter, r *http.Request, view *View, render func(*View, *http.Request) ([]byte, error)) {
	text, err := render(view, r)
	if err != nil {
		view = failure(&Error{http.StatusInternalServerError, fmt.Errorf("this page cannot be shown: %w", err)})
		text, _ = render(view, r) // its template shows a text alone
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if view.Status != 0 {
		w.WriteHeader(view.Status)
	}
	_, _ = w.Write(s.addBase(text)) // the browser may have gone
}

// addBase adds the base path to the links of a page. In texts, html/template escapes quotation marks, so that these are attributes of templates.
func (s *Server) addBase(text []byte) []byte { return []byte(s.bases.Replace(string(text))) }

// failure returns the view of an error.
func failure(err error) *View {
	v := &View{Title: "Not available", Template: "failure", Status: http.StatusBadGateway}
	if e, ok := errors.AsType[*Error](err); ok {
		v.Status = e.Status
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		v.Status, err = http.StatusRequestEntityTooLarge, fmt.Errorf("the form has more than %d bytes (hint: run the command on files)", tooLarge.Limit)
	}
	v.Data = strings.Split(err.Error(), "\n")
	return v
}

// layout is what the template "layout" gets.
type layout struct {
	*View

	Sections []Section
	Path     string
	About    string
	Content  template.HTML
}

// IsCurrent reports whether the page is in a section.
func (l *layout) IsCurrent(section Section) bool {
	return l.Path == section.Path || section.Path != "/" && strings.HasPrefix(l.Path, section.Path+"/")
}

func (s *Server) renderPage(v *View, r *http.Request) ([]byte, error) {
	content, err := s.renderFragment(v, r)
	if err != nil {
		return nil, err
	}
	l := layout{View: v, Sections: s.options.Sections, Path: r.URL.Path, Content: template.HTML(content)} // #nosec G203 -- html/template made it
	if s.options.About != nil {
		l.About = s.options.About()
	}
	return s.execute("layout", &l)
}

func (s *Server) renderFragment(v *View, _ *http.Request) ([]byte, error) {
	return s.execute(v.Template, v.Data)
}

func (s *Server) execute(name string, data any) ([]byte, error) {
	var out bytes.Buffer
	if err := s.templates.ExecuteTemplate(&out, name, data); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Unwrap returns a text with blanks in place of line breaks.
func Unwrap(text string) string {
	return strings.NewReplacer("\r\n", " ", "\n", " ").Replace(strings.TrimRight(text, "\r\n"))
}
