package status

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"sort"
	"strings"
)

const (
	// maxCounts is how many bytes of an annotation counts take at most: the API
	// server takes 256 KiB of all annotations together.
	maxCounts = 100 << 10
	// maxPlainCounts bounds what is unpacked of those of somebody else.
	maxPlainCounts = 8 << 20
	// mostCount is where counts stop: whatever reads JSON reads it exactly.
	mostCount = 1 << 53
)

// encodeCounts is what a Lease says of policies: a JSON object of name to
// evaluations and refusals, or that packed by gzip and in base64, whichever is
// shorter. If it is longer than the limit, the policies that were evaluated least
// are left out. Policies that were never evaluated are left out in any case.
func encodeCounts(counts map[string]PolicyCount, limit int) string {
	names := slices.Collect(maps.Keys(counts))
	names = slices.DeleteFunc(names, func(name string) bool { return counts[name] == PolicyCount{} })
	if len(names) == 0 {
		return ""
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b].Evaluations, counts[a].Evaluations), cmp.Compare(a, b))
	})
	if text := packed(counts, names); len(text) <= limit {
		return text
	}
	tooMany := sort.Search(len(names), func(n int) bool { return len(packed(counts, names[:n+1])) > limit })
	if tooMany == 0 {
		return ""
	}
	return packed(counts, names[:tooMany])
}

func packed(counts map[string]PolicyCount, names []string) string {
	pairs := make(map[string][2]int64, len(names))
	for _, name := range names {
		pairs[name] = [2]int64{counts[name].Evaluations, counts[name].Refusals}
	}
	plain, err := json.Marshal(pairs)
	if err != nil {
		return "" // numbers and names can be written
	}
	var b strings.Builder
	encoder := base64.NewEncoder(base64.StdEncoding, &b)
	zipper := gzip.NewWriter(encoder)
	// A strings.Builder takes everything.
	_, _ = zipper.Write(plain)
	_ = zipper.Close()
	_ = encoder.Close()
	if b.Len() < len(plain) {
		return b.String()
	}
	return string(plain)
}

// decodeCounts reads what encodeCounts wrote, or somebody else in its place: counts
// that cannot be are errors, as is what would be too large.
func decodeCounts(text string) (map[string]PolicyCount, error) {
	if text == "" {
		return nil, nil
	}
	plain := []byte(text)
	if !strings.HasPrefix(text, "{") {
		unzipped, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(text)))
		if err != nil {
			return nil, fmt.Errorf("counts are neither JSON nor gzip in base64: %w", err)
		}
		if plain, err = io.ReadAll(io.LimitReader(unzipped, maxPlainCounts+1)); err != nil {
			return nil, fmt.Errorf("counts cannot be unpacked: %w", err)
		}
	}
	if len(plain) > maxPlainCounts {
		return nil, fmt.Errorf("counts are longer than %d bytes", maxPlainCounts)
	}
	var pairs map[string][2]int64
	decoder := json.NewDecoder(bytes.NewReader(plain))
	if err := decoder.Decode(&pairs); err != nil {
		return nil, fmt.Errorf("counts are not a JSON object of names and pairs of numbers: %w", err)
	}
	counts := make(map[string]PolicyCount, len(pairs))
	for name, pair := range pairs {
		if pair[0] < 0 || pair[1] < 0 || pair[0] > mostCount || pair[1] > mostCount {
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
