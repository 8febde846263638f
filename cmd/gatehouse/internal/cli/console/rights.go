package console

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
)

// explain says for people why something could not be read.
func explain(err error) string {
	if text := apierr.MissingRight(err); text != "" {
		return text
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "there was no answer in " + partTimeout.String()
	}
	return err.Error()
}

// explainAll explains errors, each text once, sorted.
func explainAll(errs []error) []string {
	var out []string
	for _, err := range errs {
		if err != nil {
			out = append(out, strings.TrimSpace(explain(err)))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
