package admission

import (
	"errors"
	"fmt"
	"maps"
	"reflect"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/strict"
)

// given is what a request is about.
type given struct {
	kind string
	// name is the object's, or the beginning of one that is generated.
	name string
	// fields are those of the object, and old those of the object before an update,
	// nil if these cannot be read.
	fields, old map[string]any
}

// readRequest reads a request about a kind. An error means that the API server
// does not send such a request, so that there is nothing to decide.
func readRequest(req *admission.Request, kind string) (*given, error) {
	if version := req.Resource.Version; version != v1alpha1.GroupVersion.Version {
		return nil, fmt.Errorf("version %q of %s is not one that this version of gatehouse reads (hint: register %s, or run the gatehouse that the CustomResourceDefinition is of)",
			strict.Cut(version, 60), req.Resource.Resource, v1alpha1.GroupVersion)
	}
	fields, err := readObject(req.Object.Raw)
	if err != nil {
		return nil, fmt.Errorf("the object cannot be read: %w", err)
	}
	is := &unstructured.Unstructured{Object: fields}
	if is.GetKind() != kind || is.GetAPIVersion() != v1alpha1.GroupVersion.String() {
		return nil, fmt.Errorf("the request is about %s, and its object is of kind %q and apiVersion %q",
			req.Resource.Resource, strict.Cut(is.GetKind(), 60), strict.Cut(is.GetAPIVersion(), 60))
	}
	g := &given{kind: kind, fields: fields}
	if req.Operation == admissionv1.Update {
		g.old, _ = readObject(req.OldObject.Raw) // without it, the update is judged as a creation is
	}
	g.complete(req)
	return g, nil
}

// readObject is the tree of an object.
func readObject(text []byte) (map[string]any, error) {
	if len(text) == 0 {
		return nil, errors.New("there is none")
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

// complete adds the name and the namespace where the request has them and the
// object does not. A name that is yet to be generated is one that could be.
func (g *given) complete(req *admission.Request) {
	metadata, ok := g.fields["metadata"].(map[string]any)
	if !ok {
		return
	}
	g.name, _ = metadata["name"].(string)
	missing := func(name string) bool {
		value, there := metadata[name]
		return !there || value == nil || value == ""
	}
	add := make(map[string]any, 2)
	if missing("name") {
		prefix, _ := metadata["generateName"].(string)
		switch {
		case req.Name != "":
			g.name, add["name"] = req.Name, req.Name
		case prefix != "":
			const random = "zzzzz" // five characters that the API server may choose
			g.name, add["name"] = prefix, prefix+random
		}
	}
	if req.Namespace != "" && g.kind == policyException && missing("namespace") {
		add["namespace"] = req.Namespace
	}
	if len(add) == 0 {
		return
	}
	metadata = maps.Clone(metadata)
	maps.Copy(metadata, add)
	g.fields["metadata"] = metadata
}

// untouched tells of an update that it does not change what the object says, or
// that the object is on its way out. A status has no endpoint here, and says
// nothing that counts.
func (g *given) untouched() bool {
	if g.old == nil {
		return false
	}
	for _, object := range [...]map[string]any{g.fields, g.old} {
		if metadata, _ := object["metadata"].(map[string]any); metadata["deletionTimestamp"] != nil {
			return true
		}
	}
	return reflect.DeepEqual(says(g.fields), says(g.old))
}

// says is the object without metadata and status.
func says(object map[string]any) map[string]any {
	out := maps.Clone(object)
	delete(out, "metadata")
	delete(out, "status")
	return out
}

// object reads the object as strictly as a document of the directory.
func (g *given) object() *config.Resource {
	return config.ReadResource(&unstructured.Unstructured{Object: g.fields})
}
