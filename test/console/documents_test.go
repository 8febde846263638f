package console

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support/chromium"
)

const (
	document = "../../docs/tasks/use-the-console.md"
	pictures = "../../docs/console"
	// The bounds of a picture, in pixels and bytes.
	widest, highest, largest = 1200, 800, 200 << 10
)

var (
	documentRights  = regexp.MustCompile(`(?m)^ *kubectl (.*create (?:cluster)?rolebinding .*) --user=ann@example\.com$`)
	documentPicture = regexp.MustCompile(`!\[[^\]]+\]\(\.\./console/([a-z]+)\.png\)`)
	documentPage    = regexp.MustCompile("(?m)^\\| [^|]*\\| `(/[a-z]*)` \\|")
)

// documentParts returns the first group of each match in the document.
func documentParts(t *testing.T, expression *regexp.Regexp) (parts []string) {
	t.Helper()
	text, err := os.ReadFile(document)
	must(t, err)
	for _, match := range expression.FindAllStringSubmatch(string(text), -1) {
		parts = append(parts, match[1])
	}
	return parts
}

// picture writes a picture of the page for the document with UPDATE_GOLDEN=1.
func picture(t *testing.T, p *chromium.Page, name string) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") == "1" {
		must(t, os.MkdirAll(pictures, 0o755))
		shown, err := png.Decode(bytes.NewReader(p.Screenshot(highest)))
		must(t, err)
		var small bytes.Buffer
		must(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, shown))
		must(t, os.WriteFile(filepath.Join(pictures, name+".png"), small.Bytes(), 0o644))
	}
}

// TestPictures: the document has the pictures that there are, and they are small. UPDATE_GOLDEN=1 with TestCluster and TestOffline makes them anew.
func TestPictures(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(pictures, "*"))
	must(t, err)
	var names []string
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".png"))
		content, err := os.ReadFile(file)
		must(t, err)
		config, err := png.DecodeConfig(bytes.NewReader(content))
		if err != nil || len(content) > largest || config.Width > widest || config.Height > highest {
			t.Errorf("%s has %d bytes, %d by %d, %v", file, len(content), config.Width, config.Height, err)
		}
	}
	shown := documentParts(t, documentPicture)
	slices.Sort(shown)
	if len(names) == 0 || !slices.Equal(shown, names) {
		t.Errorf("the document has the pictures %q, and the files are %q", shown, names)
	}
}
