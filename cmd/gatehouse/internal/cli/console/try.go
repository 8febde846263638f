package console

import (
	"net/http"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
)

// addTry adds the page.
func (c *console) addTry() {
	c.web.Page("GET /try", func(*http.Request) (*web.View, error) {
		return &web.View{Title: "Try", Template: "try"}, nil
	})
}
