package podsecurity

import (
	"bytes"
	"reflect"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// Pod is the part of a pod that a standard reads. Fields that no check reads are left
// empty.
type Pod struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     corev1.PodSpec    `json:"spec"`
}

// Decode decodes the part of a pod that upstream's checks read, as the API server's
// decoder would: names of members are compared exactly, null means absent, and unknown
// members are skipped. A field of another type, and any member that occurs twice in an
// object that is read, is an error that names it: decoders of such an object disagree.
// What is skipped is not checked. An absent object is an empty pod.
//
// The fields are those of the API's own types, by their JSON tags, limited to the ones
// that checks read, and are read in one pass over the JSON: no check reads most of a pod,
// and decoding all of it costs several times as much.
func Decode(object rawjson.Value) (*Pod, error) {
	if len(object) == 0 {
		return new(Pod), nil
	}
	return decode(object, object.Cursor())
}

// DecodeIndexed is Decode of the value with that number.
func DecodeIndexed(x *rawjson.Index, node int32) (*Pod, error) {
	return decode(x.Part(x.Nodes[node].Span), x.Cursor(node))
}

func decode(object rawjson.Value, c rawjson.Cursor) (*Pod, error) {
	pod := new(Pod)
	r := reader{text: object, c: c}
	decodePod()(&r, reflect.ValueOf(pod).Elem())
	if r.err != nil {
		return nil, r.err
	}
	return pod, nil
}

// decodeFunc reads the JSON value that comes next into a value of the type that it was
// made for.
type decodeFunc func(r *reader, to reflect.Value)

//nolint:gochecknoglobals // it is immutable, and made once
var decodePod = sync.OnceValue(func() decodeFunc {
	return newDecodeFunc(reflect.TypeFor[Pod](), fields())
})

func newDecodeFunc(t reflect.Type, fields map[reflect.Type][]string) decodeFunc {
	switch t.Kind() { //nolint:exhaustive // the fields have no other kinds
	case reflect.String:
		return func(r *reader, to reflect.Value) { to.SetString(r.string()) }
	case reflect.Bool:
		return func(r *reader, to reflect.Value) { to.SetBool(r.value(rawjson.Bool).IsTrue()) }
	case reflect.Int32, reflect.Int64:
		return func(r *reader, to reflect.Value) { to.SetInt(r.integer(t.Bits())) }
	case reflect.Map:
		return decodeAnnotations
	case reflect.Pointer:
		return newPointerFunc(t.Elem(), newDecodeFunc(t.Elem(), fields))
	case reflect.Slice:
		return newSliceFunc(newDecodeFunc(t.Elem(), fields))
	case reflect.Struct:
		return newStructFunc(t, fields)
	default:
		panic("no decoder for " + t.String())
	}
}

func newPointerFunc(t reflect.Type, decode decodeFunc) decodeFunc {
	return func(r *reader, to reflect.Value) {
		if r.c.Kind() == rawjson.Null {
			r.c.Skip()
			return
		}
		value := reflect.New(t)
		decode(r, value.Elem())
		to.Set(value)
	}
}

// decodeAnnotations reads the annotations that are reserved for Kubernetes, by the ends of their domains
// (https://kubernetes.io/docs/concepts/overview/working-with-objects/annotations/). No check reads the others,
// which are often long: only their kind is checked.
func decodeAnnotations(r *reader, to reflect.Value) {
	var out map[string]string
	for o := r.object(); o.next(); {
		name := o.name()
		if !bytes.Contains(name, []byte("kubernetes.io/")) && !bytes.Contains(name, []byte("k8s.io/")) {
			r.value(rawjson.String)
			continue
		}
		if out == nil {
			out = make(map[string]string)
		}
		out[name.Text()] = r.string()
	}
	to.Set(reflect.ValueOf(out))
}

// usualLength is how many elements the lists of a pod have space for at first.
const usualLength = 2

func newSliceFunc(decode decodeFunc) decodeFunc {
	return func(r *reader, to reflect.Value) {
		if !r.enters(rawjson.Array) {
			return
		}
		to.Grow(usualLength)
		for i := 0; r.c.Next(); i++ {
			if i == to.Cap() {
				to.Grow(1)
			}
			to.SetLen(i + 1)
			decode(r, to.Index(i))
		}
	}
}

// fieldDecoder reads one field.
type fieldDecoder struct {
	// name is the JSON name, in quotes.
	name   string
	index  []int
	decode decodeFunc
}

func newStructFunc(t reflect.Type, fields map[reflect.Type][]string) decodeFunc {
	decoders := fieldDecoders(t, fields)
	if len(decoders) == 0 {
		return func(r *reader, _ reflect.Value) { r.value(rawjson.Object) }
	}
	isVolume := t == reflect.TypeFor[corev1.Volume]()
	return func(r *reader, to reflect.Value) {
		unknown := decodeMembers(r, to, decoders)
		if isVolume && !unknown {
			defaultSource(to.Addr().Interface().(*corev1.Volume)) //nolint:forcetypeassert // it is the type
		}
	}
}

// decodeMembers reads the members of the object that comes next. It reports whether one
// that is not null is unknown.
func decodeMembers(r *reader, to reflect.Value, decoders []fieldDecoder) (unknown bool) {
members:
	for o := r.object(); o.next(); {
		name := o.name()
		for i := range decoders {
			if d := &decoders[i]; d.name == string(name) {
				d.decode(r, to.FieldByIndex(d.index))
				continue members
			}
		}
		unknown = r.c.Skip().Kind() != rawjson.Null || unknown
	}
	return unknown
}

// defaultSource makes a volume without a source an emptyDir, as the API server does when
// it stores a pod. A volume with an unknown source keeps none, so that the check for
// allowed volumes refuses it.
func defaultSource(volume *corev1.Volume) {
	if volume.VolumeSource == (corev1.VolumeSource{}) {
		volume.EmptyDir = new(corev1.EmptyDirVolumeSource)
	}
}

// fieldDecoders returns the decoders of the fields of a type, with those of structs that
// are inlined in it.
func fieldDecoders(t reflect.Type, fields map[reflect.Type][]string) []fieldDecoder {
	var out []fieldDecoder
	for _, name := range fields[t] {
		field, ok := t.FieldByName(name)
		if !ok {
			panic("no field " + t.String() + "." + name)
		}
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if tag != "" {
			out = append(out, fieldDecoder{`"` + tag + `"`, field.Index, newDecodeFunc(field.Type, fields)})
			continue
		}
		for _, inlined := range fieldDecoders(field.Type, fields) {
			inlined.index = append(field.Index, inlined.index...)
			out = append(out, inlined)
		}
	}
	return out
}
