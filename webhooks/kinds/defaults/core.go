package defaults

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func namespace(n *corev1.Namespace) {
	namespaceLabel(n)
	if !slices.Contains(n.Spec.Finalizers, corev1.FinalizerKubernetes) {
		n.Spec.Finalizers = append(n.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
}

func namespaceLabel(n *corev1.Namespace) {
	if n.Name != "" {
		if n.Labels == nil {
			n.Labels = make(map[string]string, 1)
		}
		n.Labels[corev1.LabelMetadataName] = n.Name
	}
}

func secret(s *corev1.Secret) {
	set(&s.Type, corev1.SecretTypeOpaque)
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for name, text := range s.StringData {
		s.Data[name] = []byte(text)
	}
	s.StringData = nil
}

func service(s *corev1.Service) {
	spec := &s.Spec
	set(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	switch affinity := spec.SessionAffinityConfig; spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		if affinity == nil || affinity.ClientIP == nil || affinity.ClientIP.TimeoutSeconds == nil {
			seconds := corev1.DefaultClientIPServiceAffinitySeconds
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
		}
	}
	set(&spec.Type, corev1.ServiceTypeClusterIP)
	for i := range spec.Ports {
		port := &spec.Ports[i]
		set(&port.Protocol, corev1.ProtocolTCP)
		if port.TargetPort == intstr.FromString("") {
			port.TargetPort = intstr.FromInt32(0)
		}
		set(&port.TargetPort, intstr.FromInt32(port.Port))
	}
	balanced, exposed := spec.Type == corev1.ServiceTypeLoadBalancer, spec.Type == corev1.ServiceTypeNodePort
	inside := spec.Type == corev1.ServiceTypeClusterIP
	if balanced || exposed || inside && len(spec.ExternalIPs) > 0 {
		set(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if balanced || exposed || inside {
		setPointer(&spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	}
	if balanced {
		setPointer(&spec.AllocateLoadBalancerNodePorts, true)
	}
}
