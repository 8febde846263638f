// Command count sends hostile requests to the endpoints and, in an instrumented build,
// writes how often each block of code ran.
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
	all, err := requests()
	if err != nil {
		return err
	}
	for name, f := range all {
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
