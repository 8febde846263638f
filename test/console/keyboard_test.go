package console

import (
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/gatehouse-dev/gatehouse/test/support/chromium"
)

// checkKeyboard fails, on a page that is just loaded, if the keyboard alone does not reach everything that a mouse does, in the order of the page, with the
// place of the focus visible.
func (c *console) checkKeyboard(t testing.TB, p *chromium.Page) {
	t.Helper()
	where := p.URL()
	p.Evaluate(`window.reached = [], null`, nil)
	var wanted int
	p.Evaluate(`(window.wanted = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")].filter(e =>
		!e.disabled && e.type !== "hidden" && e.tabIndex >= 0 && e.checkVisibility({visibilityProperty: true}) && !(e.type === "radio" && !e.checked))).length`, &wanted)
	var skip string
	for i := range wanted {
		p.Press(kb.Tab)
		p.Evaluate(`reached.push(document.activeElement), null`, nil)
		if i == 0 {
			p.Evaluate(`document.activeElement.getBoundingClientRect().left >= 0 ? document.activeElement.textContent : "it is not visible"`, &skip)
		}
	}
	var lost []string
	p.Evaluate(`wanted.map((e, i) => reached[i] === e ? "" : i + ": " + (reached[i] || {}).outerHTML + " in place of " + e.outerHTML).filter(Boolean).map(s => s.slice(0, 300)).slice(0, 3)`, &lost)
	if skip != "Skip to content" || len(lost) > 0 {
		t.Errorf("%s: the keyboard begins with %q, and reaches %q", where, skip, lost)
	}
	var unseen []string
	p.Evaluate(`wanted.filter(e => {
		e.focus({focusVisible: true})
		const style = getComputedStyle(e)
		return style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 2
	}).map(e => e.outerHTML.slice(0, 200)).slice(0, 3)`, &unseen)
	if len(unseen) > 0 {
		t.Errorf("%s: the focus is not visible on %q", where, unseen)
	}
	p.Evaluate(`document.querySelector(".skip").focus()`, nil)
	p.Press(kb.Enter)
	eventually(t, p, where+": the first link leads past the navigation", `document.activeElement.id === "main"`)
}
