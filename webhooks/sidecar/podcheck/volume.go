package podcheck

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// volumeSource checks the sources that sidecars have; others are left to the API
// server.
func (c *Checker) volumeSource(at string, v *corev1.Volume) {
	if s := v.Secret; s != nil {
		c.require(at+".secret.secretName", s.SecretName)
		c.files(at+".secret", s.DefaultMode, s.Items)
	}
	if s := v.ConfigMap; s != nil {
		c.require(at+".configMap.name", s.Name)
		c.files(at+".configMap", s.DefaultMode, s.Items)
	}
	if s := v.HostPath; s != nil {
		if c.require(at+".hostPath.path", s.Path) {
			c.noParentReferences(at+".hostPath.path", s.Path)
		}
		if s.Type != nil {
			oneOf(c, at+".hostPath.type", *s.Type, corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory, corev1.HostPathFileOrCreate,
				corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev)
		}
	}
	if s := v.EmptyDir; s != nil && s.SizeLimit != nil && s.SizeLimit.Sign() < 0 {
		c.invalid(at+".emptyDir.sizeLimit", "%q is below zero", s.SizeLimit.String())
	}
	if s := v.DownwardAPI; s != nil {
		c.mode(at+".downwardAPI.defaultMode", s.DefaultMode)
		c.downward(at+".downwardAPI", s.Items)
	}
	if s := v.Projected; s != nil {
		c.mode(at+".projected.defaultMode", s.DefaultMode)
		for i := range s.Sources {
			c.projection(fmt.Sprintf("%s.projected.sources[%d]", at, i), &s.Sources[i])
		}
	}
	if s := v.PersistentVolumeClaim; s != nil {
		c.require(at+".persistentVolumeClaim.claimName", s.ClaimName)
	}
	if s := v.CSI; s != nil {
		c.require(at+".csi.driver", s.Driver)
	}
	if s := v.NFS; s != nil {
		c.require(at+".nfs.server", s.Server)
		c.require(at+".nfs.path", s.Path)
	}
}

func (c *Checker) projection(at string, s *corev1.VolumeProjection) {
	if n := countSet(s); n > 1 {
		c.error(at, "", "one source is allowed, and there are %d", n)
	}
	if t := s.ServiceAccountToken; t != nil {
		if c.require(at+".serviceAccountToken.path", t.Path) {
			c.relativePath(at+".serviceAccountToken.path", t.Path)
		}
		const tenMinutes, most = 600, 1 << 32
		if e := t.ExpirationSeconds; e != nil && (*e < tenMinutes || *e > most) {
			c.invalid(at+".serviceAccountToken.expirationSeconds", "%q is out of range: allowed is %d to %d", strconv.FormatInt(*e, 10), tenMinutes, most)
		}
	}
	if p := s.Secret; p != nil {
		c.require(at+".secret.name", p.Name)
		c.files(at+".secret", nil, p.Items)
	}
	if p := s.ConfigMap; p != nil {
		c.require(at+".configMap.name", p.Name)
		c.files(at+".configMap", nil, p.Items)
	}
	if p := s.DownwardAPI; p != nil {
		c.downward(at+".downwardAPI", p.Items)
	}
}

// files checks the files that are made of keys.
func (c *Checker) files(at string, mode *int32, items []corev1.KeyToPath) {
	c.mode(at+".defaultMode", mode)
	for i := range items {
		path := fmt.Sprintf("%s.items[%d]", at, i)
		if c.require(path+".key", items[i].Key) {
			c.messages(path+".key", items[i].Key, validation.IsConfigMapKey(items[i].Key))
		}
		if c.require(path+".path", items[i].Path) {
			c.relativePath(path+".path", items[i].Path)
		}
		c.mode(path+".mode", items[i].Mode)
	}
}

// downward checks the files that are made of the pod's own fields.
func (c *Checker) downward(at string, items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		path := fmt.Sprintf("%s.items[%d]", at, i)
		if c.require(path+".path", items[i].Path) {
			c.relativePath(path+".path", items[i].Path)
		}
		c.mode(path+".mode", items[i].Mode)
		f, r := items[i].FieldRef, items[i].ResourceFieldRef
		if (f == nil) == (r == nil) {
			c.error(path, "", "one of fieldRef and resourceFieldRef is required")
		}
		if f != nil {
			c.podField(path+".fieldRef.fieldPath", f.FieldPath, "metadata.name", "metadata.namespace", "metadata.labels", "metadata.annotations", "metadata.uid")
		}
		if r != nil {
			c.require(path+".resourceFieldRef.containerName", r.ContainerName)
			c.podResource(path+".resourceFieldRef.resource", r.Resource)
		}
	}
}

// Volume checks a volume of the template.
func (c *Checker) Volume(at string, v *corev1.Volume) {
	if _, twice := c.blocks[v.Name]; !twice {
		c.blocks[v.Name] = v.PersistentVolumeClaim != nil || v.Ephemeral != nil
	}
	c.name(at+".name", v.Name, c.Volumes)
	switch n := countSet(&v.VolumeSource); {
	case n == 0:
		c.warn(at, "write emptyDir: {}", "volume %q has no source: the API server makes it an emptyDir", v.Name)
	case n > 1:
		c.error(at, "", "volume %q has %d sources, and may have one", v.Name, n)
	}
	c.volumeSource(at, v)
}
