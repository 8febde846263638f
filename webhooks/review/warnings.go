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

// appendWarnings appends the warnings so that the API server passes all of them on:
// unchanged if they fit together, and otherwise each cut to its limit, as many as fit,
// and the number of the rest. The API server drops warnings with control characters, so
// these become spaces. It drops empty and repeated warnings, so these are left out and
// not counted.
func appendWarnings(dst []byte, warnings []string) []byte {
	if len(warnings) == 0 {
		return dst
	}
	list, size := distinct(warnings, maxWarningsRunes+1) // one that is cut here is too long for all of them to fit
	if all := len(list); size > maxWarningsRunes {
		list, size = distinct(list, maxWarningRunes)
		if size > maxWarningsRunes || len(list) < all {
			for size > maxWarningsRunes-utf8.RuneCountInString(moreWarnings(all)) {
				size -= utf8.RuneCountInString(list[len(list)-1])
				list = list[:len(list)-1]
			}
			list = append(list, moreWarnings(all-len(list)))
		}
	}
	if len(list) == 0 {
		return dst
	}
	return appendStrings(append(dst, `,"warnings":`...), list)
}

// distinct returns the printable warnings, each once and cut to so many runes, and the number of runes of all of them.
func distinct(warnings []string, runes int) (list []string, size int) {
	seen := make(map[string]bool, len(warnings))
	for _, warning := range warnings {
		warning = bound(warning, runes, false)
		if warning == "" || seen[warning] {
			continue
		}
		seen[warning] = true
		list = append(list, warning)
		size += utf8.RuneCountInString(warning)
	}
	return list, size
}

func moreWarnings(n int) string {
	if n == 1 {
		return "… and 1 more warning"
	}
	return fmt.Sprintf("… and %d more warnings", n)
}
