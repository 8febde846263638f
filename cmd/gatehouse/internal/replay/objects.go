package replay

import (
	"bytes"
	"encoding/json"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record/redacted"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

const (
	// maxDecoded bounds the bytes of objects of a segment, as JSON, that stay in memory decoded. Of a
	// segment with more, the rest is decoded for each review.
	maxDecoded = 4 << 20
	// maxLookups bounds the texts of lookups that stay in memory decoded, and maxLookupsText
	// the size of each in bytes.
	maxLookups     = 256
	maxLookupsText = 16 << 10
)

// segment is a segment whose objects are decoded once for all reviews. It is safe for concurrent use,
// and what it returns must not be changed.
type segment struct {
	*record.Segment

	mu      sync.Mutex
	decoded map[int]*object
	bytes   int
	lookups map[string]*lookups
}

func newSegment(s *record.Segment) *segment {
	return &segment{Segment: s, decoded: map[int]*object{}, lookups: map[string]*lookups{}}
}

// object is a recorded object in the forms in which it was asked for: as a namespace, as params are given, and as a ConfigMap.
// They share one pointer for each form, by which policies know it again. A form is nil if the object does not have it.
type object struct {
	// redacted is true if anything in it is.
	redacted bool

	asNamespace func() *corev1.Namespace
	asTree      func() *unstructured.Unstructured
	asConfigMap func() *corev1.ConfigMap
}

func newObject(text json.RawMessage) *object {
	return &object{
		redacted:    bytes.Contains(text, []byte(redacted.Prefix)),
		asNamespace: sync.OnceValue(decoded[corev1.Namespace](text)),
		asConfigMap: sync.OnceValue(decoded[corev1.ConfigMap](text)),
		asTree: sync.OnceValue(func() *unstructured.Unstructured {
			value, err := rawjson.Parse(text)
			if err != nil {
				return nil
			}
			tree, _ := value.Decode()
			fields, isObject := tree.(map[string]any)
			if !isObject {
				return nil
			}
			return &unstructured.Unstructured{Object: fields}
		}),
	}
}

// decoded returns what decodes a text as a type.
func decoded[T any](text json.RawMessage) func() *T {
	return func() *T {
		value := new(T)
		if json.Unmarshal(text, value) != nil {
			return nil
		}
		return value
	}
}

// object returns an object of the segment, nil if there is none.
func (s *segment) object(id int) *object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.decoded[id]; o != nil {
		return o
	}
	text := s.Object(id)
	if text == nil {
		return nil
	}
	o := newObject(text)
	if s.bytes += len(text); s.bytes <= maxDecoded {
		s.decoded[id] = o
	}
	return o
}

// lookups are the lookups of a review.
type lookups struct {
	*record.Lookups

	// redacted is true if anything in the objects is.
	redacted bool
}

// lookupsOf decodes the lookups of record.DecodeReview, nil for none.
func (s *segment) lookupsOf(text []byte) (*lookups, error) {
	if text == nil {
		return nil, nil //nolint:nilnil // nothing was recorded
	}
	s.mu.Lock()
	known := s.lookups[string(text)]
	s.mu.Unlock()
	if known != nil {
		return known, nil
	}
	decoded, err := record.DecodeLookups(text)
	if err != nil {
		return nil, err
	}
	l := &lookups{Lookups: decoded}
	decoded.EachObject(func(id *int) {
		if o := s.object(*id); *id > 0 && o != nil {
			l.redacted = l.redacted || o.redacted
		}
	})
	if len(text) <= maxLookupsText {
		s.mu.Lock()
		if len(s.lookups) < maxLookups {
			s.lookups[string(text)] = l
		}
		s.mu.Unlock()
	}
	return l, nil
}
