package console

import (
	"net/http"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
)

// addCompare adds the page.
func (c *console) addCompare() {
	c.web.Page("GET /compare", func(*http.Request) (*web.View, error) {
		return &web.View{Title: "Compare", Template: "compare"}, nil
	})
}
