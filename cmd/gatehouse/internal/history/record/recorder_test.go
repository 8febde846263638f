package record_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/authz"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

func options(t testing.TB, dir string) record.Options {
	t.Helper()
	redactor, errs := record.NewRedactor([]string{"spec.password"}, nil)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return record.Options{
		Dir: dir, Replica: "replica-1", Rules: record.Rules{Share: 1, Redactor: redactor}, MaxBytes: 64 << 20, MaxAge: time.Hour * 24, Log: slog.New(slog.DiscardHandler),
	}
}

// TestTokensAreNotRecorded: requests whose objects hold tokens are skipped.
func TestTokensAreNotRecorded(t *testing.T) {
	t.Parallel()
	r := record.New(options(t, t.TempDir()))
	stop := run(r)
	for _, resource := range []string{`{"group":"","resource":"serviceaccounts"},"subResource":"token"`, `{"group":"authentication.k8s.io","resource":"tokenreviews"}`, `{"group":"","resource":"pods"}`} {
		add(r, "1", []byte(`{"request":{"resource":`+resource+`}}`), nil)
	}
	stop()
	if s := r.Stats(); s.Recorded != 1 || s.Skipped != 2 {
		t.Errorf("%+v", s)
	}
}

// TestAccess records access reviews: what the decision reads and the name of the user, and none by which Gatehouse asks itself.
func TestAccess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := options(t, dir)
	r := record.New(o)
	stop := run(r)
	snapshot, err := webhooks.Compile(webhooks.Spec{Digest: "d1"})
	if err != nil {
		t.Fatal(err)
	}
	access := func(decision review.Decision, reason authz.Reason, body, answer string) {
		trace := r.Begin()
		trace.Snapshot(snapshot)
		trace.Finish(&review.Outcome{
			Endpoint: webhooks.AuthorizeName, Decision: decision, Reason: string(reason), Started: time.UnixMilli(7), Namespace: "shop",
			Resource: metav1.GroupVersionResource{Group: "authentication.k8s.io", Version: "v1", Resource: "tokenreviews"},
		}, review.Exchange{Body: []byte(body), Answer: []byte(answer)})
	}
	const body = `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1beta1","metadata":{},"spec":{"user":"ci","uid":"hunter2","group":["hunter2"],` +
		`"extra":{"gatehouse.dev/scope":["view","namespace=shop"],"example.com/key":["hunter2"]},"resourceAttributes":{"verb":"get","resource":"pods","name":"\n","fieldSelector":{"rawSelector":"hunter2"}}},"status":{"allowed":false}}`
	access(review.NoOpinion, authz.ReasonRule, body, `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1beta1","status":{"allowed":false}}`)
	access(review.Unknown, authz.ReasonProbe, body, "")
	access(review.Unknown, authz.ReasonUnknownScope, `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"nonResourceAttributes":{"verb":"get","path":"/x"}}}`, "")
	stop()
	all, _ := recorded(t, dir)
	if len(all) != 2 || r.Stats().Skipped != 1 {
		t.Fatalf("%+v, %+v", all, r.Stats())
	}
	for i, want := range []string{
		`{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1beta1","spec":{"user":"ci","extra":{"gatehouse.dev/scope":["view","namespace=shop"]},"resourceAttributes":{"verb":"get","resource":"pods","name":"\n"}}}`,
		`{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"user":"","nonResourceAttributes":{"path":"/x","verb":"get"}}}`,
	} {
		if one := &all[i]; string(one.Request) != want || one.Config != "d1" || one.ID != fmt.Sprintf("replica-1-7-%d", i+1+i) || one.Token != nil || len(one.Lookups.Namespaces) > 0 {
			t.Errorf("got %+v\n%s, want\n%s", one, one.Request, want)
		}
	}
	if got, want := string(all[0].Response), `{"status":{"allowed":false}}`; got != want || all[1].Response != nil {
		t.Errorf("responses %s and %s, want %s and none", got, all[1].Response, want)
	}
}

// TestShareOfUnnamed: of reviews that have no UID, a share is recorded too, and neither all nor none.
func TestShareOfUnnamed(t *testing.T) {
	t.Parallel()
	o := options(t, t.TempDir())
	o.Rules.Share = 0.5
	r := record.New(o)
	stop := run(r)
	for range 100 {
		r.Begin().Finish(&review.Outcome{Endpoint: "authenticate", Decision: review.Allowed}, review.Exchange{})
	}
	stop()
	if s := r.Stats(); s.Recorded < 20 || s.Skipped < 20 {
		t.Errorf("%+v", s)
	}
}

// admissionReview returns the body of a review of an object.
func admissionReview(uid, object string) []byte {
	kind, resource := rawjson.Value(object).Get("kind").Text(), "x"
	if kind == "Secret" {
		resource = "secrets"
	}
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":%q,"kind":{"group":"","version":"v1","kind":%q},"resource":{"group":"","version":"v1","resource":%q},"namespace":"shop","userInfo":{"username":"anna","extra":{"k":["extra-secret"]}},"object":%s}}`, uid, kind, resource, object)
}

// add records a review as the handler does.
func add(r *record.Recorder, uid string, body, answer []byte) {
	resource := rawjson.Value(body).Get("request", "resource")
	r.Begin().Finish(&review.Outcome{
		Endpoint: "validate", UID: types.UID(uid), Decision: review.Allowed, Started: time.Now(), Subresource: rawjson.Value(body).Get("request", "subResource").Text(),
		Resource: metav1.GroupVersionResource{Group: resource.Get("group").Text(), Version: "v1", Resource: resource.Get("resource").Text()},
	}, review.Exchange{Body: body, Answer: answer})
}

// recorded returns the reviews of all segments of a directory, in order. It fails if one cannot be read to its end.
func recorded(t testing.TB, dir string) (all []record.Review, missing int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"+record.SegmentSuffix))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := record.NewReader(bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		for {
			one, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			all = append(all, *one)
		}
		missing += r.Missing()
		r.Close()
	}
	return all, missing
}

// run runs a Recorder until the test calls stop.
func run(r *record.Recorder) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// wait waits until a Recorder has seen n reviews.
func wait(r *record.Recorder, n int64) {
	for s := r.Stats(); s.Recorded+s.Skipped+s.Dropped["queue"]+s.Dropped["disk"]+s.Dropped["size"] < n; s = r.Stats() {
		runtime.Gosched()
	}
}

// TestRecorder records reviews, a login and a configuration, and reads them back.
func TestRecorder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "recording")
	r := record.New(options(t, dir))
	r.Configuration("d1", func() string { return "kind: SidecarProfile\n" })
	snapshot, err := webhooks.Compile(webhooks.Spec{Digest: "d1"})
	if err != nil {
		t.Fatal(err)
	}
	stop := run(r)
	for i := range 3 {
		trace := r.Begin()
		trace.Snapshot(snapshot)
		trace.Finish(&review.Outcome{Endpoint: "validate", UID: types.UID(fmt.Sprint(i)), Decision: review.Allowed, Started: time.Now()}, review.Exchange{
			Body:   admissionReview(fmt.Sprint(i), `{"kind":"ConfigMap","data":{"a":"hunter2hunter2"}}`),
			Answer: []byte(`{"response":{"uid":"0","allowed":true}}`),
		})
	}
	r.Begin().Finish(&review.Outcome{Endpoint: "authenticate", Backend: "AccessTokens", TokenID: "ci", Started: time.Now()}, review.Exchange{Answer: []byte(`{"status":{"user":{"username":"ci","extra":{"k":["hunter2hunter2"]}}}}`)})
	stop()
	all, _ := recorded(t, dir)
	if len(all) != 4 || strings.Join(all[0].Redacted, " ") != "request.userInfo.extra request.object.data" || string(all[0].Response) != `{"uid":"0","allowed":true}` || all[0].Config != "d1" || all[3].Token == nil || all[3].Token.ID != "ci" {
		t.Fatalf("reviews %+v", all)
	}
	if answer := string(all[3].Response); !strings.Contains(answer, `"username":"ci"`) || strings.Contains(answer, "hunter2") {
		t.Errorf("answer to a token %s, want the user without extra values", answer)
	}
	if got, want := r.Stats().Recorded, int64(4); got != want {
		t.Errorf("Recorded = %d, want %d", got, want)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	if info, err := entries[0].Info(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s has mode %v, want 0600", entries[0].Name(), info.Mode())
	}
	file, err := os.ReadFile(filepath.Join(dir, entries[0].Name()))
	if err != nil {
		t.Fatal(err)
	}
	reader, err := record.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if _, err := reader.Next(); err != nil {
		t.Fatal(err)
	}
	if text, ok := reader.Segment().Configuration("d1"); !ok || text != "kind: SidecarProfile\n" {
		t.Errorf("configuration %q", text)
	}
}

// TestSampling records a share of what is allowed, and all else.
func TestSampling(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		share       float64
		decision    review.Decision
		warnings    int
		least, most int64
	}{
		{0, review.Allowed, 0, 0, 0},
		{0.5, review.Allowed, 0, 200, 300},
		{1, review.Allowed, 0, 500, 500},
		{0, review.Denied, 0, 500, 500},
		{0, review.Unknown, 0, 500, 500},
		{0, review.Allowed, 1, 500, 500},
	} {
		o := options(t, t.TempDir())
		o.Rules.Share = tt.share
		r := record.New(o)
		for i := range 500 {
			r.Begin().Finish(&review.Outcome{UID: types.UID(fmt.Sprint("uid-", i)), Decision: tt.decision, Warnings: tt.warnings, Started: time.Now()}, review.Exchange{Body: []byte("{}")})
		}
		run(r)()
		if s := r.Stats(); s.Recorded < tt.least || s.Recorded > tt.most || s.Recorded+s.Skipped != 500 {
			t.Errorf("%+v: %d recorded, %d skipped", tt, s.Recorded, s.Skipped)
		}
	}
}

// TestRecorderNeverWaits fills the queue of a Recorder that does not write.
func TestRecorderNeverWaits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := record.New(options(t, dir))
	body := admissionReview("1", `{"data":{"a":"`+strings.Repeat("x", 1<<20)+`"}}`)
	for range 10 {
		add(r, "1", body, nil)
	}
	for range 5000 {
		add(r, "2", []byte(`{}`), nil)
	}
	dropped := r.Stats().Dropped["queue"]
	if dropped < 7+5000-1024 {
		t.Errorf("%d dropped", dropped)
	}
	run(r)()
	all, missing := recorded(t, dir)
	if int64(len(all))+dropped != 5010 || missing != dropped {
		t.Errorf("%d reviews, %d dropped, %d missing", len(all), dropped, missing)
	}
}

// TestRecorderBounds fills a directory beyond its bounds.
func TestRecorderBounds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		o := options(t, dir)
		o.MaxBytes = 1 << 20
		r := record.New(o)
		stop := run(r)
		random := make([]byte, 64<<10)
		for i := range 100 {
			for k := range random { // incompressible
				random[k] = byte((i*7919 + k*k*31 + k>>3) * 2654435761 >> 13)
			}
			add(r, fmt.Sprint(i), admissionReview(fmt.Sprint(i), `{"x":"`+base64.StdEncoding.EncodeToString(random)+`"}`), nil)
			time.Sleep(3 * time.Second)
			if total := size(t, dir); total > o.MaxBytes {
				t.Fatalf("%d bytes after %d reviews, want at most %d", total, i, o.MaxBytes)
			}
		}
		stop()
		all, _ := recorded(t, dir)
		if len(all) == 0 || all[len(all)-1].ID != "99" {
			t.Errorf("%d reviews, the last is not the newest", len(all))
		}
	})
}

func size(t testing.TB, dir string) (total int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil {
			total += info.Size()
		}
	}
	return total
}

// statusOf returns a pod with a status annotation that has originals.
func statusOf(originals string) string {
	return `{"metadata":{"annotations":{"sidecar.gatehouse.dev/status":` + string(rawjson.AppendString(nil, `{"profiles":[],"originals":`+originals+`}`)) + `}}}`
}

// TestRedaction plants secrets in every place that is redacted, and looks for them in all files.
func TestRedaction(t *testing.T) {
	t.Parallel()
	const secret = "hunter2-hunter2"
	for _, tt := range []struct{ name, object, answer string }{
		{"data", `{"kind":"Secret","data":{"a":"` + secret + `"}}`, ""},
		{"stringData", `{"kind":"Secret","stringData":{"a":{"b":["` + secret + `"]}}}`, ""},
		{"escaped name", `{"kind":"Secret","d\u0061ta":{"a":"` + secret + `"}}`, ""},
		{"a second data", `{"data":{"a":"x"},"data":{"a":"` + secret + `"}}`, ""},
		{"env", `{"spec":{"containers":[{"env":[{"name":"A","value":"` + secret + `"}]}]}}`, ""},
		{"env of an init container", `{"spec":{"initContainers":[{"env":[{"name":"A","value":"` + secret + `"}]}]}}`, ""},
		{"env of a template", `{"spec":{"template":{"spec":{"containers":[{"env":[{"name":"A","value":"` + secret + `"}]}]}}}}`, ""},
		{"env of a CronJob", `{"spec":{"jobTemplate":{"spec":{"template":{"spec":{"containers":[{"env":[{"value":"` + secret + `"}]}]}}}}}}`, ""},
		{"last applied", `{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{` + secret + `}"}}}`, ""},
		{"annotation of a template", `{"spec":{"template":{"metadata":{"annotations":{"example.com/API-Token":"` + secret + `"}}}}}`, ""},
		{"annotation of a Job of a CronJob", `{"spec":{"jobTemplate":{"metadata":{"annotations":{"my-token":"` + secret + `"}}}}}`, ""},
		{"annotation of a volume claim", `{"spec":{"volumeClaimTemplates":[{},{"metadata":{"annotations":{"my-token":"` + secret + `"}}}]}}`, ""},
		{"last handled", `{"metadata":{"annotations":{"kopf.zalando.org/last-handled-configuration":"{` + secret + `}"}}}`, ""},
		{"kapp", `{"metadata":{"annotations":{"kapp.k14s.io/original":"{` + secret + `}"}}}`, ""},
		{"Rancher", `{"metadata":{"annotations":{"objectset.rio.cattle.io/applied":"{` + secret + `}"}}}`, ""},
		{"annotation of a Secret", `{"kind":"Secret","metadata":{"annotations":{"a":"` + secret + `"}}}`, ""},
		{"container that injection replaced", statusOf(`{"/spec/containers/name=a":{"env":[{"name":"A","value":"` + secret + `"},{"name":"B","value":"pw77"}],"args":["x"]}}`), ""},
		{"variable that injection replaced", statusOf(`{"/spec/containers/name=a/env/name=A":{"name":"A","value":"` + secret + `"},"/spec/initContainers/name=b/env/name=A/value":"` + secret + `"}`), ""},
		{"annotation that injection replaced", statusOf(`{"/metadata/annotations/example.com~1my-token":"` + secret + `"}`), ""},
		{"status of a template", `{"spec":{"template":` + statusOf(`{"/spec/containers/name=a":{"env":[{"name":"A","value":"`+secret+`"}]}}`) + `}}`, ""},
		{"status that is none", `{"metadata":{"annotations":{"sidecar.gatehouse.dev/status":"{` + secret + `"}}}`, ""},
		{"status in a patch", `{"spec":{"containers":[{"env":[{"name":"A","value":"pw77"},{"name":"B","value":"\"` + secret + `"}]}]}}`, `{"response":{"patchType":"JSONPatch","patch":"` +
			base64.StdEncoding.EncodeToString([]byte(`[{"op":"add","path":"/metadata","value":`+string(rawjson.Value(statusOf(`{"/spec/containers/name=a":{"env":[{"name":"A","value":"pw77"},{"name":"B","value":"\"`+secret+`"}]}}`)).Get("metadata"))+`}]`)) + `"}}`},
		{"extra of a user", `{"kind":"SubjectAccessReview","spec":{"extra":{"k":["` + secret + `"]}}}`, ""},
		{"path of the caller", `{"spec":{"password":"` + secret + `"}}`, ""},
		{"number", `{"data":{"a":1234567890123}}`, ""},
		{"message", `{"data":{"a":"` + secret + `"}}`, `{"response":{"allowed":false,"status":{"message":"a is \"` + secret + `\""}}}`},
		{"warning", `{"data":{"a":"` + secret + `"}}`, `{"response":{"allowed":true,"warnings":["a is ` + secret + `!"]}}`},
		{"patch", `{"spec":{"containers":[{"env":[{"name":"A","value":"` + secret + `"}]}]}}`, `{"response":{"patchType":"JSONPatch","patch":"` +
			base64.StdEncoding.EncodeToString([]byte(`[{"op":"add","path":"/spec/containers/0","value":{"args":["--x=`+secret+`"]}}]`)) + `"}}`},
		{"value that is escaped in a patch", `{"data":{"a":"<` + secret + `>"}}`, `{"response":{"patchType":"JSONPatch","patch":"` +
			base64.StdEncoding.EncodeToString([]byte(`[{"op":"add","path":"/x","value":"a \u003c`+secret+`\u003e"}]`)) + `"}}`},
		{"short value in a patch", `{"spec":{"containers":[{"env":[{"name":"A","value":"pw77"}]}]}}`, `{"response":{"patchType":"JSONPatch","patch":"` +
			base64.StdEncoding.EncodeToString([]byte(`[{"op":"add","path":"/spec/containers/0","value":{"env":[{"name":"A","value":"pw77"}]}}]`)) + `"}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r := record.New(options(t, dir))
			stop := run(r)
			add(r, "1", admissionReview("1", tt.object), []byte(tt.answer))
			stop()
			all, _ := recorded(t, dir)
			text := string(all[0].Request) + string(all[0].Response)
			for _, planted := range []string{secret, "extra-secret", "1234567890123", "pw77"} {
				if strings.Contains(text, planted) {
					t.Errorf("%q is in the recording: %s", planted, text)
				}
			}
			if !strings.Contains(text, record.Mark) || len(all[0].Redacted) < 2 {
				t.Errorf("nothing is redacted: %s", text)
			}
		})
	}
}

func TestRedactorRefuses(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"metadata.labels": "cannot be redacted", "spec..x": "must be names of fields", "spec.containers[0].image": "must be names of fields",
	} {
		if _, errs := record.NewRedactor([]string{path}, nil); len(errs) != 1 || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("%s: errors %v, want %s", path, errs, want)
		}
	}
}

// params are objects of which each look-up returns others, as if a tenant changed them between reviews.
type params struct {
	text  string
	count int
	same  []*unstructured.Unstructured
}

func (p *params) next() *unstructured.Unstructured {
	p.count++
	return &unstructured.Unstructured{Object: map[string]any{"kind": "ConfigMap", "metadata": map[string]any{"resourceVersion": fmt.Sprint(p.count)}, "data": map[string]any{"a": p.text}}}
}

func (*params) Namespace(string) (*corev1.Namespace, bool)       { return nil, false }
func (*params) Namespaced(schema.GroupVersionKind) (bool, error) { return true, nil }
func (p *params) Get(schema.GroupVersionKind, string, string) (*unstructured.Unstructured, error) {
	return p.next(), nil
}

func (p *params) List(schema.GroupVersionKind, string, labels.Selector) ([]*unstructured.Unstructured, error) {
	return p.same, nil
}

// TestEverythingReadsBack records what is hostile or large. What a Recorder says that it has recorded, a
// Reader reads.
func TestEverythingReadsBack(t *testing.T) {
	t.Parallel()
	text := make([]byte, 100_000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(text)
	objects := &params{text: hex.EncodeToString(text)}
	snapshot, err := webhooks.Compile(webhooks.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	snapshot = snapshot.With(webhooks.Lookups{Objects: objects, Now: time.Now})
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	get := func(o webhooks.Lookups) { _, _ = o.Objects.Get(kind, "shop", "limits") }
	list := func(o webhooks.Lookups) { _, _ = o.Objects.List(kind, "shop", nil) }
	small := admissionReview("1", `{"kind":"A"}`)
	for _, tt := range []struct {
		name    string
		reviews int
		body    func(i int) []byte
		lookup  func(webhooks.Lookups)
		params  int // that a list returns
		dropped int64
	}{
		{"param that changes", 80, func(int) []byte { return small }, get, 0, 0},
		{"params of one review", 3, func(int) []byte { return small }, list, 7, 0},
		{"params of one review that are too large", 3, func(int) []byte { return small }, list, 80, 3},
		{"long list", 2, func(int) []byte { return admissionReview("1", `{"data":[`+strings.Repeat("0,", 1_400_000)+`0]}`) }, nil, 0, 2},
		{"large", 3, func(int) []byte {
			return admissionReview("1", fmt.Sprintf(`{"a":%q}`, objects.text+objects.text+objects.text))
		}, nil, 0, 0},
		{"largest", 2, func(int) []byte {
			return admissionReview("1", fmt.Sprintf(`{"a":%q}`, strings.Repeat("x", review.MaxAdmissionBytes-1000)))
		}, nil, 0, 0},
		{"values in the mark", 1, func(int) []byte {
			var env []string
			for i := range len(record.Mark) - 8 {
				for k := i + 8; k < len(record.Mark); k++ {
					env = append(env, fmt.Sprintf(`{"name":"A","value":%q}`, record.Mark[i:k]))
				}
			}
			return admissionReview("1", `{"spec":{"containers":[{"env":[`+strings.Join(env, ",")+`]}]}}`)
		}, nil, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			o := options(t, dir)
			o.MaxBytes = 1 << 30
			r := record.New(o)
			stop := run(r)
			objects.same = nil
			waiting := 0
			if len(tt.body(0)) < 300_000 {
				waiting = 8
			}
			for range tt.params {
				objects.same = append(objects.same, objects.next())
			}
			for i := range tt.reviews {
				trace := r.Begin()
				if traced := trace.Snapshot(snapshot); tt.lookup != nil {
					tt.lookup(traced.Lookups())
				}
				answer := fmt.Appendf(nil, `{"response":{"allowed":true,"warnings":[%q]}}`, strings.Repeat("gatehouse-", 10_000))
				trace.Finish(&review.Outcome{Endpoint: "validate", UID: types.UID(fmt.Sprint(i)), Decision: review.Allowed, Started: time.Now()}, review.Exchange{Body: tt.body(i), Answer: answer})
				wait(r, int64(i+1-waiting))
			}
			stop()
			s := r.Stats()
			if s.Dropped["size"] != tt.dropped || s.Recorded != int64(tt.reviews)-tt.dropped {
				t.Errorf("stats %+v, want %d dropped", s, tt.dropped)
			}
			if all, _ := recorded(t, dir); int64(len(all)) != s.Recorded {
				t.Errorf("%d reviews can be read of %d", len(all), s.Recorded)
			}
			files, _ := filepath.Glob(filepath.Join(dir, "*"+record.SegmentSuffix))
			if len(files) > 1+tt.reviews/8 {
				t.Errorf("%d segments for %d reviews", len(files), tt.reviews)
			}
		})
	}
}

// TestMemory records a large review. Its memory does not stay.
func TestMemory(t *testing.T) {
	inUse := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	r := record.New(options(t, t.TempDir()))
	stop := run(r)
	defer stop()
	add(r, "1", admissionReview("1", `{}`), nil)
	wait(r, 1)
	before := inUse()
	add(r, "2", admissionReview("2", `{"a":"`+strings.Repeat("x", 7<<19)+`"}`), nil)
	wait(r, 2)
	add(r, "3", admissionReview("3", `{}`), nil)
	wait(r, 3)
	if after := inUse(); after > before+(4<<20) {
		t.Errorf("%d MiB stay in memory", (after-before)>>20)
	}
	runtime.KeepAlive(r)
}

// TestFilesAreRemoved removes what a Recorder writes to. It begins a new segment.
func TestFilesAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		o := options(t, dir)
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		r := record.New(o)
		stop := run(r)
		add(r, "1", admissionReview("1", `{}`), nil)
		time.Sleep(5 * time.Second)
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 {
			t.Fatalf("%v, %v", entries, err)
		}
		for _, entry := range entries {
			if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		add(r, "2", admissionReview("2", `{}`), nil)
		time.Sleep(5 * time.Second)
		stop()
	})
	all, _ := recorded(t, dir)
	if len(all) != 1 || all[0].ID != "2" || strings.Count(log.String(), "is gone") != 1 {
		t.Errorf("reviews %+v, log %s", all, &log)
	}
}
