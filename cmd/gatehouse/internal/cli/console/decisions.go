package console

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record/index"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// addDecisions adds the pages.
func (c *console) addDecisions() {
	c.web.Page("GET /decisions", c.showDecisions)
	c.web.Fragment("GET /decisions-list", c.showDecisionList)
	c.web.Page("GET /decisions/{id}", c.showDecision)
}

// recordingPaths returns the recordings that are shown: those of the command line, or a directory for those of the replicas of the
// cluster.
func (c *console) recordingPaths() []string {
	switch {
	case len(c.recordings) > 0:
		return c.recordings
	case c.isOffline():
		return nil
	default:
		return []string{filepath.Join(c.work, "recordings")}
	}
}

// startIndex begins to read the recordings. It ends with the console.
func (c *console) startIndex() error {
	paths := c.recordingPaths()
	if len(c.recordings) == 0 {
		for _, path := range paths {
			if err := os.MkdirAll(path, 0o700); err != nil {
				return fmt.Errorf("make a directory for recordings: %w", cli.Cause(err))
			}
		}
	}
	c.index = index.New(index.Options{Paths: paths, Fallback: c.work})
	c.background.Go(func() { c.index.Run(c.ctx) })
	return nil
}

// filterField is a field of the form. Its name is that of the parameter of the URL, and of the flag of record show.
type filterField struct {
	Name, Label string
	// Values are those of the URL, at least one.
	Values []string
	// Options are what a select has. Hint is for a text.
	Options []string
	Hint    string
}

// decisionFilter is what the URL selects.
type decisionFilter struct {
	index.Filter

	query  url.Values
	Fields []filterField
}

// IsSet reports whether anything is selected.
func (f *decisionFilter) IsSet() bool {
	return slices.ContainsFunc(f.Fields, filterField.isSet)
}

// Main returns the fields that are always shown, and More the others.
func (f *decisionFilter) Main() []filterField { return f.Fields[:mainFields] }

// More returns the fields that Main lacks.
func (f *decisionFilter) More() []filterField { return f.Fields[mainFields:] }

// HasMore reports whether a field of More has a value.
func (f *decisionFilter) HasMore() bool { return slices.ContainsFunc(f.More(), filterField.isSet) }

// mainFields is the number of fields that are always shown.
const mainFields = 4

func (f filterField) isSet() bool { return f.Values[0] != "" }

// newDecisionFilter reads the parameters of a URL.
func newDecisionFilter(query url.Values, now time.Time) (*decisionFilter, error) {
	f := &decisionFilter{query: query}
	values := func(name string) []string {
		return slices.DeleteFunc(slices.Clone(query[name]), func(value string) bool { return value == "" })
	}
	f.Users, f.Namespaces, f.Kinds, f.Policies = values("user"), values("namespace"), values("kind"), values("policy")
	f.Endpoints, f.Decisions, f.Text = values("endpoint"), values("decision"), query.Get("name")
	var endpoints []string
	for _, e := range webhooks.Endpoints() {
		endpoints = append(endpoints, e.Name)
	}
	f.Fields = []filterField{
		{Name: "namespace", Label: "Namespace"},
		{Name: "name", Label: "Part of the name"},
		{Name: "decision", Label: "Outcome", Options: []string{string(review.Allowed), string(review.Denied), string(review.Unknown), string(review.Refused), string(review.Shed), "none"}},
		{Name: "since", Label: "Since", Hint: "24h, or a time"},
		{Name: "until", Label: "Until", Hint: "1h, or a time"},
		{Name: "user", Label: "User"},
		{Name: "kind", Label: "Kind", Hint: "Pod"},
		{Name: "policy", Label: "Policy or profile"},
		{Name: "endpoint", Label: "Endpoint", Options: endpoints},
	}
	for i := range f.Fields {
		if f.Fields[i].Values = values(f.Fields[i].Name); len(f.Fields[i].Values) == 0 {
			f.Fields[i].Values = []string{""}
		}
	}
	var errs []error
	for _, of := range []struct {
		name string
		into *time.Time
	}{{"since", &f.From}, {"until", &f.To}} {
		if value := query.Get(of.name); value != "" {
			at, err := cli.ParseTime(value, now)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s %q: %w", of.name, value, err))
			}
			*of.into = at
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, web.BadRequest("%w", err)
	}
	return f, nil
}

// words returns the flags of record show that select the same.
func (f *decisionFilter) words() (words []string) {
	for _, field := range f.Fields {
		for _, value := range field.Values {
			if value != "" {
				words = append(words, "--"+field.Name, value)
			}
		}
	}
	return words
}

// With returns the link to the same decisions, but that a parameter has another value.
func (f *decisionFilter) With(parameter, value string) string {
	query := url.Values{}
	for name, values := range f.query {
		if name != "page" {
			query[name] = values
		}
	}
	return "/decisions?" + withParameter(query, parameter, value)
}

// decisionsPage is what the page shows.
type decisionsPage struct {
	Filter *decisionFilter
	List   *decisionList
	// Files are those of the recordings.
	Files     []index.FileState
	MoreFiles int
}

// decisionList is the part of the page that is loaded again.
type decisionList struct {
	Filter *decisionFilter
	State  index.State
	Rows   []decisionRow
	Pages  pager
	Chart  *chart
	Top    []topPolicy
	// Refresh is the URL of this part if it is loaded again, and Every how often. Pause and Continue are links, "" for none.
	Refresh, Every  string
	Pause, Continue string
	HasRecordings   bool
	// Mirror says what of the replicas' recordings is known.
	Mirror    []string
	IsCluster bool
}

// Percent is how much of the recordings has been read.
func (l *decisionList) Percent() int64 {
	const all = 100
	return l.State.Done * all / max(l.State.Total, 1)
}

// decisionRow is a row of the list.
type decisionRow struct {
	index.Row

	URL, Class string
}

// topPolicy is a policy or profile that refuses.
type topPolicy struct {
	index.CauseCount

	URL string
}

const (
	// maxTop bounds the policies, and maxFiles the files, that are listed.
	maxTop   = 10
	maxFiles = 20
	// chartBuckets is the number of bars of the chart.
	chartBuckets = 40
)

// showDecisions shows the filter and the list.
func (c *console) showDecisions(r *http.Request) (*web.View, error) {
	list, err := c.decisionList(r)
	if err != nil {
		return nil, err
	}
	page := &decisionsPage{Filter: list.Filter, List: list, Files: list.State.Files}
	if more := len(page.Files) - maxFiles; more > 0 {
		page.Files, page.MoreFiles = page.Files[:maxFiles], more
	}
	view := &web.View{Title: "Decisions", Template: "decisions", Data: page}
	switch {
	case len(c.recordings) > 0:
		view.Command = slices.Concat([]string{"record", "show"}, c.recordings, list.Filter.words())
	case list.IsCluster:
		view.Command = append([]string{"record", "get"}, c.clusterWords()...)
	}
	return view, nil
}

// showDecisionList shows the list alone.
func (c *console) showDecisionList(r *http.Request) (*web.View, error) {
	list, err := c.decisionList(r)
	return &web.View{Template: "decision-list", Data: list}, err
}

// decisionList finds the decisions that the URL selects.
func (c *console) decisionList(r *http.Request) (*decisionList, error) {
	filter, err := newDecisionFilter(r.URL.Query(), c.now())
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	c.lookAtRecordings()
	list := &decisionList{Filter: filter, State: c.index.State(), HasRecordings: len(c.recordingPaths()) > 0, IsCluster: !c.isOffline(), Mirror: c.mirrorText()}
	list.State.Live = list.State.Live || c.isMirrored()            // the replicas are followed
	page, begin := newPager(filter.query, "page", list.State.Rows) // the index knows of how many it is
	rows, total, err := c.index.Find(ctx, filter.Filter, begin, pageRows)
	if err != nil {
		return nil, err
	}
	if list.Pages, begin = newPager(filter.query, "page", total); list.Pages.Page != page.Page {
		if rows, _, err = c.index.Find(ctx, filter.Filter, begin, pageRows); err != nil {
			return nil, err
		}
	}
	for i := range rows {
		list.Rows = append(list.Rows, decisionRow{Row: rows[i], URL: decisionURL(&rows[i]), Class: outcomeClass(rows[i].Decision)})
	}
	buckets, err := c.index.Histogram(ctx, filter.Filter, chartBuckets)
	if err != nil {
		return nil, err
	}
	list.Chart = newChart(buckets)
	refused := filter.Filter
	refused.Effects = []replay.Effect{replay.Refused}
	top, err := c.index.TopCauses(ctx, refused, false, maxTop)
	for _, one := range top {
		list.Top = append(list.Top, topPolicy{one, filter.With("policy", one.Kind+"/"+one.Name)})
	}
	list.refresh()
	return list, err
}

// refresh sets when the list is loaded again: while the index is built, and while a recording grows, on the first page.
func (l *decisionList) refresh() {
	query := l.Filter.query
	paused := query.Get("live") == "0"
	isLive := (l.State.Live || query.Get("live") == "1") && l.Pages.Page == 1
	if paused && isLive {
		l.Continue = l.Filter.With("live", "")
	}
	if paused || !isLive && l.State.Ready {
		return
	}
	l.Refresh, l.Every = "/decisions-list?"+query.Encode(), "2s"
	if !l.State.Ready {
		l.Every = "500ms"
	}
	if isLive {
		l.Pause = l.Filter.With("live", "0")
	}
}

// decisionURL returns the page of a decision.
func decisionURL(r *index.Row) string {
	place := url.Values{"file": {filepath.Base(filepath.FromSlash(r.Recording))}, "row": {r.Place}}
	if id := r.ID; id != "" && !strings.HasPrefix(id, ".") && !strings.HasSuffix(id, "…") && !strings.ContainsAny(id, "/\\") {
		return "/decisions/" + url.PathEscape(id)
	}
	return "/decisions/-?" + place.Encode()
}

// outcomeClass returns the class of the color of an outcome.
func outcomeClass(decision string) string {
	switch review.Decision(decision) { //nolint:exhaustive // the others are no answers
	case review.Allowed:
		return "good"
	case review.Denied, review.Refused:
		return "bad"
	default:
		return "notice"
	}
}

// outcomeText returns an outcome for people.
func outcomeText(decision string) string { return cmp.Or(decision, "not decided") }
