package defaults

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// podSpec fills in the defaults that pods and pod templates share.
func podSpec(s *corev1.PodSpec) {
	set(&s.ServiceAccountName, s.DeprecatedServiceAccount)
	s.DeprecatedServiceAccount = s.ServiceAccountName
	set(&s.DNSPolicy, corev1.DNSClusterFirst)
	set(&s.RestartPolicy, corev1.RestartPolicyAlways)
	setPointer(&s.SecurityContext, corev1.PodSecurityContext{})
	setPointer(&s.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	set(&s.SchedulerName, corev1.DefaultSchedulerName)
	for i := range s.Volumes {
		Volume(&s.Volumes[i])
	}
	for c := range containers(s) {
		Container(c)
	}
	for i := range s.EphemeralContainers {
		c := corev1.Container(s.EphemeralContainers[i].EphemeralContainerCommon)
		Container(&c)
		s.EphemeralContainers[i].EphemeralContainerCommon = corev1.EphemeralContainerCommon(c)
	}
	resources(s.Overhead)
	if s.Resources != nil {
		resources(s.Resources.Limits)
		resources(s.Resources.Requests)
	}
}

// containers yields the pod's init containers and its containers.
func containers(s *corev1.PodSpec) func(func(*corev1.Container) bool) {
	return func(yield func(*corev1.Container) bool) {
		for _, list := range [][]corev1.Container{s.InitContainers, s.Containers} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// Container fills in the defaults of a container that depend on nothing else.
func Container(c *corev1.Container) {
	if c.ImagePullPolicy == "" {
		c.ImagePullPolicy = pullPolicy(c.Image)
	}
	set(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	set(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		set(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			fieldRef(from.FieldRef)
			if from.FileKeyRef != nil {
				setPointer(&from.FileKeyRef.Optional, false)
			}
		}
	}
	resources(c.Resources.Limits)
	resources(c.Resources.Requests)
	probe(c.LivenessProbe)
	probe(c.ReadinessProbe)
	probe(c.StartupProbe)
	if c.Lifecycle != nil {
		for _, handler := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if handler != nil {
				httpGet(handler.HTTPGet)
			}
		}
	}
}

// pullPolicy returns the default pull policy of an image: Always if its tag is latest or it has neither tag nor digest. An image
// that no runtime accepts may get another one than in the API server.
func pullPolicy(image string) corev1.PullPolicy {
	name := image[strings.LastIndexByte(image, '/')+1:] // in front of it, a colon is that of a port
	name, _, pinned := strings.Cut(name, "@")
	_, tag, tagged := strings.Cut(name, ":")
	if tag == "latest" || image != "" && !tagged && !pinned {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func probe(p *corev1.Probe) {
	if p == nil {
		return
	}
	set(&p.TimeoutSeconds, 1)
	set(&p.PeriodSeconds, 10)
	set(&p.SuccessThreshold, 1)
	set(&p.FailureThreshold, 3)
	httpGet(p.HTTPGet)
	if p.GRPC != nil {
		setPointer(&p.GRPC.Service, "")
	}
}

func httpGet(action *corev1.HTTPGetAction) {
	if action != nil {
		set(&action.Path, "/")
		set(&action.Scheme, corev1.URISchemeHTTP)
	}
}

func fieldRef(ref *corev1.ObjectFieldSelector) {
	if ref != nil {
		set(&ref.APIVersion, "v1")
	}
}

// resources rounds quantities up to thousandths.
func resources(list corev1.ResourceList) {
	for name, quantity := range list {
		quantity.RoundUp(resource.Milli)
		list[name] = quantity
	}
}

// copyMissing adds the quantities of another list that are missing.
func copyMissing(into *corev1.ResourceList, from corev1.ResourceList) {
	for name, quantity := range from {
		if _, has := (*into)[name]; has {
			continue
		}
		if *into == nil {
			*into = make(corev1.ResourceList, len(from))
		}
		(*into)[name] = quantity.DeepCopy()
	}
}
