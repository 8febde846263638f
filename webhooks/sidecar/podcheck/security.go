package podcheck

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// seccomp checks a seccomp profile.
func (c *Checker) seccomp(path string, p *corev1.SeccompProfile) {
	if p == nil {
		return
	}
	if c.require(path+".type", string(p.Type)) {
		oneOf(c, path+".type", p.Type, corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)
	}
	c.localhostProfile(path, p.Type == corev1.SeccompProfileTypeLocalhost, p.LocalhostProfile)
	if p.LocalhostProfile != nil && *p.LocalhostProfile != "" {
		c.relativePath(path+".localhostProfile", *p.LocalhostProfile)
	}
}

// appArmor checks an AppArmor profile.
func (c *Checker) appArmor(path string, p *corev1.AppArmorProfile) {
	if p == nil {
		return
	}
	if c.require(path+".type", string(p.Type)) {
		oneOf(c, path+".type", p.Type, corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined)
	}
	c.localhostProfile(path, p.Type == corev1.AppArmorProfileTypeLocalhost, p.LocalhostProfile)
}

// AppArmorAnnotation checks the annotation that says for a container what its
// field can say.
func (c *Checker) AppArmorAnnotation(path, value string) {
	if value != "" && value != corev1.DeprecatedAppArmorBetaProfileRuntimeDefault && value != corev1.DeprecatedAppArmorBetaProfileNameUnconfined &&
		!strings.HasPrefix(value, corev1.DeprecatedAppArmorBetaProfileNamePrefix) {
		c.error(path, "", "%q is not known: allowed are %q, %q and %q with the name of a profile", value,
			corev1.DeprecatedAppArmorBetaProfileRuntimeDefault, corev1.DeprecatedAppArmorBetaProfileNameUnconfined, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
	}
}

func (c *Checker) localhostProfile(path string, is bool, profile *string) {
	switch {
	case c.placeholder(path + ".type"):
	case is && (profile == nil || *profile == ""):
		c.invalid(path+".localhostProfile", "is required for the type Localhost")
	case !is && profile != nil:
		c.invalid(path+".localhostProfile", "is allowed for the type Localhost alone")
	}
}

// podSecurity checks the security context of the pod.
func (c *Checker) podSecurity(path string, s *corev1.PodSecurityContext) {
	if s == nil {
		return
	}
	c.user(path+".runAsUser", s.RunAsUser)
	c.user(path+".runAsGroup", s.RunAsGroup)
	c.user(path+".fsGroup", s.FSGroup)
	for i := range s.SupplementalGroups {
		c.user(Indexed(path+".supplementalGroups", i), &s.SupplementalGroups[i])
	}
	if p := s.FSGroupChangePolicy; p != nil {
		oneOf(c, path+".fsGroupChangePolicy", *p, corev1.FSGroupChangeOnRootMismatch, corev1.FSGroupChangeAlways)
	}
	c.seccomp(path+".seccompProfile", s.SeccompProfile)
	c.appArmor(path+".appArmorProfile", s.AppArmorProfile)
	for i := range s.Sysctls {
		if name := s.Sysctls[i].Name; !sysctl.MatchString(name) {
			c.invalid(Indexed(path+".sysctls", i)+".name", "%q is not the name of a sysctl", name)
		}
	}
}
