package e2e

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	injectAnnotation = "sidecar.gatehouse.dev/inject"
	statusAnnotation = "sidecar.gatehouse.dev/status"
	// shipper is what the example profile adds.
	shipper = "log-shipper"
)

func pod(name string, edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "registry.example/app:1"}}},
	}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func labelled(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[key] = value }
}

// saying sets a pod's annotation for injection.
func saying(word string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[injectAnnotation] = word }
}

func asking(p *corev1.Pod) { saying("true")(p) }

func configMap(name string, labels map[string]string, data ...string) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string]string{}}
	for _, entry := range data {
		key, value, _ := strings.Cut(entry, "=")
		c.Data[key] = value
	}
	return c
}

// injected returns how many times the pod has what the example profile adds: 1, 0 for nothing at all, or -1 if it is
// neither, or if the status annotation says something else.
func injected(p *corev1.Pod) int {
	var containers, volumes, mounts, recorded int
	for _, c := range p.Spec.InitContainers {
		if c.Name == shipper {
			containers++
		}
		for _, m := range c.VolumeMounts {
			if c.Name == shipper && m.Name == "logs" {
				mounts++
			}
		}
	}
	for _, v := range p.Spec.Volumes {
		if v.Name == "logs" {
			volumes++
		}
	}
	recorded = strings.Count(p.Annotations[statusAnnotation], `"name":"`+shipper+`"`)
	if containers != volumes || containers != mounts || containers != recorded || containers > 1 {
		return -1
	}
	return containers
}
