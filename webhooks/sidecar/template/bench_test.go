package template_test

import (
	"reflect"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/celbound"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/template"
)

// container is a sidecar such as many are.
const container = `{"name":"proxy","image":"${params.image}","args":["--log-level=${params.level}","--concurrency=${params.count}"],` +
	`"env":[{"name":"POD","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}},{"name":"MODE","value":"on"}],` +
	`"ports":[{"name":"proxy","containerPort":"${params.port}","protocol":"TCP"}],"resources":{"limits":{"cpu":"${params.cpu}","memory":"64Mi"}}}`

func BenchmarkAppend(b *testing.B) {
	s := scope(b)
	for _, bench := range []struct {
		name, raw string
		into      reflect.Type
	}{
		{"static", `{"name":"proxy","image":"proxy:1","env":[{"name":"MODE","value":"on"}]}`, reflect.TypeFor[corev1.Container]()},
		{"parameters", container, reflect.TypeFor[corev1.Container]()},
		{"pod", `["${pod.metadata.labels['app']}"]`, reflect.TypeFor[[]string]()},
		{"pod, optional", `["${pod.metadata.?labels[?'app'].orValue('none')}"]`, reflect.TypeFor[[]string]()},
		{"pod, loop", `["${pod.spec.containers.map(c, c.name).join(',')}"]`, reflect.TypeFor[[]string]()},
		{"namespace", `["${namespace.metadata.name}"]`, reflect.TypeFor[[]string]()},
		{"preset", `["${presets.mesh['address']}"]`, reflect.TypeFor[[]string]()},
	} {
		b.Run(bench.name, func(b *testing.B) {
			tree := compile(b, s, bench.raw, bench.into)
			in := input(b, s, nil)
			var dst []byte
			b.ReportAllocs()
			for b.Loop() {
				in.Context = b.Context()
				// Each pod has an input of its own.
				fresh := template.Input{Context: in.Context, Pod: in.Pod, Namespace: in.Namespace, Params: in.Params, Presets: in.Presets}
				out, err := tree.Append(dst[:0], &fresh)
				if err != nil {
					b.Fatal(err)
				}
				dst = out
			}
		})
	}
}

func BenchmarkCondition(b *testing.B) {
	s := scope(b)
	c, found := s.Condition("c", `pod.metadata.?labels[?"app"].orValue("") == "web"`)
	if len(found) > 0 {
		b.Fatal(found)
	}
	in := input(b, s, nil)
	b.ReportAllocs()
	for b.Loop() {
		fresh := template.Input{Context: in.Context, Pod: in.Pod, Namespace: in.Namespace, Params: in.Params, Presets: in.Presets}
		if ok, err := c.Eval(&fresh); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

func BenchmarkResolve(b *testing.B) {
	s := scope(b)
	for name, values := range map[string]map[string]string{"defaults": nil, "two of eight": {"count": "5", "image": "proxy:2"}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			pod, namespace := given(values), given(nil)
			for b.Loop() {
				if _, invalid := s.Resolve(pod, namespace); len(invalid) > 0 {
					b.Fatal(invalid)
				}
			}
		})
	}
}

// BenchmarkScope measures loading a profile.
func BenchmarkScope(b *testing.B) {
	e := environment(b)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		s, _ := e.Scope(new(celbound.Budget), "p"+strconv.Itoa(n), parameters(), presets())
		n++
		if _, found := s.Tree("t", []byte(container), reflect.TypeFor[corev1.Container]()); len(found) > 0 {
			b.Fatal(found)
		}
	}
}

func BenchmarkEnvironment(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		environment(b)
	}
}
