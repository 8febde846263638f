package value_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"

	celvalue "github.com/gatehouse-dev/gatehouse/webhooks/cel/value"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// pod has the number of containers, each of about 500 bytes.
func pod(containers int) string {
	var b strings.Builder
	b.WriteString(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-5d4f8c7b9-x2x7k","generateName":"web-5d4f8c7b9-","namespace":"shop",` +
		`"labels":{"app":"web","pod-template-hash":"5d4f8c7b9","team":"checkout"},"annotations":{"example.com/note":"a \"quoted\" note"},` +
		`"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-5d4f8c7b9","uid":"0","controller":true}]},"spec":{"volumes":[` +
		`{"name":"config","configMap":{"name":"web","defaultMode":420}}],"containers":[`)
	for i := range containers {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":"c%d","image":"registry.example.com/team/app-%d:1.2.3","ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}],`+
			`"env":[{"name":"LOG_LEVEL","value":"info"},{"name":"POD_IP","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"status.podIP"}}}],`+
			`"resources":{"limits":{"cpu":"500m","memory":"512Mi"},"requests":{"cpu":"100m","memory":"128Mi"}},`+
			`"volumeMounts":[{"name":"config","mountPath":"/etc/web","readOnly":true}],"imagePullPolicy":"IfNotPresent"}`, i, i)
	}
	b.WriteString(`],"restartPolicy":"Always","serviceAccountName":"web","securityContext":{}},"status":{}}`)
	return b.String()
}

func benchmark(b *testing.B, p cel.Program, text rawjson.Value) {
	b.Helper()
	for _, way := range []struct {
		name string
		make func() (any, error)
	}{
		{"raw", func() (any, error) { return celvalue.Value(text), nil }},
		{"decoded", func() (any, error) {
			decoded, err := text.Decode()
			return types.DefaultTypeAdapter.NativeToValue(decoded), err
		}},
	} {
		b.Run(way.name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				object, err := way.make()
				must(b, err)
				result, _, err := p.Eval(map[string]any{"object": object})
				if err != nil || result != types.True {
					b.Fatal(result, err)
				}
			}
		})
	}
}

func BenchmarkThreeSelects(b *testing.B) {
	p := program(b, `object.metadata.labels.team == 'checkout' && object.spec.serviceAccountName == 'web' && object.spec.restartPolicy != 'Never'`)
	for _, containers := range []int{10, 128} {
		text := parse(b, pod(containers))
		b.Run(fmt.Sprintf("%d KB", len(text)/1000), func(b *testing.B) { benchmark(b, p, text) })
	}
}

// Time in proportion to the number of containers is what matters here. The cost
// is not tracked, since that alone takes time in proportion to the square.
func BenchmarkComprehension(b *testing.B) {
	env, err := cel.NewEnv(cel.Variable("object", cel.DynType))
	must(b, err)
	for _, expression := range []string{
		`object.spec.containers.all(c, c.image != '')`,
		`object.spec.containers.all(c, c.name != '' && c.image != '' && c.imagePullPolicy != '')`,
		`object.spec.containers.all(c, c.env.all(e, e.name != '') && c.resources.limits.memory != '')`,
	} {
		compiled, issues := env.Compile(expression)
		if issues.Err() != nil {
			b.Fatal(issues.Err())
		}
		p, err := env.Program(compiled, cel.EvalOptions(cel.OptOptimize))
		must(b, err)
		for _, containers := range []int{1_000, 10_000} {
			b.Run(fmt.Sprintf("%s/%d containers", expression, containers), func(b *testing.B) { benchmark(b, p, parse(b, pod(containers))) })
		}
	}
}

func BenchmarkValue(b *testing.B) {
	for _, containers := range []int{10, 128} {
		text := parse(b, pod(containers))
		b.Run(fmt.Sprintf("%d KB", len(text)/1000), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				celvalue.Release(celvalue.Value(text))
			}
		})
	}
}
