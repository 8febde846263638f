package console

import (
	"html/template"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

// functions are those of the templates.
func functions() template.FuncMap {
	return template.FuncMap{
		"time":      func(t time.Time) string { return cli.FormatTime(&t) },
		"duration":  cli.FormatDuration,
		"name":      cli.InertName,
		"short":     cli.Inert,
		"cel":       highlight,
		"multiline": multiline,
		"outcome":   outcomeText,
		"took":      tookText,

		"outcomeClass": outcomeClass,
	}
}

// tookText returns how long a review took, for people.
func tookText(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return d.Round(10 * time.Microsecond).String()
}
