package console

import (
	"net/http"
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
	p := pager{Page: 1, Pages: max(1, (len(list)+pageRows-1)/pageRows), Total: len(list)}
	if n, err := strconv.Atoi(r.URL.Query().Get(parameter)); err == nil {
		p.Page = min(max(n, 1), p.Pages)
	}
	link := func(page int) string {
		if page < 1 || page > p.Pages {
			return ""
		}
		query := r.URL.Query()
		query.Set(parameter, strconv.Itoa(page))
		return "?" + query.Encode()
	}
	p.Previous, p.Next = link(p.Page-1), link(p.Page+1)
	begin := (p.Page - 1) * pageRows
	return list[begin:min(begin+pageRows, len(list))], p
}
