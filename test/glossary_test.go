package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// replacedWord is a phrase that the project's language has replaced by a plainer one.
type replacedWord struct {
	// word is in every match, in lower case: only texts with it are searched, which is ten times as fast.
	word string
	// phrase is a regular expression, without regard to case. A space in it stands for any white space, a line break and the
	// sign of a comment included.
	phrase string
	use    string
	// comments has Go comments searched too, besides documents, manifests and messages.
	comments bool
	// found has to match, and plain must not: plain English that looks like it.
	found, plain string
	// exceptions are files that may have the phrase, with the reason. An exception that is not needed fails the test.
	exceptions map[string]string
}

// The last words of a phrase about what the server answers by; a port, a connection or a name may be "in use".
const configurationInUse = `(configurations?|versions?|profiles?|policies|policy|resources|documents?|digest)` +
	`( (that|which|of|them|it|was|were|is|are|be|stays?|remains?|not|all|still|read|last|now|alone|without|errors))* in use`

// replacedWords are the words that the glossary in CONTRIBUTING.md replaces, and others that read badly.
var replacedWords = []replacedWord{
	{word: "tell", phrase: `could not tell|cannot tell whether`, use: "cannot decide", found: "could not tell", plain: "tell them apart"},
	{word: "tells", phrase: `tells whether`, use: "reports whether", comments: true, found: "isPod tells whether", plain: "tell the user whether"},
	{word: "settl", phrase: `settl(e|es|ed|ing)`, use: "resolve", comments: true, found: "is settled", plain: "settings"},
	{word: "use", phrase: configurationInUse, use: "active", found: "the configuration in use", plain: "the port is in use"},
	{word: "into", phrase: `(bring|brings|brought|come|comes|came|go|goes|went) into use`, use: "activate", comments: true, found: "brought into use", plain: "put to use"},
	{word: "look", phrase: `look(s|ed|ing)? at( it| them)? again`, use: "reconcile, read again", comments: true, found: "looked at again", plain: "look at the log"},
	{word: "predecessor", phrase: `predecessors?`, use: "stale reports, the process before", found: "its predecessor", plain: "preceding"},
	{word: "believed", phrase: `not believed`, use: "is ignored, is verified against …", comments: true, found: "is not believed", plain: "believed to be"},
	{word: "moment", phrase: `until a moment`, use: "with an expiry", comments: true, found: "until a moment", plain: "in a moment"},
	{word: "about", phrase: `(is|are) about (a )?pods?`, use: "match pods", found: "are about pods", plain: "information about pods"},
	{word: "cannot", phrase: `configuration( or CA)? that cannot be used`, use: "invalid configuration", found: "a configuration that cannot be used", plain: "a flag that cannot be used with --config"},
	{word: "forgotten", phrase: `forgotten`, use: "retired (a CA), isolated (a replica)", found: "the old CA is forgotten", plain: "forget"},
	{word: "crowd", phrase: `crowd(s|ed)?`, use: "connection limiter, too many connections", found: "a crowd", plain: "cloud"},
	{word: "nobody", phrase: `nobody to ask`, use: "--server is required; standard input is not a terminal", found: "there is nobody to ask", plain: "nobody asked"},
	{word: "trail", phrase: `trail`, use: "field path", found: "the trail of a field", plain: "trailing"},
	{word: "fate", phrase: `fates?`, use: "action", comments: true, found: "its fate", plain: "fateful"},
	{word: "retell", phrase: `retell(s|ing)?`, use: "report, notify", comments: true, found: "retells", plain: "tells"},
	{word: "stand", phrase: `standing replicas?|replicas? that stands?`, use: "replica with a heartbeat", comments: true, found: "a standing replica", plain: "outstanding replicas"},
	{word: "heard", phrase: `(is|are|was|were) (not )?heard( of)?`, use: "reported, last seen", found: "nothing is heard of it", plain: "unheard"},
	{word: "rival", phrase: `rivals?`, use: "conflicting publisher", comments: true, found: "a rival", plain: "arrival"},
	{word: "rescue", phrase: `rescue(s|d)?`, use: "recovery", comments: true, found: "is rescued", plain: "fiscal"},
	{word: "complaint", phrase: `complaints?`, use: "error", comments: true, found: "a complaint", plain: "compliant"},
	{word: "asker", phrase: `askers?`, use: "live getter, caller", comments: true, found: "the asker", plain: "task"},
	{word: "census", phrase: `census`, use: "pod status", comments: true, found: "the census", plain: "consensus"},
	{word: "circle", phrase: `circles?`, use: "cycle", found: "a circle", plain: "circular"},
	{word: "patience", phrase: `patience`, use: "deadline, timeout", found: "the caller's patience", plain: "patient"},
	{word: "equip", phrase: `equips?`, use: "injects sidecars into", found: "equips pods", plain: "equipment"},
	{word: "front", phrase: `stands? in front of (a |the |every |each )?(kubernetes|api server|request)`, use: "Kubernetes calls …", comments: true, found: "stands in front of a Kubernetes API server", plain: "stand in front of the other container"},
	{word: "gate", phrase: `(the|a|an|one|every other|open|broken|other) gate`, use: "webhook, Gatehouse", found: "a gate that is down", plain: "the feature gate"},
	{word: "word", phrase: `(the|a) word (of|from) (the|a) (pod|namespace)`, use: "annotation", comments: true, found: "the word of the pod", plain: "the word before it"},
	{word: "let", phrase: `lets? (people|everybody) in`, use: "authenticates", found: "lets people in", plain: "lets people know"},
}

// TestGlossary searches documents, manifests and what the program prints for words that were replaced.
func TestGlossary(t *testing.T) {
	t.Parallel()
	type compiled struct {
		replacedWord
		expression *regexp.Regexp
		used       map[string]bool
	}
	words := make([]compiled, 0, len(replacedWords))
	for _, w := range replacedWords {
		expression := regexp.MustCompile(`(?i)\b(` + strings.ReplaceAll(w.phrase, " ", `(?:\s|\n\s*(?:#|//|>))+`) + `)\b`)
		if !expression.MatchString(w.found) || !strings.Contains(strings.ToLower(w.found), w.word) || expression.MatchString(w.plain) {
			t.Errorf("%q: finds %q: %v, finds %q: %v", w.phrase, w.found, expression.MatchString(w.found), w.plain, expression.MatchString(w.plain))
		}
		words = append(words, compiled{w, expression, map[string]bool{}})
	}
	texts := 0
	search := func(path string, line int, text string, comment bool) {
		texts++
		lower := strings.ToLower(text)
		for _, w := range words {
			if comment && !w.comments || !strings.Contains(lower, w.word) {
				continue
			}
			for _, place := range w.expression.FindAllStringIndex(text, -1) {
				if _, excepted := w.exceptions[path]; excepted {
					w.used[path] = true
					continue
				}
				at := line + strings.Count(text[:place[0]], "\n")
				t.Errorf("%s:%d: %q: use %q", path, at, text[place[0]:place[1]], w.use)
			}
		}
	}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		name := filepath.ToSlash(strings.TrimPrefix(path, ".."+string(filepath.Separator)))
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if entry.Name() == "bin" || entry.Name() == "testdata" || strings.HasPrefix(entry.Name(), ".") && path != ".." {
				return filepath.SkipDir
			}
			return nil
		case strings.HasSuffix(name, "_test.go"):
			return nil
		case filepath.Ext(name) == ".go" && !strings.HasPrefix(name, "test/"):
			return eachText(path, func(line int, text string, comment bool) { search(name, line, text, comment) })
		case filepath.Ext(name) == ".md", strings.HasPrefix(name, "manifests/"):
			text, err := os.ReadFile(path) // #nosec G304 G122 -- of this repository
			search(name, 1, string(text), false)
			return err
		}
		return nil
	})
	if err != nil || texts < 5000 {
		t.Fatalf("%d texts: %v", texts, err)
	}
	for _, w := range words {
		for path := range w.exceptions {
			if !w.used[path] {
				t.Errorf("%q: the exception for %s is not needed any more: delete it", w.phrase, path)
			}
		}
	}
}

// eachText calls visit for every comment of a Go file and for every string in it that has a space, which is what people may read.
// Strings that are added up are one.
func eachText(path string, visit func(line int, text string, comment bool)) error {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	for _, group := range file.Comments {
		for _, comment := range group.List {
			visit(set.Position(comment.Pos()).Line, comment.Text, true)
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		expression, ok := node.(ast.Expr)
		if !ok {
			return true
		}
		text, whole := stringOf(expression)
		if !whole {
			return true
		}
		if strings.Contains(text, " ") {
			visit(set.Position(node.Pos()).Line, text, false)
		}
		return false
	})
	return nil
}

// stringOf returns the value of a string literal, or of a sum of them.
func stringOf(expression ast.Expr) (text string, ok bool) {
	switch e := expression.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		left, leftOK := stringOf(e.X)
		right, rightOK := stringOf(e.Y)
		return left + right, e.Op == token.ADD && leftOK && rightOK
	case *ast.ParenExpr:
		return stringOf(e.X)
	}
	return "", false
}
