package console

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// rowsOfPage is how many rows a page of a list has.
const rowsOfPage = 50

// generated is a recording that a test writes while the console shows it.
type generated struct {
	out   *zstd.Encoder
	begin time.Time
	count int
}

func nameOf(i int) string { return fmt.Sprintf("object-%07d", i) }

// generate begins a recording in a directory.
func generate(t *testing.T, dir string) *generated {
	t.Helper()
	file, err := os.Create(filepath.Join(dir, "1-a.gatehouse.zst"))
	must(t, err)
	out, err := zstd.NewWriter(file, zstd.WithEncoderConcurrency(1))
	must(t, err)
	_, err = out.Write([]byte(`{"header":{"format":1,"program":"test","source":"server","replica":"a","redaction":{"key":"c6e7774f"},"sampling":"all"}}` + "\n"))
	must(t, err)
	t.Cleanup(func() { must(t, out.Close()); must(t, file.Close()) })
	return &generated{out: out, begin: time.Now()}
}

// add writes so many more reviews, by eleven users. They are complete on disk, as after a flush of a server.
func (g *generated) add(n int) error {
	for range n {
		review := fmt.Appendf(nil, podReview, quoted(fmt.Sprint("uid-", g.count)), quoted(nameOf(g.count)), quoted("app:1"), quoted(shop), quoted(fmt.Sprint("user-", g.count%11)))
		line, err := json.Marshal(map[string]any{"review": map[string]any{
			"id": fmt.Sprint("uid-", g.count), "time": g.begin.Add(time.Duration(g.count) * time.Millisecond), "endpoint": "validate", "decision": "allowed",
			"request": json.RawMessage(review), "response": json.RawMessage(`{"allowed":true}`),
		}})
		if err != nil {
			return err
		}
		if _, err := g.out.Write(append(line, '\n')); err != nil {
			return err
		}
		g.count++
	}
	return g.out.Flush()
}

// TestLive: while a thousand reviews a second come, the page shows the newest ones by itself, and reacts to clicks.
func TestLive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := generate(t, dir)
	must(t, g.add(1000))
	c := start(t, "--recording", dir)
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
	seen := 0
	support.Eventually(t, "new decisions appear by themselves", func() error {
		seen = list(p).Total
		return moreThan(seen, 3000)
	})
	support.Eventually(t, "the list goes on", func() error { return moreThan(list(p).Total, seen+2000) })
	p.Click("form.filter summary")
	p.Fill("#user-0", "user-5")
	if status := p.Follow("form.filter button"); status != 200 {
		t.Errorf("the filter gives %d while the list is live", status)
	}
	stop()
	must(t, <-written)
	c.visit(t, p, "/decisions")
	waitFor(t, p, g.count)
	if got := list(p).Names; len(got) != rowsOfPage || got[0] != nameOf(g.count-1) || got[rowsOfPage-1] != nameOf(g.count-rowsOfPage) {
		t.Errorf("the page shows %q", got)
	}
	c.visit(t, p, "/decisions?page=2")
	if got := list(p).Names; len(got) != rowsOfPage || got[0] != nameOf(g.count-rowsOfPage-1) {
		t.Errorf("the second page shows %q", got)
	}
	c.checkBrowser(t, p)
}
