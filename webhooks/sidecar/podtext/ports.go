package podtext

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// Port is a port and the container that declares it.
type Port struct {
	ContainerPort, HostPort int32
	hostIP                  string
	protocol                corev1.Protocol // nothing stands for TCP
	Container               string          // empty for the pod's own
	Path                    string          // of the port, for messages
}

// NewPort returns a port of a container.
func NewPort(p *corev1.ContainerPort, container string) Port {
	return Port{
		ContainerPort: p.ContainerPort, HostPort: p.HostPort, hostIP: p.HostIP, protocol: p.Protocol, Container: container,
	}
}

// Ports are ports of one or several containers.
type Ports []Port

// PortUse is a number that a port uses. Two ports that conflict have one in common.
type PortUse struct {
	host     bool
	number   int32
	protocol corev1.Protocol
	// of is empty outside of a PortIndex.
	of string
}

// Uses returns what the port uses.
func (p *Port) Uses() []PortUse {
	protocol := cmp.Or(p.protocol, corev1.ProtocolTCP)
	var out []PortUse
	if p.HostPort != 0 {
		out = append(out, PortUse{host: true, number: p.HostPort, protocol: protocol})
	}
	if p.ContainerPort != 0 {
		out = append(out, PortUse{number: p.ContainerPort, protocol: protocol})
	}
	return out
}

// PortIndex finds the port of a pod that conflicts with another one without comparing all
// of them.
type PortIndex struct {
	ports Ports
	// first is the first port of each use. With of, it is the first of an address of the
	// node, or the first of another container than that of the first port.
	first map[PortUse]int
}

const (
	everyIP        = "*"
	otherContainer = "other"
)

func (p *Port) address() string {
	if isEveryAddress(p.hostIP) {
		return everyIP
	}
	return p.hostIP
}

// Add adds a port.
func (t *PortIndex) Add(p *Port) {
	if t.first == nil {
		t.first = make(map[PortUse]int)
	}
	note := func(use PortUse) {
		if _, there := t.first[use]; !there {
			t.first[use] = len(t.ports)
		}
	}
	for _, use := range p.Uses() {
		i, there := t.first[use]
		note(use)
		if use.host {
			use.of = p.address()
			note(use)
		} else if there && t.ports[i].Container != p.Container {
			use.of = otherContainer
			note(use)
		}
	}
	t.ports = append(t.ports, *p)
}

// Conflict returns the first port that conflicts with p, and the field in which.
func (t *PortIndex) Conflict(p *Port) (*Port, string) {
	at := len(t.ports)
	for _, use := range p.Uses() {
		for _, of := range [...]string{"", p.address(), everyIP, otherContainer} {
			use.of = of
			if i, there := t.first[use]; there && i < at && p.ConflictsOver(&t.ports[i]) != "" {
				at = i
			}
		}
	}
	if at == len(t.ports) {
		return nil, ""
	}
	return &t.ports[at], p.ConflictsOver(&t.ports[at])
}

// ConflictsOver returns the field in which two ports of one pod conflict, or nothing.
//
// Host ports conflict as in the API server's validation and in the scheduler, where no
// address means every address. Container ports conflict if two containers declare the
// same number and protocol: the containers of a pod share one network, so that the second
// one to listen fails. The API server allows that, and the pod crashes later.
func (p *Port) ConflictsOver(other *Port) string {
	if cmp.Or(p.protocol, corev1.ProtocolTCP) != cmp.Or(other.protocol, corev1.ProtocolTCP) {
		return ""
	}
	if p.HostPort != 0 && p.HostPort == other.HostPort &&
		(p.hostIP == other.hostIP || isEveryAddress(p.hostIP) || isEveryAddress(other.hostIP)) {
		return "hostPort"
	}
	if p.ContainerPort != 0 && p.ContainerPort == other.ContainerPort && p.Container != other.Container {
		return "containerPort"
	}
	return ""
}

func isEveryAddress(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }

// Describe returns the port as in "hostPort 80/TCP".
func (p *Port) Describe(field string) string {
	number := p.ContainerPort
	if field == "hostPort" {
		number = p.HostPort
	}
	return fmt.Sprintf("%s %d/%s", field, number, cmp.Or(p.protocol, corev1.ProtocolTCP))
}

// ReadPorts reads the ports of a container, of any sort.
func ReadPorts(container rawjson.Value, name string) (Ports, error) {
	var ports Ports
	for _, element := range container.Get("ports").Elements() {
		port, err := ReadPort(element)
		if err != nil {
			return nil, err
		}
		port.Container = name
		ports = append(ports, port)
	}
	return ports, nil
}

// ReadPort reads a port. The API server writes numbers as integers; what is none
// equals no port.
func ReadPort(v rawjson.Value) (Port, error) {
	var (
		port Port
		room [8]rawjson.Member // A port has five members.
	)
	members, err := uniqueMembers(room[:0], v)
	if err != nil {
		return port, err
	}
	for i := range members {
		value := members[i].Value
		switch string(members[i].Name) {
		case `"containerPort"`:
			port.ContainerPort = portNumber(value)
		case `"hostPort"`:
			port.HostPort = portNumber(value)
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
