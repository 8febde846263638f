package podsecurity

import (
	"slices"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// SamePrograms reports whether no container of a pod runs, reaches or is allowed anything
// that it did not before, apart from what checks read: the containers have the same
// images, commands, arguments, environments, hooks, mounts and volumes, and the pod has
// the same account and runs on the same nodes.
func SamePrograms(object, old rawjson.Value) bool {
	now, before := map[Failure]bool{}, map[Failure]bool{}
	addPrograms(now, object, nil)
	addPrograms(before, old, nil)
	for f := range now {
		if !before[f] {
			return false
		}
	}
	return true
}

// addPrograms adds what runs in containers of the pod, and with what: in those of the parts,
// or in all if parts is nil. What is gone from it later is no change for the worse.
func addPrograms(to map[Failure]bool, object rawjson.Value, parts map[string]bool) {
	// These neither choose what runs in a container nor what that reaches. Its securityContext
	// is what checks read.
	inert := []string{"imagePullPolicy", "ports", "resizePolicy", "resources", "securityContext", "terminationMessagePath", "terminationMessagePolicy"}
	mounted := map[string]bool{}
	// Found once: a pod may have thousands of containers, and thousands of sysctls before these fields.
	spec := object.Get("spec")
	security := spec.Get("securityContext")
	podNonRoot, podUser := security.Get("runAsNonRoot"), security.Get("runAsUser")
	for _, list := range [...]string{"containers", "initContainers", "ephemeralContainers"} {
		for _, container := range spec.Get(list).Elements() {
			part := list + "/" + container.Get("name").Text()
			if parts != nil && !parts[part] {
				continue
			}
			var text []byte
			for name, member := range container.Members() {
				if !slices.ContainsFunc(inert, name.Is) {
					text = append(append(text, name...), member...)
				}
			}
			to[Failure{Part: part, Program: string(text)}] = true
			if canBeRoot(container.Get("securityContext"), podNonRoot, podUser) {
				to[Failure{Part: part, Program: "as root"}] = true
			}
			for _, field := range [...]string{"volumeMounts", "volumeDevices"} {
				for _, mount := range container.Get(field).Elements() {
					mounted[mount.Get("name").Text()] = true
				}
			}
		}
	}
	for _, volume := range spec.Get("volumes").Elements() {
		if mounted[volume.Get("name").Text()] {
			to[Failure{Program: string(volume)}] = true
		}
	}
	account := "default"
	for _, field := range [...]string{"serviceAccount", "serviceAccountName"} {
		if name := spec.Get(field).Text(); name != "" {
			account = name
		}
	}
	text := []byte(account)
	for _, path := range [...][]string{
		{"affinity", "nodeAffinity"}, {"hostUsers"}, {"nodeName"}, {"nodeSelector"}, {"runtimeClassName"}, {"shareProcessNamespace"}, {"tolerations"},
	} {
		text = append(append(text, '\n'), spec.Get(path...)...)
	}
	to[Failure{Program: string(text)}] = true
	if token := spec.Get("automountServiceAccountToken"); token.Kind() != rawjson.Bool || token.IsTrue() {
		to[Failure{Program: "with a token of the account"}] = true
	}
}

// canBeRoot reports whether a container may run as root, as far as its securityContext and the pod's fields tell.
func canBeRoot(security, podNonRoot, podUser rawjson.Value) bool {
	field := func(name string, ofPod rawjson.Value) rawjson.Value {
		if own := security.Get(name); own.Kind() != rawjson.Invalid && own.Kind() != rawjson.Null {
			return own
		}
		return ofPod
	}
	user := field("runAsUser", podUser)
	return !field("runAsNonRoot", podNonRoot).IsTrue() && (user.Kind() != rawjson.Number || string(user) == "0")
}
