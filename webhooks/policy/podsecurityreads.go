package policy

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// checkReads is what a check of a Pod Security Standard, in any of its versions, reads of a pod.
type checkReads struct {
	*expression.Reads

	// annotations is part of the names of the annotations that it reads, "" for none.
	annotations string
}

// readsOfChecks are what the checks read, by their names.
//
//nolint:gochecknoglobals // it is immutable, and made once
var readsOfChecks = sync.OnceValue(func() map[string]checkReads {
	out := map[string]checkReads{}
	for _, check := range podsecurity.Checks() {
		if paths := pathsOfCheck(check); len(paths) > 0 {
			out[check] = checkReads{Reads: expression.ReadsOf(paths...)}
		}
	}
	for check, annotations := range map[string]string{
		"appArmorProfile":           "container.apparmor.security.beta.kubernetes.io/",
		"seccompProfile_baseline":   "seccomp.security.alpha.kubernetes.io/",
		"seccompProfile_restricted": "seccomp.security.alpha.kubernetes.io/",
	} {
		out[check] = checkReads{out[check].Reads, annotations}
	}
	return out
})

// pathsOfCheck returns the fields of a pod by which a check decides, none for a check that is not known here. All of the value at a path
// counts, and of a list how many elements it has.
func pathsOfCheck(check string) [][]string {
	const each = expression.EachElement
	inContainers := func(fields ...string) (paths [][]string) {
		for _, list := range []string{"containers", "initContainers", "ephemeralContainers"} {
			for _, field := range fields {
				paths = append(paths, slices.Concat([]string{"spec", list, each}, strings.Split(field, ".")))
			}
		}
		return paths
	}
	// security returns fields of the securityContexts of the pod and of its containers.
	security := func(fields ...string) (paths [][]string) {
		for _, field := range fields {
			field = "securityContext." + field
			paths = append(append(paths, strings.Split("spec."+field, ".")), inContainers(field)...)
		}
		return paths
	}
	system, users := []string{"spec", "os", "name"}, []string{"spec", "hostUsers"}
	switch check {
	case "allowPrivilegeEscalation":
		return append(inContainers("securityContext.allowPrivilegeEscalation"), system)
	case "appArmorProfile":
		return security("appArmorProfile.type")
	case "capabilities_baseline", "capabilities_restricted":
		return append(inContainers("securityContext.capabilities"), system)
	case "hostNamespaces":
		return [][]string{{"spec", "hostIPC"}, {"spec", "hostNetwork"}, {"spec", "hostPID"}}
	case "hostPathVolumes":
		return [][]string{{"spec", "volumes", each, "hostPath"}}
	case "hostPorts":
		return inContainers("ports." + each + ".hostPort")
	case "hostProbesAndHostLifecycle":
		var fields []string
		for _, of := range []string{"livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop"} {
			fields = append(fields, of+".httpGet.host", of+".tcpSocket.host")
		}
		return inContainers(fields...)
	case "privileged":
		return inContainers("securityContext.privileged")
	case "procMount", "procMount_restricted":
		return append(inContainers("securityContext.procMount"), users)
	case "restrictedVolumes":
		return restrictedVolumes()
	case "runAsNonRoot", "runAsUser":
		return append(security(check), system, users)
	case "seLinuxOptions":
		return security("seLinuxOptions.role", "seLinuxOptions.type", "seLinuxOptions.user")
	case "seccompProfile_baseline", "seccompProfile_restricted":
		return append(security("seccompProfile.type"), system)
	case "sysctls":
		return [][]string{{"spec", "securityContext", "sysctls", each, "name"}}
	case "windowsHostProcess":
		return security("windowsOptions.hostProcess")
	default:
		return nil
	}
}

// restrictedVolumes returns the sources of volumes that the restricted standard does not allow.
func restrictedVolumes() (paths [][]string) {
	allowed := []string{"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret"}
	for field := range reflect.TypeFor[corev1.VolumeSource]().Fields() {
		if source, _, _ := strings.Cut(field.Tag.Get("json"), ","); !slices.Contains(allowed, source) {
			paths = append(paths, []string{"spec", "volumes", expression.EachElement, source})
		}
	}
	return paths
}
