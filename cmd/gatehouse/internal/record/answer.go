package record

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// values are the values that were redacted in a request, to be found in its answer.
type values struct {
	// long are those that are searched for everywhere.
	long []string
	// env are the values of environment variables by name.
	env map[string]string
	// any is true if anything was redacted.
	any bool
	// many is true if they were too many to be noted.
	many bool
	// parts are the parts of the request whose values belong to these too.
	parts []*part
}

// own reports whether there are values that are of no part.
func (f *values) own() bool { return len(f.long) > 0 || len(f.env) > 0 || f.many }

func (f *values) addPart(p *part) {
	if p.found.any {
		f.any = true
		f.parts = append(f.parts, p)
	}
}

// search returns the values that are searched for, the longest first, and false if they are too
// many.
func (f *values) search() ([]string, bool) {
	all, many := slices.Clone(f.long), f.many
	for _, p := range f.parts {
		all, many = append(all, p.found.long...), many || p.found.many
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(-cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	all = slices.Compact(all)
	return all, len(all) <= maxLong && !many
}

// isEnv reports whether an environment variable has a value that was redacted.
func (f *values) isEnv(name, value string) bool {
	if name == "" || value == "" {
		return false
	}
	if f.env[name] == value {
		return true
	}
	return slices.ContainsFunc(f.parts, func(p *part) bool { return p.found.env[name] == value })
}

const (
	// minLong is the size of the smallest value that is searched for everywhere, in bytes.
	minLong = 8
	// maxLong bounds how many values are searched for, so that the work for a byte is bounded.
	maxLong = 256
)

func (f *values) note(text string) {
	f.any = true
	switch {
	case len(text) < minLong || slices.Contains(f.long, text):
	case len(f.long) >= maxLong:
		f.many = true
	default:
		f.long = append(f.long, text)
	}
}

// noteEnv notes the value of an environment variable.
func (f *values) noteEnv(v rawjson.Value) {
	name, value := v.Get("name").Text(), v.Get("value").Text()
	switch {
	case name == "" || value == "":
		return
	case len(f.env) >= maxLong:
		f.many = true
		return
	case f.env == nil:
		f.env = map[string]string{}
	}
	f.env[name] = value
}

// appendAnswer appends the response of an AdmissionReview. In its patch, which is appended as JSON,
// and in its texts are redacted the values that were redacted in the request. Refer and cuts are as for
// appendRequest.
func (r *Redactor) appendAnswer(dst, answer []byte, found *values, refer func(*part) int, cuts []cut) ([]byte, []cut) {
	search := searcher{Redactor: r, found: found}
	response := rawjson.Value(answer).Get("response")
	if response.Kind() != rawjson.Object {
		return append(dst, "null"...), cuts
	}
	dst = appendMembers(dst, response, func(dst []byte, name, v rawjson.Value) []byte {
		switch {
		case name.Is("patch"):
			known := r.cache.patch(v, found, func(dst []byte) []byte { return search.appendPatch(dst, v) })
			if known == nil {
				return search.appendPatch(dst, v)
			}
			if id := refer(known); id > 0 {
				cuts = append(cuts, cut{len(dst), id})
				return append(dst, placeholder)
			}
			return append(dst, known.redacted...)
		case !found.any || name.Is("uid") || name.Is("allowed") || name.Is("patchType"):
			return append(dst, v...)
		default:
			return search.appendFound(dst, v)
		}
	})
	return dst, cuts
}

// searcher redacts values wherever they occur in an answer.
type searcher struct {
	*Redactor

	found *values
	// long is what is searched for once prepared is true, and few is false if it is too much.
	long          []string
	prepared, few bool
}

// appendPatch appends the patch of an answer, which is base64, as JSON.
func (s *searcher) appendPatch(dst []byte, v rawjson.Value) []byte {
	patch, err := base64.StdEncoding.DecodeString(v.Text())
	if err != nil {
		return append(dst, "null"...) // it is our own, so that this does not happen
	}
	if !s.found.any {
		return append(dst, patch...)
	}
	return s.appendFound(dst, patch)
}

// appendTokenAnswer appends the status of a TokenReview. The extra values of the user are redacted, as
// those in requests are.
func (r *Redactor) appendTokenAnswer(dst, answer []byte) []byte {
	var found values
	dst = append(dst, `{"status":`...)
	dst = appendMembers(dst, rawjson.Value(answer).Get("status"), func(dst []byte, name, v rawjson.Value) []byte {
		if !name.Is("user") {
			return append(dst, v...)
		}
		return appendMembers(dst, v, func(dst []byte, name, v rawjson.Value) []byte {
			if name.Is("extra") {
				return r.appendAll(dst, v, &found)
			}
			return append(dst, v...)
		})
	})
	return append(dst, '}')
}

// appendFound appends a value in which the noted values are redacted wherever they occur.
func (s *searcher) appendFound(dst []byte, v rawjson.Value) []byte {
	if !s.prepared {
		s.long, s.few = s.found.search()
		s.prepared = true
	}
	switch v.Kind() {
	case rawjson.Object:
		env := ""
		if value := v.Get("value"); value.Kind() == rawjson.String && s.found.isEnv(v.Get("name").Text(), value.Text()) {
			env = value.Text()
		}
		return appendMembers(dst, v, func(dst []byte, name, v rawjson.Value) []byte {
			if env != "" && name.Is("value") {
				return append(append(append(dst, '"'), s.hash(env)...), '"')
			}
			return s.appendFound(dst, v)
		})
	case rawjson.Array:
		return appendElements(dst, v, s.appendFound)
	case rawjson.String:
		text := v.Text()
		if !s.few {
			return append(append(append(dst, '"'), s.hash(text)...), '"') // too many to search for
		}
		changed, most := false, maxGrowth*len(text)+hashSize
		for _, value := range s.long {
			if strings.Contains(text, value) {
				text, changed = strings.ReplaceAll(text, value, s.hash(value)), true
			}
			if len(text) > most { // values that are in hashes could be replaced without end
				text = s.hash(v.Text())
				break
			}
		}
		if !changed {
			return append(dst, v...)
		}
		return rawjson.AppendString(dst, text)
	default:
		return append(dst, v...)
	}
}
