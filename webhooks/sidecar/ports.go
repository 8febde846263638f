package sidecar

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// declaredPort is a port and who declares it.
type declaredPort struct {
	number, hostPort int32
	hostIP           string
	protocol         corev1.Protocol // nothing stands for TCP
	container        string          // empty for the pod's own
	path             string          // of the port, for messages
	profile          *profile
}

func newPort(p *corev1.ContainerPort, container string) declaredPort {
	return declaredPort{
		number: p.ContainerPort, hostPort: p.HostPort, hostIP: p.HostIP, protocol: p.Protocol, container: container,
	}
}

type portList []declaredPort

// clash returns the first port in the list that p clashes with, and over which
// of its fields.
func (l portList) clash(p *declaredPort) (*declaredPort, string) {
	for i := range l {
		if field := p.clash(&l[i]); field != "" {
			return &l[i], field
		}
	}
	return nil, ""
}

// clash tells over which field two ports of one pod clash, if they do.
//
// Two host ports clash as in the API server's validation, which refuses such a
// pod, and in the scheduler, to which no address is every address. Two
// container ports clash if two containers declare the same number and protocol:
// the containers of a pod share one network, so that the second to listen
// fails. The API server lets that pass, and the pod crashes later.
func (p *declaredPort) clash(other *declaredPort) string {
	if cmp.Or(p.protocol, corev1.ProtocolTCP) != cmp.Or(other.protocol, corev1.ProtocolTCP) {
		return ""
	}
	if p.hostPort != 0 && p.hostPort == other.hostPort &&
		(p.hostIP == other.hostIP || everyAddress(p.hostIP) || everyAddress(other.hostIP)) {
		return "hostPort"
	}
	if p.number != 0 && p.number == other.number && p.container != other.container {
		return "containerPort"
	}
	return ""
}

func everyAddress(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }

// text is the port as in "hostPort 80/TCP".
func (p *declaredPort) text(field string) string {
	number := p.number
	if field == "hostPort" {
		number = p.hostPort
	}
	return fmt.Sprintf("%s %d/%s", field, number, cmp.Or(p.protocol, corev1.ProtocolTCP))
}
