package lint_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/lint"
)

// staticText returns the diagnostics of a directory of kube-apiserver with these documents, one a line. Without an object, they are those of
// a file that it does not read.
func staticText(t *testing.T, documents string) string {
	t.Helper()
	dir, name := t.TempDir(), "a.yaml"
	if strings.Contains(documents, "README.md") {
		name = "README.md"
	}
	must(t, os.WriteFile(filepath.Join(dir, name), []byte(documents), 0o600))
	_, found, err := lint.Static(dir)
	must(t, err)
	lines := make([]string, len(found))
	for i, f := range found {
		f.Source = ""
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// FuzzStatic takes any document.
func FuzzStatic(f *testing.F) {
	for _, code := range lint.Codes() {
		f.Add(lint.Example(code))
	}
	f.Add("kind: List\napiVersion: v1\nitems: [{kind: List, apiVersion: v1, items: [{}]}]")
	f.Fuzz(func(t *testing.T, documents string) { staticText(t, documents) })
}
