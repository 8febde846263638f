// Package race tells tests whether the race detector is on. It makes a test five to ten
// times as slow and finds nothing in a loop that one goroutine runs.
package race

// share is the part of its cases that a random test runs under the race detector.
const share = 4

// Cases returns how many of n cases a sequential test runs: all of them, and a quarter
// under the race detector.
func Cases(n int) int {
	if Enabled {
		return max(1, n/share)
	}
	return n
}
