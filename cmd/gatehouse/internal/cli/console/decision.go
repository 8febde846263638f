package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/decision"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

const (
	// maxYAML bounds the YAML of a request on a page, in bytes, and maxDiffed that of an object that is compared.
	maxYAML   = 256 << 10
	maxDiffed = 1 << 20
)

// decisionPage is what the page of a decision shows.
type decisionPage struct {
	Call *call
	// Others are the other calls for the same request.
	Others  []*call
	Header  *record.Header
	Config  string
	Replica string
	Token   *record.Token
	// Workload is the object that people know, "" if that is the object itself.
	Workload  string
	Recording string

	// Answer is the recorded one.
	Answer *replay.Answer
	// Again is the answer by a configuration, By says by which, and Undecided why there is none. Differs is true if it is not the
	// recorded one.
	Again         *replay.Answer
	By, Undecided string
	Differs       bool
	// Reasons are those of the policies and profiles, as replay --show prints them.
	Reasons string

	Request     string
	RequestCut  bool
	Diff        []diffLine
	DiffTitle   string
	DiffProblem string
}

// showDecision shows one decision.
func (c *console) showDecision(r *http.Request) (*web.View, error) {
	ctx, cancel := context.WithTimeout(r.Context(), computeTimeout)
	defer cancel()
	page := &decisionPage{}
	item, err := c.findDecision(ctx, r, page)
	if err != nil {
		return nil, err
	}
	recorded, err := replay.RecordedAnswer(ctx, item)
	if err != nil {
		return nil, err
	}
	page.Header, page.Answer, page.Token, page.Recording = &item.Segment.Header, recorded.Answer, item.Review.Token, item.Source.Name
	page.Config, page.Replica = cmp.Or(item.Review.Config, page.Header.Config), cmp.Or(item.Review.Replica, page.Header.Replica)
	if w := recorded.Subject.Workload; w != "" && !strings.HasSuffix(w, "/"+page.Call.Name) {
		page.Workload = w
	}
	if err := c.decideAgain(ctx, page, item); err != nil {
		return nil, err
	}
	page.setRequest(item)
	page.setDiff(item)
	view := &web.View{Title: "Decision " + page.Call.ID, Template: "decision", Data: page}
	if len(c.recordings) > 0 { // otherwise the recording is a copy for the console alone
		words := []string{"replay"}
		if page.By == byShown && c.config != "" {
			words = append(words, "--config", c.config)
		}
		view.Command = slices.Concat(words, []string{"--show", page.Call.ID}, c.recordings)
	}
	return view, nil
}

// findDecision reads the review of the URL: that of the file and the row, or the newest one in memory with this ID.
func (c *console) findDecision(ctx context.Context, r *http.Request, page *decisionPage) (*replay.Item, error) {
	id, query := r.PathValue("id"), r.URL.Query()
	view := c.lookAtDecisions(r, time.Time{}, time.Time{})
	path, number := "", -1
	if n, err := strconv.Atoi(query.Get("row")); err == nil && n >= 0 {
		for i := range view.Files {
			if name := filepath.FromSlash(view.Files[i].Name); filepath.Base(name) == query.Get("file") {
				path, number = name, n
			}
		}
	}
	for _, of := range slices.Backward(view.Requests) {
		at := slices.IndexFunc(of.Calls, func(one *call) bool {
			return path == "" && one.ID == id || one.file.path == path && int(one.number) == number
		})
		if at >= 0 {
			page.Others = slices.Delete(slices.Clone(of.Calls), at, at+1)
			path, number = of.Calls[at].file.path, int(of.Calls[at].number)
			break
		}
	}
	if path == "" {
		text := "there is no decision with the ID %q in memory (hint: give its time range on the page Decisions)"
		if !view.IsReady {
			text = "there is no decision with the ID %q in the recordings as far as they are read (hint: load the page again)"
		}
		return nil, web.NotFound(text, cli.InertName(id))
	}
	item, err := readReview(ctx, path, number)
	if errors.Is(err, io.EOF) || err == nil && id != "-" && replay.SubjectOf(item.Review).ID != id {
		return nil, web.NotFound("there is no decision with the ID %q at this place of the recording (hint: load the list again)", cli.InertName(id))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cli.InertName(path), err)
	}
	page.Call = newCall(item.Review, &recordingFile{path: path}, number)
	return item, nil
}

// What has decided again.
const (
	byRecorded = "the configuration that decided, which is beside the recording"
	byShown    = "the configuration that this console shows"
)

// decideAgain fills in the answer of a configuration, with its reasons: that of the recording, or that of the console if the recording
// has none.
func (c *console) decideAgain(ctx context.Context, page *decisionPage, item *replay.Item) error {
	by := replay.Recorded()
	page.By = byRecorded
	if _, err := item.Configuration(); err != nil {
		l, err := c.configuration(ctx)
		if err != nil && c.config != "" {
			return err
		}
		if l == nil {
			page.By, page.Undecided = "", "the configuration that decided is not beside the recording (hint: --config DIR)"
			return nil
		}
		page.By = byShown
		if by, err = replay.Compile(l.asked()); err != nil {
			return err
		}
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
	page.Reasons = reasonsOf(again)
	return nil
}

// reasonsOf returns what each policy and profile says, as text.
func reasonsOf(e *replay.Explanation) string {
	var out strings.Builder
	line := decision.LinePrinter(&out)
	if e.Mutation != nil {
		decision.PrintMutations(line, "", e.Mutation.Evaluations, false)
	}
	if e.Sidecar != nil {
		for i := range e.Sidecar.Verdicts {
			v := &e.Sidecar.Verdicts[i]
			line("SidecarProfile %s: %s  %s", cli.InertName(v.Profile), v.Reason, cli.Inert(v.Detail))
			for _, step := range decision.ProfileSteps(v) {
				line("    %s", cli.Inert(step))
			}
		}
	}
	if e.Policy != nil {
		decision.PrintPolicies(line, e.Policy.Evaluations, false)
	}
	return out.String()
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
	text, err := cli.JSONToYAML(request)
	if err != nil {
		text = []byte("the request cannot be read: " + err.Error())
	}
	p.Request = string(text)
}

// setDiff fills in what the patch changes: that of the recorded answer, or that of the one that was computed.
func (p *decisionPage) setDiff(item *replay.Item) {
	patch := p.Answer.Patch
	p.DiffTitle = "What was changed"
	if patch == "" && p.Again != nil {
		patch, p.DiffTitle = p.Again.Patch, "What would be changed"
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
	p.Diff = diffOf(before, after)
}
