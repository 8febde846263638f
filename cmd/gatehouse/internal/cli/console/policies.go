package console

import (
	"net/http"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
)

// addPolicies adds the page.
func (c *console) addPolicies() {
	c.web.Page("GET /policies", func(*http.Request) (*web.View, error) {
		return &web.View{Title: "Policies", Template: "policies"}, nil
	})
}
