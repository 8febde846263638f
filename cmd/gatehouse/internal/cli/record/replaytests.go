package record

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

const (
	// maxTests bounds the tests that are written, and maxTestBytes their size together.
	maxTests     = 500
	maxTestBytes = 64 << 20
)

// testWriter writes changes as Test documents, one for each change of a workload. It is for one goroutine.
type testWriter struct {
	dir   string
	seen  map[string]bool
	files map[string]bool
	bytes int
	// others are the changes that are not written, by reason.
	others map[string]int
	err    error
}

func newTestWriter(dir string) *testWriter {
	return &testWriter{dir: dir, seen: map[string]bool{}, files: map[string]bool{}, others: map[string]int{}}
}

// add writes a test for a result.
func (w *testWriter) add(r *replay.Result, item *replay.Item) {
	if len(r.Changes) == 0 || w.err != nil {
		return
	}
	change := r.Changes[0]
	key := fmt.Sprint(change, r.Rules, r.Review.Namespace, r.Review.Kind, r.Review.Workload, r.Review.Endpoint, r.Review.Operation)
	if len(w.seen) < 10*maxTests {
		if w.seen[key] {
			return
		}
		w.seen[key] = true
	}
	if len(w.files) == maxTests || w.bytes > maxTestBytes {
		w.others[fmt.Sprintf("only %d tests are written", maxTests)]++
		return
	}
	test, reason := newTest(r, item)
	if reason != "" {
		w.others[reason]++
		return
	}
	w.write(test, change, &r.Review)
}

// write writes a test to a file of its own.
func (w *testWriter) write(test *v1alpha1.Test, change replay.Change, subject *replay.Subject) {
	name := fileName(string(change), subject.Namespace, subject.Workload)
	for n := 2; w.files[name]; n++ {
		name = fileName(string(change), subject.Namespace, subject.Workload) + "-" + strconv.Itoa(n)
	}
	w.files[name] = true
	test.Metadata.Name = name
	text, err := yaml.Marshal(test)
	if err != nil {
		w.err = fmt.Errorf("--as-tests: %s: %w", name, err)
		return
	}
	const head = "# Written by gatehouse replay. It expects the answer from before: it fails as long as the configuration changes it.\n" +
		"# If the change is wanted, write the new answer below expect. Values that begin with gatehouse-redacted are hashes.\n"
	text = append([]byte(head), text...)
	w.bytes += len(text)
	if len(w.files) == 1 {
		if err := os.MkdirAll(w.dir, 0o750); err != nil {
			w.err = fmt.Errorf("--as-tests: %q cannot be created: %w", w.dir, cli.Cause(err))
			return
		}
	}
	if err := os.WriteFile(filepath.Join(w.dir, name+".yaml"), text, 0o600); err != nil {
		w.err = fmt.Errorf("--as-tests: %s.yaml cannot be written: %w", name, cli.Cause(err))
	}
}

// finish reports what was not written.
func (w *testWriter) finish(out io.Writer) error {
	for _, reason := range slices.Sorted(maps.Keys(w.others)) {
		_, _ = fmt.Fprintf(out, "gatehouse: --as-tests: no test for %s: %s\n", diagnostic.Count(w.others[reason], "change"), reason) // best effort, here and below
	}
	if len(w.files) > 0 && w.err == nil {
		_, _ = fmt.Fprintf(out, "gatehouse: --as-tests: %s in %s\n", diagnostic.Count(len(w.files), "test"), cli.ShellQuote(w.dir))
	}
	return w.err
}

// fileName returns a name of lower-case letters, digits and dashes.
func fileName(parts ...string) string {
	const most = 120
	var text strings.Builder
	for _, r := range strings.ToLower(strings.Join(parts, "-")) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			text.WriteRune(r)
		} else if !strings.HasSuffix(text.String(), "-") && text.Len() > 0 {
			text.WriteByte('-')
		}
		if text.Len() == most {
			break
		}
	}
	return strings.Trim(text.String(), "-")
}

// newTest returns a test that expects the answer from before, or why there can be none.
func newTest(r *replay.Result, item *replay.Item) (*v1alpha1.Test, string) {
	const notComparable = "it is about a patch or a login, which tests do not compare"
	if item.Review.Token != nil || r.Changes[0] == replay.ChangedPatch {
		return nil, notComparable
	}
	req, err := review.DecodeAdmission(item.Review.Request)
	if err != nil {
		return nil, "the recorded request cannot be read"
	}
	lookups, err := item.Lookups()
	switch {
	case err != nil:
		return nil, "the recorded request cannot be read"
	case lookups != nil && len(lookups.Authorizer) > 0:
		return nil, "the answer depends on an authorizer, which tests do not have"
	}
	mutates := r.Review.Endpoint == "mutate"
	now := metav1.NewTime(r.Review.Time)
	c := v1alpha1.TestCase{
		Name: truncate.Runes(subjectTitle(&r.Review), 200), Operation: req.Operation, Namespace: req.Namespace, SubResource: req.SubResource,
		Inject: &mutates, Now: &now,
		User:   &authenticationv1.UserInfo{Username: req.UserInfo.Username, UID: req.UserInfo.UID, Groups: req.UserInfo.Groups},
		Object: extension(req.Object), OldObject: extension(req.OldObject), Expect: expectation(r.Before),
	}
	if c.Object == nil && c.OldObject == nil {
		return nil, "the request has no object"
	}
	if req.Operation == admissionv1.Delete {
		c.Options = extension(req.Options)
	}
	if rawjson.Value(req.Object.Raw).Get("metadata", "name").Text() == "" {
		c.ObjectName = req.Name
	}
	if slices.Contains(r.Changes, replay.NewWarnings) {
		c.Expect.Warnings = append([]string{}, r.Before.Warnings...)
	}
	test := &v1alpha1.Test{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Test"}, Cases: []v1alpha1.TestCase{c}}
	if mutates {
		test.Policies = []string{} // they decide on another review
	}
	var ids []int
	lookups.EachObject(func(id *int) { ids = append(ids, *id) })
	test.Context = contextOf(item, ids)
	return test, ""
}

// extension returns an object of a request, nil for none.
func extension(raw runtime.RawExtension) *runtime.RawExtension {
	if len(raw.Raw) == 0 || string(raw.Raw) == "null" {
		return nil
	}
	return &runtime.RawExtension{Raw: slices.Clone(raw.Raw)}
}

// expectation returns that of the answer from before.
func expectation(before *replay.Answer) v1alpha1.TestExpectation {
	switch before.Decision {
	case "denied":
		return v1alpha1.TestExpectation{Verdict: v1alpha1.TestDenied}
	case "unknown":
		return v1alpha1.TestExpectation{Verdict: v1alpha1.TestCannotDecide}
	default: // of an audit log: the API server has admitted it
		return v1alpha1.TestExpectation{Verdict: v1alpha1.TestAllowed}
	}
}

// contextOf returns the objects that the decision looked up, each once.
func contextOf(item *replay.Item, ids []int) (out []runtime.RawExtension) {
	slices.Sort(ids)
	seen := map[string]bool{}
	for _, id := range slices.Compact(ids) {
		var object map[string]any
		if id == 0 || json.Unmarshal(item.Segment.Object(id), &object) != nil {
			continue
		}
		metadata, _ := object["metadata"].(map[string]any)
		key := fmt.Sprint(object["apiVersion"], object["kind"], metadata["namespace"], metadata["name"])
		if object["kind"] == nil || seen[key] {
			continue
		}
		seen[key] = true
		if raw, err := json.Marshal(object); err == nil {
			out = append(out, runtime.RawExtension{Raw: raw})
		}
	}
	return out
}
