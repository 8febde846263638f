package podtext

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
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
		ContainerPort: p.ContainerPort, HostPort: p.HostPort, hostIP: merge.CleanAddress(p.HostIP), protocol: p.Protocol, Container: container,
	}
}

// Ports are ports of one or several containers.
type Ports []Port

// portUse is a number that a port uses. Two ports that conflict have one in common.
type portUse struct {
	host     bool
	number   int32
	protocol corev1.Protocol
}

func (p *Port) uses() [2]portUse {
	protocol := cmp.Or(p.protocol, corev1.ProtocolTCP)
	return [2]portUse{{true, p.HostPort, protocol}, {false, p.ContainerPort, protocol}}
}

// PortIndex finds ports that conflict with another one without comparing all of them.
type PortIndex struct {
	ports Ports
	users map[portUse][]int // indexes of ports
}

// Add adds a port.
func (t *PortIndex) Add(p *Port) {
	if t.users == nil {
		t.users = make(map[portUse][]int)
	}
	for _, use := range p.uses() {
		if use.number != 0 {
			t.users[use] = append(t.users[use], len(t.ports))
		}
	}
	t.ports = append(t.ports, *p)
}

// Conflicts returns the indexes of the ports that conflict with p, in the order in which they
// were added, and the fields in which.
func (t *PortIndex) Conflicts(p *Port) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		uses := p.uses()
		near := slices.Concat(t.users[uses[0]], t.users[uses[1]])
		slices.Sort(near)
		for _, i := range slices.Compact(near) {
			if field := p.ConflictsOver(&t.ports[i]); field != "" && !yield(i, field) {
				return
			}
		}
	}
}

// Conflict returns the first port that conflicts with p, and the field in which.
func (t *PortIndex) Conflict(p *Port) (*Port, string) {
	for i, field := range t.Conflicts(p) {
		return &t.ports[i], field
	}
	return nil, ""
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
	var port Port
	if v.Kind() != rawjson.Object {
		return port, nil
	}
	if key, twice := v.DuplicateKey(); twice {
		return port, &rawjson.DuplicateKeyError{Key: key}
	}
	for name, value := range v.Members() {
		switch {
		case name.Is("containerPort"):
			port.ContainerPort = portNumber(value)
		case name.Is("hostPort"):
			port.HostPort = portNumber(value)
		case name.Is("hostIP"):
			port.hostIP = merge.CleanAddress(value.Text())
		case name.Is("protocol") && !value.Is(string(corev1.ProtocolTCP)): // the default
			port.protocol = corev1.Protocol(value.Text())
		}
	}
	return port, nil
}

func portNumber(v rawjson.Value) int32 {
	n, err := strconv.ParseInt(string(v), 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}
