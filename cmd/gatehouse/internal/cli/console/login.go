package console

import (
	"net/http"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
)

// addLogin adds the page.
func (c *console) addLogin() {
	c.web.Page("GET /login", func(*http.Request) (*web.View, error) {
		return &web.View{Title: "Login", Template: "login"}, nil
	})
}
