package convert

import (
	"cmp"
	"encoding/json"
	"errors"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/jmespath"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// decodeJSON decodes JSON into the types that a decoder of Kubernetes gives: integers are int64.
func decodeJSON(raw []byte) (value any, err error) {
	return value, kjson.UnmarshalCaseSensitivePreserveInts(raw, &value)
}

// decodeStrictly decodes the JSON of a field into a type of which it must have no other fields. Fields of any type have integers as int64.
func decodeStrictly(raw []byte, field string, into any) error {
	value, err := decodeJSON(raw)
	if err != nil {
		return err
	}
	var checker strict.Checker
	found := checker.Compare(reflect.TypeOf(into).Elem(), value, field, strict.Options{})
	if len(found) == 0 {
		return kjson.UnmarshalCaseSensitivePreserveInts(raw, into)
	}
	return unreadable(found)
}

// unreadable returns the error about fields.
func unreadable(found diagnostic.List) error {
	var texts []string
	for i := range found {
		texts = append(texts, found[i].Field+": "+found[i].Message)
	}
	return unsupported(found[0].Field, cmp.Or(found[0].Hint, "correct the field, or write it in another way"), "a field that cannot be read: %s", strings.Join(texts, ", "))
}

// toJSON returns a value as what a JSON decoder gives.
func toJSON(value any) any {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	out, _ := decodeJSON(raw) // it is JSON
	return out
}

// specOf decodes the spec of a document strictly, and returns its metadata. Fields that are named are left out, and decoded into another value.
func specOf(o *manifest.Object, into, others any, names ...string) (meta metav1.ObjectMeta, err error) {
	var document struct {
		APIVersion any                        `json:"apiVersion"`
		Kind       any                        `json:"kind"`
		Metadata   any                        `json:"metadata"`
		Status     any                        `json:"status"`
		Spec       map[string]json.RawMessage `json:"spec"`
	}
	if err := decodeStrictly(o.JSON(), "", &document); err != nil {
		return meta, err
	}
	apart := map[string]json.RawMessage{}
	for _, name := range names {
		if value, ok := document.Spec[name]; ok {
			apart[name] = value
			delete(document.Spec, name)
		}
	}
	spec, err := json.Marshal(document.Spec)
	if err == nil {
		err = decodeStrictly(spec, "spec", into)
	}
	if raw, failed := json.Marshal(document.Metadata); err == nil && failed == nil {
		err = json.Unmarshal(raw, &meta)
	}
	if raw, failed := json.Marshal(apart); err == nil && failed == nil && others != nil {
		err = json.Unmarshal(raw, others)
	}
	if _, located := errors.AsType[*jmespath.UnsupportedError](err); err != nil && !located {
		err = unsupported("", "correct the document", "a document that cannot be read: %s", err)
	}
	return meta, err
}

// inNamespace returns a namespaced policy's namespace, which is default if it names none, as notes say then.
func inNamespace(meta *metav1.ObjectMeta, notes *[]string) string {
	if meta.Namespace == "" {
		meta.Namespace = metav1.NamespaceDefault
		*notes = append(*notes, `it has no namespace: it is converted for "default"`)
	}
	return meta.Namespace
}
