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
	p, begin := newPager(r.URL.Query(), parameter, len(list))
	return list[begin:min(begin+pageRows, len(list))], p
}

// newPager returns the page of a list of so many rows that a parameter of the URL names, and its first row.
func newPager(query url.Values, parameter string, total int) (p pager, begin int) {
	p = pager{Page: 1, Pages: max(1, (total+pageRows-1)/pageRows), Total: total}
	if n, err := strconv.Atoi(query.Get(parameter)); err == nil {
		p.Page = min(max(n, 1), p.Pages)
	}
	link := func(page int) string {
		if page < 1 || page > p.Pages {
			return ""
		}
		return "?" + withParameter(query, parameter, strconv.Itoa(page))
	}
	p.Previous, p.Next = link(p.Page-1), link(p.Page+1)
	return p, (p.Page - 1) * pageRows
}

// withParameter returns a query with another value of a parameter, none for "".
func withParameter(query url.Values, parameter, value string) string {
	copied := maps.Clone(query)
	if copied.Set(parameter, value); value == "" {
		copied.Del(parameter)
	}
	return copied.Encode()
}
