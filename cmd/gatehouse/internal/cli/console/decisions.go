package console

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
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

// makeDecisionLog makes what reads the recordings. It reads nothing until a page looks.
func (c *console) makeDecisionLog() error {
	paths := c.recordingPaths()
	if c.isMirrored() {
		if err := os.MkdirAll(paths[0], 0o700); err != nil {
			return fmt.Errorf("make a directory for recordings: %w", cli.Cause(err))
		}
	}
	c.log = newDecisionLog(paths, c.isMirrored())
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

func (f filterField) isSet() bool { return f.Values[0] != "" }

// decisionFilter is what the URL selects. Fields must all match, and of several values one.
type decisionFilter struct {
	query    url.Values
	Fields   []filterField
	from, to time.Time
}

// IsSet reports whether anything is selected.
func (f *decisionFilter) IsSet() bool {
	return slices.ContainsFunc(f.Fields, filterField.isSet)
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
		{Name: "decision", Label: "Outcome", Options: []string{string(review.Allowed), string(review.Denied), string(review.Unknown), string(review.Refused), string(review.Shed)}},
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

// find returns the requests that are selected, the newest first.
func (f *decisionFilter) find(all []*request) (found []*request) {
	users, namespaces, kinds, decisions := f.values("user"), f.values("namespace"), f.values("kind"), f.values("decision")
	policies, endpoints, name := f.values("policy"), f.values("endpoint"), strings.ToLower(f.query.Get("name"))
	// The form shows values with what cannot be seen escaped, and sends them so.
	isAny := func(list []string, value string) bool {
		return len(list) == 0 || slices.Contains(list, value) || slices.Contains(list, cli.OneLine(value))
	}
	for _, r := range slices.Backward(all) {
		one := r.Last()
		kind, _, _ := strings.Cut(one.Kind, ".")
		if isAny(users, one.User) && isAny(namespaces, one.Namespace) && isAny(decisions, r.Decision()) &&
			(f.from.IsZero() || one.at >= f.from.UnixNano()) && (f.to.IsZero() || r.First().at < f.to.UnixNano()) &&
			(name == "" || strings.Contains(strings.ToLower(one.Name), name) || strings.Contains(strings.ToLower(cli.OneLine(one.Name)), name)) &&
			(len(kinds) == 0 || slices.ContainsFunc(kinds, func(of string) bool { return strings.EqualFold(of, one.Kind) || strings.EqualFold(of, kind) })) &&
			(len(endpoints) == 0 || slices.ContainsFunc(r.Calls, func(c *call) bool { return slices.Contains(endpoints, c.Endpoint) })) &&
			(len(policies) == 0 || slices.ContainsFunc(r.Calls, func(c *call) bool {
				return slices.ContainsFunc(c.Causes, func(cause replay.Cause) bool { return cause.Matches(policies) })
			})) {
			found = append(found, r)
		}
	}
	return found
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
	query := maps.Clone(f.query)
	query.Del("page")
	return "/decisions?" + withParameter(query, parameter, value)
}

// decisionList is what the page shows. The part below the form is loaded again.
type decisionList struct {
	*logView

	Filter *decisionFilter
	Rows   []*request
	Pages  pager
	Top    []topPolicy
	// Refresh is the URL of the list if it is loaded again. Pause and Continue are links, "" for none.
	Refresh, Pause, Continue string
	HasRecordings, IsCluster bool
	// Mirror says what of the replicas' recordings is known.
	Mirror []string
}

// Percent is how much of the recordings has been read.
func (l *decisionList) Percent() int64 {
	const all = 100
	return l.Done * all / max(l.Total, 1)
}

// topPolicy is a policy or profile with the number of requests that it has refused.
type topPolicy struct {
	Name, URL string
	Count     int
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

// lookAtDecisions returns the decisions of the recordings.
func (c *console) lookAtDecisions(r *http.Request, from, to time.Time) *logView {
	c.lookAtRecordings()
	c.log.look(c.ctx, c.background.Go) //nolint:contextcheck // recordings are followed after the request, too
	return c.log.view(r.Context(), from, to)
}

// showDecisionList shows the decisions that the URL selects.
func (c *console) showDecisionList(r *http.Request) (*web.View, error) {
	filter, err := newDecisionFilter(r.URL.Query(), c.now())
	if err != nil {
		return nil, err
	}
	list := &decisionList{
		logView: c.lookAtDecisions(r, filter.from, filter.to), Filter: filter, HasRecordings: len(c.recordingPaths()) > 0, IsCluster: !c.isOffline(), Mirror: c.mirrorText(),
	}
	found := filter.find(list.Requests)
	list.Rows, list.Pages = paginate(r, "page", found)
	list.setTop(found)
	list.setRefresh(list.IsLive || c.isMirrored() || filter.query.Get("live") == "1")
	return &web.View{Template: "decision-list", Data: list}, nil
}

// setTop sets what refuses most.
func (l *decisionList) setTop(found []*request) {
	counts := map[string]int{}
	for _, r := range found {
		seen := map[string]bool{}
		for _, c := range r.Calls {
			for i := range c.Causes {
				if name := c.Causes[i].Kind + "/" + c.Causes[i].Name; c.Causes[i].Effect == replay.Refused && !seen[name] {
					seen[name] = true
					counts[name]++
				}
			}
		}
	}
	for name, n := range counts {
		l.Top = append(l.Top, topPolicy{name, l.Filter.With("policy", name), n})
	}
	slices.SortFunc(l.Top, func(a, b topPolicy) int { return cmp.Or(b.Count-a.Count, strings.Compare(a.Name, b.Name)) })
	const most = 10
	l.Top = l.Top[:min(most, len(l.Top))]
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
	if !isPaused && (isLive || !l.IsReady) {
		l.Refresh = "/decisions-list?" + l.Filter.query.Encode()
	}
}

// URL returns the page of a call.
func (c *call) URL() string {
	id := c.ID
	if id == "" || strings.HasPrefix(id, ".") || strings.HasSuffix(id, "…") || strings.ContainsAny(id, "/\\") {
		id = "-"
	}
	return "/decisions/" + url.PathEscape(id) + "?" + url.Values{"file": {filepath.Base(c.file.path)}, "row": {strconv.FormatUint(uint64(c.number), 10)}}.Encode()
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
