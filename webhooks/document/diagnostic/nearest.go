package diagnostic

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// longestWord bounds the words that Nearest compares: no name of ours is as
// long, and comparing costs the product of the lengths.
const longestWord = 64

// Nearest returns the name that the author of word has most likely meant: the one
// that differs in the fewest characters, if these are at most a third of it, or
// one. Case makes no difference. Of equally near names it is the first.
func Nearest(word string, names ...string) (string, bool) {
	return NearestWithin(max(1, len(word)/3), word, names...)
}

// NearestWithin is Nearest of the names that differ in at most so many characters.
func NearestWithin(most int, word string, names ...string) (string, bool) {
	if len(word) > longestWord {
		return "", false
	}
	best, least := "", most+1
	for _, name := range names {
		if more := utf8.RuneCountInString(name) - utf8.RuneCountInString(word); more >= least || -more >= least {
			continue // it differs in that many characters
		}
		if d := distance(strings.ToLower(word), strings.ToLower(name)); d < least {
			best, least = name, d
		}
	}
	return best, best != ""
}

// DidYouMean returns a Hint that shows the Nearest name, and empty if there is none.
func DidYouMean(word string, names ...string) string {
	if name, ok := Nearest(word, names...); ok {
		return fmt.Sprintf("did you mean %q?", name)
	}
	return ""
}

// NameHint returns a Hint about a name that somebody else has chosen: DidYouMean, or else the
// first name that shares a word with it, or that it contains or is contained in, or else
// all names, if they are few.
func NameHint(word string, names ...string) string {
	if hint := DidYouMean(word, names...); hint != "" || len(names) == 0 {
		return hint
	}
	const similar, few = 4, 5
	short := strings.ToLower(word)
	for _, name := range names {
		long := strings.ToLower(name)
		if least := min(len(short), len(long)); least >= similar && (strings.Contains(long, short) || strings.Contains(short, long) || long[:least-least/similar] == short[:least-least/similar]) {
			return fmt.Sprintf("did you mean %q?", name)
		}
	}
	if len(names) > few {
		return ""
	}
	return "there is " + QuotedList(names)
}

// distance returns the number of characters to insert, remove, replace or swap with
// their neighbour to make b of a.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before := make([]int, len(y)+1) // the row before last
	last := make([]int, len(y)+1)
	row := make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(y)]
}
