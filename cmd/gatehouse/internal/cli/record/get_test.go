package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/debug"
	"github.com/gatehouse-dev/gatehouse/test/support/portforward"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// begun is when the recordings of tests begin.
func begun() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) }

// segment returns a segment of a replica with a review a minute.
func segment(t testing.TB, replica string, reviews ...*record.Review) []byte {
	t.Helper()
	lines := []*record.Line{{Header: &record.Header{Format: record.FormatVersion, Program: "v1.0.0", Kubernetes: "1.37", CEL: "v0.28.0", Replica: replica, Started: begun()}}}
	for i, r := range reviews {
		if r.Time.IsZero() {
			r.Time = begun().Add(time.Duration(i) * time.Minute)
		}
		lines = append(lines, &record.Line{Review: r})
	}
	return compressed(t, lines...)
}

// compressed returns the file of lines.
func compressed(t testing.TB, lines ...*record.Line) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := record.NewWriter(&file)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		text, err := record.AppendLine(nil, line)
		if err == nil {
			_, err = w.Write(text)
		}
		if err := errors.Join(err, w.Flush()); err != nil { // what is before it can be read without it
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// admitted returns a review of a pod.
func admitted(id, namespace, name, user, decision string) *record.Review {
	quoted := func(text string) []byte { return rawjson.AppendString(nil, text) }
	return &record.Review{
		ID: id, Endpoint: "validate", Decision: "allowed",
		Request:  json.RawMessage(fmt.Sprintf(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":%s,"kind":{"group":"","version":"v1","kind":"Pod"},"name":%s,"namespace":%s,"operation":"CREATE","userInfo":{"username":%s},"object":{"metadata":{"generateName":"gen-"}}}}`, quoted(id), quoted(name), quoted(namespace), quoted(user))),
		Response: json.RawMessage(`{"uid":"` + id + `","allowed":` + fmt.Sprint(decision == "allowed") + `,"status":{"message":"no"}}`),
	}
}

// runGet runs record get, and returns the directory.
func runGet(t *testing.T, s *portforward.APIServer) (result clitest.Result, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "out")
	return clitest.Run(t.Context(), "", []string{"record", "get", "--kubeconfig", s.Kubeconfig(t), "-d", dir}, NewCommand), dir
}

// TestGetSharedDirectory fetches from replicas that list the same directory, a file of which is being written to.
func TestGetSharedDirectory(t *testing.T) {
	t.Parallel()
	const name, other = "20261120T120000.000Z-a.gatehouse.zst", "20261120T130000.000Z-b.gatehouse.zst"
	done := segment(t, "a", admitted("a0", "shop", "cart", "joe", "allowed"), admitted("a1", "shop", "cart", "joe", "allowed"))
	growing := segment(t, "b", admitted("b0", "shop", "cart", "ann", "allowed"), admitted("b1", "shop", "cart", "ann", "allowed"))
	shared := recordingOf(t, map[string][]byte{name: done, other: growing})
	s := portforward.NewAPIServer(t, map[string]http.Handler{
		"gatehouse-a": recordingOf(t, map[string][]byte{other: growing[:len(growing)-6]}), "gatehouse-b": shared, "gatehouse-c": shared,
	})
	result, dir := runGet(t, s)
	if result.Code != 0 || !strings.HasSuffix(result.Out, "out: 2 segments of 3 replicas, 0.0 MiB\n") {
		t.Errorf("%+v", result)
	}
	shown := clitest.Run(t.Context(), "", []string{"record", "show", dir, "-o", "json"}, NewCommand)
	ids := shownIDs(t, "json", shown.Out)
	slices.Sort(ids)
	if text := strings.Join(ids, " "); text != "a0 a1 b0 b1" {
		t.Errorf("reviews %s", text)
	}
}

// TestGetProblems fetches from replicas of which something is wrong with all but one.
func TestGetProblems(t *testing.T) {
	t.Parallel()
	good := segment(t, "a", admitted("a0", "shop", "cart", "joe", "allowed"))
	list := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	}
	s := portforward.NewAPIServer(t, map[string]http.Handler{
		"a-good":      recordingOf(t, map[string][]byte{"1-a.gatehouse.zst": good, "2-a.gatehouse.zst": good[:len(good)-6]}),
		"c-dead":      http.NotFoundHandler(),
		"d-forbidden": http.NotFoundHandler(),
		"e-off":       debug.Handler(debug.Options{Level: debug.NewLevel(new(slog.LevelVar), slog.New(slog.DiscardHandler))}),
		"f-foreign":   list("<html>\x1b[31m"),
		"g-hostile":   list(`{"files":[{"name":"../../evil.gatehouse.zst","bytes":1},{"name":"../x.yaml"}]}`),
	})
	s.Dead, s.Forbidden = "c-dead", "d-forbidden"
	result, dir := runGet(t, s)
	if result.Code != 2 || !strings.Contains(result.Out, "out: 2 segments of 2 replicas, ") {
		t.Errorf("%+v", result)
	}
	for _, want := range []string{
		"replica c-dead: forward port 8081: error forwarding port 8081 to pod c-dead, uid : failed to connect to localhost:8081: connection refused",
		`replica d-forbidden: unable to upgrade connection: pods "d-forbidden" is forbidden: User "joe" cannot create resource "pods/portforward"`,
		"\n(hint: bind the ClusterRole gatehouse-console in namespace gatehouse-system, or a role that allows create of pods/portforward)", "replica e-off: the server answers 404: recording is off (hint: gatehouse serve --record DIR)", "replica f-foreign: the answer is no list of files",
	} {
		if !strings.Contains(result.Err, want) {
			t.Errorf("standard error\n%s\nlacks %s", result.Err, want)
		}
	}
	for _, unwanted := range []string{"a-good", "g-hostile", "\x1b"} {
		if strings.Contains(result.Err, unwanted) {
			t.Errorf("standard error\n%s\nhas %q", result.Err, unwanted)
		}
	}
	if matches, _ := filepath.Glob(filepath.Join(dir, "..", "..", "evil*")); len(matches) > 0 {
		t.Errorf("files outside of the directory: %s", matches)
	}
}

func TestGetNothing(t *testing.T) {
	t.Parallel()
	s := portforward.NewAPIServer(t, map[string]http.Handler{"gatehouse-a": recordingOf(t, nil)})
	if result, _ := runGet(t, s); result.Code != 1 || !strings.Contains(result.Err, "no reviews were recorded") {
		t.Errorf("%+v", result)
	}
	empty := portforward.NewAPIServer(t, nil)
	if result, _ := runGet(t, empty); result.Code != 2 || !strings.Contains(result.Err, "no running pod in namespace") {
		t.Errorf("%+v", result)
	}
}

func TestGetUsage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, want string
		args       []string
	}{
		{"port", "--ops-port 70000: must be from 1 to 65535", []string{"--ops-port", "70000"}},
		{"labels", `--selector "a=b=c": must be a label selector`, []string{"-l", "a=b=c"}},
		{"no labels", `--selector "": must be a label selector`, []string{"-l", ""}},
		{"time", `--since "yesterday": must be a time such as`, []string{"--since", "yesterday"}},
		{"directory", "--output-dir: must not be empty", []string{"-d", ""}},
		{"two clusters", "--in-cluster excludes", []string{"--in-cluster", "--context", "prod"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if result := clitest.Run(t.Context(), "", append([]string{"record", "get"}, tt.args...), NewCommand); result.Code != 2 || !strings.Contains(result.Err, tt.want) || result.Out != "" {
				t.Errorf("%+v, want %s", result, tt.want)
			}
		})
	}
}

// recordingOf returns the handler of a listener for health and metrics with these files.
func recordingOf(t *testing.T, files map[string][]byte) http.Handler {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return debug.Handler(debug.Options{Level: debug.NewLevel(new(slog.LevelVar), slog.New(slog.DiscardHandler)), Recording: dir})
}
