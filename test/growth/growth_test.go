// Package growth holds that the work for a request grows with its size, and not with its
// square, whoever sends it: it counts how often each block of code runs, which does not
// depend on the speed of the machine.
package growth

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// counted are the packages whose blocks are counted: ours, and the checks of Pod Security.
// What a function of another package does is counted as one call: where that goes
// through a list, as slices.Contains does, a review has to find it.
const counted = "github.com/gatehouse-dev/gatehouse/webhooks/...,github.com/gatehouse-dev/gatehouse/test/growth/count,k8s.io/pod-security-admission/policy"

// most is how many times as much work a request may be that is factor times as large.
// What grows with the square would be factor times factor.
const (
	factor = 4
	most   = 5.5
)

// TestGrowth has a build that counts send each kind of hostile request, in two sizes, to
// the endpoints, and compile documents.
func TestGrowth(t *testing.T) {
	t.Parallel()
	dir, counts := t.TempDir(), t.TempDir()
	binary := filepath.Join(dir, "count")
	run(t, "go", "build", "-cover", "-covermode=atomic", "-coverpkg="+counted, "-o", binary, "./count")
	cmd := exec.CommandContext(t.Context(), binary, counts)
	cmd.Env = append(os.Environ(), "GOCOVERDIR="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	covdata := strings.TrimSpace(run(t, "go", "tool", "-n", "covdata"))
	requests, err := os.ReadDir(counts)
	if err != nil {
		t.Fatal(err)
	}
	const fewest = 200
	if len(requests) < fewest {
		t.Errorf("there are %d requests", len(requests))
	}
	for _, request := range requests {
		t.Run(request.Name(), func(t *testing.T) {
			t.Parallel()
			before := blocks(t, covdata, filepath.Join(counts, request.Name(), "1"))
			after := blocks(t, covdata, filepath.Join(counts, request.Name(), strconv.Itoa(factor)))
			first, second := sum(before), sum(after)
			t.Logf("%d blocks ran, then %d", first, second)
			if float64(second) <= most*float64(first) {
				return
			}
			t.Errorf("%d blocks ran, and %d for a request that is %d times as large", first, second, factor)
			for block, n := range after {
				if n > second/50 {
					t.Logf("%s ran %d times, and %d times before", block, n, before[block])
				}
			}
		})
	}
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
	return string(out)
}

// blocks returns the counts of a directory, by the place of the block, as the program
// covdata reads them.
func blocks(t *testing.T, covdata, dir string) map[string]int {
	t.Helper()
	text := filepath.Join(dir, "text")
	run(t, covdata, "textfmt", "-i="+dir, "-o="+text)
	raw, err := os.ReadFile(text)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for line := range strings.Lines(string(raw)) {
		if fields := strings.Fields(line); len(fields) == 3 {
			n, _ := strconv.Atoi(fields[2])
			out[fields[0]] = n
		}
	}
	return out
}

func sum(blocks map[string]int) int {
	n := 0
	for _, count := range blocks {
		n += count
	}
	return n
}
