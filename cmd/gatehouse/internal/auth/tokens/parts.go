package tokens

import (
	"bytes"
	"errors"
	"io"

	"go.yaml.in/yaml/v2"
	kyaml "sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// kind is that of access tokens.
const kind = "AccessToken"

// part is where in a YAML text a document stands, with the line "---" in front of
// it and whatever comments are behind that.
type part struct{ start, end int }

// parts cuts a YAML text before every line "---", and behind every line "...".
// Inside of a document no such line can stand. Comments and directives in front
// of the first line "---" are a part of their own if there is no document in it,
// so that they stay when the document is taken out.
func parts(text []byte) []part {
	var all []part
	start, offset := 0, 0
	if bytes.HasPrefix(text, []byte("\ufeff")) {
		start, offset = len("\ufeff"), len("\ufeff")
	}
	cut := func(at int) {
		if at > start {
			all = append(all, part{start, at})
		}
		start = at
	}
	for singleLine := range bytes.Lines(text[offset:]) {
		end := offset + len(singleLine)
		switch {
		case isMarker(singleLine, "---"):
			cut(offset)
		case isMarker(singleLine, "..."):
			cut(end)
		}
		offset = end
	}
	cut(len(text))
	return all
}

// isMarker reports whether a line is the marker, or begins with it.
func isMarker(singleLine []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(singleLine, []byte(marker))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// tokenID returns the id of the token that the part is, and empty if it is none.
func (p part) tokenID(text []byte) string {
	own := text[p.start:p.end]
	if !bytes.Contains(own, []byte(kind)) {
		return ""
	}
	var document struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	if kyaml.Unmarshal(own, &document) != nil || document.Kind != kind || document.APIVersion != v1alpha1.GroupVersion.String() {
		return ""
	}
	return document.Metadata.Name
}

// valuesOf returns the values of the documents of a YAML text, without empty ones.
func valuesOf(text []byte) ([]any, bool) {
	var all []any
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var value any
		err := decoder.Decode(&value)
		switch {
		case errors.Is(err, io.EOF):
			return all, true
		case err != nil:
			return nil, false
		case value != nil:
			all = append(all, value)
		}
	}
}
