package podcheck

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// valueFrom checks where an environment variable comes from.
func (c *Checker) valueFrom(path string, from *corev1.EnvVarSource) {
	if f := from.FieldRef; f != nil {
		c.podField(path+".fieldRef.fieldPath", f.FieldPath, "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName",
			"spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs")
	}
	if r := from.ResourceFieldRef; r != nil {
		c.podResource(path+".resourceFieldRef.resource", r.Resource)
	}
	if s := from.SecretKeyRef; s != nil {
		c.keyOf(path+".secretKeyRef", s.Name, s.Key)
	}
	if m := from.ConfigMapKeyRef; m != nil {
		c.keyOf(path+".configMapKeyRef", m.Name, m.Key)
	}
}

// keyOf checks a reference to a key of a ConfigMap or secret.
func (c *Checker) keyOf(path, name, key string) {
	c.require(path+".name", name)
	if c.require(path+".key", key) {
		c.messages(path+".key", key, validation.IsConfigMapKey(key))
	}
}

// envFrom checks where environment variables come from.
func (c *Checker) envFrom(path string, from *corev1.EnvFromSource) {
	if from.Prefix != "" {
		c.messages(path+".prefix", from.Prefix, validation.IsRelaxedEnvVarName(from.Prefix))
	}
	if from.ConfigMapRef != nil {
		c.require(path+".configMapRef.name", from.ConfigMapRef.Name)
	}
	if from.SecretRef != nil {
		c.require(path+".secretRef.name", from.SecretRef.Name)
	}
}
