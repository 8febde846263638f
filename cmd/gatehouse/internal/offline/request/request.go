// Package request builds the request that the API server would send to a webhook
// for an object.
//
// What it builds is what k8s.io/apiserver builds in its handlers and in
// pkg/admission/plugin/webhook/request, for an API server that is asked for the
// object in the version in which it is written.
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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// UID is that of every request that is built here.
const UID types.UID = "00000000-0000-0000-0000-000000000000"

// Spec says what the API server is asked to do.
type Spec struct {
	// Object and OldObject are JSON with apiVersion and kind, and nil for none.
	// Of a CONNECT the object is the options, such as PodExecOptions.
	Object, OldObject []byte
	// Operation is, if it is empty, what the objects tell: CREATE, UPDATE with
	// both, DELETE with OldObject only, and of the kinds that are made for one
	// operation that one.
	Operation admissionv1.Operation
	// Namespace is that of objects that do not say theirs. It does not count for
	// those that are cluster-scoped.
	Namespace string
	// Name may be empty: then it is that of the object.
	Name string
	User authenticationv1.UserInfo
	// SubResource may be empty where the kind tells it, as Eviction does.
	SubResource string
	// Options may be nil, for those that nobody has said more in than DryRun.
	Options []byte
	DryRun  bool
	// Resource may be nil: then it is found from the kind. It must be there for
	// the scale subresource, which all resources share.
	Resource *metav1.GroupVersionResource
	// Kind may be nil: then it is that of the object.
	Kind *metav1.GroupVersionKind
}

// Build is the request for a Spec. Objects in it are those of the Spec, with the
// namespace in them that they are in. The error says everything that is wrong
// with the Spec.
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
	kind := main.kind
	if s.Kind != nil {
		kind = schema.GroupVersionKind(*s.Kind)
	}
	gvr, as, err := r.place(&s, kind)
	var problems []error
	if err != nil {
		problems = append(problems, err)
	}
	s.Operation = operation(&s)
	problems = append(problems, fits(&s, &object, &old)...)
	name, err := agree("name", s.Name, object.name, old.name)
	if err != nil {
		problems = append(problems, err)
	}
	if err == nil && name == "" && s.Operation != admissionv1.Create {
		problems = append(problems, fmt.Errorf("name: is missing: operation %s is about an object that has one", s.Operation))
	}
	namespace, err := s.namespace(as, object.namespace, old.namespace)
	if err != nil {
		problems = append(problems, err)
	}
	if options, err := rawjson.Parse(s.Options); s.Options != nil && (err != nil || options.Kind() != rawjson.Object) {
		problems = append(problems, errors.New("options: are no JSON object"))
	}
	if len(problems) > 0 {
		return admission.Request{}, errors.Join(problems...)
	}
	if s.Operation != admissionv1.Connect { // options have no metadata
		object.value, old.value = object.in(namespace), old.in(namespace)
	}
	if gvr.Group == "" && gvr.Resource == "namespaces" {
		namespace = name // as far as requests go, a namespace is in itself
	}
	requestKind, requestResource := metav1.GroupVersionKind(kind), metav1.GroupVersionResource(gvr)
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
		DryRun:             &s.DryRun,
		Options:            runtime.RawExtension{Raw: s.Options},
		Object:             runtime.RawExtension{Raw: object.value},
		OldObject:          runtime.RawExtension{Raw: old.value},
	}}
	if s.Options == nil {
		req.Options.Raw = options(s.Operation, s.DryRun)
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

// operation is what is asked for.
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

// fits says which object there should be and is not, or the other way round, for
// the operation.
func fits(s *Spec, object, old *content) []error {
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

// namespace is that of the request: what the objects say, or else the Spec.
func (s *Spec) namespace(as Resource, object, old string) (string, error) {
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

// agree is the value that all agree on who have one.
func agree(what string, values ...string) (string, error) {
	value := cmp.Or(values...)
	for _, other := range values {
		if other != "" && other != value {
			return "", fmt.Errorf("%s: is %q in one place and %q in another", what, value, other)
		}
	}
	return value, nil
}
