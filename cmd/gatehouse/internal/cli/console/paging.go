package console

import (
	"maps"
	"net/http"
	"net/url"
	"strconv"
)

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
		p.Previous = "?" + withParameter(query, parameter, strconv.Itoa(p.Page-1))
	}
	if p.Page < p.Pages {
		p.Next = "?" + withParameter(query, parameter, strconv.Itoa(p.Page+1))
	}
	begin := (p.Page - 1) * pageRows
	return list[begin:min(begin+pageRows, len(list))], p
}

// withParameter returns a query with another value of a parameter, none for "".
func withParameter(query url.Values, parameter, value string) string {
	copied := maps.Clone(query)
	if copied.Set(parameter, value); value == "" {
		copied.Del(parameter)
	}
	return copied.Encode()
}
