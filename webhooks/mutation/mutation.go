// Package mutation evaluates Kubernetes' MutatingAdmissionPolicy and MutatingAdmissionPolicyBinding documents, unchanged: it
// decides by them how an object is changed.
//
// Expressions are compiled and evaluated as in webhooks/policy. What they come to is applied by the patchers of the API server,
// k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch, with the schemas of the kinds. Results, errors and costs are those
// of the API server's dispatcher, …/policy/mutating.NewDispatcher, which is the oracle of the tests. Three things differ:
//
//   - The API server runs policies in no particular order. Here they run in the order of their names, and Set.Conflicts finds
//     those of which the order matters.
//   - The result is the object as it was sent with what has changed. What Kubernetes' Go type of the object does not know stays.
//   - A policy that names another version of the resource sees what the policies before it made of the object, and they keep it.
//
// Compile does all the work that does not depend on a request. A Set is immutable; Decide is a pure function of the Set and the
// request.
package mutation

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy/matching"
)

// Policy is a MutatingAdmissionPolicy and where it was read.
type Policy struct {
	// Source is the file, and the number of the document in it where it has
	// several: "policies/base.yaml#2". It is used in diagnostics only.
	Source string
	admissionregistrationv1.MutatingAdmissionPolicy
}

// Binding is a MutatingAdmissionPolicyBinding and where it was read.
type Binding struct {
	// Source is as in Policy.
	Source string
	admissionregistrationv1.MutatingAdmissionPolicyBinding
}

// Schemas are the schemas of custom resources. An implementation is safe for concurrent use.
type Schemas interface {
	// TypeConverter returns what merges objects of a kind by its schema, and nil if no schema is known.
	TypeConverter(kind schema.GroupVersionKind) managedfields.TypeConverter
	// Default fills in the defaults that an object's schema has, in place.
	Default(object *unstructured.Unstructured)
	// Err returns why the schema of a kind that may exist cannot be used, and nil if it can, or if there is none.
	Err(kind schema.GroupVersionKind) error
}

// Spec is the input of Compile. Its zero value makes a Set that changes nothing.
type Spec struct {
	Policies []Policy
	Bindings []Binding
	Lookups
	// Previous may be a Set of an earlier configuration: policies that have not changed are not compiled again.
	Previous *Set
	// KeepBroken keeps policies with expressions that do not compile: what they
	// match, their failurePolicy decides. Their diagnostics are among the Set's
	// warnings, as errors. Without it they are Compile's error.
	KeepBroken bool
	// MaxObject is how many bytes of JSON a mutation may make of an object, 0 for DefaultMaxObject.
	MaxObject int
	// Stop returns an error once Compile is to end, as a context's Err does. Compile calls
	// it before each expression and returns its error. It may be nil.
	Stop func() error
}

// Lookups are what policies read besides the request.
type Lookups struct {
	// Objects may be nil: then no namespace and no param is known.
	Objects matching.Objects
	// Schemas may be nil: then no schema of a custom resource is known.
	Schemas Schemas
	// Authorizer answers what expressions ask of authorizer. If it is nil, an
	// expression that asks fails.
	Authorizer authorizer.UnconditionalAuthorizer
}

// DefaultMaxObject is the most that an API server accepts of a request.
const DefaultMaxObject = 3 << 20

// MissingParams is policy.Set.MissingParams.
func (s *Set) MissingParams(denied map[string][]string) (list []matching.MissingParams) {
	for _, p := range s.policies {
		for i := range p.bindings {
			b := &p.bindings[i]
			for _, missing := range b.params.Missing(s.lookups.Objects, denied[p.name+"/"+b.name]) {
				if !p.ignores {
					list = append(list, matching.MissingParams{Kind: "MutatingAdmissionPolicyBinding", Binding: b.name, Policy: p.name, Params: missing.What()})
				}
			}
		}
	}
	return list
}

// Lookups returns those that the Set was compiled with.
func (s *Set) Lookups() Lookups { return s.lookups }

// With returns the Set with other lookups. It costs no compilation.
func (s *Set) With(l Lookups) *Set {
	with := *s
	with.lookups = l.complete()
	return &with
}

func (l Lookups) complete() Lookups {
	if l.Objects == nil {
		l.Objects = matching.Nothing{}
	}
	if l.Schemas == nil {
		l.Schemas = noSchemas{}
	}
	return l
}

// noSchemas are the Schemas of a Spec without.
type noSchemas struct{}

func (noSchemas) TypeConverter(schema.GroupVersionKind) managedfields.TypeConverter { return nil }

func (noSchemas) Default(*unstructured.Unstructured) {}

func (noSchemas) Err(schema.GroupVersionKind) error { return nil }
