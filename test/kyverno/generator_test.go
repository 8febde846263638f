package kyverno

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// generator makes policies and objects at random. Values of both are from short lists, so that they meet.
type generator struct{ *rand.Rand }

func pick[T any](g *generator, all ...T) T { return all[g.IntN(len(all))] }

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

type object = map[string]any

// policy returns a policy with one rule.
func (g *generator) policy(name string) object {
	validate := object{"message": "no", "allowExistingViolations": false}
	rule := object{"name": "rule", "match": g.match(), "validate": validate}
	switch g.IntN(6) {
	case 0, 1, 2:
		validate["pattern"] = g.podPattern()
	case 3:
		validate["anyPattern"] = []any{g.podPattern(), g.podPattern()}
	case 4:
		validate["deny"] = object{"conditions": g.conditions(g.condition)}
	default:
		validate["foreach"] = []any{g.loop()}
	}
	if g.chance(25) {
		rule["preconditions"] = g.conditions(g.condition)
	}
	rule["context"] = []any{object{"name": "app", "variable": object{"jmesPath": "request.object.metadata.labels.app", "default": pick[any](g, "none", "web")}}}
	if g.chance(20) {
		rule["exclude"] = object{"any": []any{object{"resources": g.filter()}}}
	}
	spec := object{"validationFailureAction": "Enforce", "background": false, "rules": []any{rule}}
	return object{"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": object{"name": name}, "spec": spec}
}

func (g *generator) match() object {
	of := object{"kinds": []any{"Pod"}}
	if g.chance(20) {
		of["namespaces"] = pick(g, []any{"default"}, []any{"def*", "x"}, []any{"other"})
	}
	if g.chance(20) {
		of["operations"] = pick(g, []any{"CREATE"}, []any{"CREATE", "UPDATE"}, []any{"UPDATE", "DELETE"})
	}
	block := object{"resources": of}
	if g.chance(10) {
		block["subjects"] = []any{pick(g, object{"kind": "User", "name": "anna"}, object{"kind": "Group", "name": "dev*"}, object{"kind": "User", "name": "bob"})}
	}
	return object{pick(g, "any", "all"): []any{block}}
}

func (g *generator) filter() object {
	return pick(g,
		object{"namespaces": []any{"kube-*"}},
		object{"namespaces": []any{"default"}, "operations": []any{"UPDATE"}},
		object{"kinds": []any{"Pod"}, "namespaces": []any{"d?fault"}},
	)
}

// anchored returns a key with an anchor, or without one.
func (g *generator) anchored(key string) string {
	switch g.IntN(10) {
	case 0, 1:
		return "=(" + key + ")"
	case 2, 3:
		return "(" + key + ")"
	case 4:
		return "<(" + key + ")"
	default:
		return key
	}
}

func (g *generator) text() any {
	return pick[any](g, "nginx*", "*:latest", "!*:latest", "?*", "*", "web | app", "web* & !*x", "*r.io/*", "nginx:1.2?", "!nginx:1.25", "a?p", "", nil, "{{ app }}", "{{ request.namespace }}")
}

func (g *generator) number() any {
	return pick[any](g, int64(80), ">80", ">=80", "<80", "80-443", "80!-443", "!80", "80 | 443", "*", "?*", int64(0), "<=1k", nil)
}

func (g *generator) truth() any { return pick[any](g, true, false, "true", "false", "!true", nil) }

func (g *generator) quantity() any {
	return pick[any](g, "<=1Gi", ">100m", "100Mi-1Gi", "512Mi", "!512Mi", "?*", "*", "0", "<=100m", "1Gi | 2Gi")
}

// podPattern returns a pattern of a pod.
func (g *generator) podPattern() object {
	spec := object{}
	for range 1 + g.IntN(3) {
		switch g.IntN(8) {
		case 0:
			spec[g.anchored("hostNetwork")] = g.truth()
		case 1:
			spec["X(hostPID)"] = "null"
		case 2:
			spec[g.anchored("securityContext")] = object{g.anchored("runAsNonRoot"): g.truth(), g.anchored("runAsUser"): g.number()}
		case 3:
			spec[g.anchored("volumes")] = []any{pick(g, object{"X(hostPath)": "null"}, object{"(name)": "data*", g.anchored("hostPath"): object{"path": "/var/*"}}, object{g.anchored("emptyDir"): object{"sizeLimit": g.quantity()}})}
		case 4:
			spec["^(containers)"] = []any{object{"name": pick[any](g, "app", "web*"), "image": g.text()}}
		case 5:
			spec[g.anchored("initContainers")] = []any{g.containerPattern()}
		default:
			spec["containers"] = []any{g.containerPattern()}
		}
	}
	out := object{"spec": spec}
	if g.chance(40) {
		out[pick(g, "metadata", "=(metadata)")] = object{g.anchored("labels"): object{g.anchored("app"): g.text()}}
	} else if g.chance(20) {
		out["metadata"] = object{"annotations": object{g.anchored("ttl"): pick[any](g, "<10s", ">=1m", "5s", "5s-1h", "?*")}}
	}
	return out
}

func (g *generator) containerPattern() object {
	out := object{}
	for range 1 + g.IntN(3) {
		switch g.IntN(6) {
		case 0:
			out[g.anchored("name")] = g.text()
		case 1:
			out[g.anchored("image")] = g.text()
		case 2:
			out[g.anchored("resources")] = object{g.anchored("limits"): object{g.anchored("memory"): g.quantity()}}
		case 3:
			out[g.anchored("securityContext")] = pick(g, object{g.anchored("privileged"): g.truth()}, object{g.anchored("capabilities"): object{g.anchored("add"): []any{pick[any](g, "!NET_ADMIN", "CHOWN", "?*")}}})
		case 4:
			out[g.anchored("ports")] = []any{object{g.anchored("hostPort"): g.number()}}
		default:
			out["X(command)"] = "null"
		}
	}
	return out
}

// conditions returns any or all of some conditions, or both.
func (g *generator) conditions(one func() object) object {
	list := func() []any {
		var all []any
		for range 1 + g.IntN(2) {
			all = append(all, one())
		}
		return all
	}
	switch g.IntN(3) {
	case 0:
		return object{"any": list()}
	case 1:
		return object{"all": list()}
	default:
		return object{"any": list(), "all": list()}
	}
}

func condition(key any, operator string, value any) object {
	return object{"key": key, "operator": operator, "value": value}
}

func (g *generator) among() string {
	return pick(g, "AnyIn", "AllIn", "AnyNotIn", "AllNotIn")
}

func (g *generator) order() string {
	return pick(g, "GreaterThan", "GreaterThanOrEquals", "LessThan", "LessThanOrEquals")
}

// condition returns a condition about a pod.
func (g *generator) condition() object {
	equals := pick(g, "Equals", "NotEquals")
	switch g.IntN(14) {
	case 12:
		return condition("{{ app }}", pick(g, equals, g.among()), pick[any](g, "web", "w*", "none | web"))
	case 13:
		return condition("{{ request.object.spec.containers[].name }}", g.among(), []any{"{{ app }}", "web"})
	case 10:
		return condition("{{ request.object.spec.terminationGracePeriodSeconds }}", g.order(), int64(30))
	case 11:
		return condition("{{ request.object.metadata.labels.app }}", equals, pick[any](g, "web", "w*"))
	case 0:
		return condition("{{ request.object.spec.containers[].image }}", g.among(), pick(g, []any{"nginx:latest", "nginx:1.25"}, []any{"nginx*", "*r.io/*"}))
	case 1:
		return condition("{{ request.object.metadata.labels.app || '' }}", equals, pick[any](g, "web", "w*", ""))
	case 2:
		return condition("{{ length(request.object.spec.containers) }}", g.order(), pick[any](g, int64(1), "1"))
	case 3:
		return condition("{{ request.object.spec.hostNetwork || `false` }}", equals, pick[any](g, true, false))
	case 4:
		return condition("{{ request.object.spec.volumes[].hostPath.path || `[]` }}", g.among(), []any{"/var/log", "/etc"})
	case 5:
		return condition("{{ request.operation }}", equals, pick[any](g, "CREATE", "UPDATE", "DELETE"))
	case 6:
		return condition("{{ request.object.spec.[containers, initContainers][].ports[].hostPort || `[]` }}", g.among(), []any{int64(80), int64(443)})
	case 7:
		return condition("{{ request.object.spec.terminationGracePeriodSeconds || `30` }}", g.order(), int64(30))
	case 8:
		return condition("{{ request.userInfo.username }}", pick(g, equals, "AnyIn"), pick[any](g, "anna", "b*"))
	default:
		return condition("{{ request.object.metadata.annotations.ttl || '0s' }}", g.order(), pick[any](g, "10s", "1m"))
	}
}

// elementCondition returns a condition about a container.
func (g *generator) elementCondition() object {
	equals := pick(g, "Equals", "NotEquals")
	switch g.IntN(5) {
	case 0:
		return condition("{{ element.image }}", equals, pick[any](g, "nginx*", "*:latest", "nginx:1.25"))
	case 1:
		return condition("{{ element.name }}", g.among(), []any{"app", "web"})
	case 2:
		return condition("{{ element.securityContext.privileged || `false` }}", equals, true)
	case 3:
		return condition("{{ element.securityContext.capabilities.add[] || `[]` }}", g.among(), []any{"NET_ADMIN", "CHOWN"})
	default:
		return condition("{{ element.resources.limits.memory || '0' }}", g.order(), pick[any](g, "512Mi", "1Gi"))
	}
}

func (g *generator) loop() object {
	out := object{"list": pick(g, "request.object.spec.containers", "request.object.spec.initContainers", "request.object.spec.[containers, initContainers][]")}
	if g.chance(40) {
		out["preconditions"] = g.conditions(g.elementCondition)
	}
	if g.chance(50) {
		out["pattern"] = g.containerPattern()
	} else {
		out["deny"] = object{"conditions": g.conditions(g.elementCondition)}
	}
	return out
}

// pod returns a pod, with the members of which its policies speak, or without.
func (g *generator) pod() object {
	metadata := object{"name": "web", "namespace": "default"}
	if g.chance(60) {
		metadata["labels"] = object{"app": pick(g, "web", "app", "webx", "")}
	}
	if g.chance(40) {
		metadata["annotations"] = object{"ttl": pick(g, "5s", "10s", "1h", "never")}
	}
	var containers []any
	for i := range 1 + g.IntN(2) {
		containers = append(containers, g.container(pick(g, "app", "web", "nginx")+strings.Repeat("x", i)))
	}
	spec := object{"containers": containers}
	if g.chance(40) {
		spec["initContainers"] = []any{g.container("init")}
	}
	for _, member := range []struct {
		name   string
		values []any
	}{{"hostNetwork", []any{true, false}}, {"hostPID", []any{true}}, {"terminationGracePeriodSeconds", []any{int64(10), int64(30), int64(60)}}} {
		if g.chance(30) {
			spec[member.name] = pick(g, member.values...)
		}
	}
	if g.chance(40) {
		spec["securityContext"] = pick(g, object{}, object{"runAsNonRoot": true}, object{"runAsUser": int64(80)}, object{"runAsNonRoot": false, "runAsUser": int64(0)})
	}
	if g.chance(50) {
		spec["volumes"] = pick(g, []any{object{"name": "data", "hostPath": object{"path": "/var/log"}}}, []any{object{"name": "x", "emptyDir": object{}}},
			[]any{object{"name": "data2", "emptyDir": object{"sizeLimit": "512Mi"}}, object{"name": "etc", "hostPath": object{"path": "/etc"}}})
	}
	return object{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
}

func (g *generator) container(name string) object {
	out := object{"name": name}
	if g.chance(90) {
		out["image"] = pick(g, "nginx:latest", "nginx:1.25", "r.io/app:1", "nginx")
	}
	if g.chance(50) {
		out["resources"] = pick(g, object{}, object{"limits": object{"memory": pick(g, "512Mi", "1Gi", "2Gi", "100m")}}, object{"limits": object{"cpu": "1"}})
	}
	if g.chance(40) {
		out["securityContext"] = pick(g, object{}, object{"privileged": true}, object{"privileged": false}, object{"capabilities": object{"add": []any{"NET_ADMIN", "CHOWN"}}}, object{"capabilities": object{"add": []any{"CHOWN"}}})
	}
	if g.chance(40) {
		out["ports"] = pick(g, []any{object{"containerPort": int64(80)}}, []any{object{"containerPort": int64(80), "hostPort": int64(80)}, object{"containerPort": int64(81), "hostPort": int64(443)}})
	}
	if g.chance(15) {
		out["command"] = []any{"sh"}
	}
	return out
}

// objects returns pods, and workloads with the templates of some.
func (g *generator) objects() []object {
	var all []object
	for i := range 24 {
		pod := g.pod()
		all = append(all, pod)
		template := object{"metadata": object{"labels": pod["metadata"].(object)["labels"], "annotations": pod["metadata"].(object)["annotations"]}, "spec": pod["spec"]}
		for _, key := range []string{"labels", "annotations"} {
			if m := template["metadata"].(object); m[key] == nil || len(m[key].(object)) == 0 {
				delete(m, key)
			}
		}
		metadata := object{"name": "web", "namespace": "default"}
		switch i % 4 {
		case 0:
			all = append(all, object{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": object{"selector": object{"matchLabels": object{"app": "web"}}, "template": template}})
		case 1:
			all = append(all, object{"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": object{"schedule": "* * * * *", "jobTemplate": object{"spec": object{"template": template}}}})
		}
	}
	return all
}

// cases returns requests about objects.
func (g *generator) cases(objects []object) []testCase {
	var all []testCase
	for range 20 {
		one := pick(g, objects...)
		switch {
		case one["kind"] != "Pod" || g.chance(60):
			all = append(all, testCase{operation: "CREATE", object: one})
		case g.chance(60):
			old := pick(g, objects...)
			for old["kind"] != "Pod" {
				old = pick(g, objects...)
			}
			all = append(all, testCase{operation: "UPDATE", object: one, old: old})
		default:
			all = append(all, testCase{operation: "DELETE", old: one})
		}
	}
	return all
}

// largePod returns a pod of about 5 KB.
func (g *generator) largePod() object {
	pod := g.pod()
	var containers []any
	for i := range 6 {
		c := g.container(fmt.Sprintf("c%d", i))
		var env []any
		for j := range 10 {
			env = append(env, object{"name": fmt.Sprintf("NAME_%d", j), "value": strings.Repeat("v", 30)})
		}
		c["env"] = env
		containers = append(containers, c)
	}
	pod["spec"].(object)["containers"] = containers
	return pod
}
