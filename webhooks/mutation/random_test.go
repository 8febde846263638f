package mutation_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/internal/race"
)

var (
	differentialN    = flag.Int("differential.n", race.Cases(60), "how many random sets of policies are held against the API server's own dispatcher")
	differentialSeed = flag.Int64("differential.seed", 1, "the seed of the first set; the next one has the next seed")
)

// TestRandomSameAsUpstream holds random policies and objects against upstream. `make differential N=…` tries more.
func TestRandomSameAsUpstream(t *testing.T) {
	t.Parallel()
	seeds := []int64{2348} // a policy fails for two params when it runs again
	for seed := *differentialSeed; seed < *differentialSeed+int64(*differentialN); seed++ {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		g := generator{rand.New(rand.NewPCG(1, uint64(seed)))}
		policies := g.policies()
		object, old, change := g.object()
		if diff := difference(t, documents(t, policies+namespaces), request(t, object, old, change)); diff != "" {
			t.Fatalf("seed %d\n%s\n%s", seed, policies, diff)
		}
	}
}

// generator makes policies and objects.
type generator struct{ *rand.Rand }

func (g generator) of(list ...string) string { return list[g.IntN(len(list))] }

func (g generator) policies() string {
	var b strings.Builder
	for i := range 1 + g.IntN(4) {
		more := g.of("failurePolicy: Ignore", "failurePolicy: Fail", "failurePolicy: Ignore") + g.of("\nreinvocationPolicy: IfNeeded", "")
		more += "\nparamKind: {apiVersion: v1, kind: ConfigMap}\nvariables: [{name: v, expression: " + strconv.Quote(g.text("")) + "}, {name: w, expression: " + strconv.Quote(g.text("variables.v")) + "}]"
		if g.IntN(3) == 0 {
			more += "\nmatchConditions: [{name: c, expression: " + strconv.Quote(g.of("true", "object.metadata.?labels.x.orValue('') == 'y'", "size(object.metadata.labels) > 1", "params.data.value == 'one'", "oldObject == null", "object.spec.nothing == 1")) + "}]"
		}
		if g.IntN(4) == 0 {
			more += "\nmatchConstraints: {" + g.of("objectSelector: {matchLabels: {app: web}}, ", "namespaceSelector: {matchLabels: {team: a}}, ", "") +
				"resourceRules: [{apiGroups: ['*'], apiVersions: [v1], operations: [" + g.of("CREATE", "UPDATE", "'*'") + "], resources: [" + g.of("pods", "deployments", "'*'") + "]}]}"
		}
		more += "\nBINDING\nparamRef: {" + g.of("name: p1", "name: none", "selector: {matchLabels: {params: 'yes'}}") + ", parameterNotFoundAction: " + g.of("Allow", "Deny") + "}"
		var mutations []string
		for range 1 + g.IntN(3) {
			if g.IntN(2) == 0 {
				mutations = append(mutations, "Object{"+g.fields()+"}")
			} else {
				mutations = append(mutations, g.patch())
			}
		}
		b.WriteString(one(fmt.Sprintf("p%d", i), more, mutations...))
	}
	return b.String()
}

// text returns an expression that comes to a string, or fails.
func (g generator) text(variables string) string {
	choices := []string{
		`"lit"`, `"a/b~c"`, `object.metadata.name`, `request.operation`, `request.userInfo.username`, `string(size(object.metadata.?labels.orValue({})))`,
		`object.metadata.?labels.app.orValue("none")`, `object.metadata.labels.app`, `params.data.value`, `string(oldObject == null)`,
		`string(request.resource.resource)`, `object.spec.containers[0].name`, `string(object.spec.?replicas.orValue(0))`,
	}
	if variables != "" {
		choices = append(choices, variables, variables)
	} else {
		choices = append(choices, `namespaceObject.metadata.labels.team`)
	}
	return choices[g.IntN(len(choices))]
}

func (g generator) value() string { return g.text(g.of("variables.v", "variables.w")) }

// fields returns fields of an apply configuration.
func (g generator) fields() string {
	var out []string
	add := func(field string) { out = append(out, field) }
	if g.IntN(2) == 0 {
		add("metadata: Object.metadata{" + g.of("labels", "?labels: optional.none(), annotations", "annotations") + ": {" + strconv.Quote(g.of("x", "app", "e.com/k")) + ": " + g.value() + "}}")
	}
	if g.IntN(3) > 0 || len(out) == 0 {
		add("spec: Object.spec{" + g.of(
			`containers: [Object.spec.containers{name: `+g.value()+`, image: `+g.value()+`}]`,
			`containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, env: [Object.spec.containers.env{name: "E", value: `+g.value()+`}]})`,
			`containers: [Object.spec.containers{name: "main", ports: [Object.spec.containers.ports{containerPort: 80, name: "p"}]}]`,
			`containers: [Object.spec.containers{name: "main", args: ["x"]}]`,
			`initContainers: [Object.spec.initContainers{name: "i", image: "i"}]`,
			`volumes: [Object.spec.volumes{name: "v", configMap: Object.spec.volumes.configMap{name: `+g.value()+`}}]`,
			`tolerations: [Object.spec.tolerations{key: "t"}]`,
			`replicas: `+g.of(`3`, `object.spec.replicas + 1`, `"3"`),
			`hostNetwork: `+g.of(`true`, `false`, `null`),
			`template: Object.spec.template{metadata: Object.spec.template.metadata{labels: {"x": `+g.value()+`}}}`,
			`strategy: Object.spec.strategy{rollingUpdate: Object.spec.strategy.rollingUpdate{maxSurge: `+g.of(`"5%"`, `2`)+`}}`,
			`nodeSelector: {"a": "b"}`, `unknown: 1`, `parts: [Object.spec.parts{name: "c"}]`, `size: 5`, `securityContext: Object.spec.securityContext{runAsNonRoot: true}`,
			`ports: [Object.spec.ports{port: 80, name: "web"}]`, `securityContext: Object.spec.other{}`,
		) + "}")
	}
	if g.IntN(6) == 0 {
		add(`data: {"k": ` + g.value() + `}`)
	}
	return strings.Join(out, ", ")
}

// patch returns a JSON patch.
func (g generator) patch() string {
	path := func() string {
		return g.of(`"/metadata/labels"`, `"/metadata/labels/x"`, `"/metadata/annotations"`, `"/metadata/annotations/" + jsonpatch.escapeKey("a/b")`, `"/spec/containers/0/image"`, `"/spec/containers/-"`,
			`"/spec/containers/0"`, `"/spec/containers/1"`, `"/spec/replicas"`, `"/spec/template/metadata/labels/app"`, `"/spec/hostNetwork"`, `"/data/k"`, `"/spec"`, `"/spec/containers/0/args/-"`,
			`"/spec/containers/0/env/0"`, `"/metadata/name"`, `"/spec/nonsense"`, `""`, `"/metadata/labels/" + `+g.value())
	}
	value := func() string {
		return g.of(g.value(), `{"x": `+g.value()+`}`, `[`+g.value()+`]`, `3`, `true`, `null`, `2.5`, `object.metadata.labels`, `object.spec.containers[0]`, `object.spec`,
			`Object.spec.containers{name: "new", image: `+g.value()+`}`, `Object.spec{replicas: 4}`, `object.spec.containers`, `[{"name": "z", "image": "z"}]`)
	}
	var out []string
	for range 1 + g.IntN(3) {
		switch op := g.of("add", "add", "replace", "remove", "copy", "move", "test"); op {
		case "remove":
			out = append(out, fmt.Sprintf(`JSONPatch{op: "remove", path: %s}`, path()))
		case "copy", "move":
			out = append(out, fmt.Sprintf(`JSONPatch{op: %q, from: %s, path: %s}`, op, path(), path()))
		default:
			out = append(out, fmt.Sprintf(`JSONPatch{op: %q, path: %s, value: %s}`, op, path(), value()))
		}
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// object returns an object, the one before an update, and how the request changes.
func (g generator) object() (object, old string, change func(*admission.Request)) {
	object = g.of(pod, pod, deployment, widget, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: shop, labels: {app: web}}\ndata: {k: v}\n",
		"apiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: shop}\nspec: {selector: {app: web}, ports: [{port: 80}, {port: 443, name: tls}]}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: shop}\ndata: {a: YQ==}\n",
		"apiVersion: batch/v1\nkind: Job\nmetadata: {name: j, namespace: shop}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: i}]}}}\n")
	if g.IntN(3) == 0 {
		object = strings.Replace(object, "namespace: shop", "namespace: shop, finalizers: [a/b], ownerReferences: [{apiVersion: v1, kind: X, name: x, uid: u}]", 1)
	}
	if g.IntN(3) == 0 {
		old = object
	}
	if old != "" && g.IntN(2) == 0 {
		change = func(r *admission.Request) { r.SubResource = "status" }
	} else if g.IntN(5) == 0 {
		change = func(r *admission.Request) { r.Operation, r.SubResource = admissionv1.Connect, "proxy" }
	}
	return object, old, change
}
