package podcheck

import (
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// PodSpec checks the fields of a template's spec that are neither containers nor
// volumes.
func (c *Checker) PodSpec(path string, t *corev1.PodSpec) {
	c.grace = t.TerminationGracePeriodSeconds
	for i := range t.ResourceClaims {
		c.claims[t.ResourceClaims[i].Name] = true
	}
	c.fields(path, reflect.ValueOf(t))
}

// podSpec refuses fields that no profile can set for a pod that is created, and checks those
// that must go together.
func (c *Checker) podSpec(path string, t *corev1.PodSpec) {
	if len(t.EphemeralContainers) > 0 {
		c.error(path+".ephemeralContainers", "", "a pod cannot be created with ephemeral containers")
	}
	for field, isSet := range map[string]bool{"hostNetwork": t.HostNetwork, "hostPID": t.HostPID, "hostIPC": t.HostIPC} {
		if isSet {
			c.error(path+"."+field, "", "a profile cannot give pods a namespace of the node")
		}
	}
	for field, isSet := range map[string]bool{
		"priorityClassName": t.PriorityClassName != "", "priority": t.Priority != nil, "preemptionPolicy": t.PreemptionPolicy != nil,
	} {
		if isSet {
			// plugin/pkg/admission/priority, admitPod: it has run before webhooks
			// do, and runs again.
			c.error(path+"."+field, "", "the API server sets a pod's priority before it calls webhooks, and refuses another one")
		}
	}
	if t.NodeName != "" {
		c.error(path+".nodeName", "use nodeSelector or affinity", "a profile cannot put every pod on one node")
	}
	if t.HostPID && t.ShareProcessNamespace != nil && *t.ShareProcessNamespace {
		c.invalid(path+".shareProcessNamespace", "shareProcessNamespace and hostPID cannot both be true")
	}
	for _, key := range slices.Sorted(maps.Keys(t.NodeSelector)) {
		c.messages(path+".nodeSelector."+key, key, validation.IsQualifiedName(key))
		c.messages(path+".nodeSelector."+key, t.NodeSelector[key], validation.IsValidLabelValue(t.NodeSelector[key]))
	}
	d := t.DNSConfig
	if d == nil {
		d = new(corev1.PodDNSConfig)
	}
	if t.DNSPolicy == corev1.DNSNone && len(d.Nameservers) == 0 && !c.placeholder(path+".dnsPolicy") {
		c.error(path+".dnsConfig.nameservers", "", "dnsPolicy: None requires at least one nameserver")
	}
	c.atMost(path+".dnsConfig.nameservers", len(d.Nameservers), 3)
	c.atMost(path+".dnsConfig.searches", len(d.Searches), 32)
}

func (c *Checker) atMost(path string, n, most int) {
	if n > most {
		c.error(path, "", "has %d entries: a pod can have at most %d", n, most)
	}
}

func (c *Checker) toleration(at string, t *corev1.Toleration) {
	if t.Key == "" && t.Operator != corev1.TolerationOpExists {
		c.invalid(at+".operator", "%q requires a key: without one, it must be %q", t.Operator, corev1.TolerationOpExists)
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		c.invalid(at+".effect", "%q cannot have tolerationSeconds: must be %q", t.Effect, corev1.TaintEffectNoExecute)
	}
	if t.Operator == corev1.TolerationOpExists && t.Value != "" {
		c.invalid(at+".value", "must be empty with the operator Exists")
	}
}

func (c *Checker) nodeSelector(path string, s *corev1.NodeSelector) {
	if len(s.NodeSelectorTerms) == 0 {
		c.error(path+".nodeSelectorTerms", "", "at least one is required")
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
		c.warn(at, "write emptyDir: {}", "volume %q has no source: the API server uses an emptyDir", v.Name)
	case n > 1:
		c.error(at, "", "volume %q has %d sources: exactly one is allowed", v.Name, n)
	}
	c.fields(at, reflect.ValueOf(v))
}

func (c *Checker) volumeProjection(path string, s *corev1.VolumeProjection) {
	if n := countSet(s); n > 1 {
		c.error(path, "", "one source is allowed, found %d", n)
	}
}

func (c *Checker) downwardAPIFile(path string, f *corev1.DownwardAPIVolumeFile) {
	if (f.FieldRef == nil) == (f.ResourceFieldRef == nil) {
		c.error(path, "", "exactly one of fieldRef and resourceFieldRef is required")
	}
	if f.ResourceFieldRef != nil {
		c.require(path+".resourceFieldRef.containerName", f.ResourceFieldRef.ContainerName)
	}
}
