package bound

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"
)

// margin is how much more than any expression in documents and tests one may have.
const margin = 4

// TestMargin holds that the bounds are far from every expression that is written
// down in the documents, examples and tests of this repository.
func TestMargin(t *testing.T) {
	t.Parallel()
	env, bounds := sharedBounds()
	checked := 0
	for place, text := range written() {
		parsed, issues := env.Parse(text)
		if issues.Err() != nil {
			continue // an example of what is wrong
		}
		checked++
		r := estimate{Bounds: bounds}
		r.visit(parsed.NativeRep().Expr())
		n := len(text)
		if margin*r.parts > maxParts(n) || margin*r.calls*r.generic > maxPairs(n) || margin*r.total() > maxWork(n) || margin*r.patterns > maxPatterns(n) {
			t.Errorf("%s: %d parts, %d pairs, %d of work and %d of patterns, allowed are %d, %d, %d and %d:\n%s",
				place, r.parts, r.calls*r.generic, r.total(), r.patterns, maxParts(n), maxPairs(n), maxWork(n), maxPatterns(n), text)
		}
	}
	if checked < 300 {
		t.Errorf("%d expressions were found", checked)
	}
}

// written returns the expressions in YAML and Markdown files, and those that tests
// write as YAML, by where they are.
var written = sync.OnceValue(func() map[string]string {
	out := map[string]string{}
	fence := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	inGo := regexp.MustCompile("(?i)expression: \"([^\"\\\\\n]+)\"")
	err := filepath.WalkDir("../../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "bin" || strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".."):
			if path != "../../.." {
				return filepath.SkipDir
			}
			return nil
		case entry.IsDir():
			return nil
		}
		extension := filepath.Ext(path)
		if extension != ".yaml" && extension != ".md" && extension != ".txtar" && !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		switch extension {
		case ".yaml":
			expressions(path, raw, out)
		case ".md":
			for _, block := range fence.FindAllSubmatch(raw, -1) {
				expressions(path, block[1], out)
			}
		default:
			for _, match := range inGo.FindAllSubmatch(raw, -1) {
				out[path+" "+string(match[1])] = string(match[1])
			}
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	return out
})

// expressions takes the expressions and placeholders of YAML documents, as far as
// they can be read.
func expressions(path string, raw []byte, out map[string]string) {
	placeholder := regexp.MustCompile(`\$\{([^}]*)\}`)
	var walk func(*yaml.Node, string)
	walk = func(n *yaml.Node, key string) {
		switch n.Kind {
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				walk(n.Content[i+1], n.Content[i].Value)
			}
		case yaml.ScalarNode:
			if strings.HasSuffix(strings.ToLower(key), "expression") || key == "rule" {
				out[path+" "+n.Value] = n.Value
			}
			for _, match := range placeholder.FindAllStringSubmatch(n.Value, -1) {
				out[path+" "+match[1]] = match[1]
			}
		case yaml.DocumentNode, yaml.SequenceNode:
			for _, below := range n.Content {
				walk(below, key)
			}
		case yaml.AliasNode:
		}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	for {
		var document yaml.Node
		if decoder.Decode(&document) != nil {
			return // the end, a template, or an example of what is wrong
		}
		walk(&document, "")
	}
}
