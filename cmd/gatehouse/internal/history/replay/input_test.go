package replay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/replay"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// line returns the line of a review of a pod.
func line(id string) *record.Line {
	r := request{namespace: "shop", object: pod(id, "")}
	return &record.Line{Review: &record.Review{
		ID: id, Time: recordedAt, Endpoint: "validate", Decision: review.Allowed, Request: r.body(id), Response: json.RawMessage(`{"allowed":true}`),
	}}
}

// cut returns a source without its last bytes.
func cut(t *testing.T, s replay.Source) replay.Source {
	t.Helper()
	file, err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	s.Open = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text[:len(text)-6])), nil }
	return s
}

func TestProblems(t *testing.T) {
	t.Parallel()
	bad := line("bad")
	bad.Review.Response = json.RawMessage(`{"allowed":`)
	whole := file(t, "whole", line("1"), line("2"), &record.Line{Gap: &record.Gap{Reviews: 5}})
	for _, tt := range []struct {
		name    string
		sources []replay.Source
		reviews int64
		want    string
	}{
		{name: "none", sources: []replay.Source{whole, whole}, reviews: 4},
		{name: "not there", sources: []replay.Source{{Name: "gone", Open: func() (io.ReadCloser, error) { return nil, os.ErrNotExist }}, whole}, reviews: 2, want: "gone: file does not exist"},
		{name: "truncated", sources: []replay.Source{cut(t, file(t, "cut", line("1"))), whole}, reviews: 2},
		{name: "no recording", sources: []replay.Source{{Name: "text", Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("hello")), nil }}, whole}, reviews: 2, want: "text: is no recording"},
		{name: "a review of another type", sources: []replay.Source{file(t, "type", line("1"), &record.Line{Review: &record.Review{}}), whole}, reviews: 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			report, _ := run(t, replay.Options{Sources: tt.sources, Candidate: load(t, admissionPolicy("p", always))})
			if report.Reviews != tt.reviews || len(report.Problems) != min(len(tt.want), 1) || tt.want != "" && !strings.Contains(report.Problems[0], tt.want) {
				t.Errorf("%d reviews, problems %q; want %d, %q", report.Reviews, report.Problems, tt.reviews, tt.want)
			}
		})
	}
}

// TestUndecided replays reviews of which the recording does not hold enough.
func TestUndecided(t *testing.T) {
	t.Parallel()
	edit := func(f func(*record.Review)) *record.Line {
		one := line("1")
		f(one.Review)
		return one
	}
	inShop := strings.Replace(admissionPolicy("p", never), "matchConstraints: {", "matchConstraints: {namespaceSelector: {matchLabels: {team: shop}}, ", 1)
	for _, tt := range []struct {
		name, candidate string
		line            *record.Line
		changes         int
		want            string
	}{
		{name: "no lookups, and a namespace decides", candidate: inShop, line: line("1"), want: `AdmissionPolicy 'p' reads namespace "shop", which the recording does not hold`},
		{name: "no lookups, and a namespace decides under Ignore", candidate: strings.Replace(inShop, "spec:", "spec:\n  failurePolicy: Ignore", 1), line: line("1"), want: `AdmissionPolicy 'p' reads namespace "shop"`},
		{name: "no lookups, and another rule refuses", candidate: documents(inShop, admissionPolicy("q", never)), line: line("1"), changes: 1},
		{name: "no lookups, and an exception selects namespaces", line: line("1"), candidate: documents(admissionPolicy("p", never), `apiVersion: gatehouse.dev/v1alpha1
kind: PolicyException
metadata: {name: x, namespace: gatehouse-system}
spec: {reason: tests, policies: [{name: p}], match: {namespaceSelector: {matchLabels: {team: shop}}}}`), want: `exception gatehouse-system/x reads namespace "shop"`},
		{name: "no lookups, and Pod Security reads labels", line: line("1"), candidate: admissionPolicy("p", always, "  podSecurity: {level: baseline, version: latest, namespaceLabels: Honor}", "  validationActions: [Deny]"), want: `AdmissionPolicy 'p' reads namespace "shop"`},
		{name: "no lookups, and profiles", line: edit(func(r *record.Review) { r.Endpoint = "mutate" }), candidate: fmt.Sprintf(profile, "1"), want: `sidecar profiles: reads namespace "shop"`},
		{name: "an object that is missing", line: edit(func(r *record.Review) {
			r.Lookups = &record.Lookups{Namespaces: []record.NamespaceLookup{{Name: "shop", Object: "7"}}}
		}), candidate: inShop, want: `AdmissionPolicy 'p' reads namespace "shop"`},
		{name: "no decision", line: edit(func(r *record.Review) { r.Decision = review.Unknown }), candidate: admissionPolicy("p", always), want: "it was not decided when it was recorded"},
		{name: "overload", line: edit(func(r *record.Review) { r.Decision = review.Shed; r.Request = nil }), candidate: admissionPolicy("p", always), want: "it was not recorded"},
		{name: "no review", line: edit(func(r *record.Review) { r.Request = json.RawMessage(`{"kind":"AdmissionReview"}`) }), candidate: admissionPolicy("p", always), want: "the recorded request cannot be read"},
		{name: "no endpoint", line: edit(func(r *record.Review) { r.Endpoint = "x" }), candidate: admissionPolicy("p", always), want: "there is no such endpoint"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			candidate := load(t, tt.candidate)
			report, all := run(t, replay.Options{Sources: []replay.Source{file(t, "a", tt.line)}, Candidate: candidate})
			if len(all) != 1 {
				t.Fatalf("report %+v", report)
			}
			if r := all[0]; !strings.HasPrefix(r.Undecided, tt.want) || tt.want == "" && r.Undecided != "" || len(r.Changes) != tt.changes {
				t.Errorf("changes %q, undecided %q; want %d, %q", r.Changes, r.Undecided, tt.changes, tt.want)
			}
		})
	}
}

// TestRecordedConfiguration replays under the configuration that the recording holds.
func TestRecordedConfiguration(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, documents, undecided string
		changes                    int
	}{
		{name: "it refuses", documents: admissionPolicy("p", never), changes: 1},
		{name: "a server without documents", documents: "# The configuration d1 without secrets.\n"},
		{name: "it is empty", undecided: "the configuration that has decided cannot be used: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			one := line("1")
			one.Review.Config = "d1"
			_, all := run(t, replay.Options{Sources: []replay.Source{file(t, "a", &record.Line{Config: &record.Configuration{Digest: "d1", Documents: tt.documents}}, one)}, Candidate: replay.Recorded()})
			if len(all) != 1 || len(all[0].Changes) != tt.changes || !strings.HasPrefix(all[0].Undecided, tt.undecided) || tt.undecided == "" && all[0].Undecided != "" {
				t.Errorf("%+v, want %d changes, undecided %q", all, tt.changes, tt.undecided)
			}
		})
	}
}

// TestFind finds a review by the beginning of its ID and explains it.
func TestFind(t *testing.T) {
	t.Parallel()
	source := file(t, "a", line("abc"), line("abd"), line("b"))
	found, err := replay.Find(t.Context(), []replay.Source{source, source}, "ab", 3)
	if err != nil || len(found) != 3 || found[1].Review.ID != "abd" {
		t.Fatalf("found %+v, %v", found, err)
	}
	x := load(t, admissionPolicy("p", never)).Explain(t.Context(), found[1])
	if x.Answer.Decision != "denied" || len(x.Policy.Evaluations) != 1 || found[1].Subject().Workload != "Deployment/checkout" {
		t.Errorf("explanation %+v", x)
	}
	if before := found[1].Recorded(); before.Decision != "allowed" {
		t.Errorf("recorded %+v", before)
	}
	if _, err := replay.Find(t.Context(), []replay.Source{cut(t, source)}, "x", 1); err != nil {
		t.Errorf("a segment without an end: %v", err)
	}
}

// TestRunEnds ends a replay early, and keeps some of the reviews of another.
func TestRunEnds(t *testing.T) {
	t.Parallel()
	var lines []*record.Line
	for i := range 1000 {
		lines = append(lines, line(fmt.Sprint(i)))
	}
	source := file(t, "a", lines...)
	ctx, cancel := context.WithCancel(t.Context())
	candidate := load(t, admissionPolicy("p", always))
	if _, err := replay.Run(ctx, replay.Options{Sources: []replay.Source{source}, Candidate: candidate, Result: func(*replay.Result) { cancel() }}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want Canceled", err)
	}
	var last int64
	report, all := run(t, replay.Options{
		Sources: []replay.Source{source}, Candidate: candidate, Keep: func(s *replay.Subject) bool { return strings.HasSuffix(s.ID, "7") && s.Name == s.ID },
		Progress: func(n int64) { last = n },
	})
	if report.Reviews != 100 || all[0].Review.ID != "7" || all[99].Review.ID != "997" || last != 100 {
		t.Errorf("%d reviews from %s to %s, progress %d", report.Reviews, all[0].Review.ID, all[99].Review.ID, last)
	}
}

// TestLogins: a login is counted in a note, and shown as it was recorded.
func TestLogins(t *testing.T) {
	t.Parallel()
	one := record.Review{
		ID: "1", Endpoint: "authenticate", Decision: review.Allowed, Token: &record.Token{Backend: "access-token", ID: "ci"},
		Response: json.RawMessage(`{"status":{"authenticated":true,"user":{"username":"ci-bot","groups":["builders"]}}}`),
	}
	sources := []replay.Source{file(t, "a", &record.Line{Review: &one}, line("2"))}
	candidate := load(t, everything())
	report, all := run(t, replay.Options{Sources: sources, Candidate: candidate})
	if len(all) != 1 || all[0].Review.ID != "2" || report.Reviews != 1 || !slices.Equal(report.Notes, []string{"not decided again, because tokens are not recorded: 1 login"}) {
		t.Errorf("%d results, %d reviews, notes %q", len(all), report.Reviews, report.Notes)
	}
	found, err := replay.Find(t.Context(), sources, "1", 1)
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	was := found[0].Recorded()
	if was.Decision != "allowed" || found[0].Subject().User != "ci-bot" {
		t.Errorf("%+v", was)
	}
	if is := candidate.Explain(t.Context(), found[0]); is.Undecided != "it is a login, whose token is not recorded" {
		t.Errorf("%+v", is)
	}
}

// FuzzReview replays one hostile line. Nothing in it makes the program fail.
func FuzzReview(f *testing.F) {
	for _, one := range []*record.Line{line("1"), {Review: &record.Review{Endpoint: "authenticate", Token: &record.Token{Backend: "jwt", Source: "https://issuer.example"}}}} {
		text, err := json.Marshal(one.Review)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"endpoint":"validate","config":"../../../etc/passwd","request":{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"\u0000","kind":{"version":"v1","kind":"Pod"},"resource":{"version":"v1","resource":"pods"},"operation":"DELETE","name":"\u001b[31m<script>"}},"response":{"allowed":false,"status":{"details":{"causes":[{"message":"AdmissionPolicy '"}]}},"patch":[{"op":1}]},"decision":"denied"}`))
	f.Add([]byte(`{"endpoint":"mutate","lookups":{"namespaces":[{"name":"shop","object":"1"}],"objects":[{"name":"limits","namespace":"shop","object":"x"}],"configMaps":[{"object":"99"}],"authorizer":[{"decision":"x"}]}}`))
	f.Add([]byte(`{"endpoint":"authorize","decision":"denied","request":` + accessReview(`"view"`, "pods") + `,"response":{"status":{"denied":true,"reason":"\u001b[31m"}}}`))
	f.Add([]byte(`{"endpoint":"authorize","decision":"allowed","request":{"kind":"SubjectAccessReview"},"response":{"status":3}}`))
	candidate := load(f, everything())
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			return
		}
		var compact, out bytes.Buffer
		w, err := record.NewWriter(&out)
		if err := errors.Join(err, json.Compact(&compact, text)); err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{`{"header":{"format":1}}`, `{"object":{"digest":"1","value":{"metadata":3}}}`, `{"review":` + compact.String() + `}`} {
			if _, err := io.WriteString(w, line+"\n"); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		source := replay.Source{Name: "a", Open: func() (io.ReadCloser, error) { return io.NopCloser(&out), nil }}
		report, all := run(t, replay.Options{Sources: []replay.Source{source}, Candidate: candidate})
		if len(all) == 0 && len(report.Problems)+len(report.Notes) == 0 {
			t.Errorf("neither a result nor a problem nor a note")
		}
		for reason := range report.Undecided {
			if strings.HasPrefix(reason, "the program has failed") {
				t.Error(reason)
			}
		}
	})
}
