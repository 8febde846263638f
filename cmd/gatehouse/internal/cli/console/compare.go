package console

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
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
}

// compareResult is what differs.
type compareResult struct {
	Sides [2]*side
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
	Diff   []diffRow
	// IsHidden reports that only secret values, or comments, differ.
	IsHidden bool

	before, after document
}

// showCompare compares the configurations that the URL names.
func (c *console) showCompare(r *http.Request) (*web.View, error) {
	query := r.URL.Query()
	data := &comparePage{From: query.Get("from"), To: query.Get("to"), Choices: c.compareChoices(r.Context()), Recordings: c.recordings, CanReplay: c.canReplay()}
	view := &web.View{Title: "Compare", Template: "compare", Data: data}
	if data.From == "" || data.To == "" {
		data.From, data.To = c.defaultSides(data)
		return view, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), computeTimeout)
	defer cancel()
	from, to, err := c.openSides(ctx, data.From, data.To)
	if err != nil {
		return nil, err
	}
	defer from.remove()
	defer to.remove()
	if data.Result, err = compareSides(r, from, to); err != nil {
		return nil, err
	}
	for _, s := range data.Result.Sides {
		s.lint(ctx, c)
	}
	switch {
	case from.word != "" && to.word != "" && len(c.recordings) > 0:
		view.Command = append([]string{"replay", "--config", to.word, "--against", from.word}, c.recordings...)
	case strings.HasPrefix(to.Name, dirPrefix):
		view.Command = []string{"lint", "--config", to.word}
	}
	return view, nil
}

// compareChoices returns configurations to compare.
func (c *console) compareChoices(ctx context.Context) (all []string) {
	if c.config != "" {
		all = append(all, dirPrefix+c.config)
		if _, below, err := repositoryOf(ctx, c.config); err == nil {
			all = append(all, gitPrefix+"HEAD:"+below)
		}
	}
	if !c.isOffline() {
		all = append(all, clusterSide)
	}
	if c.canReplay() {
		all = append(all, recordedSide)
	}
	return all
}

// defaultSides returns what the form has at the beginning.
func (c *console) defaultSides(data *comparePage) (from, to string) {
	from, to = data.From, data.To
	for _, name := range data.Choices {
		switch {
		case to == "" && name != from:
			to = name
		case from == "" && name != to:
			from = name
		}
	}
	return from, to
}

// openSides reads two configurations. Both are to be removed.
func (c *console) openSides(ctx context.Context, fromName, toName string) (from, to *side, err error) {
	if from, err = c.openSide(ctx, fromName); err != nil {
		return nil, nil, err
	}
	if to, err = c.openSide(ctx, toName); err != nil {
		from.remove()
		return nil, nil, err
	}
	return from, to, nil
}

// lint adds what lint says.
func (s *side) lint(ctx context.Context, c *console) {
	found, err := c.lintDir(ctx, s.dir)
	if err != nil {
		s.Problem = s.clean(err)
	}
	prefix := filepath.ToSlash(s.dir) + "/"
	for _, d := range found {
		d.File = strings.TrimPrefix(d.File, prefix)
		if !s.isRaw {
			d.File, d.Line = "", 0 // of a temporary file
		}
		d.Message = s.clean(errors.New(d.Message)).Error()
		s.Findings = append(s.Findings, d)
	}
}

// maxFindings bounds the findings that are shown.
const maxFindings = 50

// FirstFindings are those that are shown.
func (s *side) FirstFindings() diagnostic.List { return s.Findings[:min(len(s.Findings), maxFindings)] }

// compareSides returns the documents that differ.
func compareSides(r *http.Request, from, to *side) (*compareResult, error) {
	encoded := !from.isRaw || !to.isRaw
	before, err := from.documents(encoded)
	if err != nil {
		return nil, from.clean(err)
	}
	after, err := to.documents(encoded)
	if err != nil {
		return nil, to.clean(err)
	}
	out := &compareResult{Sides: [2]*side{from, to}}
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
		case was.isSame(&is):
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
		row := &out.Rows[i]
		row.Diff = sideBySide(row.before.shown(), row.after.shown())
		row.IsHidden = row.Diff == nil
	}
	return out, nil
}

// isSame reports whether two documents mean the same: comments and the order of fields do not count.
func (d *document) isSame(other *document) bool {
	if d.Fields == nil || other.Fields == nil {
		return string(d.Text) == string(other.Text)
	}
	return reflect.DeepEqual(d.Fields, other.Fields)
}

// replayCompare begins a replay of the recordings under both configurations.
func (c *console) replayCompare(r *http.Request) (*web.View, error) {
	if err := r.ParseForm(); err != nil {
		return nil, err //nolint:wrapcheck // the server says what is wrong with the form
	}
	sources, words, err := c.recordingOf(r.PostForm.Get("recording"))
	if err != nil {
		return nil, err
	}
	from, to, err := c.openSides(r.Context(), r.PostForm.Get("from"), r.PostForm.Get("to"))
	if err != nil {
		return nil, err
	}
	defer from.remove()
	defer to.remove()
	against, err := from.candidate()
	if err != nil {
		return nil, err
	}
	candidate, err := to.candidate()
	if err != nil {
		return nil, err
	}
	var command []string
	if from.word != "" && to.word != "" {
		command = append([]string{"replay", "--config", to.word, "--against", from.word}, words...)
	}
	job := c.startReplay("Replay", sources, nil, candidate, against)
	back := url.URL{Path: "/compare", RawQuery: url.Values{"from": {from.Name}, "to": {to.Name}}.Encode()}
	return &web.View{Title: "Replay", Template: "started", Data: started{job, back.String(), from.Name + " and " + to.Name}, Command: command}, nil
}
