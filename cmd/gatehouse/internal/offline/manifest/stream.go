package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// chunk is a part of a YAML stream between two markers. Its body is the text of a YAML document, without directives.
type chunk struct {
	line       int // of the start of the body, from 1
	start, end int // of the body
	// inline reports whether the body starts in the line of the marker.
	inline bool
}

// part is the text of one document in a chunk.
type part struct {
	line       int // of its start, from 1
	start, end int // in the text of the file
	json       bool
	// inline reports whether it does not begin its line.
	inline bool
}

// readError is why a text cannot be read.
type readError struct {
	line          int // from 1; 0 where it is not known
	near          bool
	message, hint string
}

func (e *readError) diagnostic(source string) diagnostic.Diagnostic {
	message := e.message
	switch {
	case e.line > 0 && e.near:
		message = fmt.Sprintf("near line %d: %s", e.line, message)
	case e.line > 0:
		message = fmt.Sprintf("line %d: %s", e.line, message)
	}
	return diagnostic.Diagnostic{Severity: diagnostic.Error, Source: source, Message: message, Hint: e.hint}
}

// split cuts a stream at lines that begin with "---" or "...", which cannot be inside a document. Chunks without content are left
// out.
func split(data []byte) ([]chunk, *readError) {
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return nil, &readError{message: "the text is UTF-16", hint: "save it as UTF-8"}
	}
	if !utf8.Valid(data) {
		return nil, &readError{line: firstInvalid(data), message: "the text is not UTF-8", hint: "save it as UTF-8"}
	}
	bom := len(data) - len(bytes.TrimPrefix(data, []byte("\ufeff")))
	var (
		chunks  []chunk
		current = chunk{line: 1, start: bom}
		marked  = false // the marker of the current chunk has been seen
		content = false // its body holds more than comments
		offset  = bom
		line    = 0
	)
	finish := func(end int) {
		if current.end = end; content {
			chunks = append(chunks, current)
		}
		marked, content = false, false
	}
	for text := range bytes.Lines(data[bom:]) {
		line++
		next := offset + len(text)
		switch {
		case isMarker(text, "---"):
			if marked || content {
				finish(offset)
			}
			marked, content = true, hasContent(text[len("---"):])
			if current = (chunk{line: line + 1, start: next}); content {
				current = chunk{line: line, start: offset + len("---"), inline: true}
			}
		case isMarker(text, "..."):
			finish(offset)
			current = chunk{line: line + 1, start: next}
		case !marked && !content && text[0] == '%': // a directive
		case hasContent(text):
			content = true
		}
		offset = next
	}
	finish(len(data))
	return chunks, nil
}

// hasContent reports whether a line is more than a comment.
func hasContent(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) > 0 && line[0] != '#'
}

func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// parts returns the documents of a chunk: JSON values, or one YAML document. JSON differs from YAML in tabs and in escapes of
// characters beyond the basic plane.
func (c *chunk) parts(data []byte) []part {
	whole := part{line: c.line, start: c.start, end: c.end, inline: c.inline}
	body := data[c.start:c.end]
	if text := bytes.TrimSpace(body); text[0] != '{' {
		return []part{whole}
	}
	var parts []part
	values := json.NewDecoder(bytes.NewReader(body))
	for {
		var value json.RawMessage
		err := values.Decode(&value)
		if errors.Is(err, io.EOF) {
			return parts
		}
		if err != nil {
			return []part{whole}
		}
		end := int(values.InputOffset())
		start := end - len(value)
		parts = append(parts, part{
			line:  c.line + bytes.Count(body[:start], []byte("\n")),
			start: c.start + start, end: c.start + end, json: true,
		})
	}
}

// firstInvalid returns the first line that is not UTF-8.
func firstInvalid(data []byte) int {
	line := 0
	for text := range bytes.Lines(data) {
		if line++; !utf8.Valid(text) {
			break
		}
	}
	return line
}
