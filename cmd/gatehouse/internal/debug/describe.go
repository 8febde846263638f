package debug

import (
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// DescribeLevels is what a level must be, for somebody who gave another text.
func DescribeLevels(given string) string {
	text := "one of " + strings.Join(Levels(), ", ")
	if near := diagnostic.DidYouMean(given, Levels()...); near != "" {
		text += " (hint: " + near + ")"
	}
	return text
}
