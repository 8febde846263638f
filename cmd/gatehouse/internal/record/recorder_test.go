package record_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record/redacted"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

func redactor(t testing.TB) *record.Redactor {
	t.Helper()
	r, err := record.NewRedactor(bytes.Repeat([]byte("k"), record.MinKey), []string{"spec.password"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func options(t testing.TB, dir string) record.Options {
	t.Helper()
	return record.Options{
		Dir: dir, Replica: "replica-1", Redactor: redactor(t), MaxBytes: 64 << 20, MaxAge: time.Hour * 24, Log: slog.New(slog.DiscardHandler),
	}
}

// admissionReview returns the body of a review of an object.
func admissionReview(uid, object string) []byte {
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":%q,"namespace":"shop","userInfo":{"username":"anna","extra":{"k":["extra-secret"]}},"object":%s}}`, uid, object)
}

// add records a review as the handler does.
func add(r *record.Recorder, uid string, body, answer []byte) {
	r.Begin().Finish(&review.Outcome{Endpoint: "validate", UID: types.UID(uid), Decision: review.Allowed, Started: time.Now()}, review.Exchange{Body: body, Answer: answer})
}

// recorded returns the reviews of all segments of a directory, in order.
func recorded(t testing.TB, dir string) (all []record.Review, gaps []record.Gap) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"+record.SegmentSuffix))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := record.NewReader(file)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for {
			one, err := r.Next()
			if errors.Is(err, io.EOF) || errors.Is(err, record.ErrTruncated) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, *one)
		}
		gaps = append(gaps, r.Gaps()...)
		r.Close()
		_ = file.Close()
	}
	return all, gaps
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

// TestSegmentReviews checks that a segment has a bounded number of reviews.
func TestSegmentReviews(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := record.New(options(t, dir))
	stop := run(r)
	body := admissionReview("1", `{}`)
	for i := range record.MaxSegmentReviews + 1 {
		for r.Stats().Recorded < int64(i)-200 { // its queue is bounded
			runtime.Gosched()
		}
		add(r, "1", body, []byte(`{"response":{"uid":"1","allowed":true}}`))
	}
	stop()
	if files, _ := filepath.Glob(filepath.Join(dir, "*"+record.SegmentSuffix)); len(files) != 2 {
		t.Errorf("segments: %v", files)
	}
}

func TestRecorder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "recording")
	r := record.New(options(t, dir))
	r.Configuration("d1", []byte("kind: SidecarProfile\n"))
	stop := run(r)
	for i := range 3 {
		add(r, fmt.Sprint(i), admissionReview(fmt.Sprint(i), `{"kind":"ConfigMap","data":{"a":"hunter2hunter2"}}`), []byte(`{"response":{"uid":"0","allowed":true}}`))
	}
	r.Begin().Finish(&review.Outcome{Endpoint: "authenticate", Backend: "AccessTokens", TokenID: "ci", Started: time.Now()}, review.Exchange{Answer: []byte(`{"status":{"user":{"username":"ci","extra":{"k":["hunter2hunter2"]}}}}`)})
	stop()
	all, _ := recorded(t, dir)
	if len(all) != 4 || !all[0].Redacted || string(all[0].Response) != `{"uid":"0","allowed":true}` || all[3].Token == nil || all[3].Token.ID != "ci" {
		t.Fatalf("reviews %+v", all)
	}
	if answer := string(all[3].Response); !strings.Contains(answer, `"username":"ci"`) || strings.Contains(answer, "hunter2") {
		t.Errorf("answer to a token %s, want the user without extra values", answer)
	}
	if got, want := r.Stats().Recorded, int64(4); got != want {
		t.Errorf("Recorded = %d, want %d", got, want)
	}
	configuration, err := os.ReadFile(filepath.Join(dir, record.ConfigurationName("d1")))
	if err != nil || string(configuration) != "kind: SidecarProfile\n" {
		t.Errorf("configuration %q, %v", configuration, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, want 0600", entry.Name(), info.Mode())
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
	all, gaps := recorded(t, dir)
	if int64(len(all))+dropped != 5010 || len(gaps) != 1 || gaps[0].Reviews != dropped {
		t.Errorf("%d reviews, %d dropped, gaps %+v", len(all), dropped, gaps)
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
			r.Configuration(fmt.Sprint("d", i), bytes.Repeat([]byte("x"), 20<<10))
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
		{"annotation of a Secret whose kind is last", `{"metadata":{"annotations":{"a":"` + secret + `"}},"kind":"S\u0065cret"}`, ""},
		{"extra of a user", `{"kind":"SubjectAccessReview","spec":{"extra":{"k":["` + secret + `"]}}}`, ""},
		{"path of the caller", `{"spec":{"password":"` + secret + `"}}`, ""},
		{"number", `{"data":{"a":1234567890123}}`, ""},
		{"message", `{"data":{"a":"` + secret + `"}}`, `{"response":{"allowed":false,"status":{"message":"a is \"` + secret + `\""}}}`},
		{"warning", `{"data":{"a":"` + secret + `"}}`, `{"response":{"allowed":true,"warnings":["a is ` + secret + `!"]}}`},
		{"patch", `{"spec":{"containers":[{"env":[{"name":"A","value":"` + secret + `"}]}]}}`, `{"response":{"patchType":"JSONPatch","patch":"` +
			base64.StdEncoding.EncodeToString([]byte(`[{"op":"add","path":"/spec/containers/0","value":{"args":["--x=`+secret+`"]}}]`)) + `"}}`},
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
			if !strings.Contains(text, redacted.Prefix) || !all[0].Redacted {
				t.Errorf("nothing is redacted: %s", text)
			}
		})
	}
}

func TestRedactorRefuses(t *testing.T) {
	t.Parallel()
	key := bytes.Repeat([]byte("k"), record.MinKey)
	for _, tt := range []struct {
		name, path, want string
		key              []byte
	}{
		{"short key", "data", "needs 32", key[1:]},
		{"labels", "metadata.labels", "cannot be redacted", key},
		{"empty step", "spec..x", "must be names of fields", key},
		{"index", "spec.containers[0].image", "must be names of fields", key},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, err := record.NewRedactor(tt.key, []string{tt.path}, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}
