package celexpr

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
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
	// mergeKey is that of a list whose elements are merged.
	mergeKey string
	// object reports whether the value is an object of the API, which has metadata.
	object bool
}

// Object returns the type of an object of the API that has one of these Go types, or an unknown one.
func Object(alternatives ...reflect.Type) Type { return Type{alternatives: alternatives, object: true} }

// TypeOf returns the type of a value that is one of these Go types. Without any, nothing is known.
func TypeOf(alternatives ...reflect.Type) Type { return Type{alternatives: alternatives} }

// Plain returns the type of a string, a number or a truth value.
func Plain(kind Kind) Type {
	return TypeOf(map[Kind]reflect.Type{
		String: reflect.TypeFor[string](), Number: reflect.TypeFor[int64](), Truth: reflect.TypeFor[bool](),
	}[kind])
}

// ListOf returns the type of a list.
func ListOf(elem Type) Type { return elem.made(reflect.SliceOf) }

// MapOf returns the type of a map.
func MapOf(elem Type) Type {
	return elem.made(func(of reflect.Type) reflect.Type { return reflect.MapOf(reflect.TypeFor[string](), of) })
}

// made returns the type of something that is made of values of a type.
func (t Type) made(of func(reflect.Type) reflect.Type) Type {
	if len(t.alternatives) == 0 {
		return TypeOf(of(reflect.TypeFor[any]()))
	}
	var out Type
	for _, elem := range t.alternatives {
		out.add(of(elem))
	}
	return out
}

// add adds an alternative.
func (t *Type) add(of reflect.Type) {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if !slices.Contains(t.alternatives, of) {
		t.alternatives = append(t.alternatives, of)
	}
}

// Kind returns the kind of the value, and Unknown if alternatives differ.
func (t Type) Kind() Kind {
	kind := Unknown
	for i, of := range t.alternatives {
		if k := kindOf(of); i == 0 {
			kind = k
		} else if k != kind {
			return Unknown
		}
	}
	return kind
}

// MergesBy returns the member by which the elements of a list are merged, "" for a list that is replaced.
func (t Type) MergesBy() string { return t.mergeKey }

// IsText reports whether the value is a string.
func (t Type) IsText() bool { return t.Kind() == String || t.Kind() == Quantity }

// kindOf returns the kind of a Go type. What writes its own JSON may be anything.
func kindOf(t reflect.Type) Kind {
	switch k := t.Kind(); {
	case t == reflect.TypeFor[resource.Quantity]():
		return Quantity
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()):
		return Unknown
	case k == reflect.Slice && t.Elem().Kind() == reflect.Uint8: // its JSON is text, and upstream's expressions see bytes
		return Unknown
	case k >= reflect.Int && k <= reflect.Float64:
		return Number
	default:
		return map[reflect.Kind]Kind{
			reflect.String: String, reflect.Bool: Truth, reflect.Slice: Sequence, reflect.Map: Map, reflect.Struct: Struct,
		}[k]
	}
}

// Member returns the type of a member, and false if the object certainly has no member of that name.
func (t Type) Member(name string) (Type, bool) {
	var out Type
	known := len(t.alternatives) == 0
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
		if found != nil {
			known = true
			out.add(found)
			out.mergeKey = fieldOf(of, name).Tag.Get("patchMergeKey")
		}
	}
	return out, known
}

// fieldOf returns the field of a struct for a member, and the zero value if there is none.
func fieldOf(of reflect.Type, name string) reflect.StructField {
	if of.Kind() == reflect.Struct {
		for field := range of.Fields() {
			if key, _, _ := strings.Cut(field.Tag.Get("json"), ","); key == name {
				return field
			}
		}
	}
	return reflect.StructField{}
}

// IsNullable reports whether the API server writes null for a member that is not set.
func (t Type) IsNullable(name string) bool {
	return slices.ContainsFunc(t.alternatives, func(of reflect.Type) bool {
		field := fieldOf(of, name)
		if field.Type == nil || !slices.Contains([]reflect.Kind{reflect.Slice, reflect.Map, reflect.Pointer}, field.Type.Kind()) {
			return false
		}
		options := field.Tag.Get("json")
		return !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero")
	})
}

// Elem returns the type of the elements of a list or map.
func (t Type) Elem() Type {
	var out Type
	for _, of := range t.alternatives {
		if k := kindOf(of); k != Sequence && k != Map {
			return Type{}
		}
		out.add(of.Elem())
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
		return !slices.Contains(strings.Fields(required()[of.String()]), name)
	})
}

// required returns the members of types that the API server requires, of those that policies name often.
func required() map[string]string {
	return map[string]string{
		"v1.Pod": "metadata spec", "v1.PodSpec": "containers", "v1.PodTemplateSpec": "spec",
		"v1.Container": "name", "v1.EphemeralContainer": "name", "v1.ContainerPort": "containerPort", "v1.EnvVar": "name",
		"v1.Volume": "name", "v1.VolumeMount": "name mountPath",
		"v1.Service": "metadata spec", "v1.Namespace": "metadata", "v1.ConfigMap": "metadata", "v1.Secret": "metadata", "v1.Ingress": "metadata spec",
		"v1.Deployment": "metadata spec", "v1.DeploymentSpec": "template selector",
		"v1.StatefulSet": "metadata spec", "v1.StatefulSetSpec": "template selector",
		"v1.DaemonSet": "metadata spec", "v1.DaemonSetSpec": "template selector",
		"v1.ReplicaSet": "metadata spec", "v1.ReplicationController": "metadata spec",
		"v1.CronJob": "metadata spec", "v1.CronJobSpec": "schedule jobTemplate",
		"v1.JobTemplateSpec": "spec", "v1.Job": "metadata spec", "v1.JobSpec": "template",
	}
}
