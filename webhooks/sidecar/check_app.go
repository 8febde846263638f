package sidecar

import corev1 "k8s.io/api/core/v1"

// ofOthers refuses additions to the pod's own containers that no number of them
// can have, or that would make another sort of container of them.
func (c *compiler) ofOthers(at string, a *additions, container *corev1.Container) {
	for _, only := range []struct {
		field string
		set   bool
	}{{"restartPolicy", container.RestartPolicy != nil}, {"restartPolicyRules", len(container.RestartPolicyRules) > 0}} {
		if only.set {
			c.error(at+"."+only.field, "", "when a container of the pod's own is restarted is for the pod to say")
		}
	}
	for i := range container.Ports {
		if container.Ports[i].HostPort != 0 && len(a.Names) != 1 {
			c.error(indexed(at+".ports", i)+".hostPort", "name the one container in names", "one container of a pod may have a port of the node, and this may be about several")
		}
	}
}
