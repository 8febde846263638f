package console

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// writeRecording writes a recording with pods that were admitted under a configuration, and returns its path.
func writeRecording(t *testing.T, configuration string, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	const digest = "d1"
	if err := os.WriteFile(filepath.Join(dir, record.ConfigurationName(digest)), []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "reviews"+record.SegmentSuffix)
	file, err := os.Create(path) // #nosec G304 -- a file of the test
	if err != nil {
		t.Fatal(err)
	}
	w, err := record.NewWriter(file, &record.Header{Format: record.FormatVersion, Source: record.FromServer, Config: digest})
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		request := fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u%d","kind":{"version":"v1","kind":"Pod"},"resource":{"version":"v1","resource":"pods"},
			"namespace":"shop","name":%q,"operation":"CREATE","userInfo":{"username":"ben"},"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"shop"},"spec":{"containers":[{"name":"a","image":"a:1"}]}},"oldObject":null}}`, i, name, name)
		one := &record.Review{
			ID: fmt.Sprintf("u%d", i), Time: time.Date(2026, 11, 20, 9, i, 0, 0, time.UTC), Endpoint: "validate", Decision: review.Decision("allowed"), Request: request,
			Response: fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u%d","allowed":true}}`, i),
			Lookups:  &record.Lookups{Namespaces: []record.NamespaceLookup{{Name: "shop"}}},
		}
		if err := w.Write(&record.Line{Review: one}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTryReplay(t *testing.T) {
	t.Parallel()
	recording := writeRecording(t, strict, "web", "<b>job</b>", "web")
	c := newPolicyConsole(t, flags{config: writeFiles(t, map[string]string{"all.yaml": strict}), recordings: []string{recording}})
	_, page, _ := c.get("POST", "/try", url.Values{"documents": {refusing()}, "do": {"replay"}, "recording": {recording}})
	text := c.waitForJob(page)
	c.wants(text, "3 reviews: the candidate", "2026-11-20T09:00:00Z", "100.0 % newly refused", "newly refused: AdmissionPolicy labels, validations[0]", "in namespace shop", "Pod/web", "after: denied", "&lt;b&gt;job")
	_, page, _ = c.get("POST", "/try", url.Values{"documents": {strict}, "do": {"replay"}})
	c.wants(c.waitForJob(page), "3 100.0 % unchanged")
	if status, _, text := c.get("POST", "/try", url.Values{"documents": {strict}, "do": {"replay"}, "recording": {"/etc/passwd"}}); status != http.StatusNotFound {
		t.Error("a recording that the command line does not name", status, text)
	}
	_, page, _ = c.get("POST", "/try", url.Values{"documents": {withRule("nope")}, "do": {"replay"}})
	if text := c.waitForJob(page); !strings.Contains(text, "is not declared") || strings.Contains(text, c.work) {
		t.Error("a candidate with errors", text)
	}
	c.wantsNoFiles()
}
