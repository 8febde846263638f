package review

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// maxMembers bounds the members of a review and of its request together. An
// AdmissionReview of Kubernetes 1.37 has 18 at most.
const maxMembers = 64

var errBody = errors.New("the body must be a JSON object")

// envelope checks a review in one pass: it checks kind, and returns the apiVersion, if
// it is supported, and the members of the object called part. An absent member, or one
// that occurs twice, is an error. The apiVersion is returned with an error too, as far as
// it is known. If index is not nil, the body is read into it.
func envelope(buffer []rawjson.Member, body []byte, kind, part string, index *rawjson.Index) (apiVersion string, inner []rawjson.Member, values int, err error) {
	members, values, err := rawjson.Outline(buffer, body, 2, index)
	if err != nil {
		return "", nil, values, err
	}
	if len(members) == 0 {
		return "", nil, values, errBody
	}
	var kindValue, partValue rawjson.Value
	for i, m := range members {
		if bytes.IndexByte(m.Name, '\\') >= 0 {
			return apiVersion, nil, values, errors.New("the review's member names must be written without escapes")
		}
		if name, dup := duplicate(members, i); dup {
			return apiVersion, nil, values, fmt.Errorf("member %q occurs twice in the review", truncate.Runes(name, 64))
		}
		if m.Depth > 1 {
			continue
		}
		switch string(m.Name) {
		case `"kind"`:
			kindValue = m.Value
		case `"apiVersion"`:
			apiVersion = supportedVersion(m.Value)
		case `"` + part + `"`:
			partValue = m.Value
			end := i + 1
			for end < len(members) && members[end].Depth > 1 {
				end++
			}
			inner = members[i+1 : end]
		}
	}
	switch {
	case !kindValue.Is(kind):
		return apiVersion, nil, values, fmt.Errorf("kind: must be %q", kind)
	case partValue.Kind() == rawjson.Invalid, partValue.Kind() == rawjson.Null:
		return apiVersion, nil, values, required(part)
	case partValue.Kind() != rawjson.Object:
		return apiVersion, nil, values, fmt.Errorf("%s: must be an object", part)
	}
	return apiVersion, inner, values, nil
}

// duplicate reports whether the member at i repeats an earlier one of its own object,
// and returns its name. There are at most maxMembers, so comparing pairs is the fastest way.
func duplicate(members []rawjson.Member, i int) (string, bool) {
	m := members[i]
	for k := i - 1; k >= 0 && members[k].Depth >= m.Depth; k-- {
		if members[k].Depth == m.Depth && bytes.Equal(members[k].Name, m.Name) {
			return m.Name.Text(), true
		}
	}
	return "", false
}

// supportedVersion returns an apiVersion that is supported, and "" for any other: an
// answer never echoes the caller's text.
func supportedVersion(v rawjson.Value) string {
	for _, version := range [...]string{admissionV1, tokenV1, tokenV1beta1, accessV1, accessV1beta1} {
		if v.Is(version) {
			return version
		}
	}
	return ""
}

func required(field string) error { return fmt.Errorf("%s: required", field) }
