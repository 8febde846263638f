package celexpr

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/gatehouse-dev/gatehouse/webhooks/strict"
)

// Kind is what kind of JSON a value is.
type Kind uint8

// The kinds. A quantity is a string that is one. What is not known may be anything.
const (
	Unknown Kind = iota
	String
	Quantity
	Number
	Truth
	Sequence
	Map
	Struct
)

// Type is what is known of a value. The zero Type is of one of which nothing is known. It is immutable.
type Type struct {
	// alternatives are the Go types that the value may have, such as those of several kinds of objects.
	alternatives []reflect.Type
	// kind is that of a value without a Go type, and elem the type of its elements.
	kind Kind
	elem *Type
	// mergeKey is that of a list whose elements are merged.
	mergeKey string
	// object reports whether the value is an object of the API, which has metadata.
	object bool
}

// Object returns the type of an object of the API that has one of these Go types, or an unknown one.
func Object(alternatives ...reflect.Type) Type { return Type{alternatives: alternatives, object: true} }

// TypeOf returns the type of a value that is one of these Go types. Without any, nothing is known.
func TypeOf(alternatives ...reflect.Type) Type { return Type{alternatives: alternatives} }

// Plain returns the type of a scalar.
func Plain(kind Kind) Type { return Type{kind: kind} }

// ListOf returns the type of a list.
func ListOf(elem Type) Type { return Type{kind: Sequence, elem: &elem} }

// MapOf returns the type of a map.
func MapOf(elem Type) Type { return Type{kind: Map, elem: &elem} }

// Kind returns the kind of the value, and Unknown if alternatives differ.
func (t Type) Kind() Kind {
	if len(t.alternatives) == 0 {
		return t.kind
	}
	first := kindOf(t.alternatives[0])
	for _, other := range t.alternatives[1:] {
		if kindOf(other) != first {
			return Unknown
		}
	}
	return first
}

// IsNamed reports whether the value has a Go type of this name.
func (t Type) IsNamed(name string) bool {
	return slices.ContainsFunc(t.alternatives, func(of reflect.Type) bool { return of.Name() == name })
}

// MergesBy returns the member by which the elements of a list are merged, "" for a list that is replaced.
func (t Type) MergesBy() string { return t.mergeKey }

// IsText reports whether the value is a string.
func (t Type) IsText() bool { return t.Kind() == String || t.Kind() == Quantity }

// Is reports whether the value has this Go type for certain.
func (t Type) Is(of reflect.Type) bool { return len(t.alternatives) == 1 && t.alternatives[0] == of }

func kindOf(t reflect.Type) Kind {
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		return Quantity
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime](), reflect.TypeFor[metav1.Duration](),
		reflect.TypeFor[intstr.IntOrString](), reflect.TypeFor[runtime.RawExtension](), reflect.TypeFor[metav1.FieldsV1]():
		return Unknown
	}
	switch t.Kind() { //nolint:exhaustive // others may be anything
	case reflect.String:
		return String
	case reflect.Bool:
		return Truth
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32,
		reflect.Uint64:
		return Number
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return Unknown // its JSON is text, and upstream's expressions see bytes
		}
		return Sequence
	case reflect.Map:
		return Map
	case reflect.Struct:
		return Struct
	default:
		return Unknown
	}
}

// Member returns the type of a member, and false if the object certainly has no member of that name.
func (t Type) Member(name string) (Type, bool) {
	if len(t.alternatives) == 0 {
		if t.elem != nil && t.kind == Map {
			return *t.elem, true
		}
		return Type{}, t.kind == Unknown || t.kind == Map
	}
	var out Type
	known := false
	for _, of := range t.alternatives {
		var found reflect.Type
		switch kindOf(of) { //nolint:exhaustive // others have no members
		case Struct:
			found = strict.Fields(of)[name]
		case Map:
			found = of.Elem()
		case Unknown:
			return Type{}, true
		}
		if found == nil {
			continue
		}
		known = true
		for found.Kind() == reflect.Pointer {
			found = found.Elem()
		}
		if !slices.Contains(out.alternatives, found) {
			out.alternatives = append(out.alternatives, found)
		}
		out.mergeKey = mergeKeyOf(of, name)
	}
	return out, known
}

// mergeKeyOf returns the merge key of a list in a struct.
func mergeKeyOf(of reflect.Type, name string) string {
	if of.Kind() != reflect.Struct {
		return ""
	}
	for field := range of.Fields() {
		if key, _, _ := strings.Cut(field.Tag.Get("json"), ","); key == name {
			return field.Tag.Get("patchMergeKey")
		}
	}
	return ""
}

// IsNullable reports whether the API server writes null for a member that is not set.
func (t Type) IsNullable(name string) bool {
	return slices.ContainsFunc(t.alternatives, func(of reflect.Type) bool {
		if of.Kind() != reflect.Struct {
			return false
		}
		for field := range of.Fields() {
			key, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			k := field.Type.Kind()
			if key == name && (k == reflect.Slice || k == reflect.Map || k == reflect.Pointer) {
				return !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero")
			}
		}
		return false
	})
}

// Elem returns the type of the elements of a list or map.
func (t Type) Elem() Type {
	if t.elem != nil {
		return *t.elem
	}
	var out Type
	for _, of := range t.alternatives {
		if k := kindOf(of); k != Sequence && k != Map {
			return Type{}
		}
		elem := of.Elem()
		for elem.Kind() == reflect.Pointer {
			elem = elem.Elem()
		}
		if !slices.Contains(out.alternatives, elem) {
			out.alternatives = append(out.alternatives, elem)
		}
	}
	return out
}

// IsAlways reports whether an object has a member whenever it is there: the API server requires it or fills it in.
func (t Type) IsAlways(name string) bool {
	if t.object && (name == "metadata" || name == "kind" || name == "apiVersion") {
		return true
	}
	if len(t.alternatives) == 0 {
		return false
	}
	return !slices.ContainsFunc(t.alternatives, func(of reflect.Type) bool {
		return !slices.Contains(required()[of.PkgPath()+"."+of.Name()], name)
	})
}

// required returns the members of types that the API server requires, of those that policies name often.
func required() map[string][]string {
	const core, apps = "k8s.io/api/core/v1.", "k8s.io/api/apps/v1."
	return map[string][]string{
		core + "Pod": {"metadata", "spec"}, core + "PodSpec": {"containers"}, core + "Container": {"name"},
		core + "EphemeralContainer": {"name"}, core + "Volume": {"name"}, core + "VolumeMount": {"name", "mountPath"},
		core + "EnvVar": {"name"}, core + "ContainerPort": {"containerPort"}, core + "Service": {"metadata", "spec"}, core + "Namespace": {"metadata"},
		core + "PodTemplateSpec": {"spec"}, core + "ConfigMap": {"metadata"}, core + "Secret": {"metadata"},
		apps + "Deployment": {"metadata", "spec"}, apps + "DeploymentSpec": {"template", "selector"},
		apps + "StatefulSet": {"metadata", "spec"}, apps + "StatefulSetSpec": {"template", "selector"},
		apps + "DaemonSet": {"metadata", "spec"}, apps + "DaemonSetSpec": {"template", "selector"},
		"k8s.io/api/batch/v1.CronJob": {"metadata", "spec"}, "k8s.io/api/batch/v1.CronJobSpec": {"schedule", "jobTemplate"},
		"k8s.io/api/batch/v1.JobTemplateSpec": {"spec"}, "k8s.io/api/batch/v1.JobSpec": {"template"}, "k8s.io/api/batch/v1.Job": {"metadata", "spec"},
		apps + "ReplicaSet": {"metadata", "spec"}, core + "ReplicationController": {"metadata", "spec"},
		"k8s.io/api/networking/v1.Ingress": {"metadata", "spec"},
	}
}
