// Package chromium opens pages in a real browser without a window.
//
// Each browser is a process of its own with an empty profile, so that no two share a cookie. It is driven through a pipe: it
// ends with the test that started it, and with this process however that ends.
package chromium

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// Page is a page of a browser. Its methods are for one goroutine. They end the test if the browser cannot do what they ask
// for within [support.Deadline]. Selectors are those of CSS, and mean the first element.
type Page struct {
	*browser

	t testing.TB
}

// browser is a running browser.
type browser struct {
	// ctx ends with it.
	ctx context.Context //nolint:containedctx // the library keeps the browser in it

	mu                 sync.Mutex
	requests, messages []string
}

// Options say how a page is shown.
type Options struct {
	// Width and Height are in CSS pixels. A page that is narrower than a tablet is shown as on a phone.
	Width, Height int
	// Dark asks pages for dark colors.
	Dark bool
	// Hosts are names that stand for 127.0.0.1.
	Hosts []string
}

// programVariable names the program of another browser, such as /usr/bin/chromium.
const programVariable = "CHROMIUM"

// Open opens a URL in a new browser and waits until it is loaded. The browser is that of CHROMIUM, else the one that
// 'make chromium' gets.
func Open(t testing.TB, url string, o Options) *Page {
	t.Helper()
	program := os.Getenv(programVariable)
	if program == "" {
		var err error
		if program, err = support.Built("chromium", "chromium", "run"); err != nil {
			t.Fatal(err)
		}
	}
	p := &Page{browser: &browser{}, t: t}
	rules := make([]string, len(o.Hosts))
	for i, host := range o.Hosts {
		rules[i] = "MAP " + host + " 127.0.0.1"
	}
	// The cleanup ends it: the context of the test has ended by then, and a browser is to end in order.
	allocator, end := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("host-resolver-rules", strings.Join(rules, ",")),
		chromedp.Flag("disable-component-update", true))...)
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithListener(p.listen), chromedp.WithErrorf(t.Logf))
	t.Cleanup(func() {
		cancel()
		end()
	})
	p.ctx = ctx
	if err := chromedp.Do(ctx); err != nil { // it starts the browser, which lives as long as this context
		t.Fatalf("start chromium: %v", err)
	}
	p.Show(o)
	p.Navigate(url)
	return p
}

// For returns the same page for a subtest, which ends in place of its parent if the browser cannot do something.
func (p *Page) For(t testing.TB) *Page { return &Page{p.browser, t} }

// listen receives what the browser reports.
func (b *browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	case *network.EventWebSocketCreated:
		b.requests = append(b.requests, e.URL)
	case *log.EventEntryAdded:
		b.messages = append(b.messages, e.Entry.Text)
	case *runtime.EventConsoleAPICalled:
		words := make([]string, len(e.Args))
		for i, word := range e.Args {
			words[i] = string(word.Value) + word.Description
		}
		b.messages = append(b.messages, strings.Join(words, " "))
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if exception := e.ExceptionDetails.Exception; exception != nil {
			text += " " + exception.Description
		}
		b.messages = append(b.messages, text)
	}
}

// run runs an action with a deadline.
func run[T any](p *Page, what string, action chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeoutCause(p.ctx, support.Deadline, fmt.Errorf("gave up after %s", support.Deadline))
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		p.t.Fatalf("chromium: %s: %v", what, err)
	}
	return value
}

// command runs a command of the DevTools protocol.
func command[P, R any](command cdp.Command[P, R], params P) chromedp.Action[R] {
	return func(ctx context.Context, t *chromedp.Target) (R, error) { return cdp.Call(ctx, t, command, params) }
}

// Show changes how pages are shown. It leaves Hosts as they are.
func (p *Page) Show(o Options) {
	p.t.Helper()
	const tablet = 600
	var as []chromedp.EmulateViewportOption
	if o.Width < tablet {
		as = append(as, chromedp.EmulateMobile, chromedp.EmulatePortrait)
	}
	run(p, "emulate a screen", chromedp.EmulateViewport(int64(o.Width), int64(o.Height), as...))
	scheme := "light"
	if o.Dark {
		scheme = "dark"
	}
	run(p, "emulate colors", command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}},
	}))
}

// Navigate opens a URL, waits until it is loaded, and returns the HTTP status.
func (p *Page) Navigate(url string) int {
	p.t.Helper()
	return int(run(p, "open "+url, chromedp.NavigateResponse(url)).Status)
}

// Follow clicks on a link or a button that opens another page, waits until that is loaded, and returns its HTTP status.
func (p *Page) Follow(selector string) int {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, support.Deadline)
	defer cancel()
	p.WaitVisible(selector)
	// Within the page, because an element that the page replaces between looking for it and a click of the mouse is missed.
	response, err := chromedp.RunResponse(ctx, chromedp.Evaluate[chromedp.Void](fmt.Sprintf("document.querySelector(%q).click()", selector), chromedp.EvalAsValue))
	if err != nil {
		p.t.Fatalf("chromium: follow %s: %v", selector, err)
	}
	return int(response.Status)
}

// URL returns that of the page.
func (p *Page) URL() string {
	p.t.Helper()
	return run(p, "get the URL", chromedp.Location())
}

// WaitURL waits until the page has a URL. A page that is just being replaced by another one has none.
func (p *Page) WaitURL(want string) {
	p.t.Helper()
	support.Eventually(p.t, "the URL "+want, func() error {
		got, err := chromedp.Run(p.ctx, chromedp.Location())
		if err == nil && got != want {
			err = fmt.Errorf("the URL is %s", got)
		}
		return err
	})
}

// Click clicks on an element once it is visible.
func (p *Page) Click(selector string) {
	p.t.Helper()
	run(p, "click on "+selector, chromedp.Click(chromedp.CSS(selector)))
}

// WaitVisible waits until an element is visible.
func (p *Page) WaitVisible(selector string) {
	p.t.Helper()
	run(p, "wait for "+selector, chromedp.WaitVisible(chromedp.CSS(selector)))
}

// Text returns the visible text of an element.
func (p *Page) Text(selector string) string {
	p.t.Helper()
	return run(p, "read "+selector, chromedp.Text(chromedp.CSS(selector)))
}

// Fill replaces what is in an input or a textarea, as somebody who selects everything and pastes.
func (p *Page) Fill(selector, text string) {
	p.t.Helper()
	run(p, "focus "+selector, chromedp.Focus(chromedp.CSS(selector)))
	p.Evaluate("document.activeElement.select()", nil)
	p.Type(text)
}

// Type types into the element that has the focus.
func (p *Page) Type(text string) {
	p.t.Helper()
	run(p, "type", command(input.InsertText, input.InsertTextParams{Text: text}))
}

// Press presses keys one by one: characters, or those of package kb.
func (p *Page) Press(keys string) {
	p.t.Helper()
	run(p, "press keys", chromedp.KeyEvent(keys))
}

// Evaluate evaluates a JavaScript expression in the page, waits for its value if that is a promise, and decodes it. Into may
// be nil.
func (p *Page) Evaluate(expression string, into any) {
	p.t.Helper()
	if into == nil {
		run(p, expression, chromedp.Evaluate[chromedp.Void](expression, chromedp.EvalAsValue, chromedp.EvalAwaitPromise))
		return
	}
	value := run(p, expression, chromedp.Evaluate[[]byte](expression, chromedp.EvalAwaitPromise))
	if err := json.Unmarshal(value, into); err != nil {
		p.t.Fatalf("%s: %v: %q", expression, err, value)
	}
}

// Requests returns the URLs of all requests.
func (p *Page) Requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// Messages returns what the browser has written to its console: what scripts write, exceptions, requests that failed, and
// violations of a content security policy.
func (p *Page) Messages() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.messages)
}

// Screenshot returns a picture of the page as PNG, from its top to its end, but not higher than a number of pixels.
func (p *Page) Screenshot(highest int) []byte {
	p.t.Helper()
	var size struct{ Width, Height float64 }
	p.Evaluate(`({Width: document.documentElement.clientWidth, Height: document.documentElement.scrollHeight})`, &size)
	return run(p, "make a picture", command(page.CaptureScreenshot, page.CaptureScreenshotParams{
		CaptureBeyondViewport: new(true), Clip: &page.Viewport{Width: size.Width, Height: min(size.Height, float64(highest)), Scale: 1},
	})).Data
}
