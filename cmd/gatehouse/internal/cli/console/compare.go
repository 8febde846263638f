package console

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
)

// addCompare adds the page.
func (c *console) addCompare() {
	c.web.Page("GET /compare", c.showCompare)
	c.web.Page("POST /compare", c.replayCompare)
}

// comparePage is what the page shows.
type comparePage struct {
	From, To string
	// Choices are names of configurations, for the form.
	Choices    []string
	Recordings []string
	// CanReplay reports whether there are recordings: those of the command line, or of the replicas.
	CanReplay bool
	Result    *compareResult
	// Notes say what of the configurations is not known.
	Notes []error
}

// compareResult is what differs.
type compareResult struct {
	Rows  []compareRow
	Pages pager
	// Counts of documents.
	Added, Removed, Changed, Unchanged int
}

// compareRow is a document that differs.
type compareRow struct {
	Key documentKey
	// Change is "added", "removed" or "changed".
	Change string
	Diff   []diffLine

	before, after document
}

// showCompare compares the configurations that the URL names.
func (c *console) showCompare(r *http.Request) (*web.View, error) {
	query := r.URL.Query()
	data := &comparePage{From: query.Get("from"), To: query.Get("to"), Choices: c.compareChoices(), Recordings: c.recordings, CanReplay: c.canReplay()}
	view := &web.View{Title: "Compare", Template: "compare", Data: data}
	if data.From == "" || data.To == "" {
		if len(data.Choices) > 1 {
			data.From, data.To = cmp.Or(data.From, data.Choices[1]), cmp.Or(data.To, data.Choices[0])
		}
		return view, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), computeTimeout)
	defer cancel()
	from, err := c.openSide(ctx, data.From)
	if err != nil {
		return nil, err
	}
	to, err := c.openSide(ctx, data.To)
	if err != nil {
		return nil, err
	}
	data.Notes = slices.Concat(from.unread, to.unread)
	data.Result, err = compareSides(r, from, to)
	if from.word != "" && to.word != "" && len(c.recordings) > 0 {
		view.Command = replayWords(c.recordings, "--config", to.word, "--against", from.word)
	}
	return view, err
}

// compareChoices returns configurations to compare.
func (c *console) compareChoices() (all []string) {
	if c.config != "" {
		all = append(all, dirPrefix+c.config)
	}
	if !c.isOffline() {
		all = append(all, clusterSide)
	}
	if c.canReplay() {
		all = append(all, recordedSide)
	}
	return all
}

// compareSides returns the documents that differ.
func compareSides(r *http.Request, from, to *side) (*compareResult, error) {
	before, err := from.documents()
	if err != nil {
		return nil, err
	}
	after, err := to.documents()
	if err != nil {
		return nil, err
	}
	out := &compareResult{}
	keys := slices.Collect(maps.Keys(before))
	for key := range after {
		if _, known := before[key]; !known {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b documentKey) int {
		return cmp.Or(strings.Compare(a.String(), b.String()), strings.Compare(a.Group, b.Group))
	})
	var rows []compareRow
	for _, key := range keys {
		was, had := before[key]
		is, has := after[key]
		row := compareRow{Key: key, before: was, after: is}
		switch {
		case !had:
			row.Change = "added"
			out.Added++
		case !has:
			row.Change = "removed"
			out.Removed++
		case reflect.DeepEqual(was.Fields, is.Fields):
			out.Unchanged++
			continue
		default:
			row.Change = "changed"
			out.Changed++
		}
		rows = append(rows, row)
	}
	out.Rows, out.Pages = paginate(r, "page", rows)
	for i := range out.Rows {
		out.Rows[i].Diff = diffOf(out.Rows[i].before.Text, out.Rows[i].after.Text)
	}
	return out, nil
}

// replayCompare begins a replay of the recordings under both configurations.
func (c *console) replayCompare(r *http.Request) (*web.View, error) {
	if err := r.ParseForm(); err != nil {
		return nil, err //nolint:wrapcheck // the server says what is wrong with the form
	}
	paths, words, err := c.recordingOf(r.PostForm.Get("recording"))
	if err != nil {
		return nil, err
	}
	from, err := c.openSide(r.Context(), r.PostForm.Get("from"))
	if err != nil {
		return nil, err
	}
	to, err := c.openSide(r.Context(), r.PostForm.Get("to"))
	if err != nil {
		return nil, err
	}
	var command []string
	if from.word != "" && to.word != "" {
		command = replayWords(words, "--config", to.word, "--against", from.word)
	}
	job := c.startCommand("Replay", func(context.Context) ([]string, func(string) string, func(), error) {
		dir, err := os.MkdirTemp(c.work, "compare-")
		if err != nil {
			return nil, nil, nil, fmt.Errorf("make a temporary directory: %w", cli.Cause(err))
		}
		remove := func() { _ = os.RemoveAll(dir) } // the console removes its directory, too
		var of [2]string
		for i, s := range []*side{from, to} {
			if of[i], err = s.write(filepath.Join(dir, fmt.Sprint(i))); err != nil {
				remove()
				return nil, nil, nil, err
			}
		}
		clean := func(text string) string {
			return strings.NewReplacer(filepath.ToSlash(filepath.Join(dir, "0")), from.Name, filepath.ToSlash(filepath.Join(dir, "1")), to.Name).Replace(text)
		}
		return replayWords(paths, "--config", of[1], "--against", of[0]), clean, remove, nil
	})
	back := url.URL{Path: "/compare", RawQuery: url.Values{"from": {from.Name}, "to": {to.Name}}.Encode()}
	return &web.View{Title: "Replay", Template: "started", Data: started{job, back.String(), from.Name + " and " + to.Name}, Command: command}, nil
}
