// Package auditlog makes a recording of audit logs of API servers (audit.k8s.io/v1), as far as they
// go.
//
// An audit log is not what webhooks get. Missing says what its reviews lack.
package auditlog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// maxLine bounds an event, in bytes: two objects of the largest size, and the rest.
const maxLine = 8 << 20

// Missing returns what reviews of audit logs lack, for people.
func Missing() []string {
	return []string{
		"no webhook has decided on the requests: there are no answers to compare with",
		"of level Request, objects are as clients sent them: without defaults, and without what admission has changed",
		"of level RequestResponse, objects are as they were stored: after all admission, with injected sidecars, uid, resourceVersion and status",
		"oldObject of updates and deletions is the object of the last event of the log about it: it is missing if there is none, and out of date if the log lacks a change",
		"patches of level Request, collections that were deleted and failed requests are left out",
		"namespace objects, params and answers of the authorizer are not there",
	}
}

// The reasons why events are skipped.
const (
	reasonStage      = "another stage of a request"
	reasonRead       = "reads: get, list and watch"
	reasonLevel      = "level Metadata: the log lacks the object"
	reasonFailed     = "failed: the API server answered with an error"
	reasonPatch      = "patches of level Request: the log lacks the object"
	reasonCollection = "deletecollection: the log lacks the objects"
	reasonNoResource = "not about a resource"
	reasonCredential = "credentials: requests for tokens and reviews of tokens"
	reasonKind       = "the kind is unknown (hint: its CustomResourceDefinition in --config)"
	reasonNoObject   = "the log lacks the object"
	reasonNotEvents  = "no audit event"
)

// Importer makes reviews of events. It is for one goroutine.
type Importer struct {
	writer    *record.Writer
	redactor  *record.Redactor
	resources *request.Resources
	objects   objectCache
	text      []byte
	result    Result
}

// Result says what was imported.
type Result struct {
	// Events is the number of events, and Reviews that of reviews.
	Events, Reviews int64
	// Begin and End are the times of the first and the last review.
	Begin, End time.Time
	// Skipped are numbers of events by reason.
	Skipped map[string]int64
}

// New begins a recording. Resources tell the kinds of objects.
func New(out io.Writer, redactor *record.Redactor, resources *request.Resources, now time.Time) (*Importer, error) {
	writer, err := record.NewWriter(out, &record.Header{
		Format: record.FormatVersion, Program: build.Version(), Kubernetes: policy.CompatibilityVersion, CEL: build.ModuleVersion("github.com/google/cel-go"),
		Source: record.FromAuditLog, Started: now.UTC(), Redaction: redactor.Redaction(), Sampling: "audit policy", Missing: Missing(),
	})
	if err != nil {
		return nil, fmt.Errorf("write the recording: %w", err)
	}
	return &Importer{writer: writer, redactor: redactor, resources: resources, objects: newObjectCache(), result: Result{Skipped: map[string]int64{}}}, nil
}

// Close ends the recording, and returns what was imported.
func (m *Importer) Close() (*Result, error) {
	if err := m.writer.Close(); err != nil {
		return nil, fmt.Errorf("write the recording: %w", err)
	}
	return &m.result, nil
}

// Result returns what was imported so far. It must not be changed.
func (m *Importer) Result() *Result { return &m.result }

// LineError is a line of a log that is no event. If others of the log are, they are imported.
type LineError struct {
	// Line is the number of the first such line, from 1, and Lines the number of all.
	Line    int
	Lines   int64
	Message string
}

// Error names the line.
func (e *LineError) Error() string {
	text := fmt.Sprintf("line %d: %s", e.Line, e.Message)
	if e.Lines > 1 {
		text += fmt.Sprintf(", and so are %d more lines", e.Lines-1)
	}
	return text
}

// WriteError is an error of the recording, after which it is damaged.
type WriteError struct{ err error }

// Error implements error.
func (e *WriteError) Error() string { return "write the recording: " + e.err.Error() }

// Unwrap returns the cause.
func (e *WriteError) Unwrap() error { return e.err }

// Read imports a log: one event or EventList a line, plain or compressed with gzip. A log whose first
// line is no event is not imported. Other such lines are skipped; the error is then a *LineError. It
// is a *WriteError if the recording cannot be written, and otherwise about the log, of which
// what was read before is imported.
func (m *Importer) Read(ctx context.Context, log io.Reader) error {
	lines := bufio.NewReaderSize(log, 64<<10)
	if magic, err := lines.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		unzipped, err := gzip.NewReader(lines)
		if err != nil {
			return fmt.Errorf("is damaged: %w", err)
		}
		lines = bufio.NewReaderSize(unzipped, 64<<10)
	}
	var (
		wrong *LineError
		line  []byte
	)
	for number := 1; ; number++ {
		if number%256 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var err error
		line, err = readLine(lines, line[:0])
		if len(bytes.TrimSpace(line)) > 0 {
			failed := m.line(line)
			if write, ok := errors.AsType[*WriteError](failed); ok {
				return write
			}
			if failed != nil {
				if number == 1 {
					return &LineError{number, 1, failed.Error()}
				}
				if wrong == nil {
					wrong = &LineError{Line: number, Message: failed.Error()}
				}
				wrong.Lines++
				m.result.Skipped[reasonNotEvents]++
			}
		}
		switch {
		case errors.Is(err, errTooLong):
			return &LineError{number, 1, fmt.Sprintf("is longer than %d bytes", maxLine)}
		case errors.Is(err, io.EOF) && wrong == nil:
			return nil
		case errors.Is(err, io.EOF):
			return wrong
		case err != nil:
			return fmt.Errorf("line %d: the log ends here: %w", number, err)
		}
	}
}

var errTooLong = errors.New("the line is too long")

// readLine appends a line. The error is io.EOF with the last one.
func readLine(r *bufio.Reader, line []byte) ([]byte, error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			return nil, errTooLong
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err //nolint:wrapcheck // Read names the line
		}
	}
}

// line imports the event, or the list of events, of a line.
func (m *Importer) line(text []byte) error {
	v, err := rawjson.Parse(text)
	if err != nil {
		return errors.New("is no JSON: " + truncate.Runes(err.Error(), 100))
	}
	if v.Get("kind").Is("EventList") {
		for _, item := range v.Get("items").Elements() {
			if err := m.event(item, true); err != nil {
				return err
			}
		}
		return nil
	}
	return m.event(v, false)
}

// event imports an event. The items of lists may lack their kind.
func (m *Importer) event(v rawjson.Value, item bool) error {
	if item && v.Kind() == rawjson.Object && v.Get("kind").Kind() == rawjson.Invalid {
		v = append([]byte(`{"kind":"Event","apiVersion":"audit.k8s.io/v1"`), suffix(v)...)
	}
	e, err := parseEvent(v)
	if err != nil {
		return err
	}
	m.result.Events++
	review, reason := m.review(e)
	m.remember(e)
	if reason != "" {
		m.result.Skipped[reason]++
		return nil
	}
	if m.text, err = review.AppendLine(m.text[:0]); err == nil {
		err = m.writer.WriteText(m.text)
	}
	if err != nil {
		return &WriteError{err}
	}
	r := &m.result
	if r.Reviews++; r.Begin.IsZero() || e.at.Before(r.Begin) {
		r.Begin = e.at
	}
	if e.at.After(r.End) {
		r.End = e.at
	}
	return nil
}

// suffix returns the members of an object with its end, to be put behind others.
func suffix(v rawjson.Value) []byte {
	rest := bytes.TrimSpace(v[1:])
	if len(rest) == 1 {
		return rest
	}
	return append([]byte{','}, rest...)
}

// review returns the review of an event, or why there is none.
func (m *Importer) review(e *event) (*record.Review, string) {
	if reason := e.skip(); reason != "" {
		return nil, reason
	}
	body, reason := m.body(e)
	if reason != "" {
		return nil, reason
	}
	r := &record.Review{ID: strings.ToValidUTF8(e.id, "�"), Time: e.at.UTC(), Endpoint: "validate"}
	if r.Request, r.Redacted = m.redactor.RedactRequest(nil, body); r.Request == nil {
		return nil, reasonCredential
	}
	return r, ""
}

// skip returns why an event makes no review, "" if it may make one.
func (e *event) skip() string {
	switch {
	case e.stage != "ResponseComplete":
		return reasonStage
	case e.resource.name == "":
		return reasonNoResource
	case record.IsCredential(e.resource.group, e.resource.name, e.resource.subresource):
		return reasonCredential
	case e.isConnect():
	case e.verb == "get" || e.verb == "list" || e.verb == "watch":
		return reasonRead
	case e.verb == "deletecollection":
		return reasonCollection
	}
	if e.hasFailed() {
		return reasonFailed
	}
	if e.isConnect() {
		return "" // the URL has all of it
	}
	switch {
	case e.level != "Request" && e.level != "RequestResponse":
		return reasonLevel
	case e.verb == "patch" && e.level == "Request":
		return reasonPatch
	default:
		return ""
	}
}

// isConnect reports whether the request is a CONNECT.
func (e *event) isConnect() bool {
	if e.resource.group != "" {
		return false
	}
	switch e.resource.subresource {
	case "exec", "attach", "portforward":
		return e.resource.name == "pods"
	case "proxy":
		return e.resource.name == "pods" || e.resource.name == "services" || e.resource.name == "nodes"
	default:
		return false
	}
}
