package podcheck

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
)

func (c *Checker) port(at, container string, p *corev1.ContainerPort, taken *podtext.PortIndex) {
	if p.ContainerPort < 1 || p.ContainerPort > 65535 {
		c.error(at+".containerPort", "", "%q is out of range: allowed is 1 to 65535", strconv.Itoa(int(p.ContainerPort)))
	}
	if p.HostPort < 0 || p.HostPort > 65535 {
		c.error(at+".hostPort", "", "%q is out of range: allowed is 1 to 65535, or nothing", strconv.Itoa(int(p.HostPort)))
	}
	switch p.Protocol {
	case "", corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
	default:
		c.error(at+".protocol", "", "%q is not known: allowed are %q, %q and %q", p.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
	}
	port := podtext.NewPort(p, container)
	port.Path = at
	if other, field := taken.Conflict(&port); other != nil {
		c.error(at+"."+field, "", "%s is declared at %s too", port.Describe(field), other.Path)
	}
	taken.Add(&port)
}

// DeclaredPorts returns the ports of a container.
func DeclaredPorts(c *corev1.Container) podtext.Ports {
	var ports podtext.Ports
	for i := range c.Ports {
		ports = append(ports, podtext.NewPort(&c.Ports[i], c.Name))
	}
	return ports
}

// portNames checks the names of a container's ports.
func (c *Checker) portNames(at string, container *corev1.Container) {
	seen := make(map[string]bool)
	for i := range container.Ports {
		name, path := container.Ports[i].Name, Indexed(at+".ports", i)+".name"
		if name == "" {
			continue
		}
		c.messages(path, name, validation.IsValidPortName(name))
		if seen[name] {
			c.error(path, "", "%q is the name of another port of the container", name)
		}
		seen[name] = true
	}
}
