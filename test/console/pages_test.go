package console

import (
	"testing"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.fill(t)
	c := start(t, "--kubeconfig", s.Kubeconfig())
	p := c.open(t, "/", desktop)
	for _, page := range []string{"/", "/decisions", "/policies", "/try", "/login", "/compare"} {
		c.visit(t, p, page)
		c.check(t, p)
		c.checkKeyboard(t, p)
		t.Log(p.Text("main"))
	}
}
