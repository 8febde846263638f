package podcheck

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
)

// The rules here are those of k8s.io/kubernetes/pkg/apis/core/validation that a
// profile's author is most likely to run into. The API server has the last word.

// env checks environment variables.
func (c *Checker) env(at string, container *corev1.Container) {
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
		if n := countSet(e.ValueFrom); n != 1 {
			c.error(path+".valueFrom", "", "exactly one source is required, and there are %d", n)
		}
		c.valueFrom(path+".valueFrom", e.ValueFrom)
	}
	for i := range container.EnvFrom {
		e := container.EnvFrom[i]
		e.Prefix = ""
		if n := countSet(&e); n != 1 {
			c.error(fmt.Sprintf("%s.envFrom[%d]", at, i), "", "exactly one source is required, and there are %d", n)
		}
		c.envFrom(Indexed(at+".envFrom", i), &container.EnvFrom[i])
	}
}

// countSet returns how many of a struct's fields are set.
func countSet(of any) int {
	v := reflect.ValueOf(of).Elem()
	n := 0
	for _, field := range v.Fields() {
		if !field.IsZero() {
			n++
		}
	}
	return n
}

// security checks that what a container says about its user goes together.
func (c *Checker) security(at string, container *corev1.Container) {
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
		c.invalid(path+".allowPrivilegeEscalation", "cannot be false for a container with the capability SYS_ADMIN")
	}
	c.user(path+".runAsUser", s.RunAsUser)
	c.user(path+".runAsGroup", s.RunAsGroup)
	c.seccomp(path+".seccompProfile", s.SeccompProfile)
	c.appArmor(path+".appArmorProfile", s.AppArmorProfile)
	if s.ProcMount != nil {
		oneOf(c, path+".procMount", *s.ProcMount, corev1.DefaultProcMount, corev1.UnmaskedProcMount)
	}
}

// probes checks that each probe and hook does one thing.
func (c *Checker) probes(at string, container *corev1.Container) {
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
		if n := countSet(&p.probe.ProbeHandler); n != 1 {
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
		if n := countSet(h.hook); n != 1 {
			c.error(at+".lifecycle."+h.field, "", "exactly one of exec, httpGet, sleep and tcpSocket is required, and there are %d", n)
		}
	}
}

func (c *Checker) native(at string, init *corev1.Container) {
	if init.StartupProbe == nil {
		c.warn(at, "add a startupProbe",
			"native sidecar %q has no startupProbe: the pod's own containers start without waiting until it is ready", init.Name)
	}
}

// plainInit refuses what the API server allows native sidecars only.
func (c *Checker) plainInit(at string, init *corev1.Container) {
	for _, only := range []struct {
		field string
		set   bool
	}{
		{"lifecycle", init.Lifecycle != nil},
		{"livenessProbe", init.LivenessProbe != nil},
		{"readinessProbe", init.ReadinessProbe != nil},
		{"startupProbe", init.StartupProbe != nil},
	} {
		if only.set {
			if init.Name == "" {
				c.error(at+"."+only.field, "make an entry of its own, without initContainers", "an init container runs to its end before others start, and may have no %s", only.field)
				continue
			}
			c.error(at+"."+only.field, "make it a native sidecar with restartPolicy: Always",
				"init container %q runs to its end before others start, and may have no %s", init.Name, only.field)
		}
	}
}

// Sort is the sort of a container of the template.
type Sort uint8

const (
	// AppContainer is a container that is not an init container.
	AppContainer Sort = iota
	// NativeSidecar is an init container with restartPolicy: Always.
	NativeSidecar
	// InitContainer is any other init container.
	InitContainer
)

// Container checks a container of the template.
func (c *Checker) Container(at string, sort Sort, container *corev1.Container) {
	ports := &c.ports
	switch sort {
	case NativeSidecar:
		c.native(at, container)
	case InitContainer:
		c.plainInit(at, container)
		ports = new(podtext.PortIndex) // it has ended before the others start
	case AppContainer:
	}
	c.name(at+".name", container.Name, c.Containers)
	if strings.TrimSpace(container.Image) == "" {
		c.error(at+".image", "", "container %q needs an image", container.Name)
	} else if strings.TrimSpace(container.Image) != container.Image {
		c.invalid(at+".image", "%q begins or ends with space", container.Image)
	}
	if r := container.RestartPolicy; r != nil {
		switch *r {
		case corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure:
		default:
			c.error(at+".restartPolicy", "", "%q is not known: allowed are %q, %q and %q", *r,
				corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)
		}
	}
	c.parts(at, fmt.Sprintf("container %q", container.Name), container, ports)
}

// Addition checks what is added to containers of pods: to those of these names, or to
// all if there are none.
func (c *Checker) Addition(at string, names []string, init bool, container *corev1.Container) {
	c.appFields(at, names, container)
	if init {
		c.plainInit(at, container)
	}
	c.parts(at, "what is added", container, nil)
}

// parts checks what a container of the template and an addition have in common. The
// ports of an addition do not clash with each other.
func (c *Checker) parts(at, owner string, container *corev1.Container, ports *podtext.PortIndex) {
	for i := range container.Ports {
		taken := ports
		if taken == nil {
			taken = new(podtext.PortIndex)
		}
		c.port(Indexed(at+".ports", i), container.Name, &container.Ports[i], taken)
	}
	c.portNames(at, container)
	c.env(at, container)
	c.security(at, container)
	c.resources(at, container)
	c.enums(at, container)
	c.probes(at, container)
	c.mounts(at, owner, container)
}

// appFields refuses additions to the pod's own containers that no number of them
// can have, or that would make another sort of container of them.
func (c *Checker) appFields(at string, names []string, container *corev1.Container) {
	for _, only := range []struct {
		field string
		set   bool
	}{{"restartPolicy", container.RestartPolicy != nil}, {"restartPolicyRules", len(container.RestartPolicyRules) > 0}} {
		if only.set {
			c.error(at+"."+only.field, "", "when a container of the pod's own is restarted is for the pod to say")
		}
	}
	for i := range container.Ports {
		if container.Ports[i].HostPort != 0 && len(names) != 1 {
			c.error(Indexed(at+".ports", i)+".hostPort", "name the one container in names", "one container of a pod may have a port of the node, and this may be about several")
		}
	}
}
