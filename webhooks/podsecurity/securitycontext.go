package podsecurity

import (
	corev1 "k8s.io/api/core/v1"
)

func (r *reader) podSecurityContext(to *corev1.PodSecurityContext) {
	for o := r.object(); o.next(); {
		switch string(o.name()) {
		case `"appArmorProfile"`:
			to.AppArmorProfile = pointer(r, (*reader).appArmorProfile)
		case `"runAsNonRoot"`:
			to.RunAsNonRoot = r.booleanPointer()
		case `"runAsUser"`:
			to.RunAsUser = r.integer(64)
		case `"seLinuxOptions"`:
			to.SELinuxOptions = pointer(r, (*reader).seLinuxOptions)
		case `"seccompProfile"`:
			to.SeccompProfile = pointer(r, (*reader).seccompProfile)
		case `"sysctls"`:
			to.Sysctls = list(r, (*reader).sysctl)
		case `"windowsOptions"`:
			to.WindowsOptions = pointer(r, (*reader).windowsOptions)
		default:
			r.c.Skip()
		}
	}
}

func (r *reader) securityContext(to *corev1.SecurityContext) {
	for o := r.object(); o.next(); {
		switch string(o.name()) {
		case `"allowPrivilegeEscalation"`:
			to.AllowPrivilegeEscalation = r.booleanPointer()
		case `"appArmorProfile"`:
			to.AppArmorProfile = pointer(r, (*reader).appArmorProfile)
		case `"capabilities"`:
			to.Capabilities = pointer(r, (*reader).capabilities)
		case `"privileged"`:
			to.Privileged = r.booleanPointer()
		case `"procMount"`:
			to.ProcMount = pointer(r, (*reader).procMount)
		case `"runAsNonRoot"`:
			to.RunAsNonRoot = r.booleanPointer()
		case `"runAsUser"`:
			to.RunAsUser = r.integer(64)
		case `"seLinuxOptions"`:
			to.SELinuxOptions = pointer(r, (*reader).seLinuxOptions)
		case `"seccompProfile"`:
			to.SeccompProfile = pointer(r, (*reader).seccompProfile)
		case `"windowsOptions"`:
			to.WindowsOptions = pointer(r, (*reader).windowsOptions)
		default:
			r.c.Skip()
		}
	}
}

func (r *reader) appArmorProfile(to *corev1.AppArmorProfile) {
	for o := r.object(); o.next(); {
		switch string(o.name()) {
		case `"type"`:
			to.Type = corev1.AppArmorProfileType(r.string())
		default:
			r.c.Skip()
		}
	}
}

func (r *reader) capabilities(to *corev1.Capabilities) {
	for o := r.object(); o.next(); {
		switch string(o.name()) {
		case `"add"`:
			to.Add = list(r, (*reader).capability)
		case `"drop"`:
			to.Drop = list(r, (*reader).capability)
		default:
			r.c.Skip()
		}
	}
}

func (r *reader) capability(to *corev1.Capability) { *to = corev1.Capability(r.string()) }

func (r *reader) procMount(to *corev1.ProcMountType) { *to = corev1.ProcMountType(r.string()) }

func (r *reader) seccompProfile(to *corev1.SeccompProfile) {
	for o := r.object(); o.next(); {
		switch string(o.name()) {
		case `"type"`:
			to.Type = corev1.SeccompProfileType(r.string())
		default:
			r.c.Skip()
		}
	}
}

func (r *reader) seLinuxOptions(to *corev1.SELinuxOptions) {
	for o := r.object(); o.next(); {
		switch string(o.name()) {
		case `"role"`:
			to.Role = r.string()
		case `"type"`:
			to.Type = r.string()
		case `"user"`:
			to.User = r.string()
		default:
			r.c.Skip()
		}
	}
}

func (r *reader) sysctl(to *corev1.Sysctl) {
	for o := r.object(); o.next(); {
		switch string(o.name()) {
		case `"name"`:
			to.Name = r.string()
		default:
			r.c.Skip()
		}
	}
}

func (r *reader) windowsOptions(to *corev1.WindowsSecurityContextOptions) {
	for o := r.object(); o.next(); {
		switch string(o.name()) {
		case `"hostProcess"`:
			to.HostProcess = r.booleanPointer()
		default:
			r.c.Skip()
		}
	}
}
