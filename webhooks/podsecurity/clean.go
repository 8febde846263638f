package podsecurity

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podsecurityapi "k8s.io/pod-security-admission/api"
)

// Levels is a set of levels. The zero value has none but privileged. It is
// immutable and may be used concurrently.
type Levels struct {
	// baseline and restricted are true for each minor version in the set. The last
	// element holds for all newer versions and for "latest".
	baseline, restricted []bool
}

// Has reports whether a level is in the set.
func (l Levels) Has(level Level) bool {
	if !level.Enforces() {
		return true
	}
	versions := l.restricted
	if level.standard.Level == podsecurityapi.LevelBaseline {
		versions = l.baseline
	}
	if len(versions) == 0 {
		return false
	}
	version := len(versions) - 1
	if !level.standard.Latest() {
		version = min(version, level.standard.Minor())
	}
	return versions[version]
}

// firstSeparable is the minor version with which CleanAlone begins to make
// claims. In older ones seccompProfile_baseline is about annotations that name a
// container: one that a pod carries for a container that it does not have is
// allowed until a container of that name is added.
const firstSeparable = 19

// CleanAlone returns the set of levels at which an addition cannot add a violation to
// any pod, whatever the pod is: where the set has a level, a pod that the level
// admits is admitted with the addition too, and the pod need not be checked.
// Where it does not, Violations of the whole pod decide.
//
// The addition is a template with the containers, volumes and other fields that
// are added to a pod, annotations, and parts of containers, which are merged into
// containers that the pod has. However it is merged, afterwards each field that
// is neither list nor object must be what it was in the pod or what it is in the
// addition, each list entry must have fields of one origin or of two with the
// same key, and nothing of the pod may be gone but what is replaced. Annotations,
// volumes, containers, parts and fields of the pod may be left out, fields of the
// template's containers not. The claim is about what was evaluated: a template
// with placeholders is not what a pod gets.
//
// The claim holds because of what upstream's checks read. From v1.19 on, each is of one
// of these kinds:
//
//   - A container is refused for what it says: appArmorProfile,
//     capabilities_baseline, the added capabilities of capabilities_restricted,
//     hostPorts, hostProbesAndHostLifecycle, privileged, procMount,
//     procMount_restricted, runAsUser, seLinuxOptions, seccompProfile_baseline,
//     windowsHostProcess. So is the pod by some of them. None asks what else is
//     in the pod. What the addition says is without violation by itself.
//   - A container is refused for what it does not say: allowPrivilegeEscalation,
//     the dropped capabilities of capabilities_restricted, and, unless the pod
//     says it for all, runAsNonRoot and seccompProfile_restricted. The template's
//     containers are evaluated without the pod-level securityContext, so they say
//     it themselves. The pod's own containers lose nothing. Parts are evaluated
//     as parts of a container that says all that is asked for.
//   - A volume is refused for its source: hostPathVolumes, restrictedVolumes.
//   - An annotation is refused for its value: appArmorProfile.
//   - The pod is refused for its own fields: hostNamespaces, sysctls. The
//     template's are evaluated as a pod's.
//
// Two things relax checks for the whole pod. os.name: windows relaxes
// allowPrivilegeEscalation, capabilities_restricted and seccompProfile_restricted
// from v1.25 on; hostUsers: false relaxes procMount, runAsNonRoot and runAsUser
// from v1.35 on. An addition is evaluated without either, and so is at least as
// good in a pod that has them; but one that sets them could take them away, so
// its set is empty.
//
// Two things happen to a pod after admission plug-ins have changed it and before
// it is checked. With hostNetwork, container ports become host ports: such a pod
// was refused by hostNamespaces before. And AppArmor's annotations and fields are
// derived from each other: each is a value that was checked where it came from.
//
// A volume without a source is not taken for the emptyDir that the API server
// makes of it, because it may have a source that is not known here.
func (e *Evaluator) CleanAlone(template *corev1.PodSpec, annotations map[string]string, parts ...corev1.Container) Levels {
	if template.HostUsers != nil || template.OS != nil {
		return Levels{}
	}
	metadata := &metav1.ObjectMeta{Annotations: annotations}
	bare := *template
	bare.SecurityContext = nil
	bare.Containers = slices.Clone(template.Containers)
	for i := range parts {
		bare.Containers = append(bare.Containers, completed(&parts[i]))
	}
	clean := func(name podsecurityapi.Level) []bool {
		out := make([]bool, e.newest.Minor()+1)
		for minor := firstSeparable; minor < len(out); minor++ {
			level := Level{podsecurityapi.LevelVersion{Level: name, Version: podsecurityapi.MajorMinorVersion(1, minor)}}
			out[minor] = len(e.Violations(level, metadata, &bare)) == 0 &&
				(template.SecurityContext == nil || len(e.Violations(level, metadata, template)) == 0)
		}
		return out
	}
	return Levels{baseline: clean(podsecurityapi.LevelBaseline), restricted: clean(podsecurityapi.LevelRestricted)}
}

// completed returns a container with that part which says all that the restricted
// standard asks for.
func completed(part *corev1.Container) corev1.Container {
	out := *part
	security := new(corev1.SecurityContext)
	if part.SecurityContext != nil {
		*security = *part.SecurityContext
	}
	security.AllowPrivilegeEscalation = cmp.Or(security.AllowPrivilegeEscalation, new(bool))
	security.RunAsNonRoot = cmp.Or(security.RunAsNonRoot, new(true))
	security.SeccompProfile = cmp.Or(security.SeccompProfile, &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault})
	capabilities := new(corev1.Capabilities)
	if security.Capabilities != nil {
		*capabilities = *security.Capabilities
	}
	if len(capabilities.Drop) == 0 {
		capabilities.Drop = []corev1.Capability{"ALL"}
	}
	security.Capabilities = capabilities
	out.SecurityContext = security
	return out
}
