package sidecar

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/finding"
)

// checker collects what there is to say about one profile.
type checker struct {
	profile *Profile
	found   finding.List
}

func objectName(p *Profile) string { return "SidecarProfile/" + p.Name }

func errorAt(p *Profile, path, message string) finding.Finding {
	return finding.Finding{Severity: finding.Error, Source: p.Source, Object: objectName(p), Field: path, Message: message}
}

func (c *checker) error(path, hint, format string, args ...any) {
	f := errorAt(c.profile, path, fmt.Sprintf(format, args...))
	f.Hint = hint
	c.found = append(c.found, f)
}

func (c *checker) warn(path, hint, format string, args ...any) {
	c.error(path, hint, format, args...)
	c.found[len(c.found)-1].Severity = finding.Warning
}

// checkProfile checks a profile on its own. What it lets pass the API server
// would accept in a pod, as far as that can be said without the pod: a mistake
// in a profile is shown to whoever wrote it, not to everybody whose pods fail.
func checkProfile(p *Profile) finding.List {
	c := checker{profile: p}
	if p.Name == "" {
		c.error("metadata.name", "", "a name is required")
	} else {
		for _, message := range validation.IsDNS1123Subdomain(p.Name) {
			c.error("metadata.name", "", "%q: %s", p.Name, message)
		}
	}
	switch p.Spec.Injection {
	case "", v1alpha1.OptIn, v1alpha1.OptOut:
	default:
		c.error("spec.injection", "", "%q is not known: allowed are %q and %q", p.Spec.Injection, v1alpha1.OptIn, v1alpha1.OptOut)
	}
	c.selector("spec.match.namespaceSelector", p.Spec.Match.NamespaceSelector)
	c.selector("spec.match.objectSelector", p.Spec.Match.ObjectSelector)
	c.template(&p.Spec.Template.Spec)
	return c.found
}

func (c *checker) selector(path string, s *metav1.LabelSelector) {
	errs := metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, field.NewPath(path))
	// Upstream walks a map.
	slices.SortStableFunc(errs, func(a, b *field.Error) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.ErrorBody(), b.ErrorBody()))
	})
	for _, err := range errs {
		body := err.ErrorBody()
		if strings.HasSuffix(err.Field, ".operator") {
			body += ": allowed are In, NotIn, Exists and DoesNotExist"
		}
		c.error(err.Field, "", "%s", strings.ToLower(body[:1])+body[1:])
	}
}

func (c *checker) template(t *v1alpha1.SidecarPodSpec) {
	const path = "spec.template.spec"
	if len(t.InitContainers)+len(t.Containers)+len(t.Volumes) == 0 {
		c.error(path, "", "the template is empty: at least one of initContainers, containers and volumes must have an element")
		return
	}
	declared := make(map[string]string, len(t.Volumes))
	for i := range t.Volumes {
		v := &t.Volumes[i]
		at := fmt.Sprintf("%s.volumes[%d]", path, i)
		c.name(at+".name", v.Name, declared)
		if v.VolumeSource == (corev1.VolumeSource{}) {
			c.warn(at, "write emptyDir: {}", "volume %q has no source: the API server makes it an emptyDir", v.Name)
		}
	}
	// Containers and init containers share one space of names and of ports.
	names := make(map[string]string)
	var ports portList
	for i := range t.InitContainers {
		at := fmt.Sprintf("%s.initContainers[%d]", path, i)
		if init := &t.InitContainers[i]; isNative(init) {
			c.native(at, init)
			c.container(at, init, names, declared, &ports)
		} else {
			c.plainInit(at, init)
			c.container(at, init, names, declared, new(portList))
		}
	}
	for i := range t.Containers {
		at := fmt.Sprintf("%s.containers[%d]", path, i)
		c.warn(at, "make it an init container with restartPolicy: Always",
			"container %q is not a native sidecar: it starts and ends in no order with the pod's own containers, and pods that must end do not get the profile", t.Containers[i].Name)
		c.container(at, &t.Containers[i], names, declared, &ports)
	}
}

// name checks the name of a container or volume and notes it in taken, where
// the path of the first that has it stands.
func (c *checker) name(path, name string, taken map[string]string) {
	if name == "" {
		c.error(path, "", "a name is required")
		return
	}
	for _, message := range validation.IsDNS1123Label(name) {
		c.error(path, "", "%q: %s", name, message)
	}
	if first, dup := taken[name]; dup {
		c.error(path, "", "%q is the name of %s too", name, first)
		return
	}
	taken[name] = strings.TrimSuffix(path, ".name")
}

// isNative tells whether an init container is a native sidecar:
// https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/.
func isNative(init *corev1.Container) bool {
	return init.RestartPolicy != nil && *init.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func (c *checker) native(at string, init *corev1.Container) {
	if init.StartupProbe == nil {
		c.warn(at, "add a startupProbe",
			"native sidecar %q has no startupProbe: the pod's own containers start without waiting until it is ready", init.Name)
	}
}

// plainInit refuses what the API server allows native sidecars only.
func (c *checker) plainInit(at string, init *corev1.Container) {
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
			c.error(at+"."+only.field, "make it a native sidecar with restartPolicy: Always",
				"init container %q runs to its end before others start, and may have no %s", init.Name, only.field)
		}
	}
}

func (c *checker) container(at string, container *corev1.Container, names, declared map[string]string, ports *portList) {
	c.name(at+".name", container.Name, names)
	if strings.TrimSpace(container.Image) == "" {
		c.error(at+".image", "", "container %q needs an image", container.Name)
	}
	if r := container.RestartPolicy; r != nil {
		switch *r {
		case corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure:
		default:
			c.error(at+".restartPolicy", "", "%q is not known: allowed are %q, %q and %q", *r,
				corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)
		}
	}
	for i := range container.Ports {
		c.port(fmt.Sprintf("%s.ports[%d]", at, i), container.Name, &container.Ports[i], ports)
	}
	mounted := make(map[string]bool, len(container.VolumeMounts))
	for i := range container.VolumeMounts {
		m := &container.VolumeMounts[i]
		path := fmt.Sprintf("%s.volumeMounts[%d]", at, i)
		c.volume(path+".name", m.Name, declared)
		switch {
		case m.MountPath == "":
			c.error(path+".mountPath", "", "a path is required")
		case mounted[m.MountPath]:
			c.error(path+".mountPath", "", "%q is mounted twice in container %q", m.MountPath, container.Name)
		}
		mounted[m.MountPath] = true
	}
	for i := range container.VolumeDevices {
		c.volume(fmt.Sprintf("%s.volumeDevices[%d].name", at, i), container.VolumeDevices[i].Name, declared)
	}
}

// volume requires a volume of the template itself. Whether a pod has one of its
// own under that name is nothing that a profile can rely on.
func (c *checker) volume(path, name string, declared map[string]string) {
	if declared[name] == "" {
		c.error(path, "declare the volume in the template; if a pod has an equal one of the same name, that is used",
			"%q is not among the template's volumes", name)
	}
}

func (c *checker) port(at, container string, p *corev1.ContainerPort, taken *portList) {
	if p.ContainerPort < 1 || p.ContainerPort > 65535 {
		c.error(at+".containerPort", "", "%q is out of range: allowed is 1 to 65535", strconv.Itoa(int(p.ContainerPort)))
	}
	if p.HostPort < 0 || p.HostPort > 65535 {
		c.error(at+".hostPort", "", "%q is out of range: allowed is 1 to 65535, or nothing", strconv.Itoa(int(p.HostPort)))
	}
	switch p.Protocol {
	case "", corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
	default:
		c.error(at+".protocol", "", "%q is not known: allowed are %q, %q and %q", p.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
	}
	port := newPort(p, container)
	port.path = at
	if other, field := taken.clash(&port); other != nil {
		c.error(at+"."+field, "", "%s is declared at %s too", port.text(field), other.path)
	}
	*taken = append(*taken, port)
}
