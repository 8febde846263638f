package policy_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

const examples = "../../manifests/examples/policies/"

// exampleDocuments returns all documents of the examples.
func exampleDocuments(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob(examples + "*.yaml")
	must(t, err)
	var list []string
	for _, file := range files {
		list = append(list, strings.TrimSpace(readFile(t, file)))
	}
	return documents(list...)
}

// asText returns a response as a reader of the goldens understands it.
func asText(response admission.Response) string {
	var out strings.Builder
	fmt.Fprintln(&out, verdict(response))
	if response.Result != nil {
		fmt.Fprintf(&out, "code: %d\nreason: %s\nmessage: %s\n", response.Result.Code, response.Result.Reason, response.Result.Message)
	}
	for _, warning := range response.Warnings {
		fmt.Fprintln(&out, "warning:", warning)
	}
	for _, key := range slices.Sorted(maps.Keys(response.AuditAnnotations)) {
		fmt.Fprintf(&out, "audit %s: %s\n", key, response.AuditAnnotations[key])
	}
	return out.String()
}

// TestExamples answers requests from the policies in manifests/examples, which a
// reader will try first. UPDATE_GOLDEN=1 writes the answers.
func TestExamples(t *testing.T) {
	t.Parallel()
	spec := specOf(t, exampleDocuments(t))
	spec.Now = func() time.Time { return time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC) }
	set, err := policy.Compile(spec)
	must(t, err)
	if warnings := set.Warnings(); len(warnings) > 0 {
		t.Errorf("warnings about the examples: %v", warnings)
	}
	requests, err := filepath.Glob("testdata/requests/*.yaml")
	must(t, err)
	known := map[string]bool{}
	for _, file := range requests {
		golden := filepath.Join("testdata", "answers", strings.TrimSuffix(filepath.Base(file), ".yaml")+".txt")
		known[golden] = true
		got := asText(decide(t, set, review(t, readFile(t, file))))
		if os.Getenv("UPDATE_GOLDEN") == "1" {
			must(t, os.WriteFile(golden, []byte(got), 0o600))
		}
		if want := readFile(t, golden); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
		}
	}
	answers, err := filepath.Glob("testdata/answers/*")
	must(t, err)
	for _, file := range answers {
		if !known[file] {
			t.Errorf("%s belongs to no request", file)
		}
	}
}
