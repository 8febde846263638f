package recording

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// secret is what must not be in a recording.
const secret = "hunter2-planted-secret"

// visible is in a place that is not redacted: what finds it would find a secret.
const visible = "visible-planted-text"

// policies has a rule that repeats a secret in its message, and one that warns.
const policies = `apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: leaks}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets, pods]}]}
  validationActions: [Deny]
  validations:
  - expression: "!has(object.data)"
    messageExpression: "'the data is ' + object.data.password"
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Secret
metadata: {name: context, namespace: shop}
stringData: {password: ` + secret + `}
`

// server is a running server with the policies.
type server struct{ *gatehouse.Local }

// start starts a server that records.
func start(t *testing.T, flags ...string) *server {
	t.Helper()
	config := t.TempDir()
	must(t, os.WriteFile(filepath.Join(config, "policies.yaml"), []byte(policies), 0o600))
	return &server{gatehouse.StartLocal(t, config, flags...)}
}

// admission returns a review of an object. What is planted is a secret everywhere that is redacted.
func admission(uid, resource, kind, object string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":%q,"kind":{"group":"","version":"v1","kind":%[2]q},"resource":{"group":"","version":"v1","resource":%[3]q},"requestKind":{"group":"","version":"v1","kind":%[2]q},"requestResource":{"group":"","version":"v1","resource":%[3]q},"name":"x","namespace":"shop","operation":"CREATE","userInfo":{"username":"anna","extra":{"example.com/key":[%[4]q]}},"object":%[5]s}}`,
		uid, kind, resource, secret, object)
}

func pod(uid string) []byte {
	return admission(uid, "pods", "Pod", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","namespace":"shop","annotations":{"example.com/api-token":"`+secret+`","kubectl.kubernetes.io/last-applied-configuration":"{\"env\":\"`+secret+`\"}"}},"spec":{"containers":[{"name":"app","image":"registry.example/app:1","args":["--level=`+visible+`"],"env":[{"name":"PASSWORD","value":"`+secret+`"}]}]}}`)
}

// read returns everything in a recording, decompressed: what is whole of segments that are not.
func read(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "" // nothing is written yet
	}
	must(t, err)
	var all bytes.Buffer
	for _, entry := range entries {
		file, err := os.Open(filepath.Join(dir, entry.Name())) // #nosec G304 -- of this test
		must(t, err)
		if info, err := entry.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, want 0600", entry.Name(), info.Mode())
		}
		var content io.Reader = file
		if strings.HasSuffix(entry.Name(), ".zst") {
			decoder, err := zstd.NewReader(file)
			must(t, err)
			content = decoder
		}
		if _, err := io.Copy(&all, content); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%s: %v", entry.Name(), err)
		}
		must(t, file.Close())
	}
	return all.String()
}

// countReviews returns how many whole reviews are in a recording.
func countReviews(text string) (n int) {
	for line := range strings.Lines(text) {
		if strings.HasSuffix(line, "\n") && json.Valid([]byte(line)) && strings.Contains(line, `"review":{`) {
			n++
		}
	}
	return n
}

// metric waits until a metric has a value that is wanted.
func (s *server) metric(t *testing.T, name, label string, want func(float64) bool) {
	t.Helper()
	support.Eventually(t, name, func() error {
		got, err := s.Metric(t.Context(), name, label)
		if err == nil && !want(got) {
			err = fmt.Errorf("%s{%s} is %g", name, label, got)
		}
		return err
	})
}

func more(than float64) func(float64) bool { return func(v float64) bool { return v > than } }
func is(value float64) func(float64) bool  { return func(v float64) bool { return v == value } }

const (
	reviews = "gatehouse_record_reviews_total"
	dropped = "gatehouse_record_dropped_total"
	failing = "gatehouse_record_failing_since_timestamp_seconds"
)

// TestSecrets plants a secret in everything that the server is sent, and looks for it in everything that it
// records and logs.
func TestSecrets(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "recording")
	s := start(t, "--record", dir, "--authorize", "--log-level", "debug")
	for i := range 5 {
		must(t, s.Post(t.Context(), "/mutate", pod(fmt.Sprint("mutate-", i))))
		must(t, s.Post(t.Context(), "/validate", pod(fmt.Sprint("validate-", i))))
		must(t, s.Post(t.Context(), "/validate", admission(fmt.Sprint("secret-", i), "secrets", "Secret", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x","namespace":"shop","annotations":{"a":"`+secret+`"}},"data":{"password":"`+secret+`"},"stringData":{"a":"`+secret+`"}}`)))
		must(t, s.Post(t.Context(), "/validate", []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"token-review","kind":{"group":"authentication.k8s.io","version":"v1","kind":"TokenReview"},"resource":{"group":"authentication.k8s.io","version":"v1","resource":"tokenreviews"},"operation":"CREATE","userInfo":{"username":"anna"},"object":{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"`+secret+`"}}}}`)))
		must(t, s.Post(t.Context(), "/validate", []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"token-request","kind":{"group":"authentication.k8s.io","version":"v1","kind":"TokenRequest"},"resource":{"group":"","version":"v1","resource":"serviceaccounts"},"subResource":"token","operation":"CREATE","userInfo":{"username":"anna"},"object":{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","status":{"token":"`+secret+`"}}}}`)))
		must(t, s.Post(t.Context(), "/validate", []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"access-review","kind":{"group":"authorization.k8s.io","version":"v1","kind":"SubjectAccessReview"},"resource":{"group":"authorization.k8s.io","version":"v1","resource":"subjectaccessreviews"},"operation":"CREATE","userInfo":{"username":"anna"},"object":{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"anna","extra":{"example.com/key":["`+secret+`"]}}}}}`)))
		must(t, s.Post(t.Context(), "/authorize", []byte(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"anna","uid":"`+secret+`","groups":["`+secret+`"],"extra":{"gatehouse.dev/scope":["view"],"example.com/key":["`+secret+`"]},"resourceAttributes":{"verb":"list","resource":"pods","labelSelector":{"requirements":[{"key":"a","operator":"In","values":["`+secret+`"]}]}}}}`)))
		must(t, s.Post(t.Context(), "/authenticate", []byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"`+secret+`"}}`)))
	}
	login, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+s.Reviews.String()+"/login", strings.NewReader(`{"username":"anna","password":"`+secret+`"}`))
	must(t, err)
	login.SetBasicAuth("anna", secret)
	response, err := s.Client.Do(login)
	must(t, err)
	must(t, response.Body.Close())
	s.metric(t, reviews, `result="recorded"`, is(30))
	s.metric(t, reviews, `result="skipped"`, is(10))
	must(t, s.Signal(os.Interrupt))
	_, err = s.Wait(t.Context())
	must(t, err)
	text := read(t, dir)
	if got := countReviews(text); got != 30 {
		t.Errorf("%d reviews, want 30", got)
	}
	for _, want := range []string{`"allowed":false`, "the data is gatehouse-redacted", `"endpoint":"authenticate"`, `"endpoint":"authorize"`, `"gatehouse.dev/scope":["view"]`, "kind: Namespace", visible} {
		if !strings.Contains(text, want) {
			t.Errorf("the recording lacks %s", want)
		}
	}
	log, err := os.ReadFile(s.Log())
	must(t, err)
	for _, where := range []struct{ name, text string }{{"recording", text}, {"log", string(log)}} {
		if at := strings.Index(where.text, secret); at >= 0 {
			t.Errorf("the secret is in the %s: %s", where.name, where.text[max(0, at-200):min(len(where.text), at+100)])
		}
	}
}

// TestKilled kills the server. What it answered more than five seconds before can be read.
func TestKilled(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "recording")
	s := start(t, "--record", dir)
	for i := range 50 {
		must(t, s.Post(t.Context(), "/validate", pod(fmt.Sprint(i))))
	}
	// The server writes to the file by itself: nothing is sent meanwhile.
	support.Eventually(t, "the recording", func() error {
		if got := countReviews(read(t, dir)); got != 50 {
			return fmt.Errorf("%d reviews, want 50", got)
		}
		return nil
	})
	// Record get finds it on the listener for health and metrics.
	code, list, err := s.Get(t.Context(), "/debug/recording")
	files, _ := filepath.Glob(filepath.Join(dir, "*.zst"))
	if must(t, err); code != http.StatusOK || len(files) != 1 || !strings.Contains(list, `"name":"`+filepath.Base(files[0])+`"`) {
		t.Errorf("%s is %d, %s, want %q", "/debug/recording", code, list, files)
	}
	must(t, s.Post(t.Context(), "/validate", pod("last")))
	s.Kill()
	if got := countReviews(read(t, dir)); got < 50 {
		t.Errorf("%d reviews after the kill, want 50 at least", got)
	}
	again := start(t, "--record", dir)
	must(t, again.Post(t.Context(), "/validate", pod("again")))
	again.metric(t, reviews, `result="recorded"`, is(1))
}

// TestUnwritable starts a server whose directory cannot be made, and then can.
func TestUnwritable(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	dir := filepath.Join(parent, "recording")
	must(t, os.WriteFile(dir, nil, 0o600)) // rights would not keep root from writing
	s := start(t, "--record", dir)
	for i := range 20 {
		must(t, s.Post(t.Context(), "/validate", pod(fmt.Sprint(i))))
	}
	s.metric(t, dropped, `reason="disk"`, is(20))
	s.metric(t, failing, "", more(0))
	code, body, err := s.Get(t.Context(), "/readyz?verbose")
	if must(t, err); code != http.StatusOK || !strings.Contains(body, "Recording=False since ") || !strings.Contains(body, "not a directory") {
		t.Errorf("/readyz?verbose says %d, %s", code, body)
	}
	log, err := os.ReadFile(s.Log())
	if must(t, err); !strings.Contains(string(log), "recording failed, reviews are answered but not recorded") {
		t.Errorf("log %s", log)
	}
	must(t, os.Remove(dir))
	s.metric(t, failing, "", is(0))
	must(t, s.Post(t.Context(), "/validate", pod("after")))
	s.metric(t, reviews, `result="recorded"`, is(1))
	if _, body, err = s.Get(t.Context(), "/readyz?verbose"); err != nil || !strings.Contains(body, "Recording=True") {
		t.Errorf("/readyz?verbose says %s, %v", body, err)
	}
	support.Eventually(t, "the recording", func() error {
		if text := read(t, dir); !strings.Contains(text, `"gap":{`) || !strings.Contains(text, `"reviews":20`) {
			return fmt.Errorf("no gap of 20 reviews in %s", text)
		}
		return nil
	})
}
