package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/decision"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// addDecisions adds the pages.
func (c *console) addDecisions() {
	c.web.Page("GET /decisions", c.showDecisions)
	c.web.Fragment("GET /decisions-list", c.showDecisionList)
	c.web.Page("GET /decisions/review", c.showDecision)
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

// decisionFilter is what the URL selects. Fields must all match, and of several values one.
type decisionFilter struct {
	query    url.Values
	Fields   []filterField
	from, to time.Time
}

// IsSet reports whether anything is selected.
func (f *decisionFilter) IsSet() bool {
	return slices.ContainsFunc(f.Fields, func(field filterField) bool { return field.Values[0] != "" })
}

// newDecisionFilter reads the parameters of a URL.
func newDecisionFilter(query url.Values, now time.Time) (*decisionFilter, error) {
	f := &decisionFilter{query: query}
	var endpoints []string
	for _, e := range webhooks.Endpoints() {
		endpoints = append(endpoints, e.Name)
	}
	f.Fields = []filterField{
		{Name: "namespace", Label: "Namespace"},
		{Name: "name", Label: "Part of the name"},
		{Name: "decision", Label: "Outcome", Options: []string{string(review.Allowed), string(review.Denied), string(review.NoOpinion), string(review.Unknown), string(review.Refused), string(review.Shed)}},
		{Name: "since", Label: "Since", Hint: "24h, or a time"},
		{Name: "until", Label: "Until", Hint: "1h, or a time"},
		{Name: "user", Label: "User"},
		{Name: "kind", Label: "Kind", Hint: "Pod"},
		{Name: "policy", Label: "Policy or profile"},
		{Name: "endpoint", Label: "Endpoint", Options: endpoints},
	}
	for i := range f.Fields {
		if f.Fields[i].Values = f.values(f.Fields[i].Name); len(f.Fields[i].Values) == 0 {
			f.Fields[i].Values = []string{""}
		}
	}
	var errs []error
	for _, of := range []struct {
		name string
		into *time.Time
	}{{"since", &f.from}, {"until", &f.to}} {
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

func (f *decisionFilter) values(name string) []string {
	return slices.DeleteFunc(slices.Clone(f.query[name]), func(value string) bool { return value == "" })
}

// find returns the rows that are selected, the newest first.
func (f *decisionFilter) find(all []*row) (found []*row) {
	values := map[string][]string{}
	for _, field := range f.Fields {
		values[field.Name] = f.values(field.Name)
	}
	// The form shows values with what cannot be seen escaped, and sends them so.
	isAny := func(name string, have ...string) bool {
		return len(values[name]) == 0 || slices.ContainsFunc(values[name], func(value string) bool {
			return slices.ContainsFunc(have, func(one string) bool { return one == value || cli.OneLine(one) == value })
		})
	}
	name := strings.ToLower(f.query.Get("name"))
	for _, r := range slices.Backward(all) {
		kind, _, _ := strings.Cut(r.Kind, ".")
		var policies []string
		for _, of := range r.Causes {
			policies = append(policies, of.Name, of.Kind+"/"+of.Name)
		}
		if isAny("user", r.User) && isAny("namespace", r.Namespace) && isAny("decision", r.Decision) && isAny("endpoint", r.Endpoint) &&
			isAny("kind", kind, strings.ToLower(kind), r.Kind) && isAny("policy", policies...) &&
			(f.from.IsZero() || !r.Time.Before(f.from)) && (f.to.IsZero() || r.Time.Before(f.to)) &&
			(name == "" || strings.Contains(strings.ToLower(r.Name), name) || strings.Contains(strings.ToLower(cli.OneLine(r.Name)), name)) {
			found = append(found, r)
		}
	}
	return found
}

// words returns the flags of record show that select the same.
func (f *decisionFilter) words() (words []string) {
	for _, field := range f.Fields {
		for _, value := range f.values(field.Name) {
			words = append(words, "--"+field.Name, value)
		}
	}
	return words
}

// With returns the link to the same decisions, but that a parameter has another value.
func (f *decisionFilter) With(parameter, value string) string {
	return "/decisions?" + withParameter(f.query, value, parameter, "page")
}

// decisionList is what the page shows. The part below the form is loaded again.
type decisionList struct {
	*decisionsView

	Filter *decisionFilter
	Shown  []*row
	Pages  pager
	// Refresh is the URL of the list if it is loaded again. Pause and Continue are links, "" for none.
	Refresh, Pause, Continue string
	HasRecordings, IsCluster bool
}

// showDecisions shows the filter and the list.
func (c *console) showDecisions(r *http.Request) (*web.View, error) {
	view, err := c.showDecisionList(r)
	if err != nil {
		return nil, err
	}
	view.Title, view.Template = "Decisions", "decisions"
	switch list := view.Data.(*decisionList); { //nolint:forcetypeassert // showDecisionList returns it
	case len(c.recordings) > 0:
		view.Command = slices.Concat([]string{"record", "show"}, c.recordings, list.Filter.words())
	case list.IsCluster:
		view.Command = append([]string{"record", "get"}, c.ClusterFlags.Arguments()...)
	}
	return view, nil
}

// showDecisionList shows the decisions that the URL selects.
func (c *console) showDecisionList(r *http.Request) (*web.View, error) {
	filter, err := newDecisionFilter(r.URL.Query(), c.now())
	if err != nil {
		return nil, err
	}
	list := &decisionList{decisionsView: c.lookAtDecisions(), Filter: filter, HasRecordings: len(c.recordingPaths()) > 0, IsCluster: !c.isOffline()}
	list.Shown, list.Pages = paginate(r, "page", filter.find(list.Rows))
	list.setRefresh(list.IsLive || c.isMirrored())
	return &web.View{Template: "decision-list", Data: list}, nil
}

// setRefresh sets when the list is loaded again: while recordings are read, and while they grow, on the first page.
func (l *decisionList) setRefresh(isLive bool) {
	isPaused := l.Filter.query.Get("live") == "0"
	isLive = isLive && l.Pages.Page == 1
	switch {
	case isPaused && isLive:
		l.Continue = l.Filter.With("live", "")
	case isLive:
		l.Pause = l.Filter.With("live", "0")
	}
	if !isPaused && (isLive || !l.IsReady()) {
		l.Refresh = "/decisions-list?" + l.Filter.query.Encode()
	}
}

// URL returns the page of a decision.
func (r *row) URL() string {
	return "/decisions/review?" + url.Values{"id": {r.ID}, "file": {filepath.Base(r.file)}}.Encode()
}

// outcomeClass returns the class of the color of an outcome.
func outcomeClass(outcome string) string {
	switch review.Decision(outcome) { //nolint:exhaustive // the others are no answers
	case review.Allowed, review.NoOpinion:
		return "good"
	case review.Denied, review.Refused:
		return "bad"
	default:
		return "notice"
	}
}

// outcomeText returns an outcome for people.
func outcomeText(outcome string) string { return cmp.Or(outcome, "not decided") }

// decisionPage is what the page of a decision shows.
type decisionPage struct {
	*row

	// Answers are those of the configuration that decided and of --config, with the reasons.
	Answers []decidedAgain
	// Diff is what the patch changes of the object.
	Diff []diffLine
	// Review is the review as YAML.
	Review *commandOutput
}

// decidedAgain is what replay prints about a review.
type decidedAgain struct {
	Title  string
	Output *commandOutput
}

// showDecision shows one decision: what record show and replay print about it.
func (c *console) showDecision(r *http.Request) (*web.View, error) {
	ctx, cancel := context.WithTimeout(r.Context(), computeTimeout)
	defer cancel()
	query := r.URL.Query()
	c.lookAtDecisions()
	id, file := query.Get("id"), query.Get("file")
	path := c.fileNamed(file)
	if path == "" {
		return nil, web.NotFound("there is no recording %q (hint: load the list again)", cli.InertName(file))
	}
	page := &decisionPage{row: &row{}}
	if err := c.readDecision(ctx, page, id, path); err != nil {
		return nil, err
	}
	words := []string{"replay", "--show=" + id}
	page.Answers = []decidedAgain{{"the configuration that decided", c.execute(ctx, nil, append(words, path)...).show(c.withoutWork)}}
	if c.config != "" {
		words = append(words, "--config", c.config)
		page.Answers = append(page.Answers, decidedAgain{c.config, c.execute(ctx, nil, append(words, path)...).show(c.withoutWork)})
	}
	view := &web.View{Title: "Decision " + id, Template: "decision", Data: page}
	if len(c.recordings) > 0 { // otherwise the recording is a copy for the console alone
		view.Command = slices.Concat(words, c.recordings)
	}
	return view, nil
}

// withoutWork removes the directory of the console from a text.
func (c *console) withoutWork(text string) string {
	return strings.ReplaceAll(text, filepath.ToSlash(c.work)+"/", "")
}

// readDecision reads the review with an ID.
func (c *console) readDecision(ctx context.Context, page *decisionPage, id, path string) error {
	out := c.execute(ctx, nil, "record", "show", "--full", "-o", "json", "--id="+id, path)
	for line := range bytes.Lines(out.out) {
		var full struct {
			Request struct {
				Request struct{ Object json.RawMessage }
			}
			Response struct{ Patch json.RawMessage }
		}
		if json.Unmarshal(line, page.row) != nil || page.ID != id {
			*page.row = row{}
			continue
		}
		text, err := cli.JSONToYAML(line)
		if err == nil {
			err = json.Unmarshal(line, &full)
		}
		if err != nil {
			return err
		}
		page.Review = (&output{out: text}).show(nil)
		if object := full.Request.Request.Object; len(full.Response.Patch) > 0 {
			before, err := decision.Patched(object, "")
			after, patchErr := decision.Patched(object, string(full.Response.Patch))
			if errors.Join(err, patchErr) == nil { // otherwise the patch is in the review
				page.Diff = diffOf(before, after)
			}
		}
		return nil
	}
	if err := out.err(); err != nil {
		return err
	}
	return web.NotFound("there is no decision with the ID %q in this recording (hint: load the list again)", cli.InertName(id))
}
