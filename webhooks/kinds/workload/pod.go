package workload

import (
	"fmt"
	"slices"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// MaxElements is how many containers, init containers, ephemeral containers and volumes,
// of each, a pod may have about which a decision is made. Each of them is looked at many
// times, by profiles, rules and exceptions, so that without a bound one pod could take the
// time of hundreds. Nodes run pods with more: a kubelet passes over volumes that no
// container mounts.
const MaxElements = 1000

// ErrElements is wrapped by the error for a pod that has more. Such a pod is refused: if
// nothing were decided, padding would be a way past every webhook that fails open.
var ErrElements = fmt.Errorf("at most %d are allowed", MaxElements)

var elementLists = [...]string{"containers", "initContainers", "ephemeralContainers", "volumes"} //nolint:gochecknoglobals // constant

// CheckElements returns an error for a pod, or the template of one, that has more. The Cursor is in front of it.
func CheckElements(c rawjson.Cursor) error {
	if !enter(&c) {
		return nil
	}
	for c.Next() {
		if !c.Name().Is("spec") || !enter(&c) {
			c.Skip()
			continue
		}
		for c.Next() {
			member := c.Name()
			if c.Kind() != rawjson.Array || !slices.ContainsFunc(elementLists[:], member.Is) {
				c.Skip()
				continue
			}
			n := 0
			for c.Enter(); c.Next(); n++ {
				c.Skip()
			}
			if n > MaxElements {
				return fmt.Errorf("spec.%s has %d elements: %w", member.Text(), n, ErrElements)
			}
		}
	}
	return nil
}

// enter goes into the value that comes next if it is an object, and reports whether it is.
func enter(c *rawjson.Cursor) bool {
	if c.Kind() != rawjson.Object {
		return false
	}
	c.Enter()
	return true
}

// AppendPod appends the JSON text of the pod that a controller makes of a
// template for the workload of that namespace and name, as the API server would
// be asked to create it. What it takes out of the template it takes byte for
// byte: the spec, and of the metadata labels, annotations and finalizers.
//
// Kubernetes' controllers take nothing else (GetPodFromTemplate in
// pkg/controller/controller_utils.go): a name or an owner in a template has no
// effect. The name of the pod is left to the API server; the generateName is the
// workload's name and a dash, where a Deployment's pods have that of a ReplicaSet
// of which nobody knows the name yet. An empty namespace or name is left out.
//
// A template without a spec makes a pod without one, and one whose metadata is
// no object is taken to have none: the API server refuses both itself.
func AppendPod(dst []byte, template rawjson.Value, namespace, name string) []byte {
	var metadata, spec rawjson.Value
	for member, value := range template.Members() {
		switch {
		case member.Is("metadata") && metadata == nil:
			metadata = value
		case member.Is("spec") && spec == nil:
			spec = value
		}
	}
	dst = append(dst, `{"apiVersion":"v1","kind":"Pod","metadata":{`...)
	separator := ""
	if namespace != "" {
		dst = rawjson.AppendString(append(dst, `"namespace":`...), namespace)
		separator = ","
	}
	if name != "" {
		dst = rawjson.AppendString(append(append(dst, separator...), `"generateName":`...), name+"-")
		separator = ","
	}
	for member, value := range metadata.Members() {
		if member.Is("labels") || member.Is("annotations") || member.Is("finalizers") {
			dst = append(append(append(append(dst, separator...), member...), ':'), value...)
			separator = ","
		}
	}
	dst = append(dst, '}')
	if spec != nil {
		dst = append(append(dst, `,"spec":`...), spec...)
	}
	return append(dst, '}')
}
