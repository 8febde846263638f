package podsecurity

import (
	corev1 "k8s.io/api/core/v1"
)

// ephemeralContainer reads one as upstream's checks do, who look at all
// containers alike.
func (r *reader) ephemeralContainer(to *corev1.EphemeralContainer) {
	r.container((*corev1.Container)(&to.EphemeralContainerCommon))
}

func (r *reader) container(to *corev1.Container) {
	for o := r.object(); o.next(); {
		switch string(o.name()) {
		case `"name"`:
			to.Name = r.string()
		case `"ports"`:
			to.Ports = list(r, (*reader).port)
		case `"securityContext"`:
			to.SecurityContext = pointer(r, (*reader).securityContext)
		case `"livenessProbe"`:
			to.LivenessProbe = pointer(r, (*reader).probe)
		case `"readinessProbe"`:
			to.ReadinessProbe = pointer(r, (*reader).probe)
		case `"startupProbe"`:
			to.StartupProbe = pointer(r, (*reader).probe)
		case `"lifecycle"`:
			to.Lifecycle = pointer(r, (*reader).lifecycle)
		default:
			r.c.Skip()
		}
	}
}

func (r *reader) port(to *corev1.ContainerPort) {
	for o := r.object(); o.next(); {
		switch string(o.name()) {
		case `"hostPort"`:
			if n := r.integer(32); n != nil {
				to.HostPort = int32(*n) //nolint:gosec // integer refuses what does not fit
			}
		default:
			r.c.Skip()
		}
	}
}

func (r *reader) probe(to *corev1.Probe) {
	for o := r.object(); o.next(); {
		switch string(o.name()) {
		case `"httpGet"`:
			to.HTTPGet = pointer(r, (*reader).httpGet)
		case `"tcpSocket"`:
			to.TCPSocket = pointer(r, (*reader).tcpSocket)
		default:
			r.c.Skip()
		}
	}
}

func (r *reader) lifecycle(to *corev1.Lifecycle) {
	for o := r.object(); o.next(); {
		switch string(o.name()) {
		case `"postStart"`:
			to.PostStart = pointer(r, (*reader).lifecycleHandler)
		case `"preStop"`:
			to.PreStop = pointer(r, (*reader).lifecycleHandler)
		default:
			r.c.Skip()
		}
	}
}

func (r *reader) lifecycleHandler(to *corev1.LifecycleHandler) {
	for o := r.object(); o.next(); {
		switch string(o.name()) {
		case `"httpGet"`:
			to.HTTPGet = pointer(r, (*reader).httpGet)
		case `"tcpSocket"`:
			to.TCPSocket = pointer(r, (*reader).tcpSocket)
		default:
			r.c.Skip()
		}
	}
}

func (r *reader) httpGet(to *corev1.HTTPGetAction) {
	for o := r.object(); o.next(); {
		switch string(o.name()) {
		case `"host"`:
			to.Host = r.string()
		default:
			r.c.Skip()
		}
	}
}

func (r *reader) tcpSocket(to *corev1.TCPSocketAction) {
	for o := r.object(); o.next(); {
		switch string(o.name()) {
		case `"host"`:
			to.Host = r.string()
		default:
			r.c.Skip()
		}
	}
}
