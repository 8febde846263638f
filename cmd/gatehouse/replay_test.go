package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// replayExample is the example of docs/tasks/replay-requests.md: a configuration, a candidate, and a recording.
const replayExample = "../../manifests/examples/replay-requests"

// recordedAt is the time of the first review of recordings here.
var recordedAt = time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)

// reviewed is a review for a recording.
type reviewed struct {
	endpoint                                    string
	operation, group, kind, resource, namespace string
	user, object                                string
}

func (r *reviewed) body(uid string) []byte {
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":%q,"kind":{"group":%q,"version":"v1","kind":%q},`+
		`"resource":{"group":%q,"version":"v1","resource":%q},"namespace":%q,"operation":%q,"userInfo":{"username":%q},"object":%s,"oldObject":null}}`,
		uid, r.group, r.kind, r.group, r.resource, r.namespace, r.operation, r.user, r.object)
}

// writeRecording answers reviews by a configuration, as the server does, and records them in a directory. Times, names and
// the version of the program are always the same.
func writeRecording(t *testing.T, dirOfConfig, into string, reviews []reviewed) {
	t.Helper()
	c, snapshot, found := config.CompileDir(dirOfConfig)
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	rules, _ := record.ReadRules("")
	dir := t.TempDir()
	recorder := record.New(record.Options{
		Dir: dir, Replica: "gatehouse-0", Rules: rules, MaxBytes: 1 << 30, MaxAge: time.Hour, Log: slog.New(slog.DiscardHandler),
	})
	documents, err := os.ReadFile(filepath.Join(dirOfConfig, "policies.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	recorder.Configuration(c.Digest, func() string { return string(documents) })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		recorder.Run(ctx)
	}()
	endpoints := webhooks.Endpoints()
	for i := range reviews {
		r := &reviews[i]
		uid := fmt.Sprintf("%08x-0000-4000-8000-%012x", uint32(i+1)*0x9e3779b1, i+1)
		body := r.body(uid)
		decoded, err := review.DecodeAdmission(body)
		if err != nil {
			t.Fatal(err)
		}
		e := endpoints[slices.IndexFunc(endpoints, func(e webhooks.Endpoint) bool { return e.Name == r.endpoint })]
		trace := recorder.Begin()
		response := e.Admission(t.Context(), trace.Snapshot(snapshot), webhooks.Input{Request: decoded})
		answer, err := review.AppendAdmission(nil, decoded.UID, &response)
		if err != nil {
			t.Fatal(err)
		}
		outcome := review.Outcome{Endpoint: e.Name, UID: types.UID(uid), Namespace: r.namespace, Started: recordedAt.Add(time.Duration(i) * time.Minute), Decision: review.Denied}
		if response.Allowed {
			outcome.Decision = review.Allowed
		}
		trace.Finish(&outcome, review.Exchange{Body: body, Answer: answer})
	}
	cancel()
	<-done
	files, err := filepath.Glob(filepath.Join(dir, "*"+record.SegmentSuffix))
	if err != nil || len(files) != 1 {
		t.Fatalf("got %d files, %v", len(files), err)
	}
	lines := readLines(t, files[0])
	lines[0] = regexp.MustCompile(`"program":"[^"]*","kubernetes":"[^"]*","cel":"[^"]*"`).ReplaceAllString(lines[0], `"program":"v1.0.0","kubernetes":"1.37","cel":"v0.29.0"`)
	lines[0] = regexp.MustCompile(`"started":"[^"]*"`).ReplaceAllString(lines[0], `"started":"`+recordedAt.Format(time.RFC3339)+`"`)
	name := filepath.Join(into, recordedAt.Format("20060102T150405.000Z")+"-gatehouse-0"+record.SegmentSuffix)
	if os.Getenv("UPDATE_GOLDEN") != "" || filepath.IsAbs(into) {
		writeSegment(t, name, lines)
	}
	if got := readLines(t, name); !slices.Equal(got, lines) {
		t.Errorf("%s is not what the server records (hint: UPDATE_GOLDEN=1)\ngot\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
}

// readLines returns the lines of a segment as they are in it.
func readLines(t *testing.T, name string) (lines []string) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	decoder, err := zstd.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	defer decoder.Close()
	text, err := io.ReadAll(decoder)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

func writeSegment(t *testing.T, name string, lines []string) {
	t.Helper()
	var out bytes.Buffer
	encoder, err := zstd.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	_, err = encoder.Write([]byte(strings.Join(lines, "\n") + "\n"))
	if err := errors.Join(err, encoder.Close(), os.WriteFile(name, out.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// pod returns a pod of a ReplicaSet of a Deployment.
func pod(deployment, hash, image, container string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"%[1]s-%[2]s-","labels":{"app":%[1]q,"pod-template-hash":%[2]q},`+
		`"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"%[1]s-%[2]s","uid":"1","controller":true}]},`+
		`"spec":{"containers":[{"name":%[1]q,"image":%[3]q%[4]s}]}}`, deployment, hash, image, container)
}

// exampleReviews are a morning in a cluster.
func exampleReviews() (all []reviewed) {
	const (
		controller = "system:serviceaccount:kube-system:replicaset-controller"
		limits     = `,"resources":{"limits":{"memory":"128Mi"}}`
		env        = `,"env":[{"name":"LOG_LEVEL","value":"info"}]`
	)
	pods := func(n int, namespace, deployment, hash, image, container string) {
		for range n {
			all = append(all, reviewed{
				endpoint: "validate", operation: "CREATE", kind: "Pod", resource: "pods", namespace: namespace, user: controller,
				object: pod(deployment, hash, image, container),
			})
		}
	}
	deployment := func(namespace, name, user, image, container string) {
		all = append(all, reviewed{
			endpoint: "validate", operation: "CREATE", group: "apps", kind: "Deployment", resource: "deployments", namespace: namespace, user: user,
			object: fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%[1]q},"spec":{"selector":{"matchLabels":{"app":%[1]q}},"template":`+
				`{"metadata":{"labels":{"app":%[1]q}},"spec":{"containers":[{"name":%[1]q,"image":%[2]q%[3]s}]}}}}`, name, image, container),
		})
	}
	deployment("shop", "checkout", "anna", "registry.example/checkout:2", "")
	pods(3, "shop", "checkout", "6c9d7", "registry.example/checkout:2", "")
	deployment("shop", "cart", "anna", "registry.example/cart:7", limits)
	pods(2, "shop", "cart", "5b4f8", "registry.example/cart:7", limits)
	deployment("search", "indexer", "system:serviceaccount:ci:deployer", "registry.example/indexer:4", env+limits)
	pods(1, "search", "indexer", "7d8c6", "registry.example/indexer:4", env+limits)
	deployment("search", "crawler", "bert", "mirror.example/crawler:1", limits)
	return all
}

// gatehouse runs a command in this process.
func gatehouse(t *testing.T, args ...string) clitest.Result {
	t.Helper()
	return clitest.Run(t.Context(), "", args, commands()...)
}

// TestReplayExample replays the example in several ways. Its recording is what the server records of the reviews here.
func TestReplayExample(t *testing.T) {
	config, candidate, recording := replayExample+"/config", replayExample+"/candidate", replayExample+"/recording"
	writeRecording(t, config, recording, exampleReviews())
	for name, c := range map[string]struct {
		code int
		args []string
	}{
		"table.txt":     {cli.ExitNo, []string{"--config", candidate, recording}},
		"report.json":   {cli.ExitNo, []string{"--config", candidate, recording, "-o", "json"}},
		"tolerated.txt": {cli.ExitYes, []string{"--config", candidate, recording, "--fail-on", "newly-refused=4"}},
		"show.txt":      {cli.ExitYes, []string{"--config", candidate, recording, "--show", "3c6e"}},
		"show.json":     {cli.ExitYes, []string{"--config", candidate, recording, "--show", "3c6e", "-o", "json"}},
		"upgrade.txt":   {cli.ExitYes, []string{recording}},
	} {
		t.Run(name, func(t *testing.T) {
			got := gatehouse(t, append([]string{"replay"}, c.args...)...)
			if got.Code != c.code || got.Err != "" {
				t.Errorf("got exit code %d, want %d: %s", got.Code, c.code, got.Err)
			}
			file := filepath.Join("testdata/replay-golden", name)
			text := strings.ReplaceAll(got.Out, replayExample+"/", "")
			if os.Getenv("UPDATE_GOLDEN") != "" {
				if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o750), os.WriteFile(file, []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if text != string(want) {
				t.Errorf("%s (hint: UPDATE_GOLDEN=1)\ngot\n%s\nwant\n%s", file, text, want)
			}
		})
	}
}

// TestReplayCannotJudge gives replay what it cannot judge, or only in part.
func TestReplayCannotJudge(t *testing.T) {
	t.Parallel()
	const candidate, recording = replayExample + "/candidate", replayExample + "/recording"
	segment, err := filepath.Glob(recording + "/*" + record.SegmentSuffix)
	if err != nil || len(segment) != 1 {
		t.Fatal(segment, err)
	}
	lines := readLines(t, segment[0])
	alone := filepath.Join(t.TempDir(), "alone.zst")
	writeSegment(t, alone, slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return strings.HasPrefix(line, `{"config":`) }))
	cut := filepath.Join(t.TempDir(), "cut.zst")
	writeSegment(t, cut, append(slices.Clone(lines[:5]), `{"review":{"id":"x`))
	later := filepath.Join(t.TempDir(), "later.zst")
	writeSegment(t, later, append([]string{strings.Replace(lines[0], `"format":1`, `"format":9`, 1)}, lines[1:]...))
	text := filepath.Join(t.TempDir(), "text.zst")
	broken := t.TempDir()
	if err := errors.Join(
		os.WriteFile(text, []byte("kind: Pod\n"), 0o600),
		os.WriteFile(filepath.Join(broken, "a.yaml"), []byte("apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionPolicy\nmetadata:\n  name: x\nspec: {validation: []}\n"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args     []string
		code     int
		out, err string
	}{
		"no recording":          {nil, cli.ExitUnknown, "", "name a recording"},
		"no such file":          {[]string{"none.zst"}, cli.ExitUnknown, "", "none.zst: cannot be read: no such file"},
		"empty directory":       {[]string{t.TempDir()}, cli.ExitUnknown, "", "no file in this directory ends in .gatehouse.zst"},
		"no such configuration": {[]string{"--config", "none", recording}, cli.ExitUnknown, "", `--config: "none" cannot be read`},
		"broken configuration":  {[]string{"--config", broken, recording}, cli.ExitUnknown, "", "AdmissionPolicy/x"},
		"not recorded":          {[]string{alone}, cli.ExitUnknown, "cannot decide", "no review can be decided: the recording does not hold the configuration"},
		"filter":                {[]string{"--config", candidate, recording, "-n", "none"}, cli.ExitUnknown, "0 reviews", `there is no such review in the recording`},
		"time":                  {[]string{"--config", candidate, recording, "--since", "2026-11-20T09:08:00Z", "--until", "2026-11-20T09:09:00Z"}, cli.ExitUnknown, "1 review:", "no review can be decided"},
		"until":                 {[]string{"--config", candidate, recording, "--until", "2026-11-20T09:01:00Z"}, cli.ExitNo, "1 review:", ""},
		"user":                  {[]string{"--config", candidate, recording, "--user", "bert"}, cli.ExitNo, "1 review:", ""},
		"endpoint":              {[]string{"--config", candidate, recording, "--endpoint", "validate"}, cli.ExitNo, "10 reviews:", ""},
		"cut off":               {[]string{"--config", candidate, cut}, cli.ExitUnknown, "3 reviews:", "cut.zst: line 6"},
		"later format":          {[]string{"--config", candidate, later}, cli.ExitUnknown, "", "later.zst: line 1: has format 9"},
		"text":                  {[]string{"--config", candidate, text}, cli.ExitUnknown, "", "is no recording"},
		"undecided":             {[]string{"--config", candidate, recording, "--fail-on", "undecided=1"}, cli.ExitUnknown, "cannot decide", "2 of 10 reviews cannot be decided, and --fail-on undecided allows 1"},
		"undecided, allowed":    {[]string{"--config", candidate, recording, "--fail-on", "undecided=2"}, cli.ExitYes, "cannot decide", ""},
		"no such change":        {[]string{recording, "--fail-on", "refused"}, cli.ExitUnknown, "", "must be NAME or NAME=N"},
		"no number":             {[]string{recording, "--fail-on", "newly-refused=some"}, cli.ExitUnknown, "", "the limit must be a number"},
		"no time":               {[]string{recording, "--since", "monday"}, cli.ExitUnknown, "", "must be a time such as"},
		"no endpoint":           {[]string{recording, "--endpoint", "valid"}, cli.ExitUnknown, "", "must be one of"},
		"show nothing":          {[]string{recording, "--show", "zzz"}, cli.ExitUnknown, "", "there is no such review"},
		"show undecided":        {[]string{"--config", candidate, recording, "--show", "f1bbcd88"}, cli.ExitUnknown, "after: cannot decide: ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := gatehouse(t, append([]string{"replay"}, c.args...)...)
			if got.Code != c.code || !strings.Contains(got.Out, c.out) || !strings.Contains(got.Err, c.err) || c.err == "" && got.Err != "" {
				t.Errorf("got exit code %d, want %d, and %q and %q in\n%s%s", got.Code, c.code, c.out, c.err, got.Out, got.Err)
			}
		})
	}
}

// TestRecordOnHost does what docs/tasks/record-requests.md shows for a host, and then replays what was recorded.
func TestRecordOnHost(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/tasks/record-requests.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?m)^gatehouse ((?:serve|manifests) .*)$`).FindAllStringSubmatch(string(guide), -1)
	if len(commands) != 2 || !strings.HasPrefix(commands[0][1], "serve ") || !strings.HasPrefix(commands[1][1], "manifests ") {
		t.Fatalf("the commands are %q", commands)
	}
	dir := t.TempDir()
	for _, name := range []string{"config", "candidate"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(replayExample, name))); err != nil {
			t.Fatal(err)
		}
	}
	// Ports may be taken, and nobody waits for requests that are on their way.
	server := exec.CommandContext(t.Context(), "gatehouse", append(strings.Fields(commands[0][1]), "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--drain-delay", "0s")...) // #nosec G204 -- of the guide
	server.Dir = dir
	log, err := server.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	var address string
	lines := bufio.NewScanner(log)
	for address == "" && lines.Scan() {
		var line struct{ Msg, Reviews string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		address = line.Reviews
	}
	go func() { _, _ = io.Copy(io.Discard, log) }()

	manifests, _, _ := strings.Cut(commands[1][1], " | ")
	if printed, err := shell(t, dir, "gatehouse "+manifests); err != nil || !strings.Contains(printed, "url: https://127.0.0.1:9443/validate") {
		t.Fatalf("%v\n%s", err, printed)
	}
	authority, err := os.ReadFile(filepath.Join(dir, "certs/ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}}}
	review := exampleReviews()[0]
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+address+"/validate", bytes.NewReader(review.body("1")))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if _ = answer.Body.Close(); answer.StatusCode != http.StatusOK {
		t.Fatal(answer.Status)
	}
	client.CloseIdleConnections()
	if err := errors.Join(server.Process.Signal(os.Interrupt), server.Wait()); err != nil {
		t.Fatal(err)
	}
	printed, err := shell(t, dir, "gatehouse replay --config candidate recording || test $? = 1")
	if err != nil || !strings.Contains(printed, "1 review: candidate compared with the recorded answers\n") || !strings.Contains(printed, "newly refused: AdmissionPolicy memory-limits, validations[memory-limit]\n") {
		t.Errorf("%v\n%s", err, printed)
	}
}
