package sidecar_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// TestKnownNamespaces warns about what a namespace says in vain, before any pod
// is created in it.
func TestKnownNamespaces(t *testing.T) {
	t.Parallel()
	const tuned = `
metadata: {name: mesh}
spec:
  parameters:
  - {name: level, type: enum, enum: [debug, info], default: info}
  - {name: memory, type: quantity, default: 64Mi, onInvalid: Skip}
  - {name: team, type: string}
  template: {metadata: {labels: {team: "${params.team}", level: "${params.level}", memory: "${params.memory}"}}}
  injection: OptOut
`
	namespace := func(annotations ...string) sidecar.KnownNamespace {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{}}}
		for i := 0; i < len(annotations); i += 2 {
			ns.Annotations[annotations[i]] = annotations[i+1]
		}
		return sidecar.KnownNamespace{Source: "ns.yaml", Namespace: ns}
	}
	const required = `warning: p.yaml: SidecarProfile/mesh: spec.parameters[2].default: a selected pod without a value for "team" is refused (hint: give it a default, or make the profile OptIn)`
	for _, tc := range []struct {
		name  string
		known sidecar.KnownNamespace
		want  []string
	}{
		{"nothing", namespace(), nil},
		{"what is right", namespace("sidecar.gatehouse.dev/inject", "-mesh", "mesh.sidecar.gatehouse.dev/level", "debug", "example.com/inject", "no"), nil},
		{"a wrong word", namespace("sidecar.gatehouse.dev/inject", "maybe"), []string{
			`metadata.annotations[sidecar.gatehouse.dev/inject]: the annotation is ignored: "maybe" is not the name of a sidecar profile: must be "true", "false", or names of profiles, with a minus to decline: "mesh,-logs"`,
		}},
		{"names that nobody reads", namespace("mesh.sidecar.gatehouse.dev/levell", "info", "mash.sidecar.gatehouse.dev/level", "info", "sidecar.gatehouse.dev/injct", "true"), []string{
			`metadata.annotations[mash.sidecar.gatehouse.dev/level]: has no effect: there is no sidecar profile "mash" (hint: did you mean "mesh"?)`,
			`metadata.annotations[mesh.sidecar.gatehouse.dev/levell]: has no effect: "levell" is not a parameter of sidecar profile "mesh" (hint: did you mean "level"?)`,
			`metadata.annotations[sidecar.gatehouse.dev/injct]: has no effect: the annotation is unknown (hint: did you mean sidecar.gatehouse.dev/inject?)`,
		}},
		{"values that are not allowed", namespace("mesh.sidecar.gatehouse.dev/level", "trace", "mesh.sidecar.gatehouse.dev/memory", "lots"), []string{
			`metadata.annotations[mesh.sidecar.gatehouse.dev/level]: "trace" is invalid, and pods that do not set the parameter are refused: must be one of "debug", "info"`,
			`metadata.annotations[mesh.sidecar.gatehouse.dev/memory]: "lots" is invalid, and pods that do not set the parameter do not get sidecar profile "mesh": must be a quantity such as 100m or 64Mi`,
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			set, err := sidecar.Compile(sidecar.Spec{Profiles: []sidecar.Profile{profile(t, "p.yaml", tuned)}, Known: []sidecar.KnownNamespace{tc.known}})
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for _, w := range tc.want {
				want = append(want, "warning: ns.yaml: Namespace/shop: "+w)
			}
			warnings := set.Warnings()
			if got := warnings.Error(); got != strings.Join(append(want, required), "\n") {
				t.Errorf("got\n%s\nwant\n%s", got, strings.Join(append(want, required), "\n"))
			}
		})
	}
}
