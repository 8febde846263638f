package pattern

import (
	"encoding/json"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/celexpr"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/jmespath"
)

// FuzzCompile translates patterns that nobody has written, and wants an expression of bounded size or an error.
func FuzzCompile(f *testing.F) {
	for _, seed := range []string{
		`{"spec":{"containers":[{"(name)":"a*","image":"!*:latest & *:*"}]}}`, `{"metadata":{"labels":{"a/*":"?*"}},"spec":{"X(hostPID)":null}}`,
		`{"(spec)":{"(a)":{"(b)":{"c":1}}},"<(x)":"1-2","^(l)":[{"m":"10Mi!-1Gi | 5s"}]}`, `[]`, `"a"`, `{"":[[]]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var value any
		if json.Unmarshal(data, &value) != nil {
			return
		}
		c := Compiler{Scope: jmespath.Scope{Root: func(name string) (jmespath.Value, error) {
			return jmespath.Of(celexpr.Raw(name), celexpr.Type{}), nil
		}}}
		check, err := c.Compile(jmespath.Of(celexpr.Raw("object"), celexpr.Object(reflect.TypeFor[corev1.Pod]())), value)
		if n := len(check.Allowed.String()); err == nil && n > 8*maxSize+len(data)*8 {
			t.Errorf("the expression has %d bytes", n)
		}
	})
}
