package sidecar

import (
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The rules here are those of k8s.io/kubernetes/pkg/apis/core/validation that a
// profile's author is most likely to run into. The API server has the last word.

// env checks environment variables.
func (c *compiler) env(at string, container *corev1.Container) {
	seen := make(map[string]bool, len(container.Env))
	for i := range container.Env {
		e := &container.Env[i]
		path := fmt.Sprintf("%s.env[%d]", at, i)
		if e.Name == "" {
			c.error(path+".name", "", "a name is required")
		} else {
			for _, message := range validation.IsRelaxedEnvVarName(e.Name) {
				c.error(path+".name", "", "%q: %s", e.Name, message)
			}
		}
		if seen[e.Name] {
			c.error(path+".name", "", "%q is set twice", e.Name)
		}
		seen[e.Name] = true
		if e.ValueFrom == nil {
			continue
		}
		if e.Value != "" {
			c.error(path, "", "value and valueFrom exclude each other")
		}
		if n := set(e.ValueFrom); n != 1 {
			c.error(path+".valueFrom", "", "exactly one source is required, and there are %d", n)
		}
	}
	for i := range container.EnvFrom {
		e := container.EnvFrom[i]
		e.Prefix = ""
		if n := set(&e); n != 1 {
			c.error(fmt.Sprintf("%s.envFrom[%d]", at, i), "", "exactly one source is required, and there are %d", n)
		}
	}
}

// set is how many of a struct's fields are set.
func set(of any) int {
	v := reflect.ValueOf(of).Elem()
	n := 0
	for _, field := range v.Fields() {
		if !field.IsZero() {
			n++
		}
	}
	return n
}

// source checks that a volume has one source at most.
func (c *compiler) source(at string, v *corev1.Volume) {
	switch n := set(&v.VolumeSource); {
	case n == 0:
		c.warn(at, "write emptyDir: {}", "volume %q has no source: the API server makes it an emptyDir", v.Name)
	case n > 1:
		c.error(at, "", "volume %q has %d sources, and may have one", v.Name, n)
	}
}

// security checks that what a container says about its user goes together.
func (c *compiler) security(at string, container *corev1.Container) {
	s := container.SecurityContext
	if s == nil {
		return
	}
	path := at + ".securityContext"
	if s.RunAsNonRoot != nil && *s.RunAsNonRoot && s.RunAsUser != nil && *s.RunAsUser == 0 {
		c.error(path+".runAsUser", "", "%q is root, and runAsNonRoot is true: the container would never start", "0")
	}
	if s.Privileged != nil && *s.Privileged && s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation {
		c.error(path+".allowPrivilegeEscalation", "", "cannot be false for a privileged container")
	}
	if p := s.SeccompProfile; p != nil {
		switch p.Type {
		case corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined:
		default:
			c.error(path+".seccompProfile.type", "", "%q is not known: allowed are %q, %q and %q", p.Type,
				corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)
		}
	}
}

// resources checks that no request is above its limit.
func (c *compiler) resources(at string, container *corev1.Container) {
	names := make([]corev1.ResourceName, 0, len(container.Resources.Requests))
	for name := range container.Resources.Requests {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		request, limit := container.Resources.Requests[name], container.Resources.Limits[name]
		path := fmt.Sprintf("%s.resources.requests.%s", at, name)
		if request.Sign() < 0 {
			c.error(path, "", "%q is below zero", request.String())
		}
		if _, limited := container.Resources.Limits[name]; limited && request.Cmp(limit) > 0 {
			c.error(path, "", "%q is more than the limit of %q", request.String(), limit.String())
		}
	}
	switch container.ImagePullPolicy {
	case "", corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever:
	default:
		c.error(at+".imagePullPolicy", "", "%q is not known: allowed are %q, %q and %q", container.ImagePullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
	}
}

// probes checks that each probe and hook does one thing.
func (c *compiler) probes(at string, container *corev1.Container) {
	for _, p := range []struct {
		field string
		probe *corev1.Probe
	}{
		{"livenessProbe", container.LivenessProbe}, {"readinessProbe", container.ReadinessProbe}, {"startupProbe", container.StartupProbe},
	} {
		if p.probe == nil {
			continue
		}
		if n := set(&p.probe.ProbeHandler); n != 1 {
			c.error(at+"."+p.field, "", "exactly one of exec, grpc, httpGet and tcpSocket is required, and there are %d", n)
		}
		if p.field != "readinessProbe" && p.probe.SuccessThreshold > 1 {
			c.error(at+"."+p.field+".successThreshold", "", "%d is not allowed here: it must be 1", p.probe.SuccessThreshold)
		}
	}
	if container.Lifecycle == nil {
		return
	}
	for _, h := range []struct {
		field string
		hook  *corev1.LifecycleHandler
	}{{"postStart", container.Lifecycle.PostStart}, {"preStop", container.Lifecycle.PreStop}} {
		if h.hook == nil {
			continue
		}
		if n := set(h.hook); n != 1 {
			c.error(at+".lifecycle."+h.field, "", "exactly one of exec, httpGet, sleep and tcpSocket is required, and there are %d", n)
		}
	}
}
