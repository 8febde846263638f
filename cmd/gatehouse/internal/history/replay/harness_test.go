package replay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	evanphx "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/replay"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// directory writes documents to a new directory.
func directory(t testing.TB, documents string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(documents), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// server answers reviews by a configuration and records them.
type server struct {
	t        testing.TB
	dir      string
	snapshot *webhooks.Snapshot
	recorder *record.Recorder
	stop     func()
	now      time.Time
	n        int
	// injected is the object of the last request with the patch of the answer, "" without a patch.
	injected string
	// decision is the last one.
	decision review.Decision
}

// patched returns an object as the API server patches it.
func patched(t testing.TB, object string, operations []jsonpatch.Operation) string {
	t.Helper()
	text, err := json.Marshal(operations)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := evanphx.DecodePatch(text)
	if err != nil {
		t.Fatal(err)
	}
	out, err := patch.Apply([]byte(object))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

var recordedAt = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// newServer begins a recording. Paths are further ones to redact.
func newServer(t testing.TB, documents string, paths ...string) *server {
	t.Helper()
	c, snapshot, found := config.CompileDir(directory(t, documents))
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	redactor, errs := record.NewRedactor(paths, nil)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	s := &server{t: t, dir: t.TempDir(), now: recordedAt}
	lookups := snapshot.Lookups()
	lookups.Now = func() time.Time { return s.now }
	s.snapshot = snapshot.With(lookups)
	s.recorder = record.New(record.Options{
		Dir: s.dir, Replica: "replica-1", Rules: record.Rules{Share: 1, Redactor: redactor}, MaxBytes: 1 << 30, MaxAge: time.Hour, Log: slog.New(slog.DiscardHandler),
	})
	s.recorder.Configuration(c.Digest, func() string { return documents })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.recorder.Run(ctx)
	}()
	s.stop = func() {
		cancel()
		<-done
	}
	return s
}

// review is an admission review for a server.
type request struct {
	endpoint, operation, namespace, group, kind, resource, user, object, oldObject string
	groups                                                                         string
	dryRun                                                                         bool
}

func (r *request) body(uid string) []byte {
	if r.operation == "" {
		r.operation = "CREATE"
	}
	if r.kind == "" {
		r.kind, r.resource = "Pod", "pods"
	}
	if r.user == "" {
		r.user = "anna"
	}
	or := func(text string) string {
		if text == "" {
			return "null"
		}
		return text
	}
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":%q,"kind":{"group":%q,"version":"v1","kind":%q},`+
		`"resource":{"group":%q,"version":"v1","resource":%q},"namespace":%q,"operation":%q,"userInfo":{"username":%q,"groups":[%q],"extra":{"k":["secret-extra"]}},"object":%s,"oldObject":%s,"dryRun":%v}}`,
		uid, r.group, r.kind, r.group, r.resource, r.namespace, r.operation, r.user, r.groups, or(r.object), or(r.oldObject), r.dryRun)
}

// answer answers a request as the server does.
func (s *server) answer(r request) {
	s.t.Helper()
	s.n++
	uid := fmt.Sprintf("uid-%d", s.n)
	if r.endpoint == "" {
		r.endpoint = "validate"
	}
	body := r.body(uid)
	decoded, err := review.DecodeAdmission(body)
	if err != nil {
		s.t.Fatal(err)
	}
	endpoints := webhooks.Endpoints()
	e := endpoints[slices.IndexFunc(endpoints, func(e webhooks.Endpoint) bool { return e.Name == r.endpoint })]
	trace := s.recorder.Begin()
	response := e.Admission(context.Background(), trace.Snapshot(s.snapshot), webhooks.Input{Request: decoded})
	outcome := review.Outcome{Endpoint: e.Name, UID: types.UID(uid), Namespace: r.namespace, Started: s.now, Decision: decisionOf(&response)}
	var text []byte
	if outcome.Decision != review.Unknown {
		if text, err = review.AppendAdmission(nil, decoded.UID, &response); err != nil {
			s.t.Fatal(err)
		}
	}
	trace.Finish(&outcome, review.Exchange{Body: body, Answer: text})
	s.wait()
	s.decision = outcome.Decision
	s.injected = ""
	if len(response.Patches) > 0 {
		s.injected = patched(s.t, r.object, response.Patches)
	}
}

// wait waits for the Recorder, whose queue is bounded.
func (s *server) wait() {
	const queued = 200
	for s.recorder.Stats().Recorded < int64(s.n)-queued {
		runtime.Gosched()
	}
}

func decisionOf(response *admission.Response) review.Decision {
	switch {
	case response.Allowed:
		return review.Allowed
	case response.Result != nil && response.Result.Code >= 500:
		return review.Unknown
	default:
		return review.Denied
	}
}

// recording ends the recording and returns its files.
func (s *server) recording() []replay.Source {
	s.t.Helper()
	s.stop()
	return sources(s.t, s.dir)
}

func sources(t testing.TB, dir string) (out []replay.Source) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"+record.SegmentSuffix))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		out = append(out, replay.Source{Name: filepath.Base(name), Open: func() (io.ReadCloser, error) { return os.Open(name) }})
	}
	return out
}

func load(t testing.TB, documents string) *replay.Candidate {
	t.Helper()
	c, err := replay.Load(directory(t, documents))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// run replays and returns the results.
func run(t testing.TB, o replay.Options) (*replay.Report, []replay.Result) {
	t.Helper()
	var all []replay.Result
	o.Result = func(r *replay.Result) { all = append(all, *r) }
	report, err := replay.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return report, all
}

// documents joins YAML documents.
func documents(all ...string) string { return strings.Join(all, "\n---\n") }

// file returns a recording of a server with one segment.
func file(t testing.TB, name string, lines ...*record.Line) replay.Source {
	t.Helper()
	var out bytes.Buffer
	w, err := record.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range append([]*record.Line{{Header: &record.Header{Format: record.FormatVersion}}}, lines...) {
		text, err := record.AppendLine(nil, line)
		if err == nil {
			_, err = w.Write(text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return replay.Source{Name: name, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil }}
}
