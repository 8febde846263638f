package policy

import (
	"fmt"
	"strings"
)

// didYouMean is a hint that names the allowed value that is most like the given
// one, and "" if none is much like it.
func didYouMean(value string, allowed ...string) string {
	best, least := "", max(1, len(value)/3)+1
	for _, candidate := range allowed {
		if distance := editDistance(strings.ToLower(value), strings.ToLower(candidate)); distance < least {
			best, least = candidate, distance
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %q?", best)
}

// editDistance is the number of bytes to insert, drop, replace, or swap with
// their neighbour that lead from a to b.
func editDistance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			replace := last[j]
			if a[i] != b[j] {
				replace++
			}
			row[j+1] = min(replace, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
