package console

import (
	"fmt"
	"html/template"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

// functions are those of the templates.
func functions() template.FuncMap {
	return template.FuncMap{
		"time":      func(t time.Time) string { return cli.FormatTime(&t) },
		"duration":  cli.FormatDuration,
		"digest":    shortDigest,
		"mebibytes": mebibytes,
		"name":      cli.InertName,
		"short":     cli.Inert,
		"cel":       highlight,
		"multiline": multiline,
		"outcome":   outcomeText,
		"took":      tookText,

		"outcomeClass": outcomeClass,
	}
}

// mebibytes returns a number of bytes for people.
func mebibytes(bytes int64) string {
	const mib = 1 << 20
	return fmt.Sprintf("%.1f MiB", float64(bytes)/mib)
}

// tookText returns how long a review took, for people.
func tookText(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return d.Round(10 * time.Microsecond).String()
}
