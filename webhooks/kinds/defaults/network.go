package defaults

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

func ingressClass(c *networkingv1.IngressClass) {
	if c.Spec.Parameters != nil {
		setPointer(&c.Spec.Parameters.Scope, networkingv1.IngressClassParametersReferenceScopeCluster)
	}
}

func networkPolicy(p *networkingv1.NetworkPolicy) {
	if len(p.Spec.PolicyTypes) == 0 {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(p.Spec.Egress) > 0 {
			p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
	for _, rule := range p.Spec.Ingress {
		networkPolicyPorts(rule.Ports)
	}
	for _, rule := range p.Spec.Egress {
		networkPolicyPorts(rule.Ports)
	}
}

func networkPolicyPorts(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		setPointer(&ports[i].Protocol, corev1.ProtocolTCP)
	}
}

func endpointSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		setPointer(&s.Ports[i].Name, "")
		setPointer(&s.Ports[i].Protocol, corev1.ProtocolTCP)
	}
}
