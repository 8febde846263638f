package console

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"

	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// configurationData is what the part about a directory shows.
type configurationData struct {
	Dir, Digest      string
	Files, Documents int
	Errors, Warnings int
	Findings         diagnostic.List
	Pages            pager
	// Ending are the exceptions that end soon or have ended, the first one first.
	Ending []endingException
}

// endingException is an exception with an end.
type endingException struct {
	Namespace, Name, Reason string
	Expiry                  expiry
}

// maxEnding bounds the exceptions of a configuration that are shown.
const maxEnding = 20

// showConfiguration shows the directory of --config, and what lint says about it.
func (c *console) showConfiguration(r *http.Request) (partData, error) {
	words := []string{"lint", "--config", c.config}
	var lint struct {
		Findings                diagnostic.List
		Errors, Warnings, Files int
		Digest                  string
	}
	if err := c.execute(r.Context(), nil, append(words, "-o", "json")...).decode(&lint); err != nil {
		return partData{Command: words}, err
	}
	documents, _ := config.Inspect(c.config) // lint has found what is wrong
	data := &configurationData{
		Dir: filepath.Clean(c.config), Digest: lint.Digest, Files: lint.Files, Documents: documents.Documents, Errors: lint.Errors, Warnings: lint.Warnings,
		Ending: c.ending(documents.Policy.Exceptions),
	}
	data.Findings, data.Pages = paginate(r, "findings", lint.Findings)
	return partData{Data: data, Command: words}, nil
}

// ending returns the exceptions that end soon or have ended.
func (c *console) ending(exceptions []policy.Exception) (out []endingException) {
	for i := range exceptions {
		x := &exceptions[i]
		if ends := newExpiry(x.Spec.ExpiresAt, c.now()); ends.Class != "" {
			out = append(out, endingException{x.Namespace, x.Name, x.Spec.Reason, ends})
		}
	}
	slices.SortStableFunc(out, func(a, b endingException) int { return a.Expiry.At.Compare(b.Expiry.At) })
	if more := len(out) - maxEnding; more > 0 {
		out = append(out[:maxEnding], endingException{Name: fmt.Sprintf("and %d more", more)})
	}
	return out
}
