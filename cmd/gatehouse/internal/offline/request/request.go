// Package request builds the request that the API server would send to a webhook for an object, as k8s.io/apiserver does in its handlers
// and in pkg/admission/plugin/webhook/request, in the version of the object.
package request

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// UID is that of every request that is built here.
const UID types.UID = "00000000-0000-0000-0000-000000000000"

// Spec describes a request to the API server.
type Spec struct {
	// Object and OldObject are JSON with apiVersion and kind, and nil for none. Of a CONNECT the object is the options, such as
	// PodExecOptions.
	Object, OldObject []byte
	// Operation is by default CREATE, UPDATE with both objects, DELETE with OldObject alone, or the only operation of a kind.
	Operation admissionv1.Operation
	// Namespace is that of namespaced objects without one.
	Namespace string
	// Name may be empty: then it is that of the object.
	Name string
	User authenticationv1.UserInfo
	// SubResource may be empty if the kind implies it, as Eviction does.
	SubResource string
	// Options may be nil, for the default ones.
	Options []byte
}

// Build returns the request for a Spec. Its objects are those of the Spec, with their namespace. The error has everything that is wrong.
func (r *Resources) Build(s Spec) (admission.Request, error) {
	object, err := read("object", s.Object)
	old, oldErr := read("oldObject", s.OldObject)
	if err := errors.Join(err, oldErr); err != nil {
		return admission.Request{}, err
	}
	if object.value == nil {
		s.Object = nil
	}
	if old.value == nil {
		s.OldObject = nil
	}
	main := object
	if object.value == nil {
		main = old
	}
	if main.value == nil {
		return admission.Request{}, errors.New("object: is missing, and so is oldObject")
	}
	gvr, as, err := r.resolve(&s, main.kind)
	problems := []error{err}
	s.Operation = operation(&s)
	problems = append(problems, checkObjects(&s, &object, &old)...)
	name, err := agree("name", s.Name, object.name, old.name)
	problems = append(problems, err)
	if err == nil && name == "" && s.Operation != admissionv1.Create {
		problems = append(problems, fmt.Errorf("name: is missing: operation %s is about an object that has one", s.Operation))
	}
	namespace, err := s.requestNamespace(as, object.namespace, old.namespace)
	problems = append(problems, err)
	if options, err := rawjson.Parse(s.Options); s.Options != nil && (err != nil || options.Kind() != rawjson.Object) {
		problems = append(problems, errors.New("options: are no JSON object"))
	}
	if err := errors.Join(problems...); err != nil {
		return admission.Request{}, err
	}
	if s.Operation != admissionv1.Connect { // options have no metadata
		object.value, old.value = object.withNamespace(namespace), old.withNamespace(namespace)
	}
	if gvr.Group == "" && gvr.Resource == "namespaces" {
		namespace = name // as far as requests go, a namespace is in itself
	}
	requestKind, requestResource := metav1.GroupVersionKind(main.kind), metav1.GroupVersionResource(gvr)
	req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID:                UID,
		Kind:               requestKind,
		Resource:           requestResource,
		SubResource:        s.SubResource,
		RequestKind:        &requestKind,
		RequestResource:    &requestResource,
		RequestSubResource: s.SubResource,
		Name:               name,
		Namespace:          namespace,
		Operation:          s.Operation,
		UserInfo:           s.User,
		DryRun:             new(false),
		Options:            runtime.RawExtension{Raw: s.Options},
		Object:             runtime.RawExtension{Raw: object.value},
		OldObject:          runtime.RawExtension{Raw: old.value},
	}}
	if s.Options == nil {
		req.Options.Raw = options(s.Operation)
	}
	return req, nil
}

// WithGroups returns a user with the groups that the API server adds, each once.
func WithGroups(u authenticationv1.UserInfo) authenticationv1.UserInfo {
	groups := slices.Clone(u.Groups)
	if namespace, name, err := serviceaccount.SplitUsername(u.Username); err == nil && name != "" {
		groups = append(groups, serviceaccount.MakeGroupNames(namespace)...)
	}
	if u.Username == user.Anonymous {
		groups = append(groups, user.AllUnauthenticated)
	} else {
		groups = append(groups, user.AllAuthenticated)
	}
	u.Groups = nil
	for _, group := range groups {
		if !slices.Contains(u.Groups, group) {
			u.Groups = append(u.Groups, group)
		}
	}
	return u
}

// operation returns the operation, or the default one.
func operation(s *Spec) admissionv1.Operation {
	switch {
	case s.Operation != "":
		return s.Operation
	case s.OldObject == nil:
		return admissionv1.Create
	case s.Object == nil:
		return admissionv1.Delete
	default:
		return admissionv1.Update
	}
}

// checkObjects returns which objects are missing, or too many, for the operation.
func checkObjects(s *Spec, object, old *content) []error {
	var problems []error
	must := func(name string, is, should bool) {
		switch {
		case should && !is:
			problems = append(problems, fmt.Errorf("%s: is missing: operation %s has one", name, s.Operation))
		case is && !should:
			problems = append(problems, fmt.Errorf("%s: must not be there: operation %s has none", name, s.Operation))
		}
	}
	switch s.Operation {
	case admissionv1.Create, admissionv1.Connect:
		must("object", s.Object != nil, true)
		must("oldObject", s.OldObject != nil, false)
	case admissionv1.Update:
		must("object", s.Object != nil, true)
		must("oldObject", s.OldObject != nil, true)
	case admissionv1.Delete:
		must("object", s.Object != nil, false)
		must("oldObject", s.OldObject != nil, true)
	default:
		problems = append(problems, fmt.Errorf("operation %q: must be CREATE, UPDATE, DELETE or CONNECT", s.Operation))
	}
	if s.Object != nil && s.OldObject != nil && object.kind != old.kind {
		problems = append(problems, fmt.Errorf("oldObject: is a %s of %s, and object a %s of %s: they must be of one kind and version",
			old.kind.Kind, old.kind.GroupVersion(), object.kind.Kind, object.kind.GroupVersion()))
	}
	return problems
}

// requestNamespace returns the namespace of the objects, or else that of the Spec.
func (s *Spec) requestNamespace(as Resource, object, old string) (string, error) {
	if as.ClusterScoped {
		return "", nil
	}
	namespace, err := agree("namespace", object, old)
	if err != nil {
		return "", err
	}
	if namespace = cmp.Or(namespace, s.Namespace); namespace == "" && !as.Guessed {
		return "", fmt.Errorf("namespace: is missing: %s are in namespaces", as.Name)
	}
	return namespace, nil
}

// agree returns the value that all non-empty values have.
func agree(what string, values ...string) (string, error) {
	value := cmp.Or(values...)
	for _, other := range values {
		if other != "" && other != value {
			return "", fmt.Errorf("%s: is %q in one place and %q in another", what, value, other)
		}
	}
	return value, nil
}
