package sidecar

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// declaredPort is a port and who declares it.
type declaredPort struct {
	number, hostPort int32
	hostIP           string
	protocol         corev1.Protocol // nothing stands for TCP
	container        string          // empty for the pod's own
	path             string          // of the port, for messages
}

func newPort(p *corev1.ContainerPort, container string) declaredPort {
	return declaredPort{
		number: p.ContainerPort, hostPort: p.HostPort, hostIP: p.HostIP, protocol: p.Protocol, container: container,
	}
}

type portList []declaredPort

// portUse is a number that a port takes. Two ports that clash have one in common.
type portUse struct {
	host     bool
	number   int32
	protocol corev1.Protocol
	// of is empty but in takenPorts.
	of string
}

func (p *declaredPort) uses() []portUse {
	protocol := cmp.Or(p.protocol, corev1.ProtocolTCP)
	var out []portUse
	if p.hostPort != 0 {
		out = append(out, portUse{host: true, number: p.hostPort, protocol: protocol})
	}
	if p.number != 0 {
		out = append(out, portUse{number: p.number, protocol: protocol})
	}
	return out
}

// takenPorts are the ports of a pod, among which one that clashes with another is found
// without a look at all of them.
type takenPorts struct {
	list portList
	// first is the first port of each use. With of, it is the first of an address of the
	// node, or the first of another container than that of the first port.
	first map[portUse]int
}

const (
	everyIP        = "*"
	otherContainer = "other"
)

func (p *declaredPort) address() string {
	if everyAddress(p.hostIP) {
		return everyIP
	}
	return p.hostIP
}

func (t *takenPorts) add(p *declaredPort) {
	if t.first == nil {
		t.first = make(map[portUse]int)
	}
	note := func(use portUse) {
		if _, there := t.first[use]; !there {
			t.first[use] = len(t.list)
		}
	}
	for _, use := range p.uses() {
		i, there := t.first[use]
		note(use)
		if use.host {
			use.of = p.address()
			note(use)
		} else if there && t.list[i].container != p.container {
			use.of = otherContainer
			note(use)
		}
	}
	t.list = append(t.list, *p)
}

// clash returns the first port that p clashes with, and over which of its fields.
func (t *takenPorts) clash(p *declaredPort) (*declaredPort, string) {
	at := len(t.list)
	for _, use := range p.uses() {
		for _, of := range [...]string{"", p.address(), everyIP, otherContainer} {
			use.of = of
			if i, there := t.first[use]; there && i < at && p.clash(&t.list[i]) != "" {
				at = i
			}
		}
	}
	if at == len(t.list) {
		return nil, ""
	}
	return &t.list[at], p.clash(&t.list[at])
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

// readPorts reads the ports of a container, of any sort.
func readPorts(container rawjson.Value, name string) (portList, error) {
	var ports portList
	for _, element := range container.Get("ports").Elements() {
		port, err := readPort(element)
		if err != nil {
			return nil, err
		}
		port.container = name
		ports = append(ports, port)
	}
	return ports, nil
}

// readPort reads a port. The API server writes numbers as integers; what is none
// equals no port.
func readPort(v rawjson.Value) (declaredPort, error) {
	var (
		port declaredPort
		room [8]rawjson.Member // A port has five members.
	)
	members, err := fields(room[:0], v)
	if err != nil {
		return port, err
	}
	for i := range members {
		value := members[i].Value
		switch string(members[i].Name) {
		case `"containerPort"`:
			port.number = number(value)
		case `"hostPort"`:
			port.hostPort = number(value)
		case `"hostIP"`:
			port.hostIP = value.Text()
		case `"protocol"`:
			if !value.Is(string(corev1.ProtocolTCP)) { // the default
				port.protocol = corev1.Protocol(value.Text())
			}
		}
	}
	return port, nil
}
