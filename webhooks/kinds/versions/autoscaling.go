package versions

import (
	"errors"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// storedPrefix begins the names of the annotations in which the API server stores what version v1 of an autoscaler has no fields for.
const storedPrefix = "autoscaling.alpha.kubernetes.io/"

// errOnlyInV2 is returned rather than lose what the other version has: a policy would not see it, and one that changes objects would remove it.
var errOnlyInV2 = errors.New("the autoscaler has other metrics than the utilization of the CPU, or a behavior, for which version v1 has no fields")

// autoscalerV1 makes an autoscaler of version v1 of one of v2.
func autoscalerV1(tree map[string]any) error {
	spec, _ := tree["spec"].(map[string]any)
	metrics, _ := spec["metrics"].([]any)
	target, isCPU := cpuUtilization(metrics, "target")
	if len(metrics) > 0 && !isCPU || spec["behavior"] != nil {
		return errOnlyInV2
	}
	if isCPU {
		spec["targetCPUUtilizationPercentage"] = target
	}
	delete(spec, "metrics")
	maps.DeleteFunc(annotationsOf(tree), func(name string, _ any) bool { return strings.HasPrefix(name, storedPrefix) })
	if status, _ := tree["status"].(map[string]any); status != nil {
		current, _ := status["currentMetrics"].([]any)
		if utilization, ok := cpuUtilization(current, "current"); ok {
			status["currentCPUUtilizationPercentage"] = utilization
		}
		delete(status, "currentMetrics")
		delete(status, "conditions")
	}
	return nil
}

func annotationsOf(tree map[string]any) map[string]any {
	metadata, _ := tree["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	return annotations
}

// cpuUtilization returns the value of the only metric, if it is a utilization of the CPU.
func cpuUtilization(metrics []any, value string) (any, bool) {
	if len(metrics) != 1 {
		return nil, false
	}
	metric, _ := metrics[0].(map[string]any)
	resource, _ := metric["resource"].(map[string]any)
	utilization, ok, _ := unstructured.NestedInt64(resource, value, "averageUtilization")
	return utilization, ok && metric["type"] == "Resource" && resource["name"] == "cpu"
}

// autoscalerV2 makes an autoscaler of version v2 of one of v1.
func autoscalerV2(tree map[string]any) error {
	annotations := annotationsOf(tree)
	for name := range annotations {
		switch stored, ok := strings.CutPrefix(name, storedPrefix); {
		case !ok:
		case stored == "conditions", stored == "current-metrics": // of the status
			delete(annotations, name)
		default:
			return errOnlyInV2
		}
	}
	spec, _ := tree["spec"].(map[string]any)
	if spec == nil {
		return errors.New("the autoscaler has no spec")
	}
	utilization := spec["targetCPUUtilizationPercentage"]
	if utilization == nil {
		utilization = int64(80) // the default
	}
	metric := func(value string, of map[string]any) []any {
		return []any{map[string]any{"type": "Resource", "resource": map[string]any{"name": "cpu", value: of}}}
	}
	spec["metrics"] = metric("target", map[string]any{"type": "Utilization", "averageUtilization": utilization})
	delete(spec, "targetCPUUtilizationPercentage")
	if status, _ := tree["status"].(map[string]any); status != nil {
		if utilization := status["currentCPUUtilizationPercentage"]; utilization != nil {
			status["currentMetrics"] = metric("current", map[string]any{"averageUtilization": utilization})
		}
		delete(status, "currentCPUUtilizationPercentage")
	}
	return nil
}
