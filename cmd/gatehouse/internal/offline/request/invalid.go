package request

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// Invalid returns what the API server refuses of the object of a request once mutating admission is done with it: another kind or
// namespace than those of the request, a name, and values by the schema of the kind if it is known. Unknown fields are refused
// before that alone. The diagnostics have Field, Message and Hint.
func (r *Resources) Invalid(ctx context.Context, req *admission.Request) (found diagnostic.List) {
	report := func(field, format string, args ...any) {
		found = append(found, diagnostic.Diagnostic{Severity: diagnostic.Error, Field: field, Message: fmt.Sprintf(format, args...)})
	}
	o, err := read("object", req.Object.Raw)
	switch {
	case err != nil:
		report("", "%s", err)
		return found
	case metav1.GroupVersionKind(o.kind) != req.Kind:
		report("kind", "is %.100s of %.100s, and the request is about %s of %s", o.kind.Kind, o.kind.GroupVersion(), req.Kind.Kind, metav1.GroupVersion{Group: req.Kind.Group, Version: req.Kind.Version})
		return found
	}
	if o.namespace != "" && o.namespace != req.Namespace && !r.Of(o.kind).ClusterScoped {
		report("metadata.namespace", "%.100q is not the namespace of the request, %q", o.namespace, req.Namespace)
	}
	if req.Operation == admissionv1.Update && o.name != req.Name {
		report("metadata.name", "%.100q is not the name of the object that is updated, %q", o.name, req.Name)
	}
	add := func(more diagnostic.List) {
		for _, d := range more {
			if d.Message != strict.UnknownField && !slices.ContainsFunc(found, func(other diagnostic.Diagnostic) bool { return other.Field == d.Field }) {
				found = append(found, d)
			}
		}
	}
	if object := members(req.Object.Raw); r.schemas != nil && object != nil {
		checked, _, _ := r.schemas.Check(ctx, o.kind, object, members(req.OldObject.Raw)) // an error is that there is no schema
		add(checked)
	}
	add(r.CheckName(req.Object.Raw))
	found.Sort()
	return found
}

// members returns the members of an object, nil if there is none.
func members(text []byte) map[string]any {
	tree, _ := rawjson.Value(text).Decode()
	object, _ := tree.(map[string]any)
	return object
}
