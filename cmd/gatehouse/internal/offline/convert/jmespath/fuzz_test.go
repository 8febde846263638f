package jmespath

import (
	"errors"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/celexpr"
)

// FuzzTranslate translates expressions that nobody has written, and wants an expression of bounded size or an error that says why not.
func FuzzTranslate(f *testing.F) {
	for _, seed := range []string{
		"request.object.spec.[containers, initContainers][].image", "request.object.metadata.labels.a || ''", "length(a.b[?c == 'd'].e)",
		"request.object.spec.volumes[?hostPath].name | [0]", "keys(@)", "a.*.b[-1]", "'{{ request.object.metadata.name }}'", "a{{b}}c", "((((((", "`{`",
	} {
		f.Add(seed)
	}
	root := func(name string) (Value, error) {
		if name == "request" {
			object := Of(celexpr.Raw("object"), celexpr.Object(reflect.TypeFor[corev1.Pod]()))
			return Value{Expr: celexpr.Raw("request"), Members: map[string]Value{"object": object}}, nil
		}
		return Of(celexpr.Raw("x"), celexpr.Type{}), nil
	}
	f.Fuzz(func(t *testing.T, expression string) {
		v, err := Translate(expression, Scope{Root: root})
		if _, known := errors.AsType[*UnsupportedError](err); err != nil && !known {
			t.Errorf("%q: %v", expression, err)
		}
		if n := len(v.Expr.String()); err == nil && n > maxResult {
			t.Errorf("%q: the expression has %d bytes", expression, n)
		}
		_, _ = Template(expression, Scope{Root: root})
	})
}
