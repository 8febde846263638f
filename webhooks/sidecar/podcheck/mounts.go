package podcheck

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// mount checks how a volume is mounted.
func (c *Checker) mount(path string, m *corev1.VolumeMount, container *corev1.Container, whole bool) {
	if p := m.MountPropagation; p != nil {
		oneOf(c, path+".mountPropagation", *p, corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone)
		s := container.SecurityContext
		if whole && *p == corev1.MountPropagationBidirectional && (s == nil || s.Privileged == nil || !*s.Privileged) {
			c.invalid(path+".mountPropagation", "%q is for privileged containers alone", *p)
		}
	}
	if r := m.RecursiveReadOnly; r != nil {
		oneOf(c, path+".recursiveReadOnly", *r, corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyIfPossible, corev1.RecursiveReadOnlyEnabled)
		if *r != corev1.RecursiveReadOnlyDisabled && !m.ReadOnly {
			c.invalid(path+".recursiveReadOnly", "%q does not go together with a mount that is not readOnly", *r)
		}
	}
}

// devices checks raw block devices, of which the volumes are claims and neither
// name nor path is that of a mount.
func (c *Checker) devices(at string, container *corev1.Container) {
	if len(container.VolumeDevices) == 0 {
		return
	}
	mounted, paths := make(map[string]bool), make(map[string]bool)
	for i := range container.VolumeMounts {
		mounted[container.VolumeMounts[i].Name], paths[container.VolumeMounts[i].MountPath] = true, true
	}
	seen := make(map[string]bool)
	for i := range container.VolumeDevices {
		d, path := &container.VolumeDevices[i], Indexed(at+".volumeDevices", i)
		if block, there := c.blocks[d.Name]; there && !block {
			c.error(path+".name", "", "%q is no persistentVolumeClaim, and cannot be a device", d.Name)
		}
		if c.require(path+".devicePath", d.DevicePath) {
			c.noParentReferences(path+".devicePath", d.DevicePath)
		}
		if seen[d.DevicePath] {
			c.error(path+".devicePath", "", "%q is the path of another device", d.DevicePath)
		}
		seen[d.DevicePath] = true
		if paths[d.DevicePath] {
			c.error(path+".devicePath", "", "%q is the path of a mount too", d.DevicePath)
		}
		if mounted[d.Name] {
			c.error(path+".name", "", "%q is mounted too", d.Name)
		}
	}
}

func (c *Checker) mounts(at, owner string, container *corev1.Container) {
	mounted := make(map[string]bool, len(container.VolumeMounts))
	for i := range container.VolumeMounts {
		m := &container.VolumeMounts[i]
		path := fmt.Sprintf("%s.volumeMounts[%d]", at, i)
		c.declaredVolume(path+".name", m.Name)
		switch {
		case m.MountPath == "":
			c.error(path+".mountPath", "", "a path is required")
		case mounted[m.MountPath]:
			c.invalid(path+".mountPath", "%q is mounted twice in %s", m.MountPath, owner)
		}
		mounted[m.MountPath] = true
		c.mount(path, m, container, container.Name != "")
		if m.SubPath != "" && m.SubPathExpr != "" {
			c.error(path+".subPathExpr", "", "subPath and subPathExpr exclude each other")
		}
		for _, sub := range []struct{ field, path string }{{"subPath", m.SubPath}, {"subPathExpr", m.SubPathExpr}} {
			if strings.HasPrefix(sub.path, "/") || slices.Contains(strings.Split(sub.path, "/"), "..") {
				c.error(path+"."+sub.field, "", `%q must be a relative path without ".."`, sub.path)
			}
		}
	}
	for i := range container.VolumeDevices {
		c.declaredVolume(fmt.Sprintf("%s.volumeDevices[%d].name", at, i), container.VolumeDevices[i].Name)
	}
	c.devices(at, container)
}

// declaredVolume requires a volume of the template itself. Whether a pod has one of its
// own under that name is nothing that a profile can rely on.
func (c *Checker) declaredVolume(path, name string) {
	if c.Volumes[name] == "" {
		c.error(path, "declare the volume in the template; if a pod has an equal one of the same name, that is used",
			"%q is not among the template's volumes", name)
	}
}
