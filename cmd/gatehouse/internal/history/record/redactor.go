package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// DefaultPaths returns the field paths that are redacted in every recording.
func DefaultPaths() []string {
	return []string{
		"data", "stringData", "binaryData",
		"spec.containers[*].env[*].value", "spec.initContainers[*].env[*].value", "spec.ephemeralContainers[*].env[*].value",
		"spec.extra", // of the user in a SubjectAccessReview or a CertificateSigningRequest
	}
}

// DefaultAnnotations returns the patterns of the annotations that are redacted in every
// recording. The first ones hold a copy of the object, written by kubectl, kopf, kapp and Rancher.
func DefaultAnnotations() []string {
	return []string{
		"*last-applied*", "*last-handled*", "kapp.k14s.io/*", "objectset.rio.cattle.io/*",
		"*token*", "*secret*", "*password*", "*credential*", "*apikey*", "*api-key*",
	}
}

// Redactor replaces values by Mark. It is for one goroutine.
type Redactor struct {
	redaction Redaction
	// review is the root of AdmissionReviews, and secretReview that of those about Secrets. object and secret are the roots of
	// objects, and template is that of objects of which annotations are redacted alone.
	review, secretReview, object, secret, template *place
	patterns                                       []*regexp.Regexp
	// hidden says which keys of annotations match a pattern. It has the first maxHidden that were met, but for very long ones.
	hidden map[string]bool
}

const maxHidden = 1024

// hides reports whether the values of annotations with a key are redacted. The key is as in JSON.
func (r *Redactor) hides(name rawjson.Value) bool {
	if hidden, known := r.hidden[string(name)]; known {
		return hidden
	}
	key := name.Text()
	hidden := slices.ContainsFunc(r.patterns, func(p *regexp.Regexp) bool { return p.MatchString(key) })
	if len(r.hidden) < maxHidden && len(name) < maxHidden {
		r.hidden[string(name)] = hidden
	}
	return hidden
}

// place is a place in objects.
type place struct {
	// members are few: a search is faster than a map.
	members []member
	// each is the place of the elements of a list, nil if nothing is redacted in them.
	each *place
	// all is true if everything below is redacted, annotations if it is a map of annotations, and status if it is the text of a status
	// annotation, with what of the pod injection has replaced.
	all, annotations, status bool
}

// member is a member of an object with its place.
type member struct {
	name string
	at   *place
}

// member returns the place of a member, nil if nothing is redacted in it.
func (n *place) member(name []byte) *place {
	for i := range n.members {
		if m := &n.members[i]; m.name == string(name) {
			return m.at
		}
	}
	return nil
}

// everything is a place at which all is redacted.
//
//nolint:gochecknoglobals // constant
var everything = &place{all: true}

//nolint:gochecknoglobals // constant
var statusText = &place{status: true}

// descend returns the place at the end of steps, of which "[*]" is every element of a list.
func (n *place) descend(steps ...string) *place {
	for _, step := range steps {
		next := n.each
		if step != "[*]" {
			next = n.member([]byte(step))
		}
		if next == nil {
			if next = new(place); step == "[*]" {
				n.each = next
			} else {
				n.members = append(n.members, member{step, next})
			}
		}
		n = next
	}
	return n
}

// templates returns the paths at which pods are in objects: the object itself, and pod templates.
func templates() [][]string {
	return [][]string{nil, {"template"}, {"spec", "template"}, {"spec", "jobTemplate", "spec", "template"}}
}

// NewRedactor returns a Redactor for the default paths and annotations and those of the caller. Paths
// are as in Redaction; patterns have * for any characters and ignore case. There is an error for
// every path that cannot be used: labels, names and the like cannot be redacted, because selectors
// read them.
func NewRedactor(paths, annotations []string) (*Redactor, []error) {
	r := &Redactor{object: new(place), template: new(place), hidden: map[string]bool{}, redaction: Redaction{
		Paths: appendNew(DefaultPaths(), paths), Annotations: appendNew(DefaultAnnotations(), annotations),
	}}
	var problems []error
	for _, path := range r.redaction.Paths {
		if err := r.addPath(path); err != nil {
			problems = append(problems, err)
		}
	}
	for _, at := range append(templates(), []string{"spec", "jobTemplate"}, []string{"spec", "volumeClaimTemplates", "[*]"}) {
		r.object.descend(at...).descend("metadata", "annotations").annotations = true
	}
	r.template.descend("metadata", "annotations").annotations = true
	r.secret = &place{members: slices.Clone(r.object.members)}
	i := slices.IndexFunc(r.secret.members, func(m member) bool { return m.name == "metadata" })
	r.secret.members[i].at = &place{members: []member{{"annotations", everything}}}
	reviewOf := func(object *place) *place {
		user := &place{members: []member{{"extra", everything}}}
		request := &place{members: []member{{"object", object}, {"oldObject", object}, {"userInfo", user}}}
		return &place{members: []member{{"request", request}}}
	}
	r.review, r.secretReview = reviewOf(r.object), reviewOf(r.secret)
	for _, pattern := range r.redaction.Annotations {
		r.patterns = append(r.patterns, regexp.MustCompile("(?is)^"+strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*")+"$"))
	}
	return r, problems
}

func appendNew(list, more []string) []string {
	for _, one := range more {
		if !slices.Contains(list, one) {
			list = append(list, one)
		}
	}
	return list
}

// addPath adds a path for objects and, if it is in a pod's spec, for pod templates.
func (r *Redactor) addPath(path string) error {
	var steps []string
	for part := range strings.SplitSeq(path, ".") {
		name, list := strings.CutSuffix(part, "[*]")
		if name == "" || strings.ContainsAny(name, "[]* ") {
			return fmt.Errorf("path %q: must be names of fields, as in spec.containers[*].env[*].value", path)
		}
		if steps = append(steps, name); list {
			steps = append(steps, "[*]")
		}
	}
	if first := steps[0]; first == "metadata" || first == "apiVersion" || first == "kind" {
		return fmt.Errorf("path %q: %s cannot be redacted, because selectors and exceptions read it (hint: annotations have a list of their own)", path, first)
	}
	for _, at := range templates() {
		if at == nil || steps[0] == "spec" {
			r.object.descend(at...).descend(steps...).all = true
		}
	}
	return nil
}

// Redaction returns what is redacted.
func (r *Redactor) Redaction() Redaction { return r.redaction }

// isCredential reports whether a request holds a token in its object. Such requests are never recorded.
func isCredential(o *review.Outcome) bool {
	return o.Resource.Group == "authentication.k8s.io" || o.Resource.Resource == "serviceaccounts" && o.Subresource == "token"
}

// Object returns an object, as JSON, in which values are redacted.
func (r *Redactor) Object(object []byte) []byte {
	root := r.object
	if rawjson.Value(object).Get("kind").Is("Secret") {
		root = r.secret
	}
	w := r.walk(nil, object, root)
	return w.dst
}

// Request appends an AdmissionReview in which values are redacted, of one about Secrets all annotations, and returns where that was
// done. The review has no line ends. The error is errTooLarge.
func (r *Redactor) Request(dst, text []byte, isSecret bool) (out []byte, found Found, err error) {
	// A line of a segment has one end. API servers end bodies with one.
	if text = bytes.TrimSpace(text); bytes.IndexByte(text, '\n') >= 0 {
		var compact bytes.Buffer
		if json.Compact(&compact, text) == nil {
			text = compact.Bytes()
		}
	}
	root := r.review
	if isSecret {
		root = r.secretReview
	}
	w := r.walk(dst, text, root)
	if w.isFull {
		return dst, Found{}, errTooLarge
	}
	return w.dst, w.found, nil
}

// Found is what was redacted in a text.
type Found struct {
	// Paths are the places, as in Review.Redacted.
	Paths []string

	// text is that in which values are spans, and copies are what was redacted in copies of parts of it.
	text   rawjson.Value
	values []rawjson.Span
	copies []Found
	// env are the spans of environment variables with their names.
	env []rawjson.Span
}

// walk is one pass over a text that redacts.
type walk struct {
	*Redactor

	cursor rawjson.Cursor
	// dst has the redacted text up to the place copied of the text, and is bounded by most.
	dst          []byte
	copied, most int
	isFull       bool
	found        Found
	// path is where the pass is, in the form of Review.Redacted.
	path []byte
}

// maxGrowth bounds how much larger a text gets by its marks, in bytes.
const maxGrowth = 8 << 20

func (r *Redactor) walk(dst, text []byte, root *place) *walk {
	w := &walk{Redactor: r, cursor: rawjson.Value(text).Cursor(), dst: dst, most: len(dst) + len(text) + maxGrowth, found: Found{text: text}}
	w.value(root)
	w.dst = append(w.dst, text[w.copied:]...)
	return w
}

// value passes by the value that comes next, which is at a place, nil for one at which nothing is redacted.
func (w *walk) value(at *place) {
	c := &w.cursor
	if at == nil {
		c.Skip()
		return
	}
	begin, path := c.At(), len(w.path)
	switch kind := c.Kind(); {
	case kind == rawjson.Object:
		for c.Enter(); c.Next(); {
			name := c.Name()
			next := w.below(at, name)
			switch {
			case next == nil:
				c.Skip()
				continue
			case at.all: // the path is that at which all is redacted
			case at.annotations:
				w.path = append(append(append(w.path, '['), name...), ']')
			default:
				if path > 0 {
					w.path = append(w.path, '.')
				}
				w.path = append(w.path, name[1:len(name)-1]...)
			}
			w.value(next)
			w.path = w.path[:path]
		}
		if value := at.member([]byte("value")); value != nil && value.all {
			w.found.env = append(w.found.env, rawjson.Span{Start: int32(begin), End: int32(c.At())}) //nolint:gosec // a review is smaller
		}
	case kind == rawjson.Array && (at.all || at.each != nil):
		next := at
		if !at.all {
			next = at.each
			w.path = append(w.path, "[*]"...)
		}
		for c.Enter(); c.Next(); {
			w.value(next)
		}
		w.path = w.path[:path]
	case at.status:
		w.status(begin, c.Skip())
	case at.all && (kind == rawjson.String || kind == rawjson.Number || kind == rawjson.Bool):
		w.mark(begin, c.Skip())
	default:
		c.Skip()
	}
}

// below returns the place of a member, nil if nothing is redacted in it.
func (w *walk) below(at *place, name rawjson.Value) *place {
	switch {
	case at.all:
		return at
	case at.annotations:
		if w.hides(name) {
			return everything
		}
		if name.Is(v1alpha1.StatusAnnotation) {
			return statusText
		}
		return nil
	case bytes.IndexByte(name, '\\') >= 0:
		return at.member([]byte(name.Text()))
	default:
		return at.member(name[1 : len(name)-1])
	}
}

// mark replaces a value. Whether there is a string may be known: an empty one is left.
func (w *walk) mark(begin int, v rawjson.Value) {
	if len(v) == len(`""`) && v.Kind() == rawjson.String {
		return
	}
	w.replace(begin, rawjson.Value(`"`+Mark+`"`))
	w.found.values = append(w.found.values, rawjson.Span{Start: int32(begin), End: int32(w.cursor.At())}) //nolint:gosec // a review is smaller
}

// replace writes something in place of the value that the pass was at from begin on.
func (w *walk) replace(begin int, with rawjson.Value) {
	if len(w.dst) > w.most {
		w.isFull = true
		return
	}
	w.dst = append(append(w.dst, w.found.text[w.copied:begin]...), with...)
	w.copied = w.cursor.At()
	// The same place is met again in the next element of a list.
	const recent = 8
	known := w.found.Paths[max(0, len(w.found.Paths)-recent):]
	if !slices.ContainsFunc(known, func(p string) bool { return p == string(w.path) }) {
		w.found.Paths = append(w.found.Paths, string(w.path))
	}
}
