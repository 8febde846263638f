package console

import (
	"net/http"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
)

// addDecisions adds the page.
func (c *console) addDecisions() {
	c.web.Page("GET /decisions", func(*http.Request) (*web.View, error) {
		return &web.View{Title: "Decisions", Template: "decisions"}, nil
	})
}
