package record

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/replay"
)

// write writes files into a new directory, and returns it.
func write(t testing.TB, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestShow(t *testing.T) {
	t.Parallel()
	login := &record.Review{ID: "a-1", Endpoint: "authenticate", Decision: "allowed", Token: &record.Token{Backend: "AccessTokens", ID: "ci"}, Response: json.RawMessage(`{"status":{"authenticated":true,"user":{"username":"ci-bot"}}}`)}
	access := &record.Review{
		ID: "sar-1", Endpoint: "authorize", Decision: "denied", Response: json.RawMessage(`{"status":{"allowed":false,"denied":true,"reason":"outside of the scope of this token: view"}}`),
		Request: json.RawMessage(`{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"user":"agent","extra":{"gatehouse.dev/scope":["view"]},"resourceAttributes":{"verb":"delete","group":"apps","resource":"deployments","namespace":"web","name":"cart"}}}`),
	}
	hostile := admitted("h1", "shop\x1b[31m", "\u202ename", "<b>joe", "unknown")
	hostile.Response = nil
	hostile.Lookups = &record.Lookups{Namespaces: []record.NamespaceLookup{{Name: "shop"}}}
	whole := segment(t, "a", admitted("0f5c", "shop", "cart", "joe", "allowed"), func() *record.Review {
		r := admitted("1a", "billing", "", "ann", "denied")
		r.Decision, r.Response = "denied", json.RawMessage(`{"allowed":false,"status":{"message":"no","details":{"causes":[{"message":"AdmissionPolicy 'team-label' denied request: no team"}]}}}`)
		return r
	}(), login, hostile, access)
	dir := write(t, map[string][]byte{"1.gatehouse.zst": whole, "key": []byte("no segment")})
	for _, tt := range []struct {
		name, args string
		code       int
		// want are the IDs.
		want string
	}{
		{"all", "", 0, "0f5c 1a a-1 h1 sar-1"},
		{"namespace", "-n shop", 0, "0f5c"},
		{"two namespaces", "-n shop -n billing", 0, "0f5c 1a"},
		{"user", "--user ci-bot", 0, "a-1"},
		{"kind", "--kind pod --user ann", 0, "1a"},
		{"decision", "--decision denied", 0, "1a sar-1"},
		{"endpoint", "--endpoint authenticate", 0, "a-1"},
		{"access", "--endpoint authorize --kind deployments -n web --user agent", 0, "sar-1"},
		{"scope", "--policy Scope/view", 0, "sar-1"},
		{"policy", "--policy team-label", 0, "1a"},
		{"policy with kind", "--policy AdmissionPolicy/team-label", 0, "1a"},
		{"policy of another kind", "--policy SidecarProfile/team-label", 1, ""},
		{"name", "--name CAR", 0, "0f5c sar-1"},
		{"ID", "--id 0f", 0, "0f5c"},
		{"since", "--since 2026-11-20T12:01:00Z", 0, "1a a-1 h1 sar-1"},
		{"until", "--until 2026-11-20T12:01:00Z", 0, "0f5c"},
		{"nothing", "--user nobody", 1, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, format := range []string{"table", "json"} {
				result := clitest.Run(t.Context(), "", append([]string{"record", "show", dir, "-o", format}, strings.Fields(tt.args)...), NewCommand)
				if got := strings.Join(shownIDs(t, format, result.Out), " "); got != tt.want || result.Code != tt.code {
					t.Errorf("-o %s: %s %+v, want %s", format, got, result, tt.want)
				}
				if strings.ContainsAny(result.Out, "\x1b") || format == "table" && strings.Contains(result.Out, "\u202e") {
					t.Errorf("-o %s: %q", format, result.Out)
				}
			}
		})
	}
	t.Run("table", func(t *testing.T) {
		t.Parallel()
		result := clitest.Run(t.Context(), "", []string{"record", "show", filepath.Join(dir, "1.gatehouse.zst")}, NewCommand)
		const want = `TIME                      ENDPOINT      DECISION  OPERATION  KIND              NAMESPACE     NAME        USER    ID
2026-11-20T12:00:00.000Z  validate      allowed   CREATE     Pod               shop          cart        joe     0f5c
2026-11-20T12:01:00.000Z  validate      denied    CREATE     Pod               billing       gen-*       ann     1a
2026-11-20T12:02:00.000Z  authenticate  allowed   -          TokenReview       -             ci          ci-bot  a-1
2026-11-20T12:03:00.000Z  validate      allowed   CREATE     Pod               shop\x1b[31m  \u202ename  <b>joe  h1
2026-11-20T12:04:00.000Z  authorize     denied    delete     deployments.apps  web           cart        agent   sar-1
`
		if result.Out != want {
			t.Errorf("got\n%s\nwant\n%s", result.Out, want)
		}
		if want := "5 reviews of 5, 2 denied\n"; result.Err != want {
			t.Errorf("standard error is\n%s\nwant %s", result.Err, want)
		}
	})
	t.Run("full", func(t *testing.T) {
		t.Parallel()
		result := clitest.Run(t.Context(), "", []string{"record", "show", dir, "--id", "1a", "--full", "-o", "json"}, NewCommand)
		if !strings.Contains(result.Out, `"generateName":"gen-"`) || !strings.Contains(result.Out, `"allowed":false`) {
			t.Errorf("%+v", result)
		}
	})
}

// shownIDs returns the IDs of an output.
func shownIDs(t *testing.T, format, out string) (ids []string) {
	t.Helper()
	add := func(text []byte) {
		var r shownReview
		if err := yaml.Unmarshal(text, &r); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		ids = append(ids, r.ID)
	}
	switch format {
	case "json":
		for line := range bytes.Lines([]byte(out)) {
			add(line)
		}
	default:
		for i, line := range strings.Split(strings.TrimSpace(out), "\n") {
			if cells := strings.Fields(line); i > 0 {
				ids = append(ids, cells[len(cells)-1])
			}
		}
	}
	return ids
}

func TestShowProblems(t *testing.T) {
	t.Parallel()
	whole := segment(t, "a", admitted("0f5c", "shop", "cart", "joe", "allowed"))
	dir := write(t, map[string][]byte{"whole": whole, "damaged": append(bytes.Clone(whole), "garbage"...), "foreign": []byte("hello"), "empty": nil})
	for _, tt := range []struct {
		name, want string
		args       []string
		reviews    int
	}{
		{"no file", "a recording is missing", nil, 0},
		{"missing file", "none: cannot be read: no such file", []string{"none"}, 0},
		{"a file that is damaged, and a good one", "damaged: line 3: the recording is damaged", []string{"damaged", "whole"}, 2},
		{"foreign", "foreign: is no recording: it is not compressed with zstd", []string{"foreign", "whole"}, 1},
		{"empty", "empty: is empty", []string{"empty"}, 0},
		{"directory without segments", "no file in this directory ends in .gatehouse.zst", []string{"."}, 0},
		{"decision", `--decision "no": must be one of allowed, denied`, []string{"whole", "--decision", "no"}, 0},
		{"endpoint", `--endpoint "no": must be one of authenticate, authorize, mutate, validate`, []string{"whole", "--endpoint", "no"}, 0},
		{"time", `--until "soon": must be a time such as`, []string{"whole", "--until", "soon"}, 0},
		{"times", "--since must be before --until", []string{"whole", "--since", "1h", "--until", "2h"}, 0},
		{"full table", "--full needs -o json", []string{"whole", "--full"}, 0},
		{"output", `--output "csv": must be table or json`, []string{"whole", "-o", "csv"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			args := []string{"record", "show"}
			for _, arg := range tt.args {
				if _, err := os.Stat(filepath.Join(dir, arg)); err == nil || arg == "none" {
					arg = filepath.Join(dir, arg)
				}
				args = append(args, arg)
			}
			result := clitest.Run(t.Context(), "", args, NewCommand)
			if rows := max(strings.Count(result.Out, "\n")-1, 0); result.Code != 2 || !strings.Contains(result.Err, tt.want) || rows != tt.reviews {
				t.Errorf("%+v, want %s", result, tt.want)
			}
			if tt.reviews == 0 && (result.Out != "" || strings.Contains(result.Err, "0 reviews")) {
				t.Errorf("%+v: it lists nothing", result)
			}
		})
	}
}

// TestUnfinishedSegment lists and replays a segment that a server is writing, which is no problem.
func TestUnfinishedSegment(t *testing.T) {
	t.Parallel()
	file := segment(t, "a", &record.Review{ID: "0f5c", Endpoint: "validate"})
	path := filepath.Join(write(t, map[string][]byte{"open": file[:len(file)-3]}), "open")
	result := clitest.Run(t.Context(), "", []string{"record", "show", path}, NewCommand)
	if result.Code != 0 || !strings.Contains(result.Err, "1 review of 1; without an end yet, as of a server that runs: 1 segment") {
		t.Errorf("record show: %+v", result)
	}
	sources := []replay.Source{replay.FileSource(path)}
	report, err := replay.Run(t.Context(), replay.Options{Sources: sources, Candidate: replay.Recorded()})
	if err != nil || len(report.Problems) > 0 || len(report.Notes) != 1 || !strings.Contains(report.Notes[0], "has no end") {
		t.Errorf("replay: problems %q, notes %q, %v", report.Problems, report.Notes, err)
	}
	if _, err := replay.Find(t.Context(), sources, "zz", 1); err != nil {
		t.Errorf("find: %v", err)
	}
}
