// Package builtin knows the Go types of the objects that Kubernetes' API servers
// define themselves. Expressions see such an object through its type, and any
// other, such as a custom resource, as JSON.
package builtin

import (
	"reflect"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"

	celvalue "github.com/gatehouse-dev/gatehouse/webhooks/cel/value"
)

// TypeOf returns the type of a kind, and nil for a kind that API servers do not
// define themselves.
func TypeOf(kind schema.GroupVersionKind) *celvalue.Type { return types().Get(kind) }

// Scheme returns the Go types of Kubernetes' own kinds. Nobody changes it.
func Scheme() *runtime.Scheme { return scheme.Scheme }

// TypeConverter returns what merges objects of Kubernetes' own kinds by their schemas.
func TypeConverter() managedfields.TypeConverter { return converter() }

//nolint:gochecknoglobals // it is made once, for all policies
var converter = sync.OnceValue(func() managedfields.TypeConverter { return applyconfigurations.NewTypeConverter(scheme.Scheme) })

// types returns the types of all kinds.
//
//nolint:gochecknoglobals // they are made once, for all policies
var types = sync.OnceValue(func() celvalue.Types[schema.GroupVersionKind] {
	out := celvalue.Types[schema.GroupVersionKind]{}
	for kind, of := range scheme.Scheme.AllKnownTypes() {
		out.Add(kind, of)
	}
	out.Add(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), reflect.TypeFor[apiextensionsv1.CustomResourceDefinition]())
	return out
})
