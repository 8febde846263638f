package equivalent

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// Version v1 of an autoscaler has no field for most of what v2 says: the API server
// keeps that in annotations of the v1 object, and nobody else's annotations of
// these names pass a conversion.
const (
	metricsAnnotation       = "autoscaling.alpha.kubernetes.io/metrics"
	currentAnnotation       = "autoscaling.alpha.kubernetes.io/current-metrics"
	conditionsAnnotation    = "autoscaling.alpha.kubernetes.io/conditions"
	behaviorAnnotation      = "autoscaling.alpha.kubernetes.io/behavior"
	scaleDownAnnotation     = "autoscaling.alpha.kubernetes.io/scale-down-tolerance"
	scaleUpAnnotation       = "autoscaling.alpha.kubernetes.io/scale-up-tolerance"
	defaultCPUUtilization   = int32(80)
	horizontalPodAutoscaler = "HorizontalPodAutoscaler"
)

// ownAnnotations returns the names of the annotations that hold what v1 has no fields for.
func ownAnnotations() []string {
	return []string{metricsAnnotation, currentAnnotation, conditionsAnnotation, behaviorAnnotation, scaleDownAnnotation, scaleUpAnnotation}
}

// withoutOwn returns the annotations without those.
func withoutOwn(annotations map[string]string) map[string]string {
	out := annotations
	for _, name := range ownAnnotations() {
		if _, has := annotations[name]; has {
			if len(out) == len(annotations) {
				out = maps.Clone(annotations)
			}
			delete(out, name)
		}
	}
	return out
}

var errHugeQuantity = errors.New("a quantity has too many digits to be converted")

// checkQuantities returns an error if a quantity of the object, or of the
// annotations that are read, takes minutes to read. API servers send none.
func checkQuantities(text rawjson.Value) error {
	if hasHuge(text.Get("spec")) || hasHuge(text.Get("status")) {
		return errHugeQuantity
	}
	annotations := text.Get("metadata", "annotations")
	for _, name := range [...]string{metricsAnnotation, currentAnnotation, behaviorAnnotation} {
		inner, err := rawjson.Parse([]byte(annotations.Get(name).Text()))
		if err == nil && hasHuge(inner) {
			return errHugeQuantity
		}
	}
	return nil
}

// hasHuge reports whether a member that is a quantity is a huge one. What is not a
// quantity, such as a name, may have any digits.
func hasHuge(value rawjson.Value) bool {
	if value.Kind() == rawjson.Array {
		for _, element := range value.Elements() {
			if hasHuge(element) {
				return true
			}
		}
	}
	if value.Kind() != rawjson.Object {
		return false
	}
	for key, member := range value.Members() {
		name := strings.ToLower(key.Text())
		switch quantity := strings.HasSuffix(name, "value") || name == "tolerance"; {
		case strings.HasSuffix(name, "selector"):
		case quantity && member.Kind() == rawjson.String && expression.IsHugeQuantity(member.Text()),
			quantity && member.Kind() == rawjson.Number && expression.IsHugeQuantity(string(member)), hasHuge(member):
			return true
		}
	}
	return false
}

// autoscalerV1 returns an autoscaler of version v2 in version v1.
func autoscalerV1(in *autoscalingv2.HorizontalPodAutoscaler) (*autoscalingv1.HorizontalPodAutoscaler, error) {
	out := &autoscalingv1.HorizontalPodAutoscaler{
		TypeMeta:   metav1.TypeMeta{APIVersion: autoscalingv1.SchemeGroupVersion.String(), Kind: horizontalPodAutoscaler},
		ObjectMeta: in.ObjectMeta,
		Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(in.Spec.ScaleTargetRef),
			MinReplicas:    in.Spec.MinReplicas,
			MaxReplicas:    in.Spec.MaxReplicas,
		},
		Status: autoscalingv1.HorizontalPodAutoscalerStatus{
			ObservedGeneration: in.Status.ObservedGeneration,
			LastScaleTime:      in.Status.LastScaleTime,
			CurrentReplicas:    in.Status.CurrentReplicas,
			DesiredReplicas:    in.Status.DesiredReplicas,
		},
	}
	var others []autoscalingv1.MetricSpec
	for i := range in.Spec.Metrics {
		if utilization := cpuUtilization(&in.Spec.Metrics[i]); utilization != nil {
			if out.Spec.TargetCPUUtilizationPercentage == nil {
				out.Spec.TargetCPUUtilizationPercentage = utilization
			}
			continue
		}
		others = append(others, metricV1(&in.Spec.Metrics[i]))
	}
	var current []autoscalingv1.MetricStatus
	for i := range in.Status.CurrentMetrics {
		m := &in.Status.CurrentMetrics[i]
		if m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil && m.Resource.Name == corev1.ResourceCPU &&
			m.Resource.Current.AverageUtilization != nil {
			out.Status.CurrentCPUUtilizationPercentage = m.Resource.Current.AverageUtilization
		}
		current = append(current, currentV1(m))
	}
	var conditions []autoscalingv1.HorizontalPodAutoscalerCondition
	for _, c := range in.Status.Conditions {
		conditions = append(conditions, autoscalingv1.HorizontalPodAutoscalerCondition{
			Type: autoscalingv1.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status, LastTransitionTime: c.LastTransitionTime,
			Reason: c.Reason, Message: c.Message, ObservedGeneration: c.ObservedGeneration,
		})
	}
	annotations := maps.Clone(withoutOwn(in.Annotations))
	keep := func(name string, there bool, value any) error {
		if !there {
			return nil
		}
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[name] = string(text)
		return nil
	}
	err := errors.Join(
		keep(metricsAnnotation, len(others) > 0, others),
		keep(currentAnnotation, len(current) > 0, current),
		keep(behaviorAnnotation, in.Spec.Behavior != nil, storedBehavior(in.Spec.Behavior)),
		keep(conditionsAnnotation, len(conditions) > 0, conditions),
	)
	out.Annotations = annotations
	return out, err
}

// cpuUtilization returns the utilization that a metric wants of processors, which v1 has
// a field for, and nil if it is another metric.
func cpuUtilization(m *autoscalingv2.MetricSpec) *int32 {
	if m.Type != autoscalingv2.ResourceMetricSourceType || m.Resource == nil || m.Resource.Name != corev1.ResourceCPU {
		return nil
	}
	return m.Resource.Target.AverageUtilization
}

// cpuMetric returns the reverse of cpuUtilization.
func cpuMetric(utilization int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{
			Name:   corev1.ResourceCPU,
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &utilization},
		},
	}
}

// autoscalerV2 returns an autoscaler of version v1 in version v2.
func autoscalerV2(in *autoscalingv1.HorizontalPodAutoscaler) (*autoscalingv2.HorizontalPodAutoscaler, error) {
	out := &autoscalingv2.HorizontalPodAutoscaler{
		TypeMeta:   metav1.TypeMeta{APIVersion: autoscalingv2.SchemeGroupVersion.String(), Kind: horizontalPodAutoscaler},
		ObjectMeta: in.ObjectMeta,
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(in.Spec.ScaleTargetRef),
			MinReplicas:    in.Spec.MinReplicas,
			MaxReplicas:    in.Spec.MaxReplicas,
		},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{
			ObservedGeneration: in.Status.ObservedGeneration,
			LastScaleTime:      in.Status.LastScaleTime,
			CurrentReplicas:    in.Status.CurrentReplicas,
			DesiredReplicas:    in.Status.DesiredReplicas,
		},
	}
	// An annotation that cannot be read says nothing.
	var metrics []autoscalingv1.MetricSpec
	if text, has := in.Annotations[metricsAnnotation]; has && json.Unmarshal([]byte(text), &metrics) == nil {
		out.Spec.Metrics = make([]autoscalingv2.MetricSpec, 0, len(metrics)+1)
		for i := range metrics {
			out.Spec.Metrics = append(out.Spec.Metrics, metricV2(&metrics[i]))
		}
	}
	if utilization := in.Spec.TargetCPUUtilizationPercentage; utilization != nil {
		out.Spec.Metrics = append(out.Spec.Metrics, cpuMetric(*utilization))
	}
	if len(out.Spec.Metrics) == 0 {
		out.Spec.Metrics = []autoscalingv2.MetricSpec{cpuMetric(defaultCPUUtilization)}
	}
	var behavior keptBehavior
	if text, has := in.Annotations[behaviorAnnotation]; has && json.Unmarshal([]byte(text), &behavior) == nil && behavior != (keptBehavior{}) {
		out.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: behavior.ScaleUp.rules(), ScaleDown: behavior.ScaleDown.rules()}
	}
	if utilization := in.Status.CurrentCPUUtilizationPercentage; utilization != nil {
		out.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricStatus{
				Name: corev1.ResourceCPU, Current: autoscalingv2.MetricValueStatus{AverageUtilization: utilization},
			},
		}}
	}
	var current []autoscalingv1.MetricStatus
	if text, has := in.Annotations[currentAnnotation]; has && json.Unmarshal([]byte(text), &current) == nil {
		out.Status.CurrentMetrics = make([]autoscalingv2.MetricStatus, len(current))
		for i := range current {
			out.Status.CurrentMetrics[i] = currentV2(&current[i])
		}
	}
	var conditions []autoscalingv1.HorizontalPodAutoscalerCondition
	if text, has := in.Annotations[conditionsAnnotation]; has && json.Unmarshal([]byte(text), &conditions) == nil {
		out.Status.Conditions = make([]autoscalingv2.HorizontalPodAutoscalerCondition, len(conditions))
		for i, c := range conditions {
			out.Status.Conditions[i] = autoscalingv2.HorizontalPodAutoscalerCondition{
				Type: autoscalingv2.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status, LastTransitionTime: c.LastTransitionTime,
				Reason: c.Reason, Message: c.Message, ObservedGeneration: c.ObservedGeneration,
			}
		}
	}
	out.Annotations = withoutOwn(in.Annotations)
	return out, nil
}

// keptBehavior is a behavior as the annotation has it: with the names that the
// fields have in the API server's own code.
type keptBehavior struct{ ScaleUp, ScaleDown *keptRules }

type keptRules struct {
	StabilizationWindowSeconds *int32
	SelectPolicy               *autoscalingv2.ScalingPolicySelect
	Policies                   []keptPolicy
	Tolerance                  *resource.Quantity
}

type keptPolicy struct {
	Type          autoscalingv2.HPAScalingPolicyType
	Value         int32
	PeriodSeconds int32
}

// storedBehavior returns a behavior as the annotation has it.
func storedBehavior(in *autoscalingv2.HorizontalPodAutoscalerBehavior) *keptBehavior {
	if in == nil {
		return nil
	}
	return &keptBehavior{ScaleUp: storedRules(in.ScaleUp), ScaleDown: storedRules(in.ScaleDown)}
}

func storedRules(in *autoscalingv2.HPAScalingRules) *keptRules {
	if in == nil {
		return nil
	}
	out := &keptRules{StabilizationWindowSeconds: in.StabilizationWindowSeconds, SelectPolicy: in.SelectPolicy, Tolerance: in.Tolerance}
	if in.Policies != nil {
		out.Policies = make([]keptPolicy, len(in.Policies))
		for i, p := range in.Policies {
			out.Policies[i] = keptPolicy{Type: p.Type, Value: p.Value, PeriodSeconds: p.PeriodSeconds}
		}
	}
	return out
}

func (in *keptRules) rules() *autoscalingv2.HPAScalingRules {
	if in == nil {
		return nil
	}
	out := &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: in.StabilizationWindowSeconds, SelectPolicy: in.SelectPolicy, Tolerance: in.Tolerance}
	if in.Policies != nil {
		out.Policies = make([]autoscalingv2.HPAScalingPolicy, len(in.Policies))
		for i, p := range in.Policies {
			out.Policies[i] = autoscalingv2.HPAScalingPolicy{Type: p.Type, Value: p.Value, PeriodSeconds: p.PeriodSeconds}
		}
	}
	return out
}
