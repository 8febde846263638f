package console

import (
	"context"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// TestLive: while a thousand reviews a second come, the page shows the newest ones by itself, and reacts to clicks.
func TestLive(t *testing.T) {
	t.Parallel()
	g := generate(t, 1000)
	c := start(t, "--recording", g.dir)
	p := c.open(t, "/decisions", desktop)
	waitFor(t, p, 1000)

	ctx, stop := context.WithCancel(t.Context())
	written := make(chan error, 1)
	go func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if err := g.add(100); err != nil {
					written <- err
					return
				}
			case <-ctx.Done():
				written <- nil
				return
			}
		}
	}()
	p.Evaluate(`window.stalls = [], new PerformanceObserver(list => stalls.push(...list.getEntries().map(e => e.duration))).observe({type: "longtask"}), null`, nil)
	eventually(t, p, "new decisions appear by themselves", `Number(document.querySelector("#decision-list strong").textContent.replace(/\D/g, "")) >= 3000`)
	p.Click("#chart-numbers summary")
	eventually(t, p, "a click opens the numbers", `document.querySelector("#chart-numbers").open`)
	seen := list(p).Total
	support.Eventually(t, "the list goes on, and what was opened stays open", func() error {
		var open bool
		p.Evaluate(`document.querySelector("#chart-numbers").open`, &open)
		if !open {
			t.Fatal("the numbers were closed")
		}
		return moreThan(list(p).Total, seen+2000)
	})
	p.Click("form.filter summary")
	p.Fill("#user-0", userOf(5))
	if status := p.Follow("form.filter button"); status != 200 {
		t.Errorf("the filter gives %d while the list is live", status)
	}
	stop()
	must(t, <-written)
	c.visit(t, p, "/decisions")
	waitFor(t, p, g.count)
	if got, want := list(p).Names, generatedNames(g.count-1, 1); got[0] != want[0] {
		t.Errorf("the newest is %s, want %s", got[0], want[0])
	}
	c.checkBrowser(t, p)
}
