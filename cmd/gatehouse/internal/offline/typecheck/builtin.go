package typecheck

import (
	"reflect"
	"strings"

	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// goTypes makes types of Go types, as they are written in JSON, each once.
type goTypes struct {
	structures map[string]*Type
	made       map[reflect.Type]*Type
}

// special are Go types that are not written as their fields.
func special(t reflect.Type) *Type {
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		return plain(types.StringType)
	case reflect.TypeFor[intstr.IntOrString](), reflect.TypeFor[runtime.RawExtension](), reflect.TypeFor[metav1.FieldsV1](),
		reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime](), reflect.TypeFor[metav1.Duration]():
		return plain(types.DynType)
	default:
		return nil
	}
}

func (g *goTypes) of(t reflect.Type) *Type {
	if t.Kind() == reflect.Pointer {
		return g.of(t.Elem())
	}
	if known := g.made[t]; known != nil {
		return known
	}
	if s := special(t); s != nil {
		return s
	}
	switch t.Kind() { //nolint:exhaustive // others may be anything
	case reflect.Bool:
		return plain(types.BoolType)
	case reflect.String:
		return plain(types.StringType)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return plain(types.IntType)
	case reflect.Float32, reflect.Float64:
		return plain(types.DoubleType)
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return plain(types.DynType) // Bytes are text in JSON and bytes in the API server's own evaluation.
		}
		return &Type{Elem: g.of(t.Elem())}
	case reflect.Map:
		return &Type{Elem: g.of(t.Elem()), Map: true}
	case reflect.Struct:
		return g.structure(t)
	default:
		return plain(types.DynType)
	}
}

func (g *goTypes) structure(t reflect.Type) *Type {
	out := &Type{Name: goName(t), Fields: map[string]Field{}}
	g.made[t], g.structures[out.Name] = out, out
	g.fields(t, out.Fields)
	return out
}

func (g *goTypes) fields(t reflect.Type, into map[string]Field) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && f.Anonymous:
			g.fields(f.Type, into)
		case name != "":
			omitted := strings.Contains(options, "omitempty") && f.Type.Kind() != reflect.Struct || strings.Contains(options, "omitzero")
			into[name] = Field{Type: g.of(f.Type), Optional: omitted}
		}
	}
}

// goName returns group, version and name of a type.
func goName(t reflect.Type) string {
	path := t.PkgPath()
	for _, prefix := range []string{"k8s.io/api/", "k8s.io/apimachinery/pkg/apis/"} {
		path = strings.TrimPrefix(path, prefix)
	}
	return path + "." + t.Name()
}
