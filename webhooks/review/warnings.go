package review

import (
	"fmt"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
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
	list, fit := distinct(warnings)
	if !fit {
		list = cutToFit(list)
	}
	if len(list) == 0 {
		return dst
	}
	dst = append(dst, `,"warnings":`...)
	return appendStrings(dst, list)
}

// distinct returns the printable warnings, each once, and whether all of them fit.
func distinct(warnings []string) (list []string, fit bool) {
	list = make([]string, 0, len(warnings))
	seen := make(map[string]bool, len(warnings))
	size := 0
	for _, warning := range warnings {
		// One that is cut here is too long for all of them to fit.
		warning = bound(warning, maxWarningsRunes+1, false)
		if warning == "" || seen[warning] {
			continue
		}
		seen[warning] = true
		list = append(list, warning)
		size += utf8.RuneCountInString(warning)
	}
	return list, size <= maxWarningsRunes
}

// cutToFit cuts the warnings so that they are within both limits, together with a last
// warning that counts the others: those that do not fit, and those that repeat another
// once they are cut.
func cutToFit(list []string) []string {
	limit := maxWarningsRunes - utf8.RuneCountInString(moreWarnings(len(list)))
	seen := make(map[string]bool, len(list))
	cut := make([]string, 0, len(list))
	size, shown := 0, 0
	for _, warning := range list {
		warning = truncate.Runes(warning, maxWarningRunes)
		if seen[warning] {
			continue
		}
		seen[warning] = true
		cut = append(cut, warning)
		if size += utf8.RuneCountInString(warning); size <= limit {
			shown = len(cut)
		}
	}
	if len(cut) == len(list) && size <= maxWarningsRunes {
		return cut
	}
	return append(cut[:shown], moreWarnings(len(list)-shown))
}

func moreWarnings(n int) string {
	if n == 1 {
		return "… and 1 more warning"
	}
	return fmt.Sprintf("… and %d more warnings", n)
}
