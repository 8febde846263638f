package offline

import (
	"bytes"
	"testing"
)

// FuzzReviewStream reads any stream: it ends, and no review is blank.
func FuzzReviewStream(f *testing.F) {
	for _, seed := range []string{"{}\n{}\n", "{\n}\n{}", "{\"a\n{}\n", "a: b\n---\nc: d\n", "", "\n\n", "---\n---\n", "{}\nx\n\n{}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = eachReview(bytes.NewReader(data), func(text []byte) error { // what is no stream of reviews is an error
			if len(bytes.TrimSpace(text)) == 0 {
				t.Fatal("a blank text is taken for a review")
			}
			return nil
		})
	})
}
