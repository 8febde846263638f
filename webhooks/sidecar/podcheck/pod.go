package podcheck

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/rules"
)

// PodSpec checks the fields of a template's spec that are neither containers nor volumes, and
// refuses those that no profile can set for a pod that is created.
func (c *Checker) PodSpec(path string, t *corev1.PodSpec) {
	c.grace = t.TerminationGracePeriodSeconds
	for i := range t.ResourceClaims {
		c.claims[t.ResourceClaims[i].Name] = true
	}
	c.fields(path, reflect.ValueOf(t))
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
	if len(t.Overhead) > 0 {
		// plugin/pkg/admission/runtimeclass has run before webhooks do, and compares.
		c.error(path+".overhead", "", "the API server sets the overhead of a pod's RuntimeClass, and refuses another one")
	}
	if t.NodeName != "" {
		c.error(path+".nodeName", "use nodeSelector or affinity", "a profile cannot put every pod on one node")
	}
}

// Volume checks a volume of the template.
func (c *Checker) Volume(at string, v *corev1.Volume) {
	if _, twice := c.blocks[v.Name]; !twice {
		c.blocks[v.Name] = v.PersistentVolumeClaim != nil || v.Ephemeral != nil
	}
	c.name(at+".name", v.Name, c.Volumes)
	if rules.CountSet(&v.VolumeSource) == 0 {
		c.warn(at, "write emptyDir: {}", "volume %q has no source: the API server uses an emptyDir", v.Name)
	}
	c.fields(at, reflect.ValueOf(v))
}
