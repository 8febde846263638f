package console

import (
	"net/http"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
)

// addOverview adds the page.
func (c *console) addOverview() {
	c.web.Page("GET /{$}", func(*http.Request) (*web.View, error) {
		return &web.View{Title: "Overview", Template: "overview"}, nil
	})
}
