// Package builtin knows the Go types of the objects that Kubernetes' API servers
// define themselves. Expressions see such an object through its type, and any
// other, such as a custom resource, as JSON.
package builtin

import (
	"reflect"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	out.Add(schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}, reflect.TypeFor[apiService]())
	return out
})

// apiService has the fields of an APIService of apiregistration.k8s.io/v1. Its own
// Go type is in a module that nothing else here needs, k8s.io/kube-aggregator.
type apiService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Service *struct {
			Namespace string `json:"namespace,omitempty"`
			Name      string `json:"name,omitempty"`
			Port      *int32 `json:"port,omitempty"`
		} `json:"service,omitempty"`
		Group                 string `json:"group,omitempty"`
		Version               string `json:"version,omitempty"`
		InsecureSkipTLSVerify bool   `json:"insecureSkipTLSVerify,omitempty"`
		CABundle              []byte `json:"caBundle,omitempty"`
		GroupPriorityMinimum  int32  `json:"groupPriorityMinimum"`
		VersionPriority       int32  `json:"versionPriority"`
	} `json:"spec"`
	Status struct {
		Conditions []struct {
			Type               string      `json:"type"`
			Status             string      `json:"status"`
			LastTransitionTime metav1.Time `json:"lastTransitionTime"`
			Reason             string      `json:"reason,omitempty"`
			Message            string      `json:"message,omitempty"`
		} `json:"conditions,omitempty"`
	} `json:"status"`
}
