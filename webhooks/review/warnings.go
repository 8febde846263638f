package review

import (
	"fmt"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
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
// that counts those for which there is no room.
func fitting(texts []string) []string {
	size := 0
	// room is how many there is room for together with the note behind them.
	room := 0
	for i, text := range texts {
		texts[i] = clip(text, maxWarningRunes)
		size += utf8.RuneCountInString(texts[i])
		if size+utf8.RuneCountInString(moreWarnings(len(texts)-i-1)) <= maxWarningsRunes {
			room = i + 1
		}
	}
	if size <= maxWarningsRunes {
		return texts
	}
	return append(texts[:room], moreWarnings(len(texts)-room))
}

func moreWarnings(n int) string { return fmt.Sprintf("… and %d more warnings", n) }
