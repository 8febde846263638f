package web_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
	"github.com/gatehouse-dev/gatehouse/test/support"
)

// TestHostileText shows names that strangers have chosen.
func TestHostileText(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ hostile, never string }{
		"a script":           {"<script>alert(1)</script>", "<script>alert"},
		"an attribute":       {`" onmouseover="alert(1)`, `" onmouseover="`},
		"a terminal escape":  {"\x1b[31mred", "\x1b"},
		"right to left":      {"gpj\u202eexe", "\u202e"},
		"the end of an href": {"'><img src=x>", "<img"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := request(http.MethodGet, "/shop", "", nil)
			query := r.URL.Query()
			query.Set("name", c.hostile)
			r.URL.RawQuery = query.Encode()
			_, text := answer(newServer(t), r)
			if strings.Contains(text, c.never) {
				t.Errorf("the page has %q:\n%s", c.never, text)
			}
		})
	}
}

func TestPage(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	_, text := answer(s, request(http.MethodGet, "/shop?name=x", "", nil))
	for _, want := range []string{`<html lang="en">`, `<a href="/shop" aria-current="page">`, `<a href="/">Overview</a>`, "<code>gatehouse check -f x</code>", "<main id=\"main\""} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	response, text := answer(s, request(http.MethodPost, "/shop", "name="+strings.Repeat("x", 5<<20), nil))
	if response.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(text, "the form has more than 4194304 bytes") {
		t.Errorf("a large form: status %d, %.300s", response.StatusCode, text)
	}
}

// jobURL returns the URL that a fragment loads next, "" if the job has ended.
func jobURL(fragment string) string {
	found := regexp.MustCompile(`hx-get="(/jobs/[^"]+)"`).FindStringSubmatch(fragment)
	if found == nil {
		return ""
	}
	return found[1]
}

func TestJob(t *testing.T) {
	t.Parallel()
	shown := func(text string) (*web.View, error) { return &web.View{Template: "shop", Data: text}, nil }
	for name, c := range map[string]struct {
		run    func(ctx context.Context, report func(string), next <-chan struct{}) (*web.View, error)
		cancel bool
		during string
		want   string
	}{
		"a result": {func(_ context.Context, report func(string), next <-chan struct{}) (*web.View, error) {
			report("reading")
			<-next
			return shown("done & <b>well</b>")
		}, false, "reading</p>\n<progress ", "<p>done &amp; &lt;b&gt;well&lt;/b&gt;</p>"},
		"an error": {func(_ context.Context, report func(string), next <-chan struct{}) (*web.View, error) {
			report("reading")
			<-next
			return nil, errors.New("the recording is <gone>")
		}, false, "reading", "the recording is &lt;gone&gt;"},
		"cancelled": {func(ctx context.Context, report func(string), _ <-chan struct{}) (*web.View, error) {
			report("reading")
			<-ctx.Done()
			return nil, ctx.Err()
		}, true, "reading", "cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, next := newServer(t), make(chan struct{})
			job := s.Start(t.Context(), "Replay", func(ctx context.Context, report func(string)) (*web.View, error) {
				return c.run(ctx, report, next)
			})
			fragment := ""
			get := func() { _, fragment = answer(s, request(http.MethodGet, "/jobs/"+job.ID, "", nil)) }
			support.Eventually(t, "progress", func() error {
				if get(); !strings.Contains(fragment, c.during) || jobURL(fragment) != "/jobs/"+job.ID {
					return fmt.Errorf("the fragment is\n%s", fragment)
				}
				return nil
			})
			if c.cancel {
				answer(s, request(http.MethodPost, "/jobs/"+job.ID+"/cancel", "", nil))
			}
			close(next)
			support.Eventually(t, "the result", func() error {
				if get(); jobURL(fragment) != "" || !strings.Contains(fragment, c.want) {
					return fmt.Errorf("the fragment is\n%s", fragment)
				}
				return nil
			})
		})
	}
}

// TestManyJobs starts more jobs than are kept: the oldest ends.
func TestManyJobs(t *testing.T) {
	t.Parallel()
	s, ended := newServer(t), make(chan struct{})
	first := s.Start(t.Context(), "first", func(ctx context.Context, _ func(string)) (*web.View, error) {
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	})
	support.Eventually(t, "the first job runs", func() error {
		if first.Progress() != "starting" {
			return errors.New(first.Progress())
		}
		return nil
	})
	for range 16 {
		s.Start(t.Context(), "other", func(ctx context.Context, _ func(string)) (*web.View, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
	}
	<-ended
	if response, _ := answer(s, request(http.MethodGet, "/jobs/"+first.ID, "", nil)); response.StatusCode != http.StatusNotFound {
		t.Errorf("the first job is answered with %d", response.StatusCode)
	}
}
