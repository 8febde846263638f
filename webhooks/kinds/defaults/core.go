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

// node does what the admission plug-in TaintNodesByCondition does.
func node(n *corev1.Node) {
	if !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeNotReady && t.Effect == corev1.TaintEffectNoSchedule
	}) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule})
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

func endpoints(e *corev1.Endpoints) { //nolint:staticcheck // deprecated, and served
	for _, subset := range e.Subsets {
		for i := range subset.Ports {
			set(&subset.Ports[i].Protocol, corev1.ProtocolTCP)
		}
	}
}

func limitRange(l *corev1.LimitRange) {
	for i := range l.Spec.Limits {
		limit := &l.Spec.Limits[i]
		if limit.Type == corev1.LimitTypeContainer {
			copyMissing(&limit.Default, limit.Max)
			copyMissing(&limit.DefaultRequest, limit.Default)
			copyMissing(&limit.DefaultRequest, limit.Min)
		}
		for _, list := range []corev1.ResourceList{limit.Max, limit.Min, limit.Default, limit.DefaultRequest, limit.MaxLimitRequestRatio} {
			resources(list)
		}
	}
}
