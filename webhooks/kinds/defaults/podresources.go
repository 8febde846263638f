package defaults

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// podResources completes the resources of a whole pod, if it has any, from those of its containers.
func podResources(s *corev1.PodSpec) {
	whole := s.Resources
	if whole == nil || len(whole.Requests) == 0 && len(whole.Limits) == 0 {
		return
	}
	requests := peakResources(s, func(c *corev1.Container) corev1.ResourceList { return c.Resources.Requests })
	limits := peakResources(s, func(c *corev1.Container) corev1.ResourceList { return c.Resources.Limits })
	for name, limit := range limits {
		if _, asked := whole.Requests[name]; isHugePages(name) && !asked {
			copyMissing(&whole.Limits, corev1.ResourceList{name: limit})
		}
	}
	for name, request := range requests {
		if name == corev1.ResourceCPU || name == corev1.ResourceMemory {
			copyMissing(&whole.Requests, corev1.ResourceList{name: request})
		}
	}
	for name, limit := range whole.Limits {
		if isPodResource(name) {
			copyMissing(&whole.Requests, corev1.ResourceList{name: limit})
		}
	}
	for name, request := range whole.Requests {
		limit, has := limits[name]
		if !has || !isPodResource(name) || !haveLimit(s, name) {
			continue
		}
		if request.Cmp(limit) > 0 {
			limit = request
		}
		copyMissing(&whole.Limits, corev1.ResourceList{name: limit})
	}
}

// isPodResource reports whether a whole pod can have a resource.
func isPodResource(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || isHugePages(name)
}

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// haveLimit reports whether every container has a limit of the resource.
func haveLimit(s *corev1.PodSpec, name corev1.ResourceName) bool {
	for c := range containers(s) {
		if _, has := c.Resources.Limits[name]; !has {
			return false
		}
	}
	for i := range s.EphemeralContainers {
		if _, has := s.EphemeralContainers[i].Resources.Limits[name]; !has {
			return false
		}
	}
	return true
}

// peakResources returns the most that containers need at one time: an init container runs beside the sidecars before it, and the
// containers run beside all sidecars.
func peakResources(s *corev1.PodSpec, of func(*corev1.Container) corev1.ResourceList) corev1.ResourceList {
	most, running := corev1.ResourceList{}, corev1.ResourceList{}
	for i := range s.InitContainers {
		c := &s.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(running, of(c))
			raise(most, running)
			continue
		}
		now := running.DeepCopy()
		add(now, of(c))
		raise(most, now)
	}
	for i := range s.Containers {
		add(running, of(&s.Containers[i]))
	}
	raise(most, running)
	return most
}

func add(to, list corev1.ResourceList) {
	for name, quantity := range list {
		sum := to[name]
		sum.Add(quantity)
		to[name] = sum
	}
}

func raise(most, list corev1.ResourceList) {
	for name, quantity := range list {
		if known, has := most[name]; !has || quantity.Cmp(known) > 0 {
			most[name] = quantity.DeepCopy()
		}
	}
}
