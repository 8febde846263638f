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
		c.valueFrom(path+".valueFrom", e.ValueFrom)
	}
	for i := range container.EnvFrom {
		e := container.EnvFrom[i]
		e.Prefix = ""
		if n := set(&e); n != 1 {
			c.error(fmt.Sprintf("%s.envFrom[%d]", at, i), "", "exactly one source is required, and there are %d", n)
		}
		c.envFrom(indexed(at+".envFrom", i), &container.EnvFrom[i])
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
	c.volumeSource(at, v)
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
	if s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation && s.Capabilities != nil &&
		(slices.Contains(s.Capabilities.Add, "CAP_SYS_ADMIN") || slices.Contains(s.Capabilities.Add, "SYS_ADMIN")) {
		c.broken(path+".allowPrivilegeEscalation", "cannot be false for a container with the capability SYS_ADMIN")
	}
	c.user(path+".runAsUser", s.RunAsUser)
	c.user(path+".runAsGroup", s.RunAsGroup)
	c.seccomp(path+".seccompProfile", s.SeccompProfile)
	c.appArmor(path+".appArmorProfile", s.AppArmorProfile)
	if s.ProcMount != nil {
		oneOfWords(c, path+".procMount", *s.ProcMount, corev1.DefaultProcMount, corev1.UnmaskedProcMount)
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
		c.probe(at+"."+p.field, p.probe)
		if p.field == "readinessProbe" && p.probe.TerminationGracePeriodSeconds != nil {
			c.error(at+"."+p.field+".terminationGracePeriodSeconds", "", "is for livenessProbe and startupProbe alone")
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
		c.hook(at+".lifecycle."+h.field, h.hook)
		if n := set(h.hook); n != 1 {
			c.error(at+".lifecycle."+h.field, "", "exactly one of exec, httpGet, sleep and tcpSocket is required, and there are %d", n)
		}
	}
}
