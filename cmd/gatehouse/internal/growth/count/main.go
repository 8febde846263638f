// Command count sends hostile requests to the program's handler and, in an instrumented
// build, writes how often each block of code ran.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/coverage"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	crdadmission "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/admission"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// The sizes of requests: factor times small is no more than a pod may have of anything.
const (
	small  = 240
	factor = 4
)

// documentsText has documents that read much of a pod.
//
//go:embed config.yaml
var documentsText []byte

func main() {
	if err := count(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

// count sends each request and writes its counts into directories of its name and size.
func count(dir string) error {
	handler, err := newHandler()
	if err != nil {
		return err
	}
	for name, f := range requests() {
		for _, times := range [...]int{1, factor} {
			r := f(times * small)
			response := send(handler, r)                                                           // what is kept for later is made here
			if response.Code != http.StatusOK && response.Code != http.StatusInternalServerError { // what no two readers read alike
				return fmt.Errorf("%s: %d %.300s", name, response.Code, response.Body)
			}
			to := filepath.Join(dir, name, strconv.Itoa(times))
			if err := os.MkdirAll(to, 0o700); err != nil { // #nosec G703 -- the test names it
				return err
			}
			if err := coverage.ClearCounters(); err != nil {
				return err
			}
			send(handler, r)
			if err := coverage.WriteCountersDir(to); err != nil {
				return err
			}
			if err := coverage.WriteMetaDir(to); err != nil {
				return err
			}
		}
	}
	return nil
}

func send(handler http.Handler, r request) *httptest.ResponseRecorder {
	req := httptest.NewRequestWithContext(context.Background(), http.MethodPost, r.path+"?timeout=30s", strings.NewReader(r.body))
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, req)
	return w
}

// newHandler is the program's.
func newHandler() (http.Handler, error) {
	dir, err := os.MkdirTemp("", "count")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), documentsText, 0o600); err != nil {
		return nil, err
	}
	c, err := config.Load(dir)
	if err != nil {
		return nil, err
	}
	snapshot, err := webhooks.Compile(webhooks.Spec{Sidecar: c.Sidecar, Policy: c.Policy})
	if err != nil {
		return nil, err
	}
	var current atomic.Pointer[webhooks.Snapshot]
	current.Store(snapshot)
	return server.Reviews(&current, server.ReviewOptions{
		Bytes: 8 * review.MaxAdmissionBytes, Observe: func(*review.Outcome) {}, Login: http.NotFoundHandler(), Now: time.Now,
		Profiles: func([]sidecar.Verdict) {}, Policies: func([]policy.Observation) {},
		CustomResources: crdadmission.New(crdadmission.Options{Current: func() *config.Config { return c }}),
	}), nil
}
