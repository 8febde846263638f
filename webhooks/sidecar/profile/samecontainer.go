package profile

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/defaults"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
)

// EqualContainer reports whether a container of a pod is the one that a template
// adds: an injected pod can come back without its status annotation. What the API
// server has put in since makes no difference, nor does a probe that is absent:
// kubectl debug --copy-to leaves them out. A container with a member that is not
// known here is equal to none.
func EqualContainer(template, text rawjson.Value, hostNetwork bool) bool {
	var ours, own corev1.Container
	if kjson.UnmarshalCaseSensitivePreserveInts(template, &ours) != nil {
		return false
	}
	strict, err := kjson.UnmarshalStrict(text, &own)
	if err != nil || len(strict) > 0 || hasHugeQuantity(&own) {
		return false
	}
	for _, probe := range [...]struct{ ours, own **corev1.Probe }{
		{&ours.StartupProbe, &own.StartupProbe}, {&ours.LivenessProbe, &own.LivenessProbe}, {&ours.ReadinessProbe, &own.ReadinessProbe},
	} {
		if *probe.own == nil {
			*probe.ours = nil
		}
	}
	for _, c := range [...]*corev1.Container{&ours, &own} {
		defaults.ContainerOfPod(c, hostNetwork)
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return merge.CleanPath(m.MountPath) == defaults.TokenMount })
	}
	return volumeEquality.DeepEqual(&ours, &own)
}

// EqualVariable reports whether two environment variables are equal with the defaults
// of the API server.
func EqualVariable(a, b rawjson.Value) bool {
	if merge.Equal(a, b) {
		return true
	}
	var x, y corev1.Container
	for of, text := range map[*corev1.Container]rawjson.Value{&x: a, &y: b} {
		of.Env = make([]corev1.EnvVar, 1)
		if strict, err := kjson.UnmarshalStrict(text, &of.Env[0]); err != nil || len(strict) > 0 {
			return false
		}
		defaults.Container(of)
	}
	return volumeEquality.DeepEqual(&x, &y)
}

// hasHugeQuantity reports whether rounding a quantity of the container takes minutes.
func hasHugeQuantity(c *corev1.Container) bool {
	for _, list := range [...]corev1.ResourceList{c.Resources.Limits, c.Resources.Requests} {
		for _, quantity := range list {
			if isHuge(&quantity) {
				return true
			}
		}
	}
	return false
}
