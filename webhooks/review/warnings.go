package review

import (
	"fmt"
	"unicode/utf8"
)

// The limits of the API server for the warnings of one request, in runes: when
// there are more than the first together it cuts each to the second, and then
// drops those behind the first,
// https://github.com/kubernetes/kubernetes/blob/v1.37.0/staging/src/k8s.io/apiserver/pkg/endpoints/filters/warning.go.
const (
	maxWarningsRunes = 4 << 10
	maxWarningRunes  = 256
)

// appendWarnings appends the warnings that the API server passes on: all of them
// as they are if it would, and otherwise each cut as it would cut it, as many as
// there is room for, and how many are missing. It drops those with control
// characters, so these become spaces, and those that are empty or repeat
// another, so these are left out and not counted.
func appendWarnings(dst []byte, warnings []string) []byte {
	if len(warnings) == 0 {
		return dst
	}
	texts, fit := distinct(warnings)
	if !fit {
		texts = fitting(texts)
	}
	if len(texts) == 0 {
		return dst
	}
	dst = append(dst, `,"warnings":`...)
	return appendStrings(dst, texts)
}

// distinct are the warnings as they can be passed on, and whether all can.
func distinct(warnings []string) (texts []string, fit bool) {
	texts = make([]string, 0, len(warnings))
	seen := make(map[string]bool, len(warnings))
	size := 0
	for _, warning := range warnings {
		// One that is cut here is too long for all of them to fit.
		text := bound(warning, maxWarningsRunes+1, false)
		if text == "" || seen[text] {
			continue
		}
		seen[text] = true
		texts = append(texts, text)
		size += utf8.RuneCountInString(text)
	}
	return texts, size <= maxWarningsRunes
}

// fitting cuts the warnings, so that they are within both limits with the note
// that counts the others: those for which there is no room, and those that repeat
// another once they are cut.
func fitting(texts []string) []string {
	room := maxWarningsRunes - utf8.RuneCountInString(moreWarnings(len(texts)))
	seen := make(map[string]bool, len(texts))
	cut := make([]string, 0, len(texts))
	size, shown := 0, 0
	for _, text := range texts {
		text = clip(text, maxWarningRunes)
		if seen[text] {
			continue
		}
		seen[text] = true
		cut = append(cut, text)
		if size += utf8.RuneCountInString(text); size <= room {
			shown = len(cut)
		}
	}
	if len(cut) == len(texts) && size <= maxWarningsRunes {
		return cut // without a note
	}
	return append(cut[:shown], moreWarnings(len(texts)-shown))
}

func moreWarnings(n int) string {
	if n == 1 {
		return "… and 1 more warning"
	}
	return fmt.Sprintf("… and %d more warnings", n)
}
