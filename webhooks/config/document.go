package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v2"
	sigsjson "sigs.k8s.io/json"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// document is one document of a file.
type document struct {
	// value is what the document says, in the types that a JSON decoder of
	// Kubernetes gives: map[string]any, []any, string, int64, float64, bool and
	// nil. Without problems it is never nil.
	value    any
	problems []problem
}

// problem is what is wrong with a document's text.
type problem struct {
	field, message, hint string
	// line is the line of the file, from 1, where it is known.
	line int
}

// maxProblems is how many problems of one document's text are reported. A file
// of another kind altogether has thousands.
const maxProblems = 50

// errTooLarge is about a document that exceeds the budget.
var errTooLarge = errors.New("too large")

// parser takes files apart.
type parser struct {
	limits limits
	// budget is the amount of data that may still be read, see nodeCost. It is
	// shared by all documents, because a short one can grow without bound: a
	// YAML alias stands for a copy.
	budget int
}

func newParser(l limits) parser { return parser{limits: l, budget: l.cost()} }

// cost is the budget of all documents together. Real documents cost up to twice their
// size, so those of totalBytes fit in twice.
func (l limits) cost() int { return 4 * l.totalBytes }

func isBomb(err error) bool {
	return err != nil && strings.Contains(err.Error(), "excessive aliasing")
}

// nodeCost is what a value costs of the budget, in addition to the length of
// its text: about what it takes in memory beyond that.
const nodeCost = 16

// documents takes a file apart. Documents without content are left out.
func (p *parser) documents(f file) []document {
	data := bytes.TrimPrefix(f.data, []byte("\ufeff"))
	if !utf8.Valid(data) {
		return []document{broken(firstInvalid(data), "the file is not UTF-8", "save it as UTF-8")}
	}
	if strings.HasSuffix(strings.ToLower(f.path), ".json") {
		return p.jsonDocuments(data)
	}
	var docs []document
	for _, c := range split(data) {
		doc, ok := p.yamlDocument(c)
		if ok {
			docs = append(docs, doc)
		}
		if p.budget < 0 || len(docs) > p.limits.documents {
			break
		}
	}
	return docs
}

// broken is a document that cannot be understood from a line on.
func broken(line int, message, hint string) document {
	return document{problems: []problem{{message: fmt.Sprintf("line %d: %s", line, message), hint: hint, line: line}}}
}

func (p *parser) tooLarge() document {
	return document{problems: []problem{{
		message: fmt.Sprintf("the documents up to this one exceed %d MiB when YAML aliases are expanded", p.limits.cost()>>20),
		hint:    "use fewer aliases (*name)",
	}}}
}

// firstInvalid is the line of the first byte that is not UTF-8.
func firstInvalid(data []byte) int {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return lineAt(data, int64(i))
		}
		i += size
	}
	return 1
}

// lineAt is the number, from 1, of the line that the byte at offset is in.
func lineAt(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:min(max(offset, 0), int64(len(data)))], []byte{'\n'})
}

// jsonDocuments reads JSON values one after the other.
func (p *parser) jsonDocuments(data []byte) []document {
	var docs []document
	stream := json.NewDecoder(bytes.NewReader(data))
	for p.budget >= 0 && len(docs) <= p.limits.documents {
		var raw json.RawMessage
		err := stream.Decode(&raw)
		var syntax *json.SyntaxError
		switch {
		case errors.Is(err, io.EOF):
			return docs
		case errors.Is(err, io.ErrUnexpectedEOF):
			return append(docs, broken(lineAt(data, int64(len(data))), "the file ends in the middle of a value", ""))
		case errors.As(err, &syntax):
			// Offset is behind the offending byte.
			return append(docs, broken(lineAt(data, syntax.Offset-1), syntax.Error(), ""))
		case err != nil:
			return append(docs, broken(lineAt(data, stream.InputOffset()), err.Error(), ""))
		case string(raw) == "null":
		default:
			docs = append(docs, p.jsonDocument(raw))
		}
	}
	return docs
}

// jsonDocument reads one JSON value whose syntax is right.
func (p *parser) jsonDocument(raw []byte) document {
	var doc document
	duplicates, err := sigsjson.UnmarshalStrict(raw, &doc.value, sigsjson.DisallowDuplicateFields)
	if err != nil {
		return document{problems: []problem{{message: err.Error()}}}
	}
	for _, err := range duplicates {
		path := ""
		if field, ok := errors.AsType[sigsjson.FieldError](err); ok {
			path = strict.Printable(field.FieldPath())
		}
		doc.problems = append(doc.problems, problem{field: path, message: "the key is given twice", hint: "remove one of the two"})
	}
	if p.spend(doc.value) != nil {
		return p.tooLarge()
	}
	return doc
}

// chunk is the text of one YAML document.
type chunk struct {
	line int // the number, from 1, of its first line
	text []byte
}

// split cuts a YAML stream where YAML says that a document begins or ends: at a
// line that begins with "---" or "...". Inside a document no such line can
// stand, neither in a quoted nor in a block scalar.
//
// It is done here and not by the YAML parser so that a broken document does not
// hide those behind it, and so that nothing behind a document is passed over.
func split(data []byte) []chunk {
	var (
		chunks        []chunk
		start, offset = 0, 0
		first, line   = 1, 0
		begun         = false // what belongs in front of a document is over
		content       = false // there is more than marker and comments
	)
	finish := func(end, next int) {
		if content {
			chunks = append(chunks, chunk{line: first, text: data[start:end]})
		}
		start, first, begun, content = end, next, false, false
	}
	for text := range bytes.Lines(data) {
		line++
		end := offset + len(text)
		switch {
		case isMarker(text, "---"):
			if begun {
				finish(offset, line)
			}
			begun, content = true, hasContent(text[len("---"):])
		case isMarker(text, "..."):
			finish(end, line+1)
		case !begun && text[0] == '%': // a directive
		case hasContent(text):
			begun, content = true, true
		}
		offset = end
	}
	finish(len(data), 0)
	return chunks
}

// hasContent reports whether the line is more than space and a comment.
func hasContent(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) > 0 && line[0] != '#'
}

func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || bytes.ContainsRune([]byte(" \t\r\n"), rune(rest[0])))
}

// decodeYAML returns what a text with one document says. A key that is given twice is an error.
func decodeYAML(text []byte) (tree any, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.SetStrict(true)
	if err := decoder.Decode(&tree); err != nil {
		return nil, err
	}
	var rest any
	if err := decoder.Decode(&rest); !errors.Is(err, io.EOF) {
		return nil, errors.New("yaml: there is more text behind the end of the document")
	}
	return tree, nil
}

// yamlDocument reads one document; false stands for one without content.
//
// YAML is read as version 1.1 by the library that kubectl reads it with, so
// that a document means here what it means there.
func (p *parser) yamlDocument(c chunk) (document, bool) {
	// JSON is YAML but for details, such as the escapes of characters beyond
	// the basic plane: what is JSON is read as JSON.
	if text := bytes.TrimSpace(c.text); text[0] == '{' && json.Valid(text) {
		return p.jsonDocument(text), true
	}
	tree, err := decodeYAML(c.text)
	if errors.Is(err, io.EOF) || (err == nil && tree == nil) {
		return document{}, false
	}
	var doc document
	var several *yaml.TypeError
	if isBomb(err) {
		// It was unfolded to some hundred thousand values before the parser gave up.
		if p.budget -= p.limits.cost() / 8; p.budget < 0 {
			return p.tooLarge(), true
		}
	}
	switch {
	case errors.As(err, &several):
		doc.problems = c.problems(several)
		return doc, true
	case err != nil:
		// The parser knows the line at which it gave up, which is at or behind
		// the cause, and sometimes one off.
		doc.problems = append(doc.problems, c.problem(strings.TrimPrefix(err.Error(), "yaml: "), "near line"))
		return doc, true
	}
	doc.value, err = p.convert(tree)
	var bad *conversionError
	switch {
	case errors.Is(err, errTooLarge):
		return p.tooLarge(), true
	case errors.As(err, &bad):
		return document{problems: []problem{bad.problem}}, true
	}
	return doc, true
}

var (
	yamlLine      = regexp.MustCompile(`^line (\d+): `)
	yamlDuplicate = regexp.MustCompile(`^key (.*) already set in map$`)
)

// problem is an error text of the YAML parser with the line counted from the
// beginning of the file.
func (c chunk) problem(text, prefix string) problem {
	// The parser leaves the line out where it does not know it.
	place, line := fmt.Sprintf("from line %d on", c.line), c.line
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		text = text[len(m[0]):]
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = c.line + n - 1
			place = fmt.Sprintf("%s %d", prefix, line)
		}
	}
	hint := ""
	if m := yamlDuplicate.FindStringSubmatch(text); m != nil {
		text, hint = fmt.Sprintf("the key %s is given twice", m[1]), "remove one of the two"
	}
	switch {
	case isBomb(errors.New(text)):
		hint = "use fewer aliases (*name)"
	case strings.HasPrefix(text, "invalid map key"):
		text, hint = "a key must be text, and this one is a list or a mapping", "put text that begins with { or [ in quotes"
	case hint == "":
		hint = diagnostic.YAMLHint(text)
	}
	if bytes.Contains(c.text, []byte("{{")) {
		hint = "{{ }} is not replaced here: write \"${…}\", in quotes, in the template of a SidecarProfile, or render the document first"
	}
	const most = 200
	return problem{message: place + ": " + strict.Cut(text, most), hint: hint, line: line}
}

// problems returns what the YAML parser says about several values.
func (c chunk) problems(several *yaml.TypeError) []problem {
	var out []problem
	for i, text := range several.Errors {
		if i == maxProblems {
			return append(out, problem{message: fmt.Sprintf("and %d more problems", len(several.Errors)-i)})
		}
		out = append(out, c.problem(text, "line"))
	}
	return out
}

// conversionError is about YAML that JSON cannot express.
type conversionError struct{ problem problem }

func (e *conversionError) Error() string { return e.problem.message }

func cannot(message, hint string) error {
	return &conversionError{problem{message: message, hint: hint}}
}

// within puts the step that leads to the place of an error in front of its path.
func within(err error, step string) error {
	if bad, ok := errors.AsType[*conversionError](err); ok {
		below := bad.problem.field
		if below != "" && below[0] != '[' {
			below = "." + below
		}
		bad.problem.field = step + below
	}
	return err
}

// convert turns what the YAML parser gives into what a JSON parser gives. Keys
// that are numbers or booleans become text, as kubectl makes them.
func (p *parser) convert(value any) (any, error) {
	if p.budget -= nodeCost; p.budget < 0 {
		return nil, errTooLarge
	}
	switch v := value.(type) {
	case nil, bool, int64:
		return v, nil
	case int:
		return int64(v), nil
	case uint64:
		return float64(v), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, cannot(fmt.Sprintf("%q is not a JSON number", strconv.FormatFloat(v, 'g', -1, 64)), "")
		}
		return v, nil
	case string:
		if p.budget -= len(v); p.budget < 0 {
			return nil, errTooLarge
		}
		if !utf8.ValidString(v) {
			return nil, cannot("the binary data is not UTF-8", "write base64 text without the tag !!binary")
		}
		return v, nil
	case []any:
		list := make([]any, len(v))
		for i, element := range v {
			converted, err := p.convert(element)
			if err != nil {
				return nil, within(err, strict.Element("", i))
			}
			list[i] = converted
		}
		return list, nil
	case map[any]any:
		return p.convertMap(v)
	default:
		return nil, cannot(fmt.Sprintf("a YAML value of type %T is not supported", v), "")
	}
}

func (p *parser) convertMap(v map[any]any) (any, error) {
	type member struct {
		key   string
		value any
	}
	members := make([]member, 0, len(v))
	for k, value := range v {
		var key string
		switch k := k.(type) {
		case string:
			key = k
		case bool:
			key = strconv.FormatBool(k)
		case int:
			key = strconv.Itoa(k)
		case float64:
			key = strconv.FormatFloat(k, 'g', -1, 64)
		default:
			return nil, cannot(fmt.Sprintf("a key must be text, got %v", k), "put it in quotes")
		}
		members = append(members, member{key, value})
	}
	// In a fixed order, so that of several problems always the same is reported.
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.key, b.key) })
	object := make(map[string]any, len(members))
	for _, m := range members {
		if p.budget -= len(m.key); p.budget < 0 {
			return nil, errTooLarge
		}
		if _, twice := object[m.key]; twice {
			return nil, within(cannot("the key is given twice", "remove one of the two"), strict.Member("", m.key))
		}
		converted, err := p.convert(m.value)
		if err != nil {
			return nil, within(err, strict.Member("", m.key))
		}
		object[m.key] = converted
	}
	return object, nil
}

// spend takes the cost of a JSON value off the budget.
func (p *parser) spend(value any) error {
	p.budget -= nodeCost
	switch v := value.(type) {
	case string:
		p.budget -= len(v)
	case []any:
		for _, element := range v {
			if err := p.spend(element); err != nil {
				return err
			}
		}
	case map[string]any:
		for key, element := range v {
			p.budget -= len(key)
			if err := p.spend(element); err != nil {
				return err
			}
		}
	}
	if p.budget < 0 {
		return errTooLarge
	}
	return nil
}
