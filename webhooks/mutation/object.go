package mutation

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/builtin"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/defaults"
	kindversions "github.com/gatehouse-dev/gatehouse/webhooks/kinds/versions"
)

// version is the object of a request in one version.
type version struct {
	admission.VersionedAttributes
	// oldRead is true once the old object was read.
	oldRead bool
	// typed is true once match conditions were evaluated. form and oldForm are how expressions see the two objects.
	typed         bool
	form, oldForm form
	// seen and oldSeen are what expressions see of the two as JSON, nil until one asks.
	seen, oldSeen ref.Val
	// resource is that of the version.
	resource schema.GroupVersionResource
}

func (v *version) object() runtime.Object { return v.VersionedObject.Object() }

// update changes the object.
func (v *version) update(object runtime.Object) {
	v.UpdateObject(object)
	v.form, v.seen = undecided, nil
}

// form is how expressions see an object of a Go type: as JSON, or through its type. They differ in what an expression can do
// with parts of the object.
type form uint8

const (
	undecided form = iota
	asJSON
	asTyped
)

// evaluating decides how the expressions that are evaluated next see the objects. As upstream, match conditions see them
// through their types, and so does what follows, but for an object that was seen as JSON before and has not changed since.
func (v *version) evaluating(conditions bool) {
	v.typed = v.typed || conditions
	next := asJSON
	if v.typed {
		next = asTyped
	}
	v.form, v.oldForm = cmp.Or(v.form, next), cmp.Or(v.oldForm, next)
}

func scheme() *runtime.Scheme { return builtin.Scheme() }

// decode reads an object into its Go type, and one of another kind as it is.
func (r *decider) decode(raw []byte, kind schema.GroupVersionKind) (runtime.Object, error) {
	object, err := scheme().New(kind)
	if err != nil {
		out := &unstructured.Unstructured{}
		if err := out.UnmarshalJSON(raw); err != nil {
			return nil, err
		}
		return out, nil
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, object); err != nil {
		return nil, err
	}
	object.GetObjectKind().SetGroupVersionKind(kind)
	return object, nil
}

// version returns the object in the version that an invocation names. An error says why there is none.
func (r *decider) version(i *invocation) (*version, error) {
	if r.current == nil {
		raw, isPartial := r.metadata()
		object, err := r.decode(raw, schema.GroupVersionKind(r.Kind))
		if err != nil {
			r.err = fmt.Errorf("object: %w", err)
			return nil, r.err
		}
		r.isPartial = isPartial
		r.original, r.current = object, r.newVersion(object, schema.GroupVersionKind(r.Kind), r.SentResource())
	}
	needed, err := r.NeedsConversion(i.policy.match, i.resource)
	if err != nil || !needed || r.HasOwnKind() {
		return r.current, err
	}
	if r.complete(); r.err != nil {
		return nil, r.err
	}
	return r.converted(r.current, i.resource)
}

// metadata returns the object of the request with its metadata alone, if that is enough until something else is asked for: the
// kind's defaults and its metadata do not depend on each other.
func (r *decider) metadata() (raw []byte, isPartial bool) {
	if r.explain || !defaults.IgnoreMetadata(schema.GroupVersionKind(r.Kind)) {
		return r.Object.Raw, false
	}
	text, err := rawjson.Parse(r.Object.Raw)
	if err != nil {
		return r.Object.Raw, false
	}
	metadata := text.Get("metadata")
	managed := []byte("fieldsV1")
	if metadata.Kind() != rawjson.Object || bytes.Count(metadata, managed) != bytes.Count(text, managed) {
		return r.Object.Raw, false
	}
	return slices.Concat([]byte(`{"metadata":`), metadata, []byte("}")), true
}

// complete reads what there is besides metadata. An error ends the review.
func (r *decider) complete() {
	if !r.isPartial {
		return
	}
	r.isPartial = false
	original, err := r.decode(r.Object.Raw, schema.GroupVersionKind(r.Kind))
	if err != nil {
		r.err = fmt.Errorf("object: %w", err)
		return
	}
	r.original = original
	r.current.VersionedObject.Set(r.completed(r.current.object()))
}

// completed returns the object that an object with nothing but metadata is a part of.
func (r *decider) completed(part runtime.Object) runtime.Object {
	out, metadata := r.original.DeepCopyObject(), &fields{}
	if r.dirty {
		r.fill(out)
	}
	metadata.add("metadata")
	metadata.copyTo(reflect.ValueOf(out).Elem(), reflect.ValueOf(part).Elem())
	return out
}

func (r *decider) newVersion(object runtime.Object, kind schema.GroupVersionKind, resource schema.GroupVersionResource) *version {
	v := &version{VersionedAttributes: admission.VersionedAttributes{Attributes: r.Attributes(), VersionedKind: kind}, resource: resource}
	v.VersionedObject.Set(object)
	return v
}

// converted returns the object of a version in another one.
func (r *decider) converted(from *version, resource schema.GroupVersionResource) (*version, error) {
	raw, err := json.Marshal(from.object())
	if err != nil {
		return nil, err
	}
	kind := resource.GroupVersion().WithKind(from.VersionedKind.Kind)
	object, err := r.convert(raw, from.resource, resource, kind)
	if err != nil {
		return nil, fmt.Errorf("failed to convert object version: %w", err)
	}
	return r.newVersion(object, kind, resource), nil
}

// convert converts the JSON of an object and reads it.
func (r *decider) convert(raw []byte, from, to schema.GroupVersionResource, kind schema.GroupVersionKind) (runtime.Object, error) {
	text, err := rawjson.Parse(raw)
	if err != nil {
		return nil, err
	}
	if raw, err = kindversions.Convert(text, from, to); err != nil {
		return nil, err
	}
	return r.decode(raw, kind)
}

// readOld reads the old object of the request into a version.
func (r *decider) readOld(v *version) error {
	if v.oldRead || !isPresent(r.OldObject.Raw) {
		return nil
	}
	v.oldRead = true
	old, err := r.convert(r.OldObject.Raw, r.SentResource(), v.resource, v.VersionedKind)
	if err != nil {
		return fmt.Errorf("oldObject: %w", err)
	}
	v.VersionedOldObject.Set(old)
	return nil
}

// adopt makes the object of a version the current one.
func (r *decider) adopt(v *version) error {
	if v == r.current {
		return nil
	}
	back, err := r.converted(v, r.SentResource())
	if err != nil {
		return err
	}
	r.current.update(back.object())
	return nil
}

// converter returns what merges objects of a kind, and nil if no schema is known of the kind's group and version. As upstream,
// that one is known of Kubernetes' own is enough for JSON patches.
func (r *decider) converter(kind schema.GroupVersionKind) managedfields.TypeConverter {
	if scheme().IsVersionRegistered(kind.GroupVersion()) {
		return builtinConverter{builtin.TypeConverter()}
	}
	return r.set.lookups.Schemas.TypeConverter(kind)
}

// builtinConverter has the error of the API server for a kind without a schema.
type builtinConverter struct{ managedfields.TypeConverter }

func (c builtinConverter) ObjectToTyped(object runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	kind := object.GetObjectKind().GroupVersionKind()
	stub := &unstructured.Unstructured{}
	stub.SetGroupVersionKind(kind)
	if _, err := c.TypeConverter.ObjectToTyped(stub); err != nil {
		return nil, fmt.Errorf("no corresponding type for %v", kind)
	}
	return c.TypeConverter.ObjectToTyped(object, options...)
}

// interfaces are what the API server tells its plug-ins about its objects.
type interfaces struct {
	admission.ObjectInterfaces
	schemas Schemas
}

func (i *interfaces) GetObjectDefaulter() runtime.ObjectDefaulter { return i }

// Default fills in the defaults of an object.
func (i *interfaces) Default(object runtime.Object) {
	if custom, ok := object.(*unstructured.Unstructured); ok {
		i.schemas.Default(custom)
		return
	}
	defaults.Default(object)
}
