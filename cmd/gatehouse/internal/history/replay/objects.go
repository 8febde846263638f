package replay

import (
	"bytes"
	"encoding/json"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// maxDecoded bounds the bytes of objects of a segment, as JSON, that stay in memory decoded. Of a
// segment with more, the rest is decoded for each review.
const maxDecoded = 4 << 20

// segment is a segment whose objects are decoded once for all reviews. It is safe for concurrent use,
// and what it returns must not be changed.
type segment struct {
	*record.Segment

	mu      sync.Mutex
	decoded map[string]*object
	bytes   int
}

func newSegment(s *record.Segment) *segment {
	return &segment{Segment: s, decoded: map[string]*object{}}
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
		redacted:    bytes.Contains(text, []byte(record.Mark)),
		asNamespace: sync.OnceValue(decoded[corev1.Namespace](text)),
		asConfigMap: sync.OnceValue(decoded[corev1.ConfigMap](text)),
		asTree: sync.OnceValue(func() *unstructured.Unstructured {
			tree, _ := rawjson.Value(text).Decode()
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
func (s *segment) object(digest string) *object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.decoded[digest]; o != nil {
		return o
	}
	text := s.Object(digest)
	if text == nil {
		return nil
	}
	o := newObject(text)
	if s.bytes += len(text); s.bytes <= maxDecoded {
		s.decoded[digest] = o
	}
	return o
}
