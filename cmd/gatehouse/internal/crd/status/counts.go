package status

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

const (
	// maxCounts is how many bytes of an annotation counts take at most: the API
	// server takes 256 KiB of all annotations together.
	maxCounts = 200 << 10
	// mostCount is where counts stop: whatever reads JSON reads it exactly.
	mostCount = 1 << 53
)

// encodeCounts returns the annotation of a Lease about policies: a JSON object of name to
// evaluations and refusals. If it is longer than the limit, the policies that were
// evaluated least are left out. Policies that were never evaluated are left out in any
// case.
func encodeCounts(counts map[string]PolicyCount, limit int) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b].Evaluations, counts[a].Evaluations), cmp.Compare(a, b))
	})
	text := []byte("{")
	for _, name := range names {
		count := counts[name]
		quoted, err := json.Marshal(name)
		if err != nil || count == (PolicyCount{}) {
			continue
		}
		entry := fmt.Sprintf("%s:[%d,%d],", quoted, count.Evaluations, count.Refusals)
		if len(text)+len(entry) > limit {
			break
		}
		text = append(text, entry...)
	}
	if len(text) == 1 {
		return ""
	}
	text[len(text)-1] = '}'
	return string(text)
}

// decodeCounts reads what encodeCounts wrote, or somebody else in its place: counts
// that cannot be are errors.
func decodeCounts(text string) (map[string]PolicyCount, error) {
	if text == "" {
		return nil, nil
	}
	var pairs map[string][2]int64
	if err := json.Unmarshal([]byte(text), &pairs); err != nil {
		return nil, fmt.Errorf("counts are not a JSON object of names and pairs of numbers: %w", err)
	}
	counts := make(map[string]PolicyCount, len(pairs))
	for name, pair := range pairs {
		if min(pair[0], pair[1]) < 0 || max(pair[0], pair[1]) > mostCount {
			return nil, fmt.Errorf("counts have a number that is not within 0 and %d", int64(mostCount))
		}
		counts[name] = PolicyCount{Evaluations: pair[0], Refusals: pair[1]}
	}
	return counts, nil
}

// plus adds counts, each of which is mostCount at most, and so is the sum.
func (p PolicyCount) plus(q PolicyCount) PolicyCount {
	return PolicyCount{Evaluations: min(mostCount, p.Evaluations+q.Evaluations), Refusals: min(mostCount, p.Refusals+q.Refusals)}
}
