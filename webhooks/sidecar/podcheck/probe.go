package podcheck

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
)

// probe checks a probe besides how many handlers it has.
func (c *Checker) probe(path string, p *corev1.Probe) {
	c.handler(path, p.Exec, p.HTTPGet, p.TCPSocket)
	if p.GRPC != nil {
		c.portNumber(path+".grpc.port", intstr.FromInt32(p.GRPC.Port))
	}
	for _, number := range []struct {
		field string
		value int32
	}{
		{"initialDelaySeconds", p.InitialDelaySeconds},
		{"timeoutSeconds", p.TimeoutSeconds},
		{"periodSeconds", p.PeriodSeconds},
		{"successThreshold", p.SuccessThreshold},
		{"failureThreshold", p.FailureThreshold},
	} {
		c.atLeast(path+"."+number.field, int64(number.value), 0)
	}
	if p.TerminationGracePeriodSeconds != nil {
		c.atLeast(path+".terminationGracePeriodSeconds", *p.TerminationGracePeriodSeconds, 1)
	}
}

// hook checks a hook of a container's life besides how many handlers it has.
func (c *Checker) hook(path string, h *corev1.LifecycleHandler) {
	c.handler(path, h.Exec, h.HTTPGet, h.TCPSocket)
	if h.Sleep == nil {
		return
	}
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if c.grace != nil {
		grace = *c.grace
	}
	if seconds := h.Sleep.Seconds; seconds < 0 || c.grace != nil && seconds > grace {
		c.invalid(path+".sleep.seconds", "%q is out of range: allowed is 0 to terminationGracePeriodSeconds, which is %d", strconv.FormatInt(seconds, 10), grace)
	}
}

func (c *Checker) handler(path string, exec *corev1.ExecAction, get *corev1.HTTPGetAction, socket *corev1.TCPSocketAction) {
	if exec != nil && len(exec.Command) == 0 {
		c.error(path+".exec.command", "", "a command is required")
	}
	if get != nil {
		c.portNumber(path+".httpGet.port", get.Port)
		oneOf(c, path+".httpGet.scheme", get.Scheme, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)
		for i, header := range get.HTTPHeaders {
			c.messages(fmt.Sprintf("%s.httpGet.httpHeaders[%d].name", path, i), header.Name, validation.IsHTTPHeaderName(header.Name))
		}
	}
	if socket != nil {
		c.portNumber(path+".tcpSocket.port", socket.Port)
	}
}
