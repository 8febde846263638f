package defaults

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
)

// utilization is the share of requested CPU that is aimed at, in percent.
const utilization = 80

// metricsAnnotation has the metrics of version 1 but for the one that has a
// field.
const metricsAnnotation = "autoscaling.alpha.kubernetes.io/metrics"

func autoscalerV1(h *autoscalingv1.HorizontalPodAutoscaler) {
	setPointer(&h.Spec.MinReplicas, 1)
	if h.Annotations[metricsAnnotation] == "" {
		setPointer(&h.Spec.TargetCPUUtilizationPercentage, utilization)
	}
}

func autoscaler(h *autoscalingv2.HorizontalPodAutoscaler) {
	setPointer(&h.Spec.MinReplicas, 1)
	if len(h.Spec.Metrics) == 0 {
		aim := int32(utilization)
		h.Spec.Metrics = []autoscalingv2.MetricSpec{{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricSource{
				Name:   corev1.ResourceCPU,
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &aim},
			},
		}}
	}
	if behavior := h.Spec.Behavior; behavior != nil {
		const seconds = 15
		double := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: seconds}
		four := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: seconds}
		setPointer(&behavior.ScaleUp, autoscalingv2.HPAScalingRules{})
		setPointer(&behavior.ScaleUp.StabilizationWindowSeconds, 0)
		scalingRules(behavior.ScaleUp, four, double)
		setPointer(&behavior.ScaleDown, autoscalingv2.HPAScalingRules{})
		scalingRules(behavior.ScaleDown, double)
	}
}

func scalingRules(r *autoscalingv2.HPAScalingRules, policies ...autoscalingv2.HPAScalingPolicy) {
	setPointer(&r.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if r.Policies == nil {
		r.Policies = policies
	}
}
