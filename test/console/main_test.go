// Package console tests 'gatehouse console' as people use it: as a process, with a real browser, on a real API server and on
// recordings.
package console

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/chromium"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

func TestMain(m *testing.M) { os.Exit(cluster.RunInNamespace(m)) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// desktop and phone are the screens of the tests.
var (
	desktop = chromium.Options{Width: 1200, Height: 900}
	phone   = chromium.Options{Width: 360, Height: 740, Dark: true}
)

// console is a running 'gatehouse console'.
type console struct {
	process *cluster.Process
	// address is where it listens, base is the path that all pages have in common, and token is the secret of the newest first URL.
	address, base, token string
	log                  string
}

var firstURL = regexp.MustCompile(`http://127\.0\.0\.1:\d+/\w+/\?token=\w+`)

// start starts a console with these flags, beside those that keep it from opening a browser.
func start(t testing.TB, flags ...string) *console {
	t.Helper()
	return startAs(t, cluster.ProcessOptions{Args: flags})
}

// startAs is start with an environment and a working directory.
func startAs(t testing.TB, o cluster.ProcessOptions) *console {
	t.Helper()
	binary, err := gatehouse.Binary()
	must(t, err)
	log := filepath.Join(t.TempDir(), "console.log")
	o.Path, o.Args, o.Log, o.Ready = binary, append([]string{"console", "--no-browser", "--port", "0"}, o.Args...), log, cluster.Started
	c := &console{process: cluster.NewProcess(o), log: log}
	must(t, c.process.Start(t.Context()))
	t.Cleanup(func() {
		must(t, c.process.Stop())
		if code := c.process.ExitCode(); code != 0 {
			t.Errorf("the console ends with the code %d", code)
		}
		if text, err := os.ReadFile(log); t.Failed() {
			t.Logf("the console says %s, %v", text, err)
		}
	})
	c.renew(t)
	return c
}

// renew reads the first URL that the console has printed last, which is another one than before.
func (c *console) renew(t testing.TB) {
	t.Helper()
	support.Eventually(t, "the URL of the console", func() error {
		text, err := os.ReadFile(c.log)
		if err != nil {
			return err
		}
		all := firstURL.FindAllString(string(text), -1)
		if len(all) == 0 {
			return fmt.Errorf("it says %s", text)
		}
		first, err := url.Parse(all[len(all)-1])
		if err != nil {
			return err
		}
		if token := first.Query().Get("token"); token == c.token {
			return errors.New("there is no other one yet")
		}
		c.address, c.base, c.token = first.Host, strings.TrimSuffix(first.Path, "/"), first.Query().Get("token")
		return nil
	})
}

// url returns that of a page, which may have a query.
func (c *console) url(page string) string { return "http://" + c.address + c.base + page }

// first returns the URL with which a browser begins with a page.
func (c *console) first(page string) string {
	separator := "?"
	if strings.Contains(page, "?") {
		separator = "&"
	}
	return c.url(page) + separator + "token=" + c.token
}

// open opens a page in a new browser.
func (c *console) open(t testing.TB, page string, o chromium.Options) *chromium.Page {
	t.Helper()
	p := chromium.Open(t, c.first(page), o)
	p.WaitURL(c.url(page)) // without the token
	c.renew(t)
	p.WaitVisible("main h1")
	c.settle(t, p)
	return p
}

// visit opens a page in a browser that has one of the console already.
func (c *console) visit(t testing.TB, p *chromium.Page, page string) {
	t.Helper()
	if status := p.Navigate(c.url(page)); status != 200 {
		t.Errorf("%s has the status %d", page, status)
	}
	c.settle(t, p)
}

// settle waits until all parts of the page are there, which it loads by itself.
func (c *console) settle(t testing.TB, p *chromium.Page) {
	t.Helper()
	support.Eventually(t, "the parts of "+p.URL(), func() error {
		var missing []string
		p.Evaluate(`[...document.querySelectorAll("[hx-get]")].filter(e => e.textContent.trim().startsWith("Loading") || e.matches(".htmx-request")).map(e => e.outerHTML.slice(0, 200))`, &missing)
		if len(missing) > 0 {
			return fmt.Errorf("it still loads %q", missing)
		}
		return nil
	})
}

// check fails for what no page may have: violations of axe, content that is wider than the screen, messages of the browser, and
// requests to others.
func (c *console) check(t testing.TB, p *chromium.Page) {
	t.Helper()
	where := p.URL()
	for _, violation := range p.Axe() {
		t.Errorf("%s: axe: %s", where, violation)
	}
	var shown struct {
		Scroll, Client int
		Wide           []string
	}
	p.Evaluate(`({
		Scroll: document.documentElement.scrollWidth, Client: document.documentElement.clientWidth,
		Wide: [...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1 && !e.closest(".scroll, pre, textarea, .skip")).map(e => e.outerHTML.slice(0, 120)).slice(0, 3),
	})`, &shown)
	if shown.Scroll > shown.Client {
		t.Errorf("%s: the page is %d wide, and the screen %d: %q", where, shown.Scroll, shown.Client, shown.Wide)
	}
	c.checkBrowser(t, p)
}

// checkBrowser fails for messages of the browser, such as violations of the content security policy, and for requests to others.
func (c *console) checkBrowser(t testing.TB, p *chromium.Page) {
	t.Helper()
	if messages := p.Messages(); len(messages) > 0 {
		t.Errorf("%s: the browser reports %q", p.URL(), messages)
	}
	elsewhere := slices.DeleteFunc(p.Requests(), func(to string) bool { return strings.HasPrefix(to, c.url("/")) || to == "about:blank" })
	if len(elsewhere) > 0 {
		t.Errorf("%s: there were requests to others: %q", p.URL(), elsewhere)
	}
}

// eventually waits until a JavaScript expression is true.
func eventually(t testing.TB, p *chromium.Page, what, expression string) {
	t.Helper()
	support.Eventually(t, what, func() error {
		var is bool
		p.Evaluate("!!("+expression+")", &is)
		if !is {
			return errors.New("it is not so: " + expression)
		}
		return nil
	})
}

// kubectl runs a command of kubectl as the administrator.
func kubectl(ctx context.Context, c *cluster.Cluster, args ...string) error {
	command := c.Kubectl(ctx, args...)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, output)
	}
	return nil
}
