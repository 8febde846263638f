package podcheck

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
)

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
		if container.StartupProbe == nil {
			c.warn(at, "add a startupProbe",
				"native sidecar %q has no startupProbe: application containers do not wait until it is ready", container.Name)
		}
	case InitContainer:
		c.plainInit(at, container)
		ports = new(podtext.PortIndex) // it has ended before the others start
	case AppContainer:
	}
	if container.Name == "" {
		c.error(at+".name", "", "a name is required")
	}
	c.name(at+".name", container.Name, c.Containers)
	if strings.TrimSpace(container.Image) == "" {
		c.error(at+".image", "", "container %q needs an image", container.Name)
	} else if strings.TrimSpace(container.Image) != container.Image {
		c.invalid(at+".image", "%q begins or ends with whitespace", container.Image)
	}
	c.parts(at, fmt.Sprintf("container %q", container.Name), container, ports)
}

// Addition checks what is added to containers of pods. It refuses fields that would
// make another sort of container of them, and ports of the node.
func (c *Checker) Addition(at string, init bool, container *corev1.Container) {
	for field, isSet := range map[string]bool{"restartPolicy": container.RestartPolicy != nil, "restartPolicyRules": len(container.RestartPolicyRules) > 0} {
		if isSet {
			c.error(at+"."+field, "", "a profile cannot set the restart policy of application containers")
		}
	}
	for i := range container.Ports {
		if path := Indexed(at+".ports", i) + ".hostPort"; container.Ports[i].HostPort != 0 || c.placeholder(path) {
			c.error(path, "", "a profile cannot give application containers a port of the node")
		}
	}
	if init {
		c.plainInit(at, container)
	}
	c.parts(at, "the template", container, nil)
}

// plainInit refuses what the API server allows native sidecars only.
func (c *Checker) plainInit(at string, init *corev1.Container) {
	for field, isSet := range map[string]bool{
		"lifecycle": init.Lifecycle != nil, "livenessProbe": init.LivenessProbe != nil, "readinessProbe": init.ReadinessProbe != nil, "startupProbe": init.StartupProbe != nil,
	} {
		switch {
		case !isSet:
		case init.Name == "":
			c.error(at+"."+field, "move it to an entry without initContainers", "an init container runs to completion and cannot have a %s", field)
		default:
			c.error(at+"."+field, "make it a native sidecar with restartPolicy: Always",
				"init container %q runs to completion and cannot have a %s", init.Name, field)
		}
	}
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
	c.fields(at, reflect.ValueOf(container))
	c.repeated(at+".ports", ".name", "%q is the name of another port of the container", len(container.Ports), func(i int) string { return container.Ports[i].Name })
	c.repeated(at+".env", ".name", "%q is set twice", len(container.Env), func(i int) string { return container.Env[i].Name })
	c.sleeps(at+".lifecycle", container.Lifecycle)
	c.user(at+".securityContext", container.SecurityContext)
	c.claimed(at+".resources.claims", container.Resources.Claims)
	c.mounts(at, owner, container)
	c.devices(at, container)
}

// repeated reports elements of a list whose member has the value of an earlier one.
func (c *Checker) repeated(path, member, message string, length int, value func(i int) string) {
	seen := make(map[string]bool, length)
	for i := range length {
		text := value(i)
		if text != "" && seen[text] {
			c.error(Indexed(path, i)+member, "", message, text)
		}
		seen[text] = true
	}
}

func (c *Checker) port(at, container string, p *corev1.ContainerPort, taken *podtext.PortIndex) {
	port := podtext.NewPort(p, container)
	port.Path = at
	if other, field := taken.Conflict(&port); other != nil {
		c.error(at+"."+field, "", "%s is also declared at %s", port.Describe(field), other.Path)
	}
	taken.Add(&port)
}

// DeclaredPorts returns the ports of a container.
func DeclaredPorts(c *corev1.Container) podtext.Ports {
	var ports podtext.Ports
	for i := range c.Ports {
		ports = append(ports, podtext.NewPort(&c.Ports[i], c.Name))
	}
	return ports
}

// user checks that what a container says about its user goes together.
func (c *Checker) user(path string, s *corev1.SecurityContext) {
	if s != nil && s.RunAsNonRoot != nil && *s.RunAsNonRoot && s.RunAsUser != nil && *s.RunAsUser == 0 {
		c.error(path+".runAsUser", "", "%q is root, and runAsNonRoot is true: the container would never start", "0")
	}
}

// claimed checks that a container uses claims of the template.
func (c *Checker) claimed(path string, claims []corev1.ResourceClaim) {
	for i := range claims {
		if !c.claims[claims[i].Name] {
			c.invalid(Indexed(path, i)+".name", "%q is not a resourceClaim of the template", claims[i].Name)
		}
	}
}

// sleeps checks that a container does not sleep longer than its pod may take to end.
func (c *Checker) sleeps(path string, l *corev1.Lifecycle) {
	if l == nil || c.grace == nil {
		return
	}
	for name, h := range map[string]*corev1.LifecycleHandler{".postStart": l.PostStart, ".preStop": l.PreStop} {
		if h != nil && h.Sleep != nil && h.Sleep.Seconds > *c.grace {
			c.invalid(path+name+".sleep.seconds", `"%d" is out of range: must be 0 to terminationGracePeriodSeconds, which is %d`, h.Sleep.Seconds, *c.grace)
		}
	}
}

func (c *Checker) mounts(at, owner string, container *corev1.Container) {
	mounted := make(map[string]string, len(container.VolumeMounts))
	s := container.SecurityContext
	isPrivileged := s != nil && s.Privileged != nil && *s.Privileged
	for i := range container.VolumeMounts {
		m, path := &container.VolumeMounts[i], Indexed(at+".volumeMounts", i)
		c.declaredVolume(path+".name", m.Name)
		directory := merge.CleanPath(m.MountPath)
		switch other, twice := mounted[directory]; {
		case m.MountPath == "":
			c.error(path+".mountPath", "", "a path is required")
		case twice && other != m.MountPath: // The API server compares the texts.
			c.warn(path+".mountPath", "mount one of the two elsewhere", "%q is the same directory as %q, so that one mount hides the other in %s", m.MountPath, other, owner)
		}
		mounted[directory] = m.MountPath
		// What is added to a container that is not known may have privileges there.
		if p := m.MountPropagation; p != nil && *p == corev1.MountPropagationBidirectional && container.Name != "" && !isPrivileged {
			c.invalid(path+".mountPropagation", "%q is allowed only for privileged containers", *p)
		}
	}
}

// devices checks raw block devices, of which the volumes are claims and neither
// name nor path is that of a mount.
func (c *Checker) devices(at string, container *corev1.Container) {
	at += ".volumeDevices"
	for i := range container.VolumeDevices {
		d, path := &container.VolumeDevices[i], Indexed(at, i)
		c.declaredVolume(path+".name", d.Name)
		if block, there := c.blocks[d.Name]; there && !block {
			c.error(path+".name", "", "%q is not a persistentVolumeClaim, and cannot be a device", d.Name)
		}
		if slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool {
			return merge.CleanPath(m.MountPath) == merge.CleanPath(d.DevicePath)
		}) {
			c.error(path+".devicePath", "", "%q is also the path of a mount", d.DevicePath)
		}
		if slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == d.Name }) {
			c.error(path+".name", "", "%q is also mounted", d.Name)
		}
	}
}

// declaredVolume requires a volume of the template itself. Whether a pod has one of its
// own under that name is nothing that a profile can rely on.
func (c *Checker) declaredVolume(path, name string) {
	if c.Volumes[name] == "" {
		c.error(path, "declare the volume in the template; an equal volume of the pod is used",
			"%q is not a volume of the template", name)
	}
}
