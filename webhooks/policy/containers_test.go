package policy_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// containersOf returns an AdmissionPolicy about pods and their ephemeral containers, and about Deployments if it reads their templates.
func containersOf(spec string) string {
	operations := `["*"]`
	if strings.Contains(spec, "podSecurity") {
		operations = "[CREATE, UPDATE]"
	}
	rules := `{apiGroups: [""], apiVersions: [v1], operations: ` + operations + `, resources: [pods, pods/ephemeralcontainers]}`
	if strings.Contains(spec, "object.spec.template") {
		rules = `{apiGroups: [apps], apiVersions: [v1], operations: ["*"], resources: [deployments]}`
	}
	return `{apiVersion: gatehouse.dev/v1alpha1, kind: AdmissionPolicy, metadata: {name: own}, spec: {validationActions: [Deny], ` + spec + `, matchConstraints: {resourceRules: [` + rules + `]}}}`
}

// exempting returns an exception of containers.
func exempting(containers string) string {
	return exceptionOf("gatehouse-system", "policies: [{name: own}], match: {containers: {"+containers+"}}")
}

// podWith returns a pod with containers, and what else its spec has.
func podWith(containers, spec string) string {
	return `{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: shop}, spec: {` + spec + `containers: [` + containers + `]}}`
}

const (
	legacy  = `{name: old, image: "registry.example/legacy/app:v1"}`
	foreign = `{name: other, image: "evil.example/x"}`
	goodOne = `{name: app, image: "good/app"}`
	mesh    = `{name: istio-proxy, image: "docker.io/istio/proxyv2:1.27"}`
)

func TestContainerExceptions(t *testing.T) {
	t.Parallel()
	const (
		byLegacy  = `images: ["registry.example/legacy/*"]`
		byProxy   = `names: [istio-proxy]`
		violated  = "Violated validations[0]"
		excepted  = "Excepted validations[0] by gatehouse-system/x"
		everyList = `variables: [{name: all, expression: "object.spec.containers + object.spec.?initContainers.orValue([]) + object.spec.?ephemeralContainers.orValue([])"}], `
		ephemeral = "ephemeralcontainers"
	)
	rule := func(expression string) string {
		return containersOf(`validations: [{expression: "` + expression + `"}]`)
	}
	good := containersOf(everyList + `validations: [{expression: "variables.all.all(c, c.image.startsWith('good/'))"}]`)
	named := func(exception, name string) string {
		return strings.Replace(exception, "name: x,", "name: "+name+",", 1)
	}
	inspecting := func(sub string) func(*admission.Request) {
		return func(req *admission.Request) { req.SubResource = sub }
	}
	deployment := func(containers, spec string) string {
		return `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {template: {metadata: {}, spec: {` + spec + `containers: [` + containers + `]}}}}`
	}
	asItIs := func(*admission.Request) {}
	for _, tc := range []struct {
		name, policy, exceptions, object string
		options                          func(*admission.Request)
		want                             string
	}{
		{"by image", good, exempting(byLegacy), podWith(goodOne+","+legacy, ""), asItIs, excepted},
		{"by name", good, exempting(byProxy), podWith(goodOne+","+mesh, ""), asItIs, excepted},
		{"by the beginning of a name", good, exempting(`names: ["istio-*"]`), podWith(goodOne+","+mesh, ""), asItIs, excepted},
		{"by both", good, exempting(byProxy + `, images: [istio/proxyv2]`), podWith(goodOne+","+mesh, ""), asItIs, excepted},
		{"both must match", good, exempting(byProxy + ", " + byLegacy), podWith(goodOne+","+mesh+","+legacy, ""), asItIs, violated},
		{"another violates too", good, exempting(byLegacy), podWith(legacy+","+foreign, ""), asItIs, violated},
		{"the name with an image of its author", good, exempting(byProxy + `, images: ["docker.io/istio/*"]`), podWith(`{name: istio-proxy, image: "evil.example/istio/proxyv2"}`, ""), asItIs, violated},
		{"the last one", good, exempting(byLegacy), podWith(legacy, ""), asItIs, excepted},
		{"an init container", good, exempting(byLegacy), podWith(goodOne, "initContainers: ["+legacy+"], "), asItIs, excepted},
		{"the name in two lists with two images", good, exempting(byLegacy), podWith(legacy, `initContainers: [{name: old, image: "evil.example/x"}], `), asItIs, violated},
		{"an ephemeral container", good, exempting(`names: ["debugger-*"]`), podWith(goodOne, `ephemeralContainers: [{name: debugger-x7k2p, image: busybox}], `), inspecting(ephemeral), excepted},
		{"two exceptions for two containers", good, documents(named(exempting(byLegacy), "a"), named(exempting(byProxy), "b"), named(exempting(byProxy), "c")), podWith(legacy+","+mesh, ""), asItIs, "Excepted validations[0] by gatehouse-system/a, gatehouse-system/b"},
		{"an exception of the whole object goes first", good, documents(named(exempting(byLegacy), "a"), exceptionOf("gatehouse-system", "policies: [{name: own}], match: {namespaces: [shop]}")), podWith(legacy, ""), asItIs, excepted},
		{"in another namespace", good, strings.Replace(exempting(byLegacy), "match: {", "match: {namespaces: [lab], ", 1), podWith(legacy, ""), asItIs, violated},
		{"that has expired", good, strings.Replace(exempting(byLegacy), "match: {", `expiresAt: "2020-01-01T00:00:00Z", match: {`, 1), podWith(legacy, ""), asItIs, violated},

		// Images that look like one.
		{"with a way out", good, exempting(byLegacy), podWith(`{name: old, image: "registry.example/legacy/../x"}`, ""), asItIs, violated},
		{"in capitals", good, exempting(byLegacy), podWith(`{name: old, image: "REGISTRY.example/legacy/x"}`, ""), asItIs, violated},
		{"on another port", good, exempting(byLegacy), podWith(`{name: old, image: "registry.example:444/legacy/x"}`, ""), asItIs, violated},
		{"deeper", good, exempting(byLegacy), podWith(`{name: old, image: "registry.example/legacy/x/y"}`, ""), asItIs, violated},
		{"by digest", good, exempting(`images: ["registry.example/legacy/app@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"]`), podWith(`{name: old, image: "registry.example/legacy/app:v9@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}`, ""), asItIs, excepted},
		{"no image at all", good, exempting(byLegacy), podWith(`{name: old, image: ""}`, ""), asItIs, violated},

		// Fields outside of containers.
		{"a field of the pod", rule(`!object.spec.?hostNetwork.orValue(false)`), exempting(byLegacy), podWith(legacy, "hostNetwork: true, "), asItIs, violated},
		{"a field of the pod and a container, in one rule", rule(`!object.spec.?hostNetwork.orValue(false) && object.spec.containers.all(c, c.image.startsWith('good/'))`), exempting(byLegacy), podWith(legacy, "hostNetwork: true, "), asItIs, violated},
		{"a field of the pod that is right, in one rule", rule(`!object.spec.?hostNetwork.orValue(false) && object.spec.containers.all(c, c.image.startsWith('good/'))`), exempting(byLegacy), podWith(legacy, ""), asItIs, excepted},
		{"a field of the pod that only an empty pod may have", rule(`size(object.spec.containers) == 0 || !object.spec.?hostNetwork.orValue(false)`), exempting(byLegacy), podWith(legacy, "hostNetwork: true, "), asItIs, violated},
		{"a field of the pod that only a pod with one container may have", rule(`size(object.spec.containers) == 1 || !object.spec.?hostNetwork.orValue(false)`), exempting(byLegacy), podWith(goodOne+","+legacy, "hostNetwork: true, "), asItIs, violated},
		{"a container that would permit the field", rule(`!object.spec.?hostNetwork.orValue(false) || object.spec.containers.exists(c, c.name == 'net')`), exempting(byLegacy), podWith(legacy, "hostNetwork: true, "), asItIs, violated},
		{"a container that the field forbids", rule(`!object.spec.?hostNetwork.orValue(false) || !object.spec.containers.exists(c, c.name == 'old')`), exempting(byLegacy), podWith(legacy, "hostNetwork: true, "), asItIs, excepted},
		{"what all containers say is compared", rule(`object.spec.containers.all(c, c.image.startsWith('good/')) == object.spec.?hostNetwork.orValue(false)`), exempting(byLegacy), podWith(legacy+","+goodOne, "hostNetwork: true, "), asItIs, violated},
		{"what the pod says for its containers", rule(`object.spec.containers.all(c, c.?securityContext.?runAsNonRoot.orValue(object.spec.?securityContext.?runAsNonRoot.orValue(false)))`), exempting(byLegacy), podWith(legacy, ""), asItIs, excepted},
		{"a match condition stays true", containersOf(`matchConditions: [{name: mesh, expression: "object.spec.containers.exists(c, c.name == 'istio-proxy')"}], validations: [{expression: "!object.spec.?hostNetwork.orValue(false)"}]`), exempting(byProxy), podWith(mesh, "hostNetwork: true, "), asItIs, violated},
		{"a label", rule(`has(object.metadata.labels) && object.spec.containers.all(c, c.image.startsWith('good/'))`), exempting(byLegacy), podWith(legacy, ""), asItIs, violated},

		// Rules that count containers and read nothing else.
		{"one too many", rule(`size(object.spec.containers) <= 1`), exempting(byProxy), podWith(goodOne+","+mesh, ""), asItIs, excepted},
		{"one that must be there", rule(`object.spec.containers.exists(c, c.name == 'log')`), exempting(byProxy), podWith(mesh, ""), asItIs, violated},
		{"none is not enough", rule(`size(object.spec.containers) > 0 && object.spec.containers.all(c, c.image.startsWith('good/'))`), exempting(byLegacy), podWith(legacy, ""), asItIs, violated},
		{"the first", rule(`object.spec.containers[0].image.startsWith('good/')`), exempting(byLegacy), podWith(legacy, ""), asItIs, violated},
		{"the first of two", rule(`object.spec.containers[0].image.startsWith('good/')`), exempting(byLegacy), podWith(legacy+","+goodOne, ""), asItIs, excepted},
		{"a list that is there", rule(`!has(object.spec.initContainers)`), exempting(byLegacy), podWith(goodOne, "initContainers: ["+legacy+"], "), asItIs, excepted},

		// Errors.
		{"a rule that fails for the container", rule(`object.spec.containers.all(c, c.resources.limits.memory != '')`), exempting(byLegacy), podWith(legacy, ""), asItIs, excepted},
		{"a rule that fails without it", rule(`object.spec.containers.all(c, c.image != '') && object.spec.containers[1].image == 'x'`), exempting(byLegacy), podWith(goodOne+","+legacy, ""), asItIs, violated},
		{"a policy that fails", containersOf(`matchConditions: [{name: c, expression: "object.spec.missing == 1"}], validations: [{expression: "true"}]`), exempting(byLegacy), podWith(legacy, ""), asItIs, "Failed matchConditions"},

		// The standards.
		{"a standard", containersOf("podSecurity: {level: baseline}"), exempting(byLegacy), podWith(strings.Replace(legacy, "{", "{securityContext: {privileged: true}, ", 1)+","+goodOne, ""), asItIs, "Excepted podSecurity.privileged by gatehouse-system/x"},
		{"a standard, and another container", containersOf("podSecurity: {level: baseline}"), exempting(byLegacy), podWith(strings.ReplaceAll(legacy+","+goodOne, "{", "{securityContext: {privileged: true}, "), ""), asItIs, "Violated podSecurity.privileged"},
		{"a standard, and a field of the pod", containersOf("podSecurity: {level: baseline}"), exempting(byLegacy), podWith(strings.Replace(legacy, "{", "{ports: [{hostPort: 80}], ", 1), "hostPID: true, volumes: [{name: h, hostPath: {path: /}}], "), asItIs, "Violated podSecurity.hostNamespaces; Violated podSecurity.hostPathVolumes; Excepted podSecurity.hostPorts by gatehouse-system/x"},
		{"a standard, and a wrong field of the pod that a container inherits", containersOf("podSecurity: {level: restricted}"), exempting(byLegacy + `, names: [old]`), podWith(strings.Replace(legacy, "{", "{securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}, ", 1), "securityContext: {runAsNonRoot: false}, "), asItIs, "Violated podSecurity.runAsNonRoot"},

		// Templates.
		{"a template", good, exempting(byLegacy), deployment(legacy, ""), asItIs, "Excepted validations[0] in spec.template by gatehouse-system/x"},
		{"a rule about the workload", rule(`!has(object.spec.template) || object.spec.template.spec.containers.all(c, c.image.startsWith('good/'))`), exempting(byLegacy), deployment(goodOne+","+legacy, ""), asItIs, excepted},
		{"a field of the workload", rule(`object.spec.?replicas.orValue(1) > 1 && object.spec.template.spec.containers.all(c, c.image.startsWith('good/'))`), exempting(byLegacy), deployment(legacy, ""), asItIs, violated},

		// Updates and deletions.
		{"an update that brings one", good, exempting(byLegacy), podWith(legacy+","+goodOne, ""), updating(t, podWith(goodOne, "")), excepted},
		{"an update that brings another", good, exempting(byLegacy), podWith(legacy+","+foreign, ""), updating(t, podWith(legacy, "")), violated},
		{"an update that keeps what was wrong", good, exempting(byLegacy), podWith(legacy+","+foreign, ""), updating(t, podWith(legacy+","+foreign, "hostNetwork: false, ")), "Existing validations[0]"},
		{"an update that keeps what was wrong and brings one", good, exempting(byLegacy), podWith(legacy+","+foreign, ""), updating(t, podWith(foreign, "")), "Existing validations[0] by gatehouse-system/x"},
		{"an update of a template that keeps what was wrong and brings one", good, exempting(byLegacy), deployment(legacy+","+foreign, ""), updating(t, deployment(foreign, "")), "Existing validations[0] in spec.template by gatehouse-system/x"},
		{"an update that makes another of it", good, exempting(byLegacy), podWith(strings.Replace(legacy, "registry.example/legacy", "evil.example", 1), ""), updating(t, podWith(legacy, "")), violated},
		{"a rule about the change", containersOf(`validations: [{expression: "oldObject == null || object.spec.containers.all(c, oldObject.spec.containers.exists(o, o.name == c.name && o.image == c.image))"}]`), exempting(byLegacy), podWith(legacy+","+goodOne, ""), updating(t, podWith(goodOne, "")), excepted},
		{"a rule about the change, of another", containersOf(`validations: [{expression: "oldObject == null || object.spec.containers.all(c, oldObject.spec.containers.exists(o, o.name == c.name && o.image == c.image))"}]`), exempting(byLegacy), podWith(strings.Replace(legacy, "registry.example/legacy/app", "good/app", 1), ""), updating(t, podWith(legacy, "")), violated},
		{"a deletion", containersOf(`variables: [{name: pod, expression: "object == null ? oldObject : object"}], validations: [{expression: "variables.pod.spec.containers.all(c, c.image.startsWith('good/'))"}]`), exempting(byLegacy), podWith(legacy, ""), deleting, excepted},
		{"what is no pod", containersOf(`validations: [{expression: "object.spec.containers.all(c, c.image.startsWith('good/'))"}]`), exempting(byLegacy), strings.Replace(podWith(legacy, ""), "kind: Pod", "kind: PodList", 1), func(req *admission.Request) {
			req.Resource.Resource = "pods"
		}, violated},
		{"what is run in a pod", containersOf(`validations: [{expression: "false"}]`), exempting(byLegacy), podWith(legacy, ""), func(req *admission.Request) {
			req.Operation, req.SubResource, req.Kind.Kind = admissionv1.Connect, "ephemeralcontainers", "PodExecOptions"
		}, violated},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			spec := specOf(t, documents(tc.policy, tc.exceptions))
			spec.Now = func() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) }
			set, err := policy.Compile(spec)
			must(t, err)
			d := set.Decide(context.Background(), policy.Input{Request: review(t, tc.object, tc.options), Violations: true})
			if got := outcomes(d); got != tc.want {
				t.Errorf("got  %q\nwant %q\n%v %v", got, tc.want, d.Err, set.Warnings())
			}
			if audited := d.Response().AuditAnnotations[policy.ExceptedByKey]; strings.Contains(tc.want, " by ") != (audited != "") {
				t.Errorf("audited %q", audited)
			}
			if got := decide(t, set, review(t, tc.object, tc.options)); got.Allowed != d.Response().Allowed {
				t.Errorf("the answer is %+v", got)
			}
			explained := set.Decide(context.Background(), policy.Input{Request: review(t, tc.object, tc.options), Explain: true})
			if got := outcomes(explained); got != tc.want {
				t.Errorf("explained %q", got)
			}
		})
	}
}

// TestContainerExceptionsAfterInjection exempts a container that a profile adds to the pods of a workload.
func TestContainerExceptionsAfterInjection(t *testing.T) {
	t.Parallel()
	spec := specOf(t, documents(containersOf(`validations: [{expression: "object.spec.containers.all(c, c.image.startsWith('good/'))"}]`), exempting("names: [istio-proxy]")))
	spec.Inject = func(_ context.Context, _, _ string, pod []byte) ([]byte, string, error) {
		return bytes.Replace(pod, []byte(`"containers":[`), []byte(`"containers":[{"name":"istio-proxy","image":"istio/proxyv2"},`), 1), "", nil
	}
	set, err := policy.Compile(spec)
	must(t, err)
	const template = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {template: {spec: {containers: [{name: app, image: good/app}]}}}}`
	for object, want := range map[string]string{
		template: "Excepted validations[0] in spec.template by gatehouse-system/x",
		strings.Replace(template, "good/", "bad/", 1): "Violated validations[0] in spec.template",
	} {
		if got := outcomes(set.Decide(context.Background(), policy.Input{Request: review(t, object), Violations: true})); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestContainerExceptionsOfTheRequest holds that an exception of which an audit does not know whether it holds allows nothing.
func TestContainerExceptionsOfTheRequest(t *testing.T) {
	t.Parallel()
	byUser := exceptionOf("gatehouse-system", `policies: [{name: own}], match: {containers: {names: [old]}, matchConditions: [{name: ops, expression: "'ops' in request.userInfo.groups"}]}`)
	images := containersOf(`validations: [{expression: "object.spec.containers.all(c, c.image.startsWith('good/'))"}]`)
	for object, want := range map[string]string{podWith(legacy, ""): "?", podWith(legacy+","+foreign, ""): "Violated", podWith(goodOne, ""): ""} {
		set, _ := compile(t, documents(images, byUser)).ForObjects()
		got := ""
		for _, v := range set.Decide(context.Background(), policy.Input{Request: review(t, object), Violations: true}).Violations {
			if got = string(v.Outcome); v.Unknown != "" {
				got = "?"
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", object, got, want)
		}
	}
}

// TestContainerExceptionsAreExplained has what explain says about them.
func TestContainerExceptionsAreExplained(t *testing.T) {
	t.Parallel()
	images := `{expression: "object.spec.containers.all(c, c.image.startsWith('good/'))"}`
	for _, tc := range []struct{ rule, exception, object, want string }{
		{images, "names: [old]", podWith(goodOne+","+legacy, ""), "Excepted without [old]"},
		{images, `images: ["registry.example/legacy/*"]`, podWith(foreign+","+mesh, ""), `it matches none of the containers "other" (evil.example/x:latest), "istio-proxy" (docker.io/istio/proxyv2:1.27)`},
		{images, "names: [old]", podWith(foreign+","+legacy, ""), `without "old" the rule is violated all the same`},
		{`{expression: "object.spec.containers.all(c, c.image != '') && object.spec.containers[1].image == 'x'"}`, "names: [old]", podWith(goodOne+","+legacy, ""), `without "old" the rule cannot be evaluated: expression 'object.spec.containers.all(c, c.image != '') && object.spec.containers[1].image == 'x'' resulted in error: index out of bounds: 1`},
		{`{expression: "!has(object.spec.hostNetwork)"}`, "names: [old]", podWith(legacy, "hostNetwork: true, "), "it is about containers, and the rule reads none"},
		{`{expression: "!has(object.spec.hostNetwork) || size(object.spec.containers) > 3"}`, "names: [old]", podWith(legacy, "hostNetwork: true, "), "it is about containers, and the rule reads other fields and does not ask each container by itself"},
	} {
		set := compile(t, documents(containersOf("validations: ["+tc.rule+"]"), exempting(tc.exception)))
		got := ""
		for _, of := range set.Decide(context.Background(), policy.Input{Request: review(t, tc.object), Explain: true}).Evaluations {
			for _, r := range of.Rules {
				if len(r.Containers) > 0 {
					got += fmt.Sprintf("%s without %v", r.Outcome, r.Containers)
				}
				for _, tried := range r.Tried {
					got += tried.Why
				}
			}
		}
		if got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
}

func TestContainerExceptionDiagnostics(t *testing.T) {
	t.Parallel()
	const at = "test.yaml#2: PolicyException/gatehouse-system/x: spec.match.containers"
	images := containersOf(`validations: [{expression: "object.spec.containers.all(c, c.image.startsWith('good/'))"}]`)
	network := containersOf(`validations: [{name: network, expression: "!has(object.spec.hostNetwork)"}]`)
	counts := containersOf(`validations: [{name: counts, expression: "!has(object.spec.hostNetwork) || size(object.spec.containers) > 3"}, {expression: "object.spec.containers.all(c, c.image != '')"}]`)
	for _, tc := range []struct{ name, policy, exception, want string }{
		{"alone", images, exempting("names: [old]"), ""},
		{"a standard", containersOf("podSecurity: {level: baseline}"), exempting("names: [old]"), ""},
		{"a workload", containersOf(`validations: [{expression: "object.spec.template.spec.containers.all(c, c.image.startsWith('good/'))"}]`), exempting("names: [old]"), ""},
		{"a policy that is not there yet", containersOf(`validations: [{expression: "true"}]`), strings.Replace(exempting("names: [old]"), "name: own", "name: later", 1), "warning: test.yaml#2: PolicyException/gatehouse-system/x: spec.policies[0].name: there is no policy \"later\" (hint: there is \"own\")"},
		{"empty", images, exempting(""), "error: " + at + ": is empty (hint: name containers or images, or leave it out for whole objects)"},
		{"a star in the middle", images, exempting(`names: ["a*b"]`), "error: " + at + `.names[0]: "a*b" is not a name: a "*" can stand at its end only (hint: as in "legacy-*")`},
		{"no name of a container", images, exempting(`names: [Old, "Old-*"]`), "warning: " + at + `.names[0]: no container can have the name "Old"` + "\nwarning: " + at + `.names[1]: no container can have the name "Old-*"`},
		{"no image", images, exempting(`images: ["registry.example/Legacy/*"]`), "error: " + at + `.images[0]: "registry.example/Legacy/*" can match no image (hint: a path has lower-case letters, digits, and ".", "_" and "-" between them)`},
		{"any registry", images, exempting(`images: ["**"]`), "error: " + at + `.images[0]: "**" leaves the registry open (hint: write the registry, as in "registry.example/legacy/*"; it may begin with "*." for any one name)`},
		{"very many", images, exempting("names: [" + strings.Repeat("a, ", 64) + "a]"), "error: " + at + ".names: has 65 items, allowed are 64 (hint: write several exceptions)"},
		{"a rule that reads none", network, exempting("names: [old]"), "warning: " + at + ": the rules that the exception is from read no containers, so it does nothing (hint: leave it out to exempt the objects)"},
		{"a rule that counts them", counts, exempting("names: [old]"), "warning: " + at + ": cannot exempt from own/validations[counts], which reads containers together with other fields (hint: ask each container by itself, as all and exists do, or exempt the object)"},
		{"another rule", counts, strings.Replace(exempting("names: [old]"), "{name: own}", `{name: own, rules: ["validations[1]"]}`, 1), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := strings.Join(lines(diagnosticsOf(t, documents(tc.policy, tc.exception))), "\n"); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

// TestContainerExceptionsLikeRemoval compares, for generated pods and rules, an exception with the pod without its containers, and an
// exception that matches nothing with none.
func TestContainerExceptionsLikeRemoval(t *testing.T) {
	t.Parallel()
	rules := []string{
		"variables.all.all(c, c.image.startsWith('good/'))",
		"!variables.all.exists(c, c.image.startsWith('evil.example/'))",
		"variables.all.filter(c, !c.image.startsWith('good/')).map(c, c.name).size() == 0",
		"variables.all.all(c, c.?securityContext.?privileged.orValue(false) == false)",
		"variables.all.all(c, c.?securityContext.?runAsNonRoot.orValue(object.spec.?securityContext.?runAsNonRoot.orValue(false)))",
		"!object.spec.?hostNetwork.orValue(false) && variables.all.all(c, c.image.startsWith('good/'))",
		"!has(object.spec.initContainers) || object.spec.initContainers.all(c, c.image.startsWith('good/'))",
		"has(object.spec.initContainers) ? object.spec.initContainers.all(c, c.name != 'b') : true",
		"size(variables.all) <= 2",
		"variables.all.exists(c, c.name == 'a')",
		"variables.all[0].image.startsWith('good/')",
		"variables.all.all(c, c.resources.limits.memory != '')",
		"variables.all.map(c, c.name).all(n, n in ['a', 'b'])",
	}
	var validations []string
	for _, rule := range rules {
		validations = append(validations, fmt.Sprintf("{expression: %q}", rule))
	}
	policies := documents(
		containersOf(`variables: [{name: all, expression: "object.spec.containers + object.spec.?initContainers.orValue([]) + object.spec.?ephemeralContainers.orValue([])"}], validations: [`+strings.Join(validations, ", ")+"]"),
		strings.Replace(containersOf("podSecurity: {level: restricted}"), "name: own", "name: standard", 1))
	g := rand.New(rand.NewPCG(48, 1))
	names := []string{"a", "b", "c", "d"}
	images := []string{"good/x", "evil.example/x", "registry.example/legacy/x:v1", "registry.example/legacy/../x", "nginx"}
	extras := []string{"", `, securityContext: {privileged: true}`, `, securityContext: {runAsNonRoot: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}`, `, resources: {limits: {memory: 1Gi}}`, `, ports: [{containerPort: 1, hostPort: 1}]`}
	specs := []string{"", "hostNetwork: true, ", "securityContext: {runAsNonRoot: true}, ", "hostPID: true, volumes: [{name: v, hostPath: {path: /}}], "}
	sets := map[string]*policy.Set{}
	setOf := func(exceptions ...string) *policy.Set {
		text := documents(append([]string{policies}, exceptions...)...)
		if sets[text] == nil {
			sets[text] = compile(t, text)
		}
		return sets[text]
	}
	both := func(containers string) string {
		return strings.Replace(exempting(containers), "[{name: own}]", "[{name: own}, {name: standard}]", 1)
	}
	excepted := 0
	for range 400 {
		left := names[g.IntN(len(names))]
		exception, isLeft := "names: ["+left+"]", func(name, _ string) bool { return name == left }
		if g.IntN(2) == 0 {
			exception, isLeft = `images: ["registry.example/legacy/*"]`, func(_, image string) bool { return image == images[2] }
		}
		var whole, rest [3][]string
		for _, name := range names[:1+g.IntN(len(names))] {
			k, image := g.IntN(3), images[g.IntN(len(images))]
			one := "{name: " + name + ", image: \"" + image + "\"" + extras[g.IntN(len(extras))] + "}"
			whole[k] = append(whole[k], one)
			if !isLeft(name, image) {
				rest[k] = append(rest[k], one)
			}
		}
		spec := specs[g.IntN(len(specs))]
		object := func(lists [3][]string) string {
			before := spec
			if len(lists[1]) > 0 {
				before += "initContainers: [" + strings.Join(lists[1], ", ") + "], "
			}
			if len(lists[2]) > 0 {
				before += "ephemeralContainers: [" + strings.Join(lists[2], ", ") + "], "
			}
			return podWith(strings.Join(lists[0], ", "), before)
		}
		violations := func(set *policy.Set, object string) (out []string) {
			for _, v := range set.Decide(context.Background(), policy.Input{Request: review(t, object), Violations: true}).Violations {
				if v.Outcome != policy.Excepted {
					out = append(out, v.Policy+"/"+v.Rule)
				} else {
					excepted++
				}
			}
			return out
		}
		without := violations(setOf(), object(whole))
		if got := violations(setOf(both(`images: ["none.example/*"]`)), object(whole)); !slices.Equal(got, without) {
			t.Errorf("%s\nwith an exception of other containers %v, without %v", object(whole), got, without)
		}
		got := violations(setOf(both(exception)), object(whole))
		removed := violations(setOf(), object(rest))
		// What is violated without the containers alone is no violation of the object.
		want := slices.DeleteFunc(slices.Clone(without), func(rule string) bool { return !slices.Contains(removed, rule) })
		if !slices.Equal(got, want) {
			t.Errorf("%s\nwith %s %v, without these containers %v", object(whole), exception, got, want)
		}
	}
	if excepted < 100 {
		t.Errorf("only %d violations were exempt", excepted)
	}
}

// TestManyContainerExceptions holds that the number of exceptions and of containers does not multiply what a review costs.
func TestManyContainerExceptions(t *testing.T) {
	t.Parallel()
	var pod, patterns strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&pod, `{name: c%d, image: "registry.example/a/b%d"}, `, i, i)
	}
	for i := range 64 {
		fmt.Fprintf(&patterns, `"registry.example/*%d*/x*%d*", `, i, i)
	}
	const rules = `{expression: "object.spec.containers.all(c, c.image.startsWith('good/'))"}, `
	images := containersOf(`validations: [` + strings.Repeat(rules, 20) + "]")
	object := podWith(strings.TrimSuffix(pod.String(), ", "), "")
	cost := func(exceptions ...string) (sum int64, answer string) {
		set := compile(t, documents(append([]string{images}, exceptions...)...))
		d := set.Decide(context.Background(), policy.Input{Request: review(t, object), Violations: true, Observe: func(all []policy.Observation) {
			for _, o := range all {
				if o.Rule == "" {
					sum += o.Cost
				}
			}
		}})
		return sum, outcomes(d)
	}
	one, _ := cost(exempting("names: [c1]"))
	var many []string
	for i := range 200 {
		many = append(many, strings.Replace(exempting("names: [c1], images: ["+patterns.String()+"]"), "name: x,", fmt.Sprintf("name: x%d,", i), 1))
	}
	sum, answer := cost(append(many, strings.Replace(exempting("names: [c1]"), "name: x,", "name: z,", 1))...)
	if sum > one*11/10 {
		t.Errorf("200 exceptions cost %d, and one %d", sum, one)
	}
	if strings.Contains(answer, "Excepted") || answer == "" {
		t.Errorf("%.100s", answer)
	}
	// More than are taken together exempt no more.
	many = many[:0]
	for i := range 12 {
		many = append(many, strings.Replace(exempting(fmt.Sprintf("names: [c%d]", i)), "name: x,", fmt.Sprintf("name: x%02d,", i), 1))
	}
	set := compile(t, documents(append([]string{images}, many...)...))
	containers := strings.SplitAfter(pod.String(), ", ")
	for n, want := range map[int]string{8: "Excepted validations[0]", 9: "Violated validations[0]"} {
		d := set.Decide(context.Background(), policy.Input{Request: review(t, podWith(strings.TrimSuffix(strings.Join(containers[:2*n], ""), ", "), "")), Violations: true})
		if got := outcomes(d); !strings.HasPrefix(got, want) {
			t.Errorf("%d containers: %.100s", n, got)
		}
	}
}
