package console

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/decision"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record/index"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/webhooks/config/resolve"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

const (
	// maxYAML bounds the YAML of a request on a page, in bytes, and maxDiffed that of an object that is compared.
	maxYAML   = 256 << 10
	maxDiffed = 1 << 20
	// maxVerdicts, maxReasons and maxLookups bound lists on the page of a decision.
	maxVerdicts = 200
	maxReasons  = 50
	maxLookups  = 200
)

// byConsole is the value of the parameter "by" for the configuration of the console.
const byConsole = "console"

// candidates has the configuration of the console, compiled for replays.
type candidates struct {
	mu     sync.Mutex
	of     *loaded
	result *replay.Candidate
	err    error
}

// candidate returns the configuration of the console for replays, nil if there is none.
func (c *console) candidate(ctx context.Context) (*replay.Candidate, *loaded, error) {
	l, err := c.configuration(ctx)
	if l == nil || err != nil {
		return nil, nil, err
	}
	c.candidates.mu.Lock()
	defer c.candidates.mu.Unlock()
	if c.candidates.of == nil || c.candidates.of.Config.Digest != l.Config.Digest {
		c.candidates.of = l
		c.candidates.result, c.candidates.err = replay.Compile(l.Config)
	}
	return c.candidates.result, l, c.candidates.err
}

// decisionPage is what the page of a decision shows.
type decisionPage struct {
	Row     *index.Row
	Class   string
	Header  *record.Header
	Config  string
	Replica string
	Token   *record.Token
	// Same are links to other reviews of this ID.
	Same []decisionRow
	// Workload is the object that people know, "" if that is the object itself.
	Workload string

	// Answer is the recorded one.
	Answer *replay.Answer
	// Again is the answer by a configuration, By says by which, and Undecided why there is none. Differs is true if it is not the
	// recorded one. Other is a link to the page with another configuration, and OtherText what that is.
	Again            *replay.Answer
	By, Undecided    string
	Differs          bool
	Other, OtherText string

	Verdicts     []verdictRow
	MoreVerdicts int
	HasOwners    bool
	Reasons      explained

	Request       string
	RequestCut    bool
	Diff          []diffRow
	DiffTitle     string
	DiffProblem   string
	Lookups       []lookupRow
	MoreLookups   int
	HasLookups    bool
	LookupProblem string
}

// verdictRow is what a policy or profile says.
type verdictRow struct {
	Kind, Name, URL, Owner string
	// Class is that of the color, Verdict one or two words, and Why the rest.
	Class, Verdict, Why string
}

// lookupRow is an object that the decision read.
type lookupRow struct{ What, Answer string }

// showDecision shows one decision.
func (c *console) showDecision(r *http.Request) (*web.View, error) {
	row, same, err := c.findDecision(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), computeTimeout)
	defer cancel()
	item, err := c.index.Read(ctx, row)
	if err != nil {
		return nil, err
	}
	recorded, err := replay.RecordedAnswer(ctx, item)
	if err != nil {
		return nil, err
	}
	header := &item.Segment.Header
	page := &decisionPage{
		Row: row, Class: outcomeClass(row.Decision), Header: header, Same: same, Answer: recorded.Answer, Token: item.Review.Token,
		Config: cmp.Or(item.Review.Config, header.Config), Replica: cmp.Or(item.Review.Replica, header.Replica),
	}
	if w := recorded.Subject.Workload; w != "" && !strings.HasSuffix(w, "/"+row.Name) {
		page.Workload = w
	}
	if err := c.decideAgain(ctx, r, page, item); err != nil {
		return nil, err
	}
	page.setRequest(item)
	page.setLookups(item)
	page.setDiff(item)
	return &web.View{Title: "Decision " + row.ID, Template: "decision", Data: page, Command: c.decisionWords(row, page.By == byShown)}, nil
}

// findDecision returns the review of the URL, and others of its ID.
func (c *console) findDecision(r *http.Request) (row *index.Row, same []decisionRow, err error) {
	query := r.URL.Query()
	file, place := query.Get("file"), query.Get("row")
	if place != "" {
		row, err = c.index.ByPlace(file, place)
	}
	id := r.PathValue("id")
	var rows []index.Row
	if err == nil && (row == nil || row.ID == id) {
		rows, err = c.index.ByID(id)
	}
	if err != nil {
		return nil, nil, err
	}
	if row == nil && len(rows) > 0 {
		row = &rows[0]
	}
	if row == nil {
		text := "there is no decision with the ID %q in the recordings"
		if !c.index.State().Ready {
			text += " as far as they are read (hint: load the page again)"
		}
		return nil, nil, web.NotFound(text, cli.InertName(id))
	}
	for i := range rows {
		other := &rows[i]
		if other.Recording != row.Recording || other.Place != row.Place {
			place := url.Values{"file": {filepath.Base(filepath.FromSlash(other.Recording))}, "row": {other.Place}}
			same = append(same, decisionRow{Row: *other, URL: "?" + place.Encode(), Class: outcomeClass(other.Decision)})
		}
	}
	return row, same, nil
}

// decisionWords returns the command that shows a decision.
func (c *console) decisionWords(row *index.Row, byShown bool) []string {
	if len(c.recordings) == 0 {
		return nil // the recording is a copy for the console alone
	}
	words := []string{"replay"}
	if byShown && c.config != "" {
		words = append(words, "--config", c.config)
	}
	return slices.Concat(words, []string{"--show", row.ID}, c.recordings)
}

// What has decided again.
const (
	byRecorded = "the configuration that decided, which is beside the recording"
	byShown    = "the configuration that this console shows"
)

// decideAgain fills in the answer of a configuration, with its reasons: that of the recording, or that of the console if the
// recording has none or the URL says so.
func (c *console) decideAgain(ctx context.Context, r *http.Request, page *decisionPage, item *replay.Item) error {
	shown, l, err := c.candidate(ctx)
	if err != nil && c.config != "" {
		return err
	}
	recorded := item.Configuration()
	hasRecorded := recorded != nil
	by, decided := replay.Recorded(), &loaded{CommandConfig: &resolve.CommandConfig{Config: recorded}}
	page.By = byRecorded
	switch {
	case shown != nil && (!hasRecorded || r.URL.Query().Get("by") == byConsole):
		by, decided, page.By = shown, l, byShown
		if hasRecorded {
			page.Other, page.OtherText = otherURL(r, ""), "Decide by "+byRecorded
		}
	case shown != nil:
		page.Other, page.OtherText = otherURL(r, byConsole), "Decide by "+byShown
	case !hasRecorded:
		page.By, page.Undecided = "", "the configuration that decided is not beside the recording (hint: --config DIR)"
		page.setRecordedVerdicts()
		return nil
	}
	again, err := by.Explain(ctx, item)
	if err != nil {
		return err
	}
	page.Again, page.Undecided = again.Answer, again.Undecided
	if again.Undecided != "" {
		page.Again = nil
	}
	page.Differs = page.Again != nil && page.Answer.Decision != "" && (page.Again.Decision != page.Answer.Decision || page.Again.User != page.Answer.User)
	page.setVerdicts(again, c.owners(ctx, decided), l)
	if again.Policy == nil && again.Sidecar == nil {
		page.setRecordedVerdicts()
	}
	return nil
}

func otherURL(r *http.Request, by string) string {
	return "?" + withParameter(r.URL.Query(), "by", by)
}

// setRecordedVerdicts lists what the recorded answer names.
func (p *decisionPage) setRecordedVerdicts() {
	for i := range p.Row.Causes {
		cause := &p.Row.Causes[i]
		row := verdictRow{Kind: cause.Kind, Name: cause.Name, Verdict: string(cause.Effect), Why: cause.Rule.Rule, Class: "notice"}
		switch cause.Effect {
		case replay.Refused:
			row.Class = "bad"
		case replay.Injected:
			row.Class = "good"
		case replay.Warned:
		}
		p.Verdicts = append(p.Verdicts, row)
	}
}

// setVerdicts lists every policy and profile, those that matter first. Links go to the configuration of the console, which may be nil.
func (p *decisionPage) setVerdicts(e *replay.Explanation, owners map[string]string, shown *loaded) {
	links := shown.owners()
	if e.Policy != nil {
		p.setPolicyVerdicts(e.Policy)
	}
	if e.Sidecar != nil {
		for i := range e.Sidecar.Verdicts {
			v := &e.Sidecar.Verdicts[i]
			p.Verdicts = append(p.Verdicts, profileVerdict(v))
			if len(p.Reasons.Profiles) < maxReasons {
				p.Reasons.Profiles = append(p.Reasons.Profiles, newExplainedProfile(v))
			}
		}
	}
	rank := map[string]int{"bad": 0, "notice": 1, "good": 2, "soft": 3}
	slices.SortStableFunc(p.Verdicts, func(a, b verdictRow) int { return rank[a.Class] - rank[b.Class] })
	for i := range p.Verdicts {
		v := &p.Verdicts[i]
		key := v.Kind + "/" + v.Name
		if v.Owner = owners[key]; v.Owner != "" {
			p.HasOwners = true
		}
		if _, ok := links[key]; ok {
			v.URL = policyURL(v.Kind, v.Name)
		}
	}
	if p.MoreVerdicts = len(p.Verdicts) - maxVerdicts; p.MoreVerdicts > 0 {
		p.Verdicts = p.Verdicts[:maxVerdicts]
	}
}

// owners returns the owners of all policies and profiles by the configuration that decided. Those of custom resources come from the cluster,
// because a configuration has no annotations of them.
func (c *console) owners(ctx context.Context, decided *loaded) map[string]string {
	out := decided.owners()
	if c.isOffline() {
		return out
	}
	objects, _ := c.statuses(ctx) // who may not list them does not see owners
	for key, object := range objects {
		name := key.kind + "/" + key.name
		out[name] = cmp.Or(out[name], ownerOf(object.Annotations))
	}
	return out
}

// owners returns the owners of all policies and profiles, "" for none.
func (l *loaded) owners() map[string]string {
	out := map[string]string{}
	if l == nil {
		return out
	}
	for _, p := range l.policies() {
		out[p.Kind+"/"+p.Name] = ownerOf(p.Annotations)
	}
	for i := range l.Config.Sidecar.Profiles {
		p := &l.Config.Sidecar.Profiles[i]
		out[profileKind+"/"+p.Name] = ownerOf(p.Annotations)
	}
	return out
}

// setPolicyVerdicts lists policies: one row each, by what is worst.
func (p *decisionPage) setPolicyVerdicts(d *policy.Decision) {
	at := map[string]int{}
	row := func(kind, name string) *verdictRow {
		key := kind + "/" + name
		if i, ok := at[key]; ok {
			return &p.Verdicts[i]
		}
		at[key] = len(p.Verdicts)
		p.Verdicts = append(p.Verdicts, verdictRow{Kind: kind, Name: name, Class: "soft"})
		return &p.Verdicts[at[key]]
	}
	for i := range d.Evaluations {
		e := &d.Evaluations[i]
		v := row(e.Kind, e.Policy)
		switch {
		case e.Why == policy.Evaluated:
			v.Class, v.Verdict, v.Why = "good", "yes", ""
		case v.Class == "good":
		case e.Why == policy.Misconfigured:
			v.Class, v.Verdict, v.Why = "bad", "cannot decide", e.Detail
		default:
			v.Verdict, v.Why = "not asked", decision.WhyText(e.Why)
			if e.Detail != "" {
				v.Why += ": " + e.Detail
			}
		}
		if (e.Why == policy.Evaluated || e.Why == policy.Misconfigured) && len(p.Reasons.Policies) < maxReasons {
			p.Reasons.Policies = append(p.Reasons.Policies, explainedPolicy(*e))
		}
	}
	for i := range d.Violations {
		violation := &d.Violations[i]
		v := row(violation.Kind, violation.Policy)
		switch {
		case v.Class == "bad":
			continue
		case violation.Refuses():
			v.Class, v.Verdict = "bad", "no"
		case violation.Outcome == policy.Excepted:
			if v.Class == "notice" {
				continue
			}
			v.Class, v.Verdict = "notice", "yes, by exception "+violation.Exception
		case violation.Outcome == policy.Existing:
			v.Class, v.Verdict = "notice", "yes, it was so before"
		default:
			v.Class, v.Verdict = "notice", "no, only warned or audited"
		}
		v.Why = violation.Rule + ": " + violation.Message
	}
}

// profileVerdict returns what a profile says.
func profileVerdict(v *sidecar.Verdict) verdictRow {
	row := verdictRow{Kind: profileKind, Name: v.Profile, Class: "soft", Verdict: "not injected", Why: string(v.Reason)}
	switch v.Reason { //nolint:exhaustive // the others leave the pod as it is
	case sidecar.Applied:
		row.Class, row.Verdict, row.Why = "good", "injected", ""
	case sidecar.AlreadyThere:
		row.Class, row.Verdict = "good", "is there"
	case sidecar.Refused:
		row.Class, row.Verdict, row.Why = "bad", "no", ""
	case sidecar.Unknown, sidecar.NamespaceUnknown:
		row.Class, row.Verdict = "bad", "cannot decide"
	}
	row.Why = strings.TrimPrefix(strings.TrimSuffix(row.Why+": "+v.Detail, ": "), ": ")
	return row
}

func newExplainedProfile(v *sidecar.Verdict) explainedProfile {
	out := explainedProfile{Profile: v.Profile, Reason: string(v.Reason), Detail: v.Detail, Revision: v.Revision}
	if v.Explanation == nil {
		return out
	}
	out.Adds = v.Explanation.Adds
	for _, step := range v.Explanation.Steps {
		out.Steps = append(out.Steps, step)
	}
	for _, parameter := range v.Explanation.Parameters {
		out.Parameters = append(out.Parameters, parameter)
	}
	return out
}

// setRequest fills in the request as YAML.
func (p *decisionPage) setRequest(item *replay.Item) {
	request := rawjson.Value(item.Review.Request).Get("request")
	if len(request) == 0 {
		return
	}
	if p.RequestCut = len(request) > maxYAML; p.RequestCut {
		p.Request = strings.ToValidUTF8(string(request[:maxYAML]), "")
		return
	}
	text, err := yaml.JSONToYAML(request)
	if err != nil {
		text = []byte("the request cannot be read: " + err.Error())
	}
	p.Request = string(text)
}

// setDiff fills in what the patch changes: that of the recorded answer, or that of the one that was computed.
func (p *decisionPage) setDiff(item *replay.Item) {
	patch := p.Answer.Patch
	p.DiffTitle = "What was injected"
	if patch == "" && p.Again != nil {
		patch, p.DiffTitle = p.Again.Patch, "What would be injected"
	}
	if patch == "" {
		return
	}
	object := rawjson.Value(item.Review.Request).Get("request", "object")
	if len(object) > maxDiffed || len(patch) > maxDiffed {
		p.DiffProblem = "the object is too large for a comparison on this page"
		return
	}
	before, err := decision.Patched(object, "")
	var after []byte
	if err == nil {
		after, err = decision.Patched(object, patch)
	}
	if err != nil {
		p.DiffProblem = err.Error()
		return
	}
	p.Diff = sideBySide(before, after)
}

// setLookups sums up what the decision read besides the request.
func (p *decisionPage) setLookups(item *replay.Item) {
	lookups, err := item.Lookups()
	if err != nil {
		p.LookupProblem = err.Error()
		return
	}
	if lookups == nil {
		return
	}
	p.HasLookups = true
	found := func(object int, problem string) string {
		switch {
		case problem != "":
			return "failed: " + problem
		case object == 0:
			return "not found"
		case object < 0:
			return "found, but not recorded"
		default:
			return "found"
		}
	}
	add := func(answer, format string, args ...any) {
		p.Lookups = append(p.Lookups, lookupRow{fmt.Sprintf(format, args...), answer})
	}
	for _, l := range lookups.Namespaces {
		add(found(l.Object, ""), "Namespace %s", l.Name)
	}
	for _, l := range lookups.Kinds {
		answer := "has no namespaces"
		if l.Namespaced {
			answer = "is in namespaces"
		}
		if l.Error != "" {
			answer = "failed: " + l.Error
		}
		add(answer, "scope of %s", l.Kind.String())
	}
	for _, l := range lookups.Objects {
		add(found(l.Object, l.Error), "%s %s", l.Kind.Kind, strings.TrimPrefix(l.Namespace+"/"+l.Name, "/"))
	}
	for _, l := range lookups.ConfigMaps {
		add(found(l.Object, l.Error), "ConfigMap %s/%s", l.Namespace, l.Name)
	}
	for _, l := range lookups.Lists {
		answer := diagnostic.Count(len(l.Objects), "object")
		if l.Error != "" {
			answer = "failed: " + l.Error
		}
		add(answer, "list of %s in %s %s", l.Kind.Kind, cmp.Or(l.Namespace, "all namespaces"), l.Selector)
	}
	for _, l := range lookups.Authorizer {
		add(cmp.Or(l.Decision, "failed: "+l.Error)+" "+l.Reason, "authorizer: %s", l.Attributes)
	}
	if p.MoreLookups = len(p.Lookups) - maxLookups; p.MoreLookups > 0 {
		p.Lookups = p.Lookups[:maxLookups]
	}
}
