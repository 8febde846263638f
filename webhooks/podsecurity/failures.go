package podsecurity

import (
	"bytes"
	"context"
	"iter"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// Failure is one way in which a pod fails a check.
type Failure struct {
	// Part is the container that fails ("containers/app"), and "" is the pod or a volume.
	Part string
	// Text is what fails, where the detail does not say it: a volume, or sysctls.
	Text string
	// Detail is what upstream says is wrong.
	Detail string
}

// Failures are the failures of a pod by the name of the check.
type Failures map[string]map[Failure]bool

// Failures returns the ways in which a pod, decoded from the object, fails the checks of a
// level. An error means that the context has ended.
//
// Each container and volume is evaluated alone, with the fields of the pod that decide
// about containers. Lists of the pod, its sysctls and annotations, are evaluated once,
// so that the work grows with the size of the pod and not with its square.
func (e *Evaluator) Failures(ctx context.Context, level Level, pod *Pod, object rawjson.Value) (Failures, error) {
	out := Failures{}
	add := func(check string, f Failure) {
		if out[check] == nil {
			out[check] = map[Failure]bool{}
		}
		out[check][f] = true
	}
	spec, meta := &pod.Spec, &pod.Metadata
	bare := *spec
	bare.Containers, bare.InitContainers, bare.EphemeralContainers, bare.Volumes = nil, nil, nil, nil
	// Upstream's details name volumes and sysctls and not what they are.
	sysctls := string(object.Get("spec", "securityContext", "sysctls"))
	for _, v := range e.Violations(level, meta, &bare) {
		add(v.Check, Failure{Text: sysctls, Detail: v.Detail})
	}
	if bare.SecurityContext != nil {
		security := *bare.SecurityContext
		security.Sysctls = nil
		bare.SecurityContext = &security
	}
	for i, volume := range object.Get("spec", "volumes").Elements() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if i < len(spec.Volumes) {
			one := bare
			one.Volumes = spec.Volumes[i : i+1]
			for _, v := range e.Violations(level, &metav1.ObjectMeta{}, &one) {
				add(v.Check, Failure{Text: string(volume), Detail: v.Detail})
			}
		}
	}
	annotations := annotationsByContainer(meta.Annotations)
	for _, list := range [...]struct {
		name string
		size int
		take func(to *corev1.PodSpec, i int) (name string)
	}{
		{"containers", len(spec.Containers), func(to *corev1.PodSpec, i int) string {
			to.Containers = spec.Containers[i : i+1]
			return spec.Containers[i].Name
		}},
		{"initContainers", len(spec.InitContainers), func(to *corev1.PodSpec, i int) string {
			to.InitContainers = spec.InitContainers[i : i+1]
			return spec.InitContainers[i].Name
		}},
		{"ephemeralContainers", len(spec.EphemeralContainers), func(to *corev1.PodSpec, i int) string {
			to.EphemeralContainers = spec.EphemeralContainers[i : i+1]
			return spec.EphemeralContainers[i].Name
		}},
	} {
		for i := range object.Get("spec", list.name).Elements() {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if i >= list.size {
				break
			}
			one := bare
			name := list.take(&one, i)
			part := list.name + "/" + name
			for _, v := range e.Violations(level, &metav1.ObjectMeta{Annotations: annotations[name]}, &one) {
				add(v.Check, Failure{Part: part, Detail: v.Detail})
			}
		}
	}
	return out, nil
}

// annotationsByContainer returns the annotations by the container that they are about,
// which their names have behind the slash.
func annotationsByContainer(all map[string]string) map[string]map[string]string {
	out := map[string]map[string]string{}
	for key, value := range all {
		_, container, _ := strings.Cut(key, "/")
		if out[container] == nil {
			out[container] = map[string]string{}
		}
		out[container][key] = value
	}
	return out
}

// CanChangeOutcome reports whether an update of a pod can change the outcome: of
// what a standard looks at, only images, and the list of ephemeral containers,
// can be changed in a pod that exists. The rule is upstream's,
// https://github.com/kubernetes/kubernetes/blob/v1.37.0/staging/src/k8s.io/pod-security-admission/admission/admission.go.
// It takes an update for one that can if the context ends.
func CanChangeOutcome(ctx context.Context, object, old rawjson.Value) bool {
	for _, list := range []string{"containers", "initContainers"} {
		if !sameImages(ctx, object.Get("spec", list), old.Get("spec", list)) {
			return true
		}
	}
	before := map[string]rawjson.Value{}
	for _, container := range old.Get("spec", "ephemeralContainers").Elements() {
		if ctx.Err() != nil {
			return true
		}
		if name := container.Get("name").Text(); before[name] == nil {
			before[name] = container
		}
	}
	for _, container := range object.Get("spec", "ephemeralContainers").Elements() {
		known, ok := before[container.Get("name").Text()]
		if !ok || ctx.Err() != nil || !sameString(container.Get("image"), known.Get("image")) {
			return true
		}
	}
	return false
}

func sameImages(ctx context.Context, a, b rawjson.Value) bool {
	if a.Len() != b.Len() {
		return false
	}
	next, stop := iter.Pull2(b.Elements())
	defer stop()
	for _, container := range a.Elements() {
		_, other, _ := next()
		if ctx.Err() != nil || !sameString(container.Get("image"), other.Get("image")) {
			return false
		}
	}
	return true
}

func sameString(a, b rawjson.Value) bool {
	return bytes.Equal(a, b) || a.Kind() == rawjson.String && b.Kind() == rawjson.String && a.Text() == b.Text()
}
