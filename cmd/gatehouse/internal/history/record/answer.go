package record

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strings"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

const (
	// minLong is the size of the smallest value that is searched for everywhere in an answer, in bytes. Shorter ones are searched
	// for as values of environment variables of the same name.
	minLong = 8
	// maxSearch bounds the work of the search: the bytes of the answer times the number of values. Beyond it, no text of the answer is recorded.
	maxSearch = 1 << 30
)

// Answer appends the response of an AdmissionReview, with its patch as JSON. Where values that were redacted in the request occur in
// texts and in the patch, they are redacted too.
func (r *Redactor) Answer(dst, answer []byte, found *Found) []byte {
	response := rawjson.Value(answer).Get("response")
	if response.Kind() != rawjson.Object {
		return append(dst, "null"...)
	}
	s := searcher{found: found}
	return appendMembers(dst, response, func(dst []byte, name, v rawjson.Value) []byte {
		switch {
		case name.Is("patch"):
			patch, err := base64.StdEncoding.DecodeString(v.Text())
			if err != nil {
				return append(dst, "null"...) // it is our own, so that this does not happen
			}
			return s.append(dst, patch)
		case name.Is("uid") || name.Is("allowed") || name.Is("patchType"):
			return append(dst, v...)
		default:
			return s.append(dst, v)
		}
	})
}

// TokenAnswer appends the status of a TokenReview. The extra values of the user are redacted.
func (r *Redactor) TokenAnswer(dst, answer []byte) []byte {
	text := append([]byte(`{"status":`), rawjson.Value(answer).Get("status")...)
	return r.walk(dst, append(text, '}'), userStatus).dst
}

//nolint:gochecknoglobals // constant
var userStatus = &place{members: map[string]*place{"status": {members: map[string]*place{"user": {members: map[string]*place{"extra": everything}}}}}}

// appendMembers appends an object whose values are appended by a function. Anything else is
// appended as it is.
func appendMembers(dst []byte, v rawjson.Value, value func(dst []byte, name, v rawjson.Value) []byte) []byte {
	if v.Kind() != rawjson.Object {
		return append(dst, v...)
	}
	dst = append(dst, '{')
	begin := len(dst)
	for name, member := range v.Members() {
		if len(dst) > begin {
			dst = append(dst, ',')
		}
		dst = append(append(dst, name...), ':')
		dst = value(dst, name, member)
	}
	return append(dst, '}')
}

// searcher finds redacted values in an answer.
type searcher struct {
	found *Found
	// windows has a bit for each eight bytes that a text has which holds a value: most texts hold none.
	windows  [512]uint64
	prepared bool
	// always is true if the windows do not tell.
	always bool

	// long are the values that are searched for everywhere, the longest first, and env are names and values of environment variables. They
	// are nil until they are needed.
	long []string
	env  map[[2]string]bool
}

// append appends a value in which the redacted values are redacted wherever they occur.
func (s *searcher) append(dst []byte, v rawjson.Value) []byte {
	if !s.mayHold(v) {
		return append(dst, v...)
	}
	if s.env == nil {
		s.collect()
	}
	return s.appendFound(dst, v, len(v)*len(s.long) > maxSearch)
}

// bit returns the place of the bit of eight bytes.
func bit(window []byte) (word, mask uint64) {
	const mix = 0x9e3779b97f4a7c15
	hash := binary.LittleEndian.Uint64(window) * mix
	return hash >> 55, 1 << (hash >> 49 & 63)
}

// mayHold reports whether a text may hold a redacted value. It costs one pass over the text.
func (s *searcher) mayHold(text []byte) bool {
	if len(s.found.values) == 0 {
		return false
	}
	if !s.prepared {
		s.prepared = true
		s.prepare()
	}
	if s.always {
		return true
	}
	for i := 0; i+minLong <= len(text); i++ {
		if word, mask := bit(text[i : i+minLong]); s.windows[word]&mask != 0 {
			return true
		}
	}
	return false
}

// prepare sets the windows.
func (s *searcher) prepare() {
	add := func(window []byte) {
		word, mask := bit(window)
		s.windows[word] |= mask
	}
	const most = 4096 // of which more bits would be set than not
	if s.always = len(s.found.values) > most; s.always {
		return
	}
	for _, span := range s.found.values {
		value := s.found.text[span.Start:span.End]
		if value.Kind() != rawjson.String {
			continue
		}
		value = value[1 : len(value)-1]
		if slices.ContainsFunc(value, isEscaped) { // it may be written otherwise in the answer
			s.always = true
			return
		}
		if len(value) >= minLong {
			add(value[:minLong])
			continue
		}
		member := append(append([]byte(`"value":"`), value...), '"')
		add(member[len(member)-minLong:])
	}
}

// isEscaped reports whether a byte of a string has another form in JSON, or may have.
func isEscaped(b byte) bool {
	return b < ' ' || b >= 0x7f || b == '"' || b == '\\' || b == '<' || b == '>' || b == '&'
}

// collect sets what is searched for.
func (s *searcher) collect() {
	s.env = map[[2]string]bool{}
	for _, span := range s.found.values {
		// What is part of the mark would be found in it.
		if text := s.found.text[span.Start:span.End].Text(); len(text) >= minLong && !strings.Contains(Mark, text) {
			s.long = append(s.long, text)
		}
	}
	slices.SortFunc(s.long, func(a, b string) int { return cmp.Or(-cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	s.long = slices.Compact(s.long)
	for _, span := range s.found.env {
		one := s.found.text[span.Start:span.End]
		s.env[[2]string{one.Get("name").Text(), one.Get("value").Text()}] = true
	}
}

// appendFound is append for a value that may hold a redacted one. Without looking, all of its texts are redacted.
func (s *searcher) appendFound(dst []byte, v rawjson.Value, all bool) []byte {
	switch v.Kind() {
	case rawjson.Object:
		value := v.Get("value").Text()
		isEnv := value != "" && s.env[[2]string{v.Get("name").Text(), value}]
		return appendMembers(dst, v, func(dst []byte, name, v rawjson.Value) []byte {
			switch {
			case isEnv && name.Is("value"):
				return rawjson.AppendString(dst, Mark)
			case all && (name.Is("op") || name.Is("path")):
				return append(dst, v...)
			default:
				return s.appendFound(dst, v, all)
			}
		})
	case rawjson.Array:
		dst = append(dst, '[')
		for i, element := range v.Elements() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = s.appendFound(dst, element, all)
		}
		return append(dst, ']')
	case rawjson.String:
		if all {
			return rawjson.AppendString(dst, Mark)
		}
		text := v.Text()
		changed := false
		for _, value := range s.long {
			if strings.Contains(text, value) {
				text, changed = strings.ReplaceAll(text, value, Mark), true
			}
		}
		if changed {
			return rawjson.AppendString(dst, text)
		}
	}
	return append(dst, v...)
}
