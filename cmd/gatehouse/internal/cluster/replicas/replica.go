package replicas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/debug"
	"github.com/gatehouse-dev/gatehouse/internal/patherr"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

const (
	// maxConfiguration bounds a configuration, in bytes.
	maxConfiguration = 64 << 20
	// maxList bounds the list of files of a replica, in bytes.
	maxList = 16 << 20
	// transferTimeout bounds a request. The next pass goes on with a file that takes longer.
	transferTimeout = time.Minute
)

// Replica is a server, whose listener for health and metrics can be read.
type Replica struct {
	// Name is that of the pod.
	Name string
	// Client sends requests, and Base is the URL of the listener.
	Client *http.Client
	Base   string
	// Timeout bounds a request.
	Timeout time.Duration
}

// answerError is an answer that is not what was requested.
type answerError struct {
	code int
	text string
}

// Error says what the server answered.
func (e *answerError) Error() string {
	return fmt.Sprintf("the server answers %d: %s", e.code, diagnostic.OneLine(truncate.Runes(e.text, 300)))
}

// List returns the files of the replica's recording.
func (r *Replica) List(ctx context.Context) ([]debug.RecordingFile, error) {
	text, err := r.read(ctx, debug.RecordingPath, "the list of files", maxList)
	if err != nil {
		return nil, err
	}
	var list debug.Recording
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, errors.New("the answer is no list of files (hint: --ops-port is the port of --ops-listen)")
	}
	return list.Files, nil
}

// Configuration returns the documents of the replica's own directory that decide about objects, as YAML.
func (r *Replica) Configuration(ctx context.Context) ([]byte, error) {
	return r.read(ctx, debug.ConfigurationPath, "the configuration", maxConfiguration)
}

// read asks for a path, and returns all of the answer, which has at most so many bytes.
func (r *Replica) read(ctx context.Context, path, what string, most int) ([]byte, error) {
	body, done, err := r.get(ctx, path, 0)
	if err != nil {
		return nil, err
	}
	defer done()
	text, err := io.ReadAll(io.LimitReader(body, int64(most)+1))
	if err != nil {
		return nil, fmt.Errorf("%s is incomplete: %w", what, err)
	}
	if len(text) > most {
		return nil, fmt.Errorf("%s is larger than %d bytes", what, most)
	}
	return text, nil
}

// errTooLarge is a file that is larger than it may be.
var errTooLarge = errors.New("the file is larger than the server has listed")

// part writes a file from an offset on.
func (r *Replica) part(ctx context.Context, name string, out io.Writer, offset, most int64) error {
	body, done, err := r.get(ctx, debug.RecordingPath+"/"+url.PathEscape(name), offset)
	if err != nil {
		return err
	}
	defer done()
	written, err := io.Copy(out, io.LimitReader(body, most+1))
	switch {
	case err != nil:
		return fmt.Errorf("the transfer ended early: %w", patherr.Cause(err))
	case written > most:
		return errTooLarge
	default:
		return nil
	}
}

// get asks for a path. The caller must call done.
func (r *Replica) get(ctx context.Context, path string, offset int64) (body io.Reader, done func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.Timeout, fmt.Errorf("it took longer than %s", r.Timeout))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.Base+path, http.NoBody)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	if offset > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	response, err := r.Client.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		cancel()
		return nil, nil, withoutURL(err)
	}
	done = func() {
		_ = response.Body.Close() // it was only read
		cancel()
	}
	want := http.StatusOK
	if offset > 0 {
		want = http.StatusPartialContent
	}
	switch {
	case response.StatusCode == want:
		return response.Body, done, nil
	case offset > 0 && response.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		return strings.NewReader(""), done, nil // all of it was there already
	}
	const most = 1 << 10
	text, _ := io.ReadAll(io.LimitReader(response.Body, most)) // what can be read of it will do
	done()
	return nil, nil, &answerError{response.StatusCode, strings.TrimSpace(string(text))}
}

// withoutURL returns an error of a request without the URL, which names this machine, and without what net/http says about its connection.
func withoutURL(err error) error {
	if failed, ok := errors.AsType[*forwardError](err); ok {
		return failed
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}
