//go:build soak

package incluster

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/sleep"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// What three replicas ask of an API server when nothing happens, by the API server's own audit log. It is told, and bounded
// by what the documents say.
func TestIdleRequests(t *testing.T) {
	const (
		lasts = 3 * time.Minute
		// mostEach is for one replica in a minute: its reports, the election, watches that are begun anew, and the status
		// and counts that one of them writes.
		mostEach = 60
	)
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	must(t, os.WriteFile(policy, []byte(`
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  users: ["system:serviceaccount:gatehouse-system:gatehouse"]
`), 0o600))
	s := newSite(t, cluster.Options{APIServerFlags: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + log}})
	s.applyInstall(t, adjusted(t, s.kustomized(t), 3))
	s.waitForReplicas(t, 3)
	s.createWorkloads(t)
	if !sleep.Context(t.Context(), 30*time.Second) { // until everything is written that the start leads to
		t.Fatal(t.Context().Err())
	}
	began := time.Now()
	sleep.Context(t.Context(), lasts)
	ended := time.Now()

	file, err := os.Open(log)
	must(t, err)
	defer file.Close() //nolint:errcheck // only read
	counts := map[string]map[string]int{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Verb                     string
			RequestReceivedTimestamp time.Time
			User                     struct{ Extra map[string][]string }
			ObjectRef                struct{ APIGroup, Resource, Subresource string }
		}
		must(t, json.Unmarshal(lines.Bytes(), &event))
		if event.RequestReceivedTimestamp.Before(began) || event.RequestReceivedTimestamp.After(ended) {
			continue
		}
		pod := strings.Join(event.User.Extra["authentication.kubernetes.io/pod-name"], " ")
		if counts[pod] == nil {
			counts[pod] = map[string]int{}
		}
		counts[pod][strings.TrimSuffix(fmt.Sprintf("%s %s/%s", event.Verb, event.ObjectRef.Resource, event.ObjectRef.Subresource), "/")]++
	}
	must(t, lines.Err())
	if len(counts) != 3 {
		t.Errorf("requests are of %d replicas, want 3", len(counts))
	}
	for _, pod := range slices.Sorted(maps.Keys(counts)) {
		total := 0
		for _, n := range counts[pod] {
			total += n
		}
		each := float64(total) / lasts.Minutes()
		t.Logf("%s: %.1f requests a minute; in %s: %v", pod, each, lasts, counts[pod])
		if each > mostEach {
			t.Errorf("%s makes %.1f requests a minute, want %d at most", pod, each, mostEach)
		}
	}
}
