package podsecurity

import (
	"bytes"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// reserved are the ends of the domains of annotations that Kubernetes gives a
// meaning to, and no one else may:
// https://kubernetes.io/docs/concepts/overview/working-with-objects/annotations/.
const (
	reserved      = "kubernetes.io/"
	reservedShort = "k8s.io/"
)

// annotations reads the annotations that are reserved for Kubernetes. No check reads the
// others, which are often long: only their kind is checked.
func (r *reader) annotations() map[string]string {
	var out map[string]string
	for o := r.object(); o.next(); {
		name := o.name()
		if !bytes.Contains(name, []byte(reserved)) && !bytes.Contains(name, []byte(reservedShort)) {
			r.value(rawjson.String)
			continue
		}
		if out == nil {
			out = make(map[string]string)
		}
		out[name.Text()] = r.string()
	}
	return out
}
