package console

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// TestCluster shows a real cluster to users with different rights.
func TestCluster(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.fill(t)
	t.Run("every page", s.everyPage)
	t.Run("two teams", s.twoTeams)
}

// everyPage shows every page to somebody with the rights that the document names.
func (s *site) everyPage(t *testing.T) {
	kubeconfig, _ := s.user(t, operator)
	c := startAs(t, cluster.ProcessOptions{Env: append(os.Environ(), "KUBECONFIG="+kubeconfig)})
	p := c.open(t, "/decisions", desktop)
	for _, page := range documentParts(t, documentPage) {
		c.visit(t, p, page)
	}
	// 20 pods of each team are created.
	c.visit(t, p, "/decisions?endpoint=validate")
	support.Eventually(t, "the recordings of both replicas", func() error { return moreThan(list(p).Total, 2*20) })
	open := func(name string) string {
		c.visit(t, p, "/decisions?decision=denied&name="+name)
		support.Eventually(t, name, func() error { return moreThan(list(p).Total, 0) })
		p.Follow("#decision-list tbody a[href*='/decisions/review']")
		return strings.TrimPrefix(p.URL(), c.url(""))
	}
	hostileDecision, decision := open("hostile"), open("shop-app-15")

	for _, of := range []struct {
		page, picture string
		want          []string
	}{
		{"/", "overview", slices.Concat(s.replicas(), []string{"ready", "log-shipper", "allowed", `cannot get resource "secrets"`})},
		{"/decisions?live=0", "decisions", []string{"registries", "limits", anna, ben, shop, mall, "denied"}},
		{decision, "decision", []string{"registries", "is being switched off", "every container should have limits", anna}},
		{"/policies", "policies", []string{"registries", "owners", "limits", "log-shipper", "TICKET-16", "TICKET-17", "TICKET-18"}},
		{"/policies/AdmissionPolicy/registries", "policy", []string{"startsWith", "TICKET-16"}},
		{"/try?begin=AdmissionPolicy/registries", "", []string{"Nothing is applied"}},
	} {
		t.Run(strings.Trim(of.page, "/"), func(t *testing.T) {
			p := p.For(t)
			c.visit(t, p, of.page)
			for text, i := p.Text("main"), 0; i < len(of.want); i++ {
				if !strings.Contains(text, of.want[i]) {
					t.Errorf("%s does not show %q:\n%s", of.page, of.want[i], text)
				}
			}
			c.check(t, p)
			if of.picture != "" {
				picture(t, p, of.picture)
			}
			c.checkKeyboard(t, p)
			p.Show(phone)
			c.visit(t, p, of.page)
			c.check(t, p)
			p.Show(desktop)
		})
	}
	t.Run("hostile text", func(t *testing.T) {
		p := p.For(t)
		c.visit(t, p, hostileDecision)
		c.check(t, p)
		checkInert(t, p, true)
		c.visit(t, p, "/decisions?name=hostile") // which shows all messages
		checkInert(t, p, true)
	})
}

// replicas returns the names of the pods.
func (s *site) replicas() (names []string) {
	for _, pod := range s.kubelet.Pods() {
		names = append(names, pod.Name)
	}
	return names
}

// twoTeams: what one team sees, the other does not.
func (s *site) twoTeams(t *testing.T) {
	for _, team := range []struct{ user, own, other string }{
		{anna, shop, mall},
		{ben, mall, shop},
	} {
		t.Run(team.user, func(t *testing.T) {
			t.Parallel()
			kubeconfig, _ := s.user(t, team.user)
			c := start(t, "--kubeconfig", kubeconfig, "-n", team.own)
			p := c.open(t, "/policies/AdmissionPolicy/registries", desktop)
			if text := p.Text("main"); !strings.Contains(text, "gatehouse audit") || !strings.Contains(text, "-n "+team.own) {
				t.Errorf("the page does not name the audit:\n%s", text)
			}
			var all strings.Builder // that they see
			all.WriteString(p.Text("body"))
			for page, right := range map[string]string{
				"/": "list pods in namespace " + system, "/decisions": "list pods in namespace " + system, "/policies": "",
				"/policies/AdmissionPolicy/registries": "", "/try": "",
			} {
				c.visit(t, p, page)
				var text string
				support.Eventually(t, page+" names the right that is missing", func() error {
					text = p.Text("body")
					if !strings.Contains(text, right) || right != "" && !strings.Contains(text, "missing") && !strings.Contains(text, "forbidden") {
						return fmt.Errorf("it shows %s", text)
					}
					return nil
				})
				all.WriteString(text)
				c.check(t, p)
			}
			for _, secret := range []string{"TICKET", team.other + "-app", team.other + "-migration"} {
				if strings.Contains(all.String(), secret) {
					t.Errorf("%s sees %q, which is of the namespace %s", team.user, secret, team.other)
				}
			}
		})
	}
}
