package profile

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// OperatingSystems are the operating systems for which the API server refuses a pod with
// what a profile adds (k8s.io/kubernetes/pkg/apis/core/validation, validateWindows and
// validateLinux). It refuses no pod without spec.os.name.
type OperatingSystems struct{ linux, windows bool }

// Refuse reports whether the API server refuses a pod for an operating system.
func (s OperatingSystems) Refuse(os string) bool {
	switch corev1.OSName(os) {
	case corev1.Linux:
		return s.linux
	case corev1.Windows:
		return s.windows
	default:
		return false
	}
}

func (t *sample) operatingSystems() OperatingSystems {
	var s OperatingSystems
	for _, c := range slices.Concat(t.spec.InitContainers, t.spec.Containers, t.app) {
		if c.SecurityContext == nil {
			continue
		}
		sc := *c.SecurityContext
		s.linux = s.linux || sc.WindowsOptions != nil
		// All others are of Linux alone.
		sc.WindowsOptions, sc.RunAsNonRoot = nil, nil
		s.windows = s.windows || sc != (corev1.SecurityContext{})
	}
	if t.spec.OS != nil {
		s.linux = s.linux || t.spec.OS.Name != corev1.Linux
		s.windows = s.windows || t.spec.OS.Name != corev1.Windows
	}
	if sc := t.spec.SecurityContext; sc != nil {
		s.linux = s.linux || sc.WindowsOptions != nil
		s.windows = s.windows || sc.SeccompProfile != nil || sc.SELinuxOptions != nil || sc.RunAsUser != nil || sc.RunAsGroup != nil ||
			sc.FSGroup != nil || sc.FSGroupChangePolicy != nil || len(sc.Sysctls) > 0 || len(sc.SupplementalGroups) > 0
	}
	s.windows = s.windows || t.spec.HostPID || t.spec.HostIPC || t.spec.ShareProcessNamespace != nil || t.spec.HostUsers != nil
	return s
}
