package podsecurity

import (
	"bytes"
	"slices"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// KeepsPower reports whether a pod runs, reaches and is allowed nothing that it was not
// before, apart from its containers that are not among the parts ("containers/app"); nil
// is all of them.
//
// Everything in the spec is the same, but for what is listed below: fields that are no
// power, and values that can only take power away. A field that this version of Kubernetes
// does not have yet is thus compared like the others. The texts of both pods are as the API server writes
// them, with its defaults, in one order.
func KeepsPower(object, old rawjson.Value, parts map[string]bool) bool {
	spec, before := object.Get("spec"), old.Get("spec")
	security, securityBefore := spec.Get("securityContext"), before.Get("securityContext")
	lists := []string{"containers", "initContainers", "ephemeralContainers"}
	if !keeps(spec, before, slices.Concat(lists, []string{
		"activeDeadlineSeconds", "readinessGates", "resources", "schedulingGates", "securityContext", "serviceAccount", "serviceAccountName",
		"terminationGracePeriodSeconds", "volumes",
	})...) || account(spec) != account(before) || !keepsResources(spec.Get("resources"), before.Get("resources")) {
		return false
	}
	// What containers inherit is compared in each of them.
	if !keeps(security, securityBefore, slices.Concat(inherited[:], []string{"sysctls"})...) ||
		!isSubset(security.Get("sysctls"), securityBefore.Get("sysctls")) {
		return false
	}
	// Found once: a pod may have thousands of containers, and thousands of sysctls before these fields.
	var pod, podBefore [len(inherited)]rawjson.Value
	for i, name := range inherited {
		pod[i], podBefore[i] = security.Get(name), securityBefore.Get(name)
	}
	mounted, earlier := map[string]bool{}, map[string]rawjson.Value{}
	for _, list := range lists {
		for _, container := range before.Get(list).Elements() {
			earlier[list+"/"+container.Get("name").Text()] = container
		}
	}
	for _, list := range lists {
		for _, container := range spec.Get(list).Elements() {
			part := list + "/" + container.Get("name").Text()
			if parts != nil && !parts[part] {
				continue
			}
			if !keepsContainer(container, earlier[part], pod, podBefore) {
				return false
			}
			for _, field := range [...]string{"volumeMounts", "volumeDevices"} {
				for _, mount := range container.Get(field).Elements() {
					mounted[mount.Get("name").Text()] = true
				}
			}
		}
	}
	volumes := textsOf(before.Get("volumes"))
	for _, volume := range spec.Get("volumes").Elements() {
		// Volumes of other sources choose nodes, or change these, even if no container mounts them.
		inert := !mounted[volume.Get("name").Text()] && len(rest(volume, "name", "configMap", "downwardAPI", "emptyDir", "projected", "secret")) == 0
		if !inert && !volumes[string(volume)] {
			return false
		}
	}
	return true
}

// inherited are the fields of a pod's securityContext that its containers inherit, in an
// array, which is copied where it is used.
//
//nolint:gochecknoglobals // a table that nobody changes
var inherited = [...]string{"appArmorProfile", "runAsGroup", "runAsNonRoot", "runAsUser", "seccompProfile"}

func keepsContainer(now, old rawjson.Value, pod, podBefore [len(inherited)]rawjson.Value) bool {
	probes := []string{"livenessProbe", "readinessProbe", "startupProbe"}
	if old == nil || !keeps(now, old, slices.Concat(probes, []string{"imagePullPolicy", "ports", "resizePolicy", "resources", "securityContext", "terminationMessagePolicy"})...) ||
		!keepsResources(now.Get("resources"), old.Get("resources")) || !bytes.Equal(hostPorts(now), hostPorts(old)) {
		return false
	}
	for _, probe := range probes {
		if !keeps(now.Get(probe), old.Get(probe), "failureThreshold", "initialDelaySeconds", "periodSeconds", "successThreshold", "terminationGracePeriodSeconds", "timeoutSeconds") {
			return false
		}
	}
	security, securityBefore := now.Get("securityContext"), old.Get("securityContext")
	for i, name := range inherited {
		if own := security.Get(name); !isEmpty(own) {
			pod[i] = own
		}
		if own := securityBefore.Get(name); !isEmpty(own) {
			podBefore[i] = own
		}
	}
	for i, name := range inherited {
		if name == "runAsUser" && couldBeRoot(podBefore) && pod[i].Kind() == rawjson.Number && string(pod[i]) != "0" {
			continue
		}
		if !isTighter(name, pod[i], podBefore[i]) {
			return false
		}
	}
	return keeps(security, securityBefore, inherited[:]...)
}

// couldBeRoot reports whether a container with these values of inherited may run as root,
// as far as they tell.
func couldBeRoot(effective [len(inherited)]rawjson.Value) bool {
	user := effective[slices.Index(inherited[:], "runAsUser")]
	return !effective[slices.Index(inherited[:], "runAsNonRoot")].IsTrue() && (user.Kind() != rawjson.Number || string(user) == "0")
}

// keeps reports whether two objects are the same but for the members of these names, and
// for values that are tighter.
func keeps(now, old rawjson.Value, without ...string) bool {
	without = slices.Clip(without)
	for _, name := range [...]string{
		"allowPrivilegeEscalation", "automountServiceAccountToken", "capabilities", "hostIPC", "hostNetwork", "hostPID", "hostUsers", "privileged",
		"procMount", "readOnlyRootFilesystem", "shareProcessNamespace",
	} {
		if !isTighter(name, now.Get(name), old.Get(name)) {
			return false
		}
		without = append(without, name)
	}
	return bytes.Equal(rest(now, without...), rest(old, without...))
}

// isTighter reports whether a value of the field allows no more than another one.
func isTighter(name string, now, old rawjson.Value) bool {
	isFalse := func(v rawjson.Value) bool { return v.Kind() == rawjson.Bool && !v.IsTrue() }
	switch name {
	case "hostIPC", "hostNetwork", "hostPID", "privileged", "shareProcessNamespace":
		return !now.IsTrue() || old.IsTrue()
	case "readOnlyRootFilesystem", "runAsNonRoot":
		return now.IsTrue() || !old.IsTrue()
	case "allowPrivilegeEscalation", "hostUsers": // true by default
		return isFalse(now) || !isFalse(old)
	case "automountServiceAccountToken":
		if isFalse(now) {
			return true
		}
	case "appArmorProfile", "seccompProfile":
		if kind := old.Get("type"); now.Get("type").Is("RuntimeDefault") && (kind == nil || kind.Is("Unconfined")) {
			return true
		}
	case "procMount":
		if isEmpty(now) || now.Is("Default") {
			return true
		}
	case "capabilities":
		drop := now.Get("drop")
		return bytes.Equal(rest(now, "add", "drop"), rest(old, "add", "drop")) && isSubset(now.Get("add"), old.Get("add")) &&
			(textsOf(drop)[`"ALL"`] || isSubset(old.Get("drop"), drop))
	}
	return isEmpty(now) && isEmpty(old) || bytes.Equal(now, old)
}

// keepsResources reports whether resources differ in amounts of what every node has.
// Others are devices.
func keepsResources(now, old rawjson.Value) bool {
	for _, list := range [...]string{"limits", "requests"} {
		if !keeps(now.Get(list), old.Get(list), "cpu", "ephemeral-storage", "memory") {
			return false
		}
	}
	return keeps(now, old, "limits", "requests")
}

// hostPorts returns the ports of a container that are ports of the node.
func hostPorts(container rawjson.Value) (out []byte) {
	for _, port := range container.Get("ports").Elements() {
		if len(port.Get("hostPort")) > 0 {
			out = append(out, port...)
		}
	}
	return out
}

// account returns the name of the service account, which has two fields.
func account(spec rawjson.Value) string {
	name := "default"
	for _, field := range [...]string{"serviceAccount", "serviceAccountName"} {
		if text := spec.Get(field).Text(); text != "" {
			name = text
		}
	}
	return name
}

// rest returns the members of an object but for those of these names and empty ones.
func rest(object rawjson.Value, without ...string) (out []byte) {
	for name, member := range object.Members() {
		if !isEmpty(member) && !slices.ContainsFunc(without, name.Is) {
			out = append(append(out, name...), member...)
		}
	}
	return out
}

func isEmpty(v rawjson.Value) bool {
	switch v.Kind() {
	case rawjson.Invalid, rawjson.Null:
		return true
	case rawjson.Array, rawjson.Object:
		return v.Len() == 0
	default:
		return false
	}
}

func textsOf(list rawjson.Value) map[string]bool {
	out := map[string]bool{}
	for _, element := range list.Elements() {
		out[string(element)] = true
	}
	return out
}

// isSubset reports whether each element of a list is in another one.
func isSubset(list, of rawjson.Value) bool {
	all := textsOf(of)
	for _, element := range list.Elements() {
		if !all[string(element)] {
			return false
		}
	}
	return true
}
