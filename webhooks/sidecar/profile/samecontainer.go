package profile

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kjson "sigs.k8s.io/json"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
)

// TokenPath is where the API server mounts the token of the service account into
// every container: k8s.io/kubernetes/plugin/pkg/admission/serviceaccount,
// DefaultAPITokenMountPath.
const TokenPath = "/var/run/secrets/kubernetes.io/serviceaccount" // #nosec G101 -- a path

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
	if err != nil || len(strict) > 0 {
		return false
	}
	for _, probe := range [...]struct{ ours, own **corev1.Probe }{
		{&ours.StartupProbe, &own.StartupProbe}, {&ours.LivenessProbe, &own.LivenessProbe}, {&ours.ReadinessProbe, &own.ReadinessProbe},
	} {
		if *probe.own == nil {
			*probe.ours = nil
		}
	}
	defaultContainer(&ours, hostNetwork)
	defaultContainer(&own, hostNetwork)
	return volumeEquality.DeepEqual(&ours, &own)
}

// defaultContainer sets the defaults of a container, as k8s.io/kubernetes/pkg/apis/core/v1 does, and
// removes the mount of the token.
func defaultContainer(c *corev1.Container, hostNetwork bool) {
	c.ImagePullPolicy = cmp.Or(c.ImagePullPolicy, pullPolicy(c.Image))
	c.TerminationMessagePath = cmp.Or(c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	c.TerminationMessagePolicy = cmp.Or(c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return podtext.CleanPath(m.MountPath) == TokenPath })
	for i := range c.Ports {
		p := &c.Ports[i]
		p.Protocol = cmp.Or(p.Protocol, corev1.ProtocolTCP)
		if hostNetwork {
			p.HostPort = cmp.Or(p.HostPort, p.ContainerPort)
		}
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			if f := from.FieldRef; f != nil {
				f.APIVersion = cmp.Or(f.APIVersion, "v1")
			}
			if f := from.FileKeyRef; f != nil {
				setDefault(&f.Optional, false)
			}
		}
	}
	for name, limit := range c.Resources.Limits {
		if _, there := c.Resources.Requests[name]; !there {
			if c.Resources.Requests == nil {
				c.Resources.Requests = corev1.ResourceList{}
			}
			c.Resources.Requests[name] = limit.DeepCopy()
		}
	}
	for _, list := range [...]corev1.ResourceList{c.Resources.Limits, c.Resources.Requests} {
		for name, quantity := range list {
			if !isHuge(&quantity) {
				quantity.RoundUp(resource.Milli)
				list[name] = quantity
			}
		}
	}
	for _, p := range [...]*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		defaultProbe(p)
	}
	if c.Lifecycle != nil {
		for _, h := range [...]*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				defaultHTTPGet(h.HTTPGet)
			}
		}
	}
}

func defaultProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	p.TimeoutSeconds, p.PeriodSeconds = cmp.Or(p.TimeoutSeconds, 1), cmp.Or(p.PeriodSeconds, 10)
	p.SuccessThreshold, p.FailureThreshold = cmp.Or(p.SuccessThreshold, 1), cmp.Or(p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		setDefault(&p.GRPC.Service, "")
	}
}

func defaultHTTPGet(h *corev1.HTTPGetAction) {
	if h != nil {
		h.Path, h.Scheme = cmp.Or(h.Path, "/"), cmp.Or(h.Scheme, corev1.URISchemeHTTP)
	}
}
