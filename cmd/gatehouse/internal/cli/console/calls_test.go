package console

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// TestGroupCalls groups calls that are written as "MILLISECOND ENDPOINT NAME OUTCOME"; each takes 10 ms.
func TestGroupCalls(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		calls []string
		want  string
	}{
		{"one request", []string{"0 mutate a allowed", "20 validate a allowed"}, "mutate+validate"},
		{"two webhooks at one time", []string{"0 mutate a allowed", "20 validate a allowed", "25 validate a denied"}, "mutate+validate+validate"},
		{"mutated again", []string{"0 mutate a patched", "20 mutate a allowed", "40 validate a allowed"}, "mutate+mutate+validate"},
		{"refused when mutated", []string{"0 mutate a denied", "20 mutate a denied"}, "mutate mutate"},
		{"tried again", []string{"0 mutate a allowed", "20 validate a denied", "100 mutate a allowed", "120 validate a denied"}, "mutate+validate mutate+validate"},
		{"validated again", []string{"0 validate a denied", "500 validate a denied"}, "validate validate"},
		{"much later", []string{"0 mutate a allowed", "20000 validate a allowed"}, "mutate validate"},
		{"other objects", []string{"0 mutate a allowed", "20 validate b allowed"}, "mutate validate"},
		{"a generated name", []string{"0 mutate app-* patched", "20 validate app-x1 allowed"}, "mutate+validate"},
		{"several of a generated name", []string{"0 mutate app-* patched", "2 mutate app-* patched", "20 validate app-x1 allowed", "22 validate app-x2 denied"}, "mutate+validate mutate+validate"},
		{"a generated name, mutated again", []string{"0 mutate app-* patched", "20 mutate app-* allowed", "40 validate app-x1 allowed"}, "mutate+mutate+validate"},
		{"logins", []string{"0 authenticate t allowed", "20 authenticate t allowed"}, "authenticate authenticate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var list []*call
			for _, text := range tt.calls {
				var at int64
				var endpoint, name, outcome string
				_ = must(fmt.Sscan(text, &at, &endpoint, &name, &outcome))
				c := &call{attributes: &attributes{Endpoint: endpoint, Decision: outcome}, Name: name, at: at * int64(time.Millisecond), took: 10_000}
				if outcome == "patched" {
					c.Decision, c.HasPatch = "allowed", true
				}
				if strings.HasPrefix(name, "app-") {
					c.generated = uint16(len("app-"))
				}
				list = append(list, c)
			}
			var got []string
			for _, r := range groupCalls(list) {
				var endpoints []string
				for _, c := range r.Calls {
					endpoints = append(endpoints, c.Endpoint)
				}
				got = append(got, strings.Join(endpoints, "+"))
			}
			if text := strings.Join(got, " "); text != tt.want {
				t.Errorf("got %q, want %q", text, tt.want)
			}
		})
	}
}

// TestNewCall checks what is kept of a review: every reason, and no more of a text than is shown.
func TestNewCall(t *testing.T) {
	t.Parallel()
	r := podReview(1, "validate", "", "shop", "anna", "{}")
	r.Request = []byte(strings.Replace(string(r.Request), `"metadata":{"name":""`, `"metadata":{"generateName":"cart-","name":"cart-x1"`, 1))
	r.Decision = review.Denied
	r.Response = must(json.Marshal(map[string]any{"allowed": false, "warnings": []string{"careful"}, "status": map[string]any{
		"message": "2 violations:\n1. AdmissionPolicy 'a' denied request: no\n2. AdmissionPolicy 'b' denied request: never " + strings.Repeat("x", 1<<20),
	}}))
	c := newCall(r, nil, 0)
	if c.Name != "cart-x1" || c.object() != "cart-" || !c.HasWarnings || !c.isRefused() {
		t.Errorf("got %+v", c)
	}
	if len(c.Messages) != 3 || c.Messages[1] != "1. AdmissionPolicy 'a' denied request: no" || c.size() > 2*maxMessages {
		t.Errorf("%d messages, %d bytes", len(c.Messages), c.size())
	}
}

// TestCallsAreBounded adds more calls than are kept, and measures the memory that they and their requests take.
func TestCallsAreBounded(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for name, of := range map[string]struct {
		calls int
		user  func(int) string
		fill  string
	}{
		"usual":           {maxCalls + 30_000, func(i int) string { return fmt.Sprint("user-", i%1000) }, ""},
		"each has a user": {maxCalls, func(i int) string { return fmt.Sprint(i, strings.Repeat("u", 500)) }, ""},
		"long messages":   {maxCalls / 4, func(int) string { return "u" }, strings.Repeat("m", maxMessages)},
	} {
		t.Run(name, func(t *testing.T) {
			before := heap()
			var c calls
			for i := range of.calls {
				one := &call{attributes: &attributes{Endpoint: []string{"mutate", "validate"}[i%2], User: of.user(i), Decision: "allowed"}, ID: fmt.Sprintf("%036d", i), Name: fmt.Sprintf("object-with-a-name-%08d", i/2), at: int64(i)}
				if of.fill != "" {
					one.Messages = []string{of.fill + fmt.Sprint(i)}
				}
				c.add(one)
			}
			c.sort()
			requests := groupCalls(c.list)
			const most = 64 << 20
			if took := heap() - before; took > most {
				t.Errorf("%d calls take %d MiB", len(c.list), took>>20)
			}
			newest := requests[len(requests)-1].Last()
			if !c.dropped || len(c.list) > maxCalls || newest.at != int64(of.calls-1) {
				t.Errorf("%d calls are kept, dropped %t, the newest %d", len(c.list), c.dropped, newest.at)
			}
			runtime.KeepAlive(&c)
		})
	}
}

// TestTimeRange: with a time range, decisions that are older than those in memory are read from the recording again.
func TestTimeRange(t *testing.T) {
	t.Parallel()
	var reviews []*record.Review
	for n := range 60 {
		reviews = append(reviews, podReview(n, "validate", fmt.Sprint("cart-", n), "shop", "anna", "{}"))
	}
	c := newDecisionConsole(t, flags{recordings: []string{decisionsRecording(t, "", reviews...)}})
	c.log.mu.Lock()
	c.log.calls.list, c.log.calls.dropped, c.log.requests = c.log.calls.list[50:], true, nil
	c.log.mu.Unlock()
	_, _, text := c.get("GET", "/decisions", nil)
	c.wants(text, "10 requests from 2026-11-20T12:00:50Z", "These are the newest ones")
	_, _, text = c.get("GET", "/decisions?since=2026-11-20T12:00:05Z&until=2026-11-20T12:00:08Z", nil)
	c.wants(text, "3 of 3 requests from 2026-11-20T12:00:05Z", "cart-5", "cart-7")
	_, _, text = c.get("GET", "/decisions/uid-6?file=all.gatehouse.zst&row=6", nil)
	c.wants(text, "Pod shop/cart-6")
}

// TestRecordingsChange: a file that grows is read on, one that ends early has a problem and is read again when it grows, and one that is removed
// is gone.
func TestRecordingsChange(t *testing.T) {
	t.Parallel()
	whole, err := os.ReadFile(decisionsRecording(t, "", testReviews()...))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, text []byte, age time.Duration) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	write("1-a.gatehouse.zst", whole[:len(whole)-10], 0)
	write("2-b.gatehouse.zst", whole[:len(whole)-10], time.Hour)
	write("3-c.gatehouse.zst", whole, time.Hour)
	write("4-d.gatehouse.zst", []byte("no recording"), time.Hour)
	c := newDecisionConsole(t, flags{recordings: []string{dir}})
	v := c.log.view(t.Context(), time.Time{}, time.Time{})
	if !v.IsLive || v.Files[0].Problem != "" || !strings.Contains(v.Files[1].Problem, "the rest is missing") || !v.Files[2].IsComplete || !strings.Contains(v.Files[3].Problem, "is no recording") {
		t.Errorf("got %+v", v.Files)
	}
	write("1-a.gatehouse.zst", whole, 0)
	write("2-b.gatehouse.zst", whole, 0)
	c.await(func(v *logView) bool { return v.Count == 15 && v.IsReady })
	if err := os.Remove(filepath.Join(dir, "3-c.gatehouse.zst")); err != nil {
		t.Fatal(err)
	}
	c.await(func(v *logView) bool { return v.Count == 10 && len(v.Files) == 3 })
}
