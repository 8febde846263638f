package record

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// objectTable are the objects that a segment holds. They are kept by their address, which is
// not used again while the table refers to them.
type objectTable struct {
	ids map[any]tableEntry
	// last is the number of the last object, parts of reviews included, and bytes the size of all in
	// the segment.
	last  int
	bytes int
	// looked are the objects that the current review has looked up, and lookedBytes their size.
	looked, lookedBytes int
	// lines are the lines of objects that are new.
	lines []byte
	// encoded is the JSON of the lookups that were encoded last.
	same    Lookups
	encoded []byte
}

// tableEntry is the number of an object in a segment, and the size of its text in bytes.
type tableEntry struct{ id, bytes int }

// A Reader has the objects of a segment in memory, and refuses more than maxObjects or
// maxObjectBytes. A segment ends well before, see isFull, and what one review adds is bounded.
const (
	// maxTableObjects and maxTableBytes bound the objects of a segment that stay in memory. The
	// bytes are those of parts too.
	maxTableObjects, maxTableBytes = 10_000, 16 << 20
	// maxParts bounds the parts of a segment.
	maxParts = 4096
	// maxLooked and maxLookedBytes bound the objects that one review has looked up, whether or
	// not they are new: what is too large for a segment is not encoded again for each review.
	maxLooked, maxLookedBytes = 5000, 8 << 20
	// keptBuffer is the size of the largest buffer that is kept for the next review, in bytes.
	keptBuffer = 1 << 20
	// partSpace is more than a reference to a part takes in a line, in bytes.
	partSpace = 32
)

// isFull reports whether a segment should end.
func (t *objectTable) isFull() bool {
	return len(t.ids) >= maxTableObjects || t.last-len(t.ids) >= maxParts || t.bytes >= maxTableBytes
}

// errTooLarge is the error for a review that a Reader would refuse.
var errTooLarge = errors.New("the review is too large for a recording")

// freeBuffers drops the buffers that a large review has grown.
func (s *segments) freeBuffers() {
	for _, buffer := range [...]*[]byte{&s.line, &s.review, &s.request, &s.answer, &s.objects.lines} {
		if cap(*buffer) > keptBuffer {
			*buffer = nil
		}
	}
}

// encode returns the lines of a review: the objects that are new in the segment, and the review.
// They are valid until the next call. With errTooLarge and errCredential they are those of the objects
// alone, which later reviews refer to.
func (s *segments) encode(redactor *Redactor, e *entry) ([]byte, error) {
	found := values{parts: s.parts[:0]}
	review := &e.review
	if review.Config == s.header.Config {
		review.Config = ""
	}
	s.freeBuffers()
	t := &s.objects
	t.lines, t.looked, t.lookedBytes, s.inParts = t.lines[:0], 0, 0, 0
	lookups, err := t.lookups(redactor, e.trace)
	if err != nil {
		return t.lines, err
	}
	// The request and the answer are made first, because they say whether anything is redacted.
	refer := s.refer
	s.request, s.answer, s.cuts = s.request[:0], s.answer[:0], s.cuts[:0]
	if len(e.body) > 0 {
		if s.request, s.cuts, err = redactor.appendRequest(s.request, e.body, &found, refer, s.cuts); err != nil {
			return t.lines, err
		}
	}
	inRequest := len(s.cuts)
	review.Redacted = found.any
	switch {
	case len(e.answer) == 0:
	case review.Token != nil:
		s.answer = redactor.appendTokenAnswer(s.answer, e.answer)
	default:
		s.answer, s.cuts = redactor.appendAnswer(s.answer, e.answer, &found, refer, s.cuts)
	}
	s.parts = found.parts
	text, err := appendReview(append(s.review[:0], `"review":`...), review, lookups)
	if err != nil {
		return t.lines, err
	}
	if len(s.request) > 0 {
		text = append(text, `,"request":`...)
		move(s.cuts[:inRequest], len(text))
		text = append(text, s.request...)
	}
	if len(s.answer) > 0 {
		text = append(text, `,"response":`...)
		move(s.cuts[inRequest:], len(text))
		text = append(text, s.answer...)
	}
	text = append(text, "}}\n"...)
	s.review = text
	if len(text)+s.inParts+partSpace*(len(s.cuts)+1) > maxLine {
		return t.lines, errTooLarge
	}
	s.line = append(append(s.line[:0], t.lines...), '{')
	if len(s.cuts) > 0 {
		s.line = append(s.line, partsPrefix[1:]...)
		for i, c := range s.cuts {
			if i > 0 {
				s.line = append(s.line, ',')
			}
			s.line = strconv.AppendInt(append(s.line, '['), int64(c.at), 10)
			s.line = append(strconv.AppendInt(append(s.line, ','), int64(c.id), 10), ']')
		}
		s.line = append(s.line, "],"...)
	}
	s.line = append(s.line, text...)
	return s.line, nil
}

func move(cuts []cut, by int) {
	for i := range cuts {
		cuts[i].at += by
	}
}

// appendReview appends a review without its end, request and response.
func appendReview(dst []byte, r *Review, lookups []byte) ([]byte, error) {
	dst = rawjson.AppendString(append(dst, `{"id":`...), r.ID)
	dst = append(r.Time.AppendFormat(append(dst, `,"time":"`...), time.RFC3339Nano), '"')
	if r.Took != 0 {
		dst = strconv.AppendInt(append(dst, `,"took":`...), int64(r.Took), 10)
	}
	for _, field := range [...]struct{ name, value string }{
		{`,"endpoint":`, r.Endpoint},
		{`,"config":`, r.Config},
		{`,"replica":`, r.Replica},
		{`,"decision":`, string(r.Decision)},
		{`,"reason":`, r.Reason},
	} {
		if field.value != "" {
			dst = rawjson.AppendString(append(dst, field.name...), field.value)
		}
	}
	if r.Redacted {
		dst = append(dst, `,"redacted":true`...)
	}
	if r.Token != nil {
		token, err := json.Marshal(r.Token)
		if err != nil {
			return nil, fmt.Errorf("encode a token: %w", err)
		}
		dst = append(append(dst, `,"token":`...), token...)
	}
	if lookups != nil {
		dst = append(append(dst, `,"lookups":`...), lookups...)
	}
	return dst, nil
}

// refer returns the number of the object that holds a part in the segment, 0 if there are too many.
func (s *segments) refer(p *part) int {
	t := &s.objects
	if p.segment != s.number && t.bytes >= 2*maxTableBytes {
		return 0
	}
	s.inParts += len(p.redacted)
	if p.segment == s.number {
		return p.id
	}
	t.last++
	t.bytes += len(p.redacted)
	p.id, p.segment = t.last, s.number
	t.lines = strconv.AppendInt(append(t.lines, `{"object":{"id":`...), int64(p.id), 10)
	t.lines = append(append(append(t.lines, `,"value":`...), p.redacted...), "}}\n"...)
	return p.id
}

// id returns the number of an object, whose JSON is made if it is new.
func (t *objectTable) id(redactor *Redactor, object any, encode func() ([]byte, error)) (int, error) {
	if value := reflect.ValueOf(object); value.Kind() == reflect.Pointer && value.IsNil() {
		return 0, nil
	}
	known := t.ids[object]
	t.looked++
	if t.lookedBytes += known.bytes; t.looked > maxLooked || t.lookedBytes > maxLookedBytes {
		return 0, errTooLarge
	}
	if known.id > 0 {
		return known.id, nil
	}
	text, err := encode()
	if err != nil {
		return 0, fmt.Errorf("encode an object: %w", err)
	}
	begin := len(t.lines)
	t.lines = fmt.Appendf(t.lines, `{"object":{"id":%d,"value":`, t.last+1)
	// Params and presets are configuration, which a replay cannot do without; of Secrets it must.
	if rawjson.Value(text).Get("kind").Is("Secret") {
		t.lines = redactor.appendObject(t.lines, text)
	} else {
		t.lines = redactor.appendAnnotations(t.lines, text)
	}
	t.lines = append(t.lines, "}}\n"...)
	size := len(t.lines) - begin
	if t.ids == nil {
		t.ids = map[any]tableEntry{}
	}
	t.last++
	t.bytes += size
	t.ids[object] = tableEntry{t.last, size}
	if t.lookedBytes += size; t.lookedBytes > maxLookedBytes {
		return 0, errTooLarge
	}
	return t.last, nil
}

func (t *objectTable) namespace(r *Redactor, n *corev1.Namespace) (int, error) {
	return t.id(r, n, func() ([]byte, error) {
		bare := *n
		bare.ManagedFields, bare.Kind, bare.APIVersion = nil, "Namespace", "v1"
		return json.Marshal(&bare) //nolint:wrapcheck // id does
	})
}

func (t *objectTable) object(r *Redactor, o *unstructured.Unstructured) (int, error) {
	return t.id(r, o, func() ([]byte, error) { return json.Marshal(o.Object) }) //nolint:wrapcheck // id does
}

// lookups returns what a trace has noted, as JSON, nil for one that noted nothing.
func (t *objectTable) lookups(r *Redactor, trace *Trace) ([]byte, error) {
	if !trace.traced {
		return nil, nil
	}
	out, err := t.answers(r, trace)
	if err != nil {
		return nil, err
	}
	if t.encoded != nil && reflect.DeepEqual(out, &t.same) {
		return t.encoded, nil // those of a rollout
	}
	t.same = *out
	t.encoded, err = json.Marshal(out)
	return t.encoded, err //nolint:wrapcheck // it does not fail
}

// answers returns what a trace has noted.
func (t *objectTable) answers(r *Redactor, trace *Trace) (out *Lookups, err error) {
	out = &Lookups{NoAuthorizer: trace.noAuthorizer}
	add := func(id int, failed error) int {
		err = cmp.Or(err, failed)
		return id
	}
	for _, n := range trace.namespaces {
		out.Namespaces = append(out.Namespaces, NamespaceLookup{n.name, add(t.namespace(r, n.found))})
	}
	for _, k := range trace.kinds {
		out.Kinds = append(out.Kinds, KindLookup{metav1.GroupVersionKind(k.kind), k.namespaced, errorText(k.err), errors.Is(k.err, policy.ErrNotServed)})
	}
	for _, o := range trace.objects {
		out.Objects = append(out.Objects, ObjectLookup{metav1.GroupVersionKind(o.kind), o.namespace, o.name, add(t.object(r, o.found)), errorText(o.err)})
	}
	for _, l := range trace.lists {
		list := ListLookup{Kind: metav1.GroupVersionKind(l.kind), Namespace: l.namespace, Selector: l.selector, Error: errorText(l.err)}
		for _, o := range l.found {
			list.Objects = append(list.Objects, add(t.object(r, o)))
		}
		out.Lists = append(out.Lists, list)
	}
	for i := range trace.configMaps {
		c := &trace.configMaps[i]
		lookup := ObjectLookup{Namespace: c.namespace, Name: c.name}
		if c.known {
			lookup.Object = add(t.configMap(r, c))
		}
		out.ConfigMaps = append(out.ConfigMaps, lookup)
	}
	for _, a := range trace.authorizer {
		out.Authorizer = append(out.Authorizer, Authorization{a.attributes + extraKey(a.extra, r.hash), decisionText(a.decision), a.reason, errorText(a.err)})
	}
	return out, err
}

// configMapContent identifies a ConfigMap by its data, because each lookup returns new maps.
type configMapContent string

func (t *objectTable) configMap(r *Redactor, c *configMapAnswer) (int, error) {
	text, err := json.Marshal(&corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.name}, Data: c.data,
	})
	return t.id(r, configMapContent(text), func() ([]byte, error) { return text, err })
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func decisionText(d authorizer.Decision) string {
	switch d {
	case authorizer.DecisionAllow:
		return "allow"
	case authorizer.DecisionDeny:
		return "deny"
	case authorizer.DecisionNoOpinion:
		return "noOpinion"
	default:
		return "unknown"
	}
}
