package offline

import (
	"bytes"
	"strings"
	"testing"
)

// FuzzReviewStream reads any stream: it ends, and each line of a stream that
// begins with JSON one a line is one review, or none if it is blank.
func FuzzReviewStream(f *testing.F) {
	for _, seed := range []string{"{}\n{}\n", "{\n}\n{}", "{\"a\n{}\n", "a: b\n---\nc: d\n", "", "\n\n", "---\n---\n", "{}\nx\n\n{}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n := 0
		err := eachReview(bytes.NewReader(data), func(text []byte) error {
			if len(bytes.TrimSpace(text)) == 0 {
				t.Fatal("a blank text is taken for a review")
			}
			n++
			return nil
		})
		lines := strings.Split(string(data), "\n")
		if first := bytes.TrimSpace([]byte(lines[0])); isJSON(first) {
			want := 0
			for _, line := range lines {
				if len(bytes.TrimSpace([]byte(line))) > 0 {
					want++
				}
			}
			if err != nil || n != want {
				t.Fatalf("%d reviews in %q, want %d: %v", n, data, want, err)
			}
		}
	})
}
