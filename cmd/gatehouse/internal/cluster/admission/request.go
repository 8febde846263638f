package admission

import (
	"errors"
	"fmt"
	"maps"
	"reflect"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// object is the object of a request.
type object struct {
	kind string
	// name is the object's, or the beginning of one that is generated.
	name string
	// fields are those of the object, and old those of the object before an update,
	// nil if these cannot be read.
	fields, old map[string]any
}

// readRequest decodes a request about a kind. An error means that the API server does not
// send such a request.
func readRequest(req *admission.Request, kind string) (*object, error) {
	if version := req.Resource.Version; version != v1alpha1.GroupVersion.Version {
		return nil, fmt.Errorf("version %q of %s is not supported by this version of gatehouse (hint: register %s, or run the gatehouse version of the CustomResourceDefinition)",
			strict.Cut(version, 60), req.Resource.Resource, v1alpha1.GroupVersion)
	}
	fields, err := readObject(req.Object.Raw)
	if err != nil {
		return nil, fmt.Errorf("the object cannot be read: %w", err)
	}
	u := &unstructured.Unstructured{Object: fields}
	if u.GetKind() != kind || u.GetAPIVersion() != v1alpha1.GroupVersion.String() {
		return nil, fmt.Errorf("the request is about %s, but its object has kind %q and apiVersion %q",
			req.Resource.Resource, strict.Cut(u.GetKind(), 60), strict.Cut(u.GetAPIVersion(), 60))
	}
	o := &object{kind: kind, fields: fields}
	if req.Operation == admissionv1.Update {
		o.old, _ = readObject(req.OldObject.Raw) // without it, the update is reviewed like a creation
	}
	o.complete(req)
	return o, nil
}

// readObject decodes an object.
func readObject(text []byte) (map[string]any, error) {
	if len(text) == 0 {
		return nil, errors.New("the object is missing")
	}
	value, err := rawjson.Parse(text)
	if err != nil {
		return nil, err
	}
	if value.Kind() != rawjson.Object {
		return nil, fmt.Errorf("expected an object, not %s", value.Kind())
	}
	tree, err := value.Decode()
	if err != nil {
		return nil, err
	}
	fields, _ := tree.(map[string]any)
	return fields, nil
}

// complete adds the name and the namespace of the request if the object has none. For a
// name that is yet to be generated it adds a possible one.
func (o *object) complete(req *admission.Request) {
	metadata, ok := o.fields["metadata"].(map[string]any)
	if !ok {
		return
	}
	o.name, _ = metadata["name"].(string)
	missing := func(name string) bool {
		value, there := metadata[name]
		return !there || value == nil || value == ""
	}
	add := make(map[string]any, 2)
	if missing("name") {
		prefix, _ := metadata["generateName"].(string)
		switch {
		case req.Name != "":
			o.name, add["name"] = req.Name, req.Name
		case prefix != "":
			const random = "zzzzz" // five characters that the API server may choose
			o.name, add["name"] = prefix, prefix+random
		}
	}
	if req.Namespace != "" && isNamespaced(o.kind) && missing("namespace") {
		add["namespace"] = req.Namespace
	}
	if len(add) == 0 {
		return
	}
	metadata = maps.Clone(metadata)
	maps.Copy(metadata, add)
	o.fields["metadata"] = metadata
}

// isUnchanged reports whether an update does not change the spec, or the object is being
// deleted.
func (o *object) isUnchanged() bool {
	if o.old == nil {
		return false
	}
	for _, fields := range [...]map[string]any{o.fields, o.old} {
		if metadata, _ := fields["metadata"].(map[string]any); metadata["deletionTimestamp"] != nil {
			return true
		}
	}
	return reflect.DeepEqual(specOf(o.fields), specOf(o.old))
}

// specOf returns the object without metadata and status.
func specOf(fields map[string]any) map[string]any {
	out := maps.Clone(fields)
	delete(out, "metadata")
	delete(out, "status")
	return out
}

// resource decodes the object as strictly as a document of the directory.
func (o *object) resource() *config.Resource {
	return config.ReadResource(&unstructured.Unstructured{Object: o.fields})
}
