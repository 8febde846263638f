package monitoring

import (
	"regexp"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

const debugging = root + "/docs/tasks/debug-a-replica.md"

var (
	session   = regexp.MustCompile("(?s)```console\n(\\$ gatehouse log-level\n.*?)```")
	ofProfile = regexp.MustCompile(`localhost:8080(/debug/pprof/[^\s?]*)`)
)

// TestDebugging does with a server what docs/tasks/debug-a-replica.md shows, and compares what comes of it.
func TestDebugging(t *testing.T) {
	t.Parallel()
	guide := read(t, debugging)
	server := start(t, "--profiling", "--tracing-endpoint", "http://127.0.0.1:1")
	shown := session.FindStringSubmatch(guide)
	if shown == nil {
		t.Fatalf("%s shows no session of gatehouse log-level", debugging)
	}
	want := shown[1]
	var got strings.Builder
	for line := range strings.Lines(shown[1]) {
		command, is := strings.CutPrefix(line, "$ gatehouse ")
		if !is {
			continue
		}
		out, err := gatehouse.Run(t.Context(), append(strings.Fields(command), "--ops-address", server.Ops.String())...)
		must(t, err)
		got.WriteString(line + out)
	}
	if got.String() != want {
		t.Errorf("%s shows\n%s\nwhich is\n%s", debugging, want, &got)
	}

	profiles := ofProfile.FindAllStringSubmatch(guide, -1)
	if len(profiles) < 3 {
		t.Errorf("%s shows %d profiles", debugging, len(profiles))
	}
	for _, m := range profiles {
		path := m[1]
		if strings.HasSuffix(path, "/profile") {
			path += "?seconds=1"
		}
		code, body, err := server.Get(t.Context(), path)
		if err != nil || code != 200 || body == "" {
			t.Errorf("%s is answered %d %.100q, %v", path, code, body, err)
		}
	}
	log := read(t, server.Log())
	for _, line := range []string{`"msg":"memory limit","source":`, `"msg":"tracing enabled","endpoint":"http://127.0.0.1:1/v1/traces"`, `"msg":"log level","level":"debug","before":"info"`} {
		if strings.Count(log, line) != 1 {
			t.Errorf("the log has %s %d times", line, strings.Count(log, line))
		}
	}
}

// TestProfilesAreOff is a server that was not asked for them.
func TestProfilesAreOff(t *testing.T) {
	t.Parallel()
	code, body, err := start(t).Get(t.Context(), "/debug/pprof/heap")
	if err != nil || code != 404 || !strings.Contains(body, "--profiling") {
		t.Errorf("a profile is answered %d %.100q, %v", code, body, err)
	}
}
