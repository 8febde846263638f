package profile

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Constraints are what a profile requires of fields of the pod. The API server refuses a
// pod that does not meet them (k8s.io/kubernetes/pkg/apis/core/validation). Pods that
// cannot break them are not checked.
type Constraints struct {
	// Sleep is the longest sleep of a hook, in seconds, which the pod's grace
	// period must not be shorter than.
	Sleep int64
	// Resources are the names of the resources that the profile sets. The sum of all
	// containers must not exceed what the pod has as a whole.
	Resources []string
	// Fields is true if the profile sets any of these fields of the pod itself.
	Fields bool
	// ProcMount is true if a container gets procMount: Unmasked, which requires a user namespace.
	ProcMount bool
	// Containers are names of containers that the pod must have, because annotations are about them.
	Containers []string
}

func (t *sample) constraints() Constraints {
	var d Constraints
	names := make(map[string]bool)
	note := func(all corev1.ResourceRequirements) {
		for _, list := range [...]corev1.ResourceList{all.Requests, all.Limits} {
			for name := range list {
				names[string(name)] = true
			}
		}
	}
	for _, c := range slices.Concat(t.spec.InitContainers, t.spec.Containers, t.app) {
		if l := c.Lifecycle; l != nil {
			for _, h := range [...]*corev1.LifecycleHandler{l.PostStart, l.PreStop} {
				if h != nil && h.Sleep != nil {
					d.Sleep = max(d.Sleep, h.Sleep.Seconds)
				}
			}
		}
		note(c.Resources)
		if s := c.SecurityContext; s != nil && s.ProcMount != nil && *s.ProcMount == corev1.UnmaskedProcMount {
			d.ProcMount = true
		}
	}
	if t.spec.Resources != nil {
		note(*t.spec.Resources)
	}
	d.Resources = slices.Sorted(maps.Keys(names))
	d.Fields = t.spec.Resources != nil || t.spec.TerminationGracePeriodSeconds != nil
	d.Containers = t.annotated
	return d
}

// excludedSystems returns the operating systems for which the API server refuses a pod with
// what a profile adds (k8s.io/kubernetes/pkg/apis/core/validation, validateWindows and
// validateLinux). It refuses no pod without spec.os.name.
func (t *sample) excludedSystems() sets.Set[string] {
	var linux, windows bool
	for _, c := range slices.Concat(t.spec.InitContainers, t.spec.Containers, t.app) {
		if c.SecurityContext == nil {
			continue
		}
		sc := *c.SecurityContext
		linux = linux || sc.WindowsOptions != nil
		// All others are of Linux alone.
		sc.WindowsOptions, sc.RunAsNonRoot = nil, nil
		windows = windows || sc != (corev1.SecurityContext{})
	}
	if t.spec.OS != nil {
		linux = linux || t.spec.OS.Name != corev1.Linux
		windows = windows || t.spec.OS.Name != corev1.Windows
	}
	if sc := t.spec.SecurityContext; sc != nil {
		linux = linux || sc.WindowsOptions != nil
		windows = windows || sc.SeccompProfile != nil || sc.SELinuxOptions != nil || sc.RunAsUser != nil || sc.RunAsGroup != nil ||
			sc.FSGroup != nil || sc.FSGroupChangePolicy != nil || len(sc.Sysctls) > 0 || len(sc.SupplementalGroups) > 0
	}
	windows = windows || t.spec.HostPID || t.spec.HostIPC || t.spec.ShareProcessNamespace != nil || t.spec.HostUsers != nil
	excluded := sets.New[string]()
	for name, is := range map[corev1.OSName]bool{corev1.Linux: linux, corev1.Windows: windows} {
		if is {
			excluded.Insert(string(name))
		}
	}
	return excluded
}
