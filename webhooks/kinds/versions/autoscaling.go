package versions

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	celvalue "github.com/gatehouse-dev/gatehouse/webhooks/cel/value"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// Version v1 of an autoscaler has no fields for most of v2. The API server stores these
// fields in annotations of the v1 object. A conversion drops other annotations of these
// names.
const (
	metricsAnnotation     = "autoscaling.alpha.kubernetes.io/metrics"
	currentAnnotation     = "autoscaling.alpha.kubernetes.io/current-metrics"
	conditionsAnnotation  = "autoscaling.alpha.kubernetes.io/conditions"
	behaviorAnnotation    = "autoscaling.alpha.kubernetes.io/behavior"
	scaleDownAnnotation   = "autoscaling.alpha.kubernetes.io/scale-down-tolerance"
	scaleUpAnnotation     = "autoscaling.alpha.kubernetes.io/scale-up-tolerance"
	defaultCPUUtilization = int32(80)
)

// withoutOwn returns a copy of the annotations without those that hold what v1 has no
// fields for.
func withoutOwn(annotations map[string]string) map[string]string {
	out := maps.Clone(annotations)
	for _, name := range []string{metricsAnnotation, currentAnnotation, conditionsAnnotation, behaviorAnnotation, scaleDownAnnotation, scaleUpAnnotation} {
		delete(out, name)
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
		case quantity && member.Kind() == rawjson.String && celvalue.IsHugeQuantity(member.Text()),
			quantity && member.Kind() == rawjson.Number && celvalue.IsHugeQuantity(string(member)), hasHuge(member):
			return true
		}
	}
	return false
}

// metricNames returns the names of the fields of a metric in v1, as its annotations have
// them, and in v2. A metric that is wanted has a "target", and the state of one a
// "current".
func metricNames(value string) fieldNames {
	names := fieldNames{
		{"object.target", "object.describedObject"},
		{"object." + value + "Value", "object." + value + ".value"},
		{"object.averageValue", "object." + value + ".averageValue"},
		{"external." + value + "Value", "external." + value + ".value"},
		{"object.selector", "object.metric.selector"},
		{"pods.selector", "pods.metric.selector"},
		{"external.metricSelector", "external.metric.selector"},
	}
	for _, kind := range []string{"object", "pods", "external"} {
		names = append(names, [2]string{kind + ".metricName", kind + ".metric.name"})
	}
	for _, kind := range []string{"pods", "resource", "containerResource", "external"} {
		names = append(names, [2]string{kind + "." + value + "AverageValue", kind + "." + value + ".averageValue"})
	}
	for _, kind := range []string{"resource", "containerResource"} {
		names = append(names, [2]string{kind + "." + value + "AverageUtilization", kind + "." + value + ".averageUtilization"})
	}
	return names
}

// autoscalerV1 returns an autoscaler of version v2 in version v1.
func autoscalerV1(in *autoscalingv2.HorizontalPodAutoscaler) (*autoscalingv1.HorizontalPodAutoscaler, error) {
	out := new(autoscalingv1.HorizontalPodAutoscaler)
	errs := []error{convertFields(in, out, nil, false)}
	out.APIVersion = autoscalingv1.SchemeGroupVersion.String()
	var others []autoscalingv1.MetricSpec
	for i := range in.Spec.Metrics {
		if utilization := cpuUtilization(&in.Spec.Metrics[i]); utilization != nil {
			if out.Spec.TargetCPUUtilizationPercentage == nil {
				out.Spec.TargetCPUUtilizationPercentage = utilization
			}
			continue
		}
		var metric autoscalingv1.MetricSpec
		errs = append(errs, convertFields(in.Spec.Metrics[i], &metric, metricNames("target"), true))
		others = append(others, metric)
	}
	current := make([]autoscalingv1.MetricStatus, len(in.Status.CurrentMetrics))
	for i := range in.Status.CurrentMetrics {
		m := &in.Status.CurrentMetrics[i]
		if m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil && m.Resource.Name == corev1.ResourceCPU &&
			m.Resource.Current.AverageUtilization != nil {
			out.Status.CurrentCPUUtilizationPercentage = m.Resource.Current.AverageUtilization
		}
		errs = append(errs, convertFields(m, &current[i], metricNames("current"), true))
	}
	out.Annotations = withoutOwn(in.Annotations)
	store := func(name string, present bool, value any) {
		if !present {
			return
		}
		text, err := json.Marshal(value)
		errs = append(errs, err)
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[name] = string(text)
	}
	store(metricsAnnotation, len(others) > 0, others)
	store(currentAnnotation, len(current) > 0, current)
	store(behaviorAnnotation, in.Spec.Behavior != nil, storedBehavior(in.Spec.Behavior))
	store(conditionsAnnotation, len(in.Status.Conditions) > 0, in.Status.Conditions)
	return out, errors.Join(errs...)
}

// cpuUtilization returns the CPU utilization that a metric targets, which v1 has a field
// for, and nil for any other metric.
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

// autoscalerV2 returns an autoscaler of version v1 in version v2. An annotation that cannot
// be read is ignored.
func autoscalerV2(in *autoscalingv1.HorizontalPodAutoscaler) (*autoscalingv2.HorizontalPodAutoscaler, error) {
	out := new(autoscalingv2.HorizontalPodAutoscaler)
	errs := []error{convertFields(in, out, nil, false)}
	out.APIVersion, out.Annotations = autoscalingv2.SchemeGroupVersion.String(), withoutOwn(in.Annotations)
	stored := func(name string, to any) bool {
		text, has := in.Annotations[name]
		return has && json.Unmarshal([]byte(text), to) == nil
	}
	var metrics []autoscalingv1.MetricSpec
	if stored(metricsAnnotation, &metrics) {
		out.Spec.Metrics = make([]autoscalingv2.MetricSpec, len(metrics))
		for i := range metrics {
			errs = append(errs, convertFields(metrics[i], &out.Spec.Metrics[i], metricNames("target"), false))
			setTargetTypes(&out.Spec.Metrics[i])
		}
	}
	if utilization := in.Spec.TargetCPUUtilizationPercentage; utilization != nil {
		out.Spec.Metrics = append(out.Spec.Metrics, cpuMetric(*utilization))
	}
	if len(out.Spec.Metrics) == 0 {
		out.Spec.Metrics = []autoscalingv2.MetricSpec{cpuMetric(defaultCPUUtilization)}
	}
	// Names of the annotation match whatever their case.
	var behavior autoscalingv2.HorizontalPodAutoscalerBehavior
	if stored(behaviorAnnotation, &behavior) && behavior != (autoscalingv2.HorizontalPodAutoscalerBehavior{}) {
		out.Spec.Behavior = &behavior
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
	if stored(currentAnnotation, &current) {
		out.Status.CurrentMetrics = make([]autoscalingv2.MetricStatus, len(current))
		for i := range current {
			errs = append(errs, convertFields(current[i], &out.Status.CurrentMetrics[i], metricNames("current"), false))
		}
	}
	var conditions []autoscalingv2.HorizontalPodAutoscalerCondition
	if stored(conditionsAnnotation, &conditions) {
		out.Status.Conditions = conditions
	}
	return out, errors.Join(errs...)
}

// setTargetTypes sets the types of the targets of a metric, which v1 does not have.
func setTargetTypes(m *autoscalingv2.MetricSpec) {
	set := func(target *autoscalingv2.MetricTarget, otherwise autoscalingv2.MetricTargetType, isAverage bool) {
		if target.Type = otherwise; isAverage {
			target.Type = autoscalingv2.AverageValueMetricType
		}
	}
	if m.Object != nil {
		target := &m.Object.Target
		set(target, autoscalingv2.ValueMetricType, target.AverageValue != nil)
		// Version v1 cannot leave the value out.
		if target.AverageValue != nil && target.Value != nil && target.Value.IsZero() {
			target.Value = nil
		}
	}
	if m.Pods != nil {
		set(&m.Pods.Target, autoscalingv2.AverageValueMetricType, true)
	}
	if m.Resource != nil {
		set(&m.Resource.Target, autoscalingv2.UtilizationMetricType, m.Resource.Target.AverageUtilization == nil)
	}
	if m.ContainerResource != nil {
		set(&m.ContainerResource.Target, autoscalingv2.UtilizationMetricType, m.ContainerResource.Target.AverageUtilization == nil)
	}
	if m.External != nil {
		set(&m.External.Target, autoscalingv2.ValueMetricType, m.External.Target.Value == nil)
	}
}

// behaviorAnnotationValue is a behavior as the annotation has it: with the names that the
// fields have in the API server's own code.
type behaviorAnnotationValue struct{ ScaleUp, ScaleDown *rulesAnnotationValue }

type rulesAnnotationValue struct {
	StabilizationWindowSeconds *int32
	SelectPolicy               *autoscalingv2.ScalingPolicySelect
	Policies                   []policyAnnotationValue
	Tolerance                  *resource.Quantity
}

type policyAnnotationValue struct {
	Type          autoscalingv2.HPAScalingPolicyType
	Value         int32
	PeriodSeconds int32
}

// storedBehavior returns a behavior as the annotation has it.
func storedBehavior(in *autoscalingv2.HorizontalPodAutoscalerBehavior) *behaviorAnnotationValue {
	if in == nil {
		return nil
	}
	rules := func(in *autoscalingv2.HPAScalingRules) *rulesAnnotationValue {
		if in == nil {
			return nil
		}
		out := &rulesAnnotationValue{StabilizationWindowSeconds: in.StabilizationWindowSeconds, SelectPolicy: in.SelectPolicy, Tolerance: in.Tolerance}
		if in.Policies != nil {
			out.Policies = []policyAnnotationValue{}
		}
		for _, p := range in.Policies {
			out.Policies = append(out.Policies, policyAnnotationValue(p))
		}
		return out
	}
	return &behaviorAnnotationValue{ScaleUp: rules(in.ScaleUp), ScaleDown: rules(in.ScaleDown)}
}
