package record_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record/redacted"
)

// plain returns all files of a recording, decompressed.
func plain(t testing.TB, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"+record.SegmentSuffix))
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	for _, name := range files {
		file, err := os.Open(name) // #nosec G304 -- of this test
		if err != nil {
			t.Fatal(err)
		}
		decoder, err := zstd.NewReader(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(&all, decoder); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
		decoder.Close()
		_ = file.Close()
	}
	return all.String()
}

// containers returns the containers of a pod with an environment variable.
func containers(value string) string {
	return fmt.Sprintf(`[{"name":"app","image":"registry.example/checkout:1.4.2","env":[{"name":"PASSWORD","value":%q}]}]`, value)
}

// TestParts records the same pods often. Later records refer to what they share with earlier
// ones, and are read as they came.
func TestParts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := record.New(options(t, dir))
	stop := run(r)
	const n = 40
	patch := base64.StdEncoding.EncodeToString([]byte(`[{"op":"add","path":"/spec/containers/1","value":{"name":"proxy","args":["--upstream=hunter2-hunter2"]}}]`))
	for i := range n {
		pod := fmt.Sprintf(`{"kind":"Pod","metadata":{"name":"checkout-%d","annotations":{"a.example/token":"token-of-the-pod-%d","note":"kept"},"labels":{"app":"checkout","tier":"frontend","pod-template-hash":"7d9f8b6c5"}},"spec":{"containers":%s,"x":[]}}`,
			i, i/20, containers("hunter2-hunter2"))
		add(r, fmt.Sprint(i), admissionReview(fmt.Sprint(i), pod), []byte(`{"response":{"uid":"0","allowed":true,"patchType":"JSONPatch","patch":"`+patch+`"}}`))
	}
	stop()
	all, _ := recorded(t, dir)
	if len(all) != n {
		t.Fatalf("%d reviews, want %d", len(all), n)
	}
	for i := range all {
		want := []string{
			fmt.Sprintf(`"name":"checkout-%d"`, i), `"labels":{"app":"checkout","tier":"frontend","pod-template-hash":"7d9f8b6c5"}`, `"note":"kept"`,
			`"image":"registry.example/checkout:1.4.2","env":[{"name":"PASSWORD","value":"` + redacted.Prefix, `"spec":{"containers":[`, `"x":[]}`,
		}
		for _, text := range want {
			if !strings.Contains(string(all[i].Request), text) {
				t.Fatalf("review %d lacks %s: %s", i, text, all[i].Request)
			}
		}
		if !json.Valid(all[i].Request) || !all[i].Redacted || strings.Contains(string(all[i].Request), "token-of") {
			t.Errorf("review %d: %s", i, all[i].Request)
		}
		var first, this struct{ Patch any }
		if json.Unmarshal(all[0].Response, &first) != nil || json.Unmarshal(all[i].Response, &this) != nil || fmt.Sprint(first) != fmt.Sprint(this) {
			t.Errorf("review %d: answer %s, want that of the first, %s", i, all[i].Response, all[0].Response)
		}
	}
	text := plain(t, dir)
	if strings.Contains(text, "hunter2") {
		t.Error("the secret is in the recording")
	}
	if got := strings.Count(text, "registry.example/checkout:1.4.2"); got > 2 {
		t.Errorf("the containers are in the recording %d times, want once before and once as a part", got)
	}
}

// TestPartsOfPlaces records one text at a place where nothing is redacted, and then at others
// where it is.
func TestPartsOfPlaces(t *testing.T) {
	t.Parallel()
	secret := `{"a":"hunter2-hunter2","b":"a text that is long enough for a part"}`
	for _, tt := range []struct{ name, first, then string }{
		{"data", `{"spec":{"x":` + secret + `}}`, `{"data":{"x":` + secret + `}}`},
		{"an annotation", `{"spec":{"x":` + secret + `}}`, `{"metadata":{"annotations":{"x-token":` + secret + `}}}`},
		{"path of the caller", `{"status":{"password":` + secret + `}}`, `{"spec":{"password":` + secret + `}}`},
		{"userInfo", `{"userInfo":[` + secret + `]}`, `{"data":[` + secret + `]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r := record.New(options(t, dir))
			stop := run(r)
			for i := range 3 {
				add(r, fmt.Sprint(i), admissionReview(fmt.Sprint(i), tt.first), nil)
			}
			for i := range 3 {
				add(r, fmt.Sprint("then-", i), admissionReview(fmt.Sprint("then-", i), tt.then), nil)
			}
			stop()
			all, _ := recorded(t, dir)
			for i := range all {
				if is, want := strings.Contains(string(all[i].Request), "hunter2"), i < 3; is != want {
					t.Errorf("review %d has the value: %v, want %v: %s", i, is, want, all[i].Request)
				}
			}
		})
	}
}

// TestPartsBound records ever new objects, each twice: memory is bounded, and all are read again.
func TestPartsBound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := record.New(options(t, dir))
	stop := run(r)
	const n = 3000
	for i := range n {
		body := admissionReview(fmt.Sprint(i), fmt.Sprintf(`{"spec":{"containers":%s,"m%d":{"a":%q}}}`, containers(fmt.Sprint("value-of-", i/2)), i/2, strings.Repeat("x", 900)))
		for r.Stats().Recorded < int64(i)-200 {
			runtime.Gosched()
		}
		add(r, fmt.Sprint(i), body, nil)
	}
	stop()
	all, _ := recorded(t, dir)
	if len(all) != n {
		t.Fatalf("%d reviews, want %d, stats %+v", len(all), n, r.Stats())
	}
	for i := range all {
		if all[i].ID != fmt.Sprint(i) || !strings.Contains(string(all[i].Request), fmt.Sprintf(`"m%d":{`, i/2)) || !json.Valid(all[i].Request) {
			t.Fatalf("review %d is %s: %s", i, all[i].ID, all[i].Request)
		}
	}
}

// TestReaderParts reads lines whose parts are not there.
func TestReaderParts(t *testing.T) {
	t.Parallel()
	const header = `{"header":{"format":1,"program":"v9"}}` + "\n"
	const object = `{"object":{"id":1,"value":{"a":1}}}` + "\n"
	big := fmt.Sprintf(`{"object":{"id":1,"value":%q}}`, strings.Repeat("x", 1<<20)) + "\n"
	for _, tt := range []struct{ name, lines, want string }{
		{"one", header + object + `{"parts":[[29,1]],"review":{"id":"1","request":0}}` + "\n", "EOF"},
		{"no such object", header + `{"parts":[[29,1]],"review":{"id":"1","request":0}}` + "\n", "refers to a part that is not there"},
		{"behind the line", header + object + `{"parts":[[99,1]],"review":{"id":"1"}}` + "\n", "refers to a part that is not there"},
		{"before the line", header + object + `{"parts":[[-1,1]],"review":{"id":"1"}}` + "\n", "refers to a part that is not there"},
		{"not in order", header + object + `{"parts":[[29,1],[3,1]],"review":{"id":"1","request":0}}` + "\n", "refers to a part that is not there"},
		{"no numbers", header + object + `{"parts":[[a,b]],"review":{"id":"1","request":0}}` + "\n", "refers to a part that is not there"},
		{"no end", header + object + `{"parts":[[28,1` + "\n", "its list of parts has no end"},
		{"no header", `{"parts":[[29,1]],"review":{"id":"1","request":0}}` + "\n", "has no header"},
		{"long line", header + big + `{"parts":[[30,1]` + strings.Repeat(",[31,1]", 1) + manyParts(60) + `],"review":{"id":"1","request":[` + strings.Repeat("0", 99) + `]}}` + "\n", "is longer than"},
		{"expands without end", header + big + strings.Repeat(`{"parts":[[16,1]],"gap":{"reason":0}}`+"\n", 200), "there is no review in 128 MiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := readAll(compressed(t, tt.lines))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}

func manyParts(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ",[%d,1]", 32+i)
	}
	return b.String()
}

// TestNewlines records a review that has several lines.
func TestNewlines(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := record.New(options(t, dir))
	stop := run(r)
	add(r, "1", []byte("{\n \"request\": {\"uid\":\"1\",\n \"object\":{\n\"data\":{\"a\":\n\"hunter2hunter2\"}}}}"), nil)
	stop()
	all, _ := recorded(t, dir)
	if len(all) != 1 || !json.Valid(all[0].Request) || strings.Contains(string(all[0].Request), "hunter2") {
		t.Errorf("reviews %+v", all)
	}
}
