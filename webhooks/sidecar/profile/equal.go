package profile

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kjson "sigs.k8s.io/json"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/defaults"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
)

// equal reports whether what a template says and what a pod has are the same once both are
// completed. A value of the pod with a member that is not known here, or with a quantity that takes
// minutes to compare, is equal to none.
func equal[T any](template, text rawjson.Value, complete func(ours, own *T)) bool {
	var ours, own T
	if merge.HasHugeQuantity(template) || merge.HasHugeQuantity(text) || decode(template, &ours) != nil {
		return false
	}
	strict, err := kjson.UnmarshalStrict(text, &own)
	if err != nil || len(strict) > 0 {
		return false
	}
	complete(&ours, &own)
	return equality.Semantic.DeepEqual(&ours, &own)
}

// EqualContainer reports whether a container of a pod is the one that a template
// adds: an injected pod can come back without its status annotation. What the API
// server has put in since makes no difference, nor does a probe that is absent:
// kubectl debug --copy-to leaves them out.
func EqualContainer(template, text rawjson.Value, hostNetwork bool) bool {
	return equal(template, text, func(ours, own *corev1.Container) {
		for _, probe := range [...]struct{ ours, own **corev1.Probe }{
			{&ours.StartupProbe, &own.StartupProbe}, {&ours.LivenessProbe, &own.LivenessProbe}, {&ours.ReadinessProbe, &own.ReadinessProbe},
		} {
			if *probe.own == nil {
				*probe.ours = nil
			}
		}
		for _, c := range [...]*corev1.Container{ours, own} {
			defaults.ContainerOfPod(c, hostNetwork)
			c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return merge.CleanPath(m.MountPath) == defaults.TokenMount })
		}
	})
}

// EqualVariable reports whether two environment variables are equal with the defaults
// of the API server.
func EqualVariable(a, b rawjson.Value) bool {
	return merge.Equal(a, b) || equal(a, b, func(x, y *corev1.EnvVar) {
		for _, v := range [...]*corev1.EnvVar{x, y} {
			c := corev1.Container{Env: []corev1.EnvVar{*v}}
			defaults.Container(&c)
			*v = c.Env[0]
		}
	})
}

// EqualVolume reports whether a volume of a pod is the one that a template declares, with the
// defaults that the API server has put in, and whatever the way in which a path of the node is written.
func EqualVolume(template, text rawjson.Value) bool {
	return equal(template, text, func(ours, own *corev1.Volume) {
		for _, v := range [...]*corev1.Volume{ours, own} {
			defaults.Volume(v)
			if v.HostPath != nil {
				v.HostPath.Path = merge.CleanPath(v.HostPath.Path)
			}
		}
	})
}
