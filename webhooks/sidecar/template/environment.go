// Package template compiles and evaluates what the author of a sidecar profile
// writes: parameters with types, match conditions, and partial objects whose
// texts may hold CEL expressions as ${…}.
//
// Everything is compiled, checked against the type that it must result in, and
// limited in cost when a profile is loaded. An expression can give a text, a
// number, a boolean or nothing: whatever a pod says, it never adds a member, an
// element or another kind of structure to what the author has written.
//
// # Placeholders
//
// A text that is exactly one placeholder takes the type of its expression: a
// port is "${params.port}". If the result is null, or an optional without a
// value, the member or the list element is left out. In a text that is more than
// one placeholder, results are written as JSON writes them, without quotes, and
// must not be null. $${ stands for ${.
//
// # Variables
//
// Expressions may name pod, with the fields of a core/v1 Pod; namespace, of which
// there are metadata.name, metadata.labels and metadata.annotations, never
// absent; params, with the profile's parameters; and presets, with its presets,
// each a map of texts. Functions are those that the API server gives to the
// expressions of policies.
package template

import (
	"fmt"
	"reflect"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/gatehouse-dev/gatehouse/webhooks/celbound"
	"github.com/gatehouse-dev/gatehouse/webhooks/strict"
)

// CompatibilityVersion is the Kubernetes version whose functions expressions may
// use. It is written down, and not taken from the library, so that a new library
// cannot change what an expression means without this line changing.
const CompatibilityVersion = "1.36"

// Environment is what the expressions of all profiles share. It is immutable and
// safe for concurrent use.
type Environment struct {
	cel *cel.Env
	// bounds are those of the expressions of all profiles.
	bounds  *celbound.Bounds
	base    types.Provider
	objects objectTypes
	checker *strict.Checker
}

// NewEnvironment builds an environment, which takes some milliseconds. An error
// means that the libraries of this build do not fit each other.
func NewEnvironment() (*Environment, error) {
	objects := objectTypes{}
	texts := cel.MapType(cel.StringType, cel.StringType)
	objects.declare(namespaceType, map[string]*cel.Type{"metadata": cel.ObjectType(metadataType)})
	objects.declare(metadataType, map[string]*cel.Type{"name": cel.StringType, "labels": texts, "annotations": texts})
	seen := map[string]reflect.Type{namespaceType: nil, metadataType: nil, paramsType: nil, presetsType: nil}
	pod, err := objects.reflected(reflect.TypeFor[corev1.Pod](), seen)
	if err != nil {
		return nil, err
	}
	base := environment.MustBaseEnvSet(version.MustParseMajorMinor(CompatibilityVersion)).StoredExpressionsEnv()
	extended, err := base.Extend(
		cel.CustomTypeProvider(&provider{Provider: base.CELTypeProvider(), shared: objects}),
		cel.Variable("pod", pod),
		cel.Variable(namespaceVariable, cel.ObjectType(namespaceType)),
	)
	if err != nil {
		return nil, fmt.Errorf("declare the variables of templates: %w", err)
	}
	bounds, err := celbound.New(extended)
	if err != nil {
		return nil, fmt.Errorf("bound the expressions of templates: %w", err)
	}
	return &Environment{cel: extended, bounds: bounds, base: base.CELTypeProvider(), objects: objects, checker: new(strict.Checker)}, nil
}
