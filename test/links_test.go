package test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	markdownLink    = regexp.MustCompile(`\]\(([^)\s#]*)(?:#([^)\s]*))?\)`)
	markdownHeading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	codeBlock       = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	codeSpan        = regexp.MustCompile("`[^`\n]*`")
)

// TestLinks follows the links between documents: the files and the headings that they name exist.
func TestLinks(t *testing.T) {
	t.Parallel()
	documents := map[string]string{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "bin" || entry.Name() == "node_modules" || strings.HasPrefix(entry.Name(), ".") && path != ".."):
			return filepath.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path) // #nosec G304 G122 -- of this repository
		documents[path] = codeBlock.ReplaceAllString(string(text), "")
		return err
	})
	if err != nil || len(documents) < 20 {
		t.Fatalf("%d documents: %v", len(documents), err)
	}
	for path, text := range documents {
		for _, link := range markdownLink.FindAllStringSubmatch(codeSpan.ReplaceAllString(text, ""), -1) {
			target := filepath.Join(filepath.Dir(path), link[1])
			if strings.Contains(link[1], ":") {
				continue // another site
			}
			if link[1] == "" {
				target = path
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s: %v", path, link[0], err)
			} else if link[2] != "" && !hasAnchor(documents[target], link[2]) {
				t.Errorf("%s: %s: there is no such heading", path, link[0])
			}
		}
	}
}

// hasAnchor reports whether a document has a heading with an anchor, as code hosting services make anchors of headings.
func hasAnchor(text, anchor string) bool {
	for _, heading := range markdownHeading.FindAllStringSubmatch(text, -1) {
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			default:
				return -1
			}
		}, strings.TrimSpace(heading[1]))
		if slug == anchor {
			return true
		}
	}
	return false
}
