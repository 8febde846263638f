package podsecurity

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// Pod is what a standard looks at in a pod. Fields that no check looks at are
// left empty.
type Pod struct {
	Metadata metav1.ObjectMeta
	Spec     corev1.PodSpec
}

// Decode reads of a pod what upstream's checks look at, as the API server's
// decoder would: names of members are compared exactly, null is as good as
// absent, and a member that is not known here is passed by. A member that is
// looked at and has another type, or stands in its object twice, is an error
// that names it; what is not looked at may say anything. An absent object is an
// empty pod.
//
// The fields are read one by one, in one pass over the text, because most of a
// pod no check looks at, and decoding all of it costs ten times as much. That
// none is forgotten, a test holds against the source of the checks.
func Decode(object rawjson.Value) (*Pod, error) {
	pod := new(Pod)
	if len(object) == 0 {
		return pod, nil
	}
	r := reader{text: object, c: object.Cursor()}
	r.pod(pod)
	return pod, r.err
}

func (r *reader) pod(to *Pod) {
	for o := r.object(); o.next(); {
		switch string(o.name()) {
		case `"metadata"`:
			o.once(0)
			r.metadata(&to.Metadata)
		case `"spec"`:
			o.once(1)
			r.spec(&to.Spec)
		default:
			r.c.Skip()
		}
	}
}

func (r *reader) metadata(to *metav1.ObjectMeta) {
	for o := r.object(); o.next(); {
		switch string(o.name()) {
		case `"annotations"`:
			o.once(0)
			to.Annotations = r.annotations()
		default:
			r.c.Skip()
		}
	}
}

func (r *reader) spec(to *corev1.PodSpec) {
	for o := r.object(); o.next(); {
		switch string(o.name()) {
		case `"containers"`:
			o.once(0)
			to.Containers = list(r, (*reader).container)
		case `"initContainers"`:
			o.once(1)
			to.InitContainers = list(r, (*reader).container)
		case `"ephemeralContainers"`:
			o.once(2)
			to.EphemeralContainers = list(r, (*reader).ephemeralContainer)
		case `"volumes"`:
			o.once(3)
			to.Volumes = list(r, (*reader).volume)
		case `"securityContext"`:
			o.once(4)
			to.SecurityContext = pointer(r, (*reader).podSecurityContext)
		case `"hostNetwork"`:
			o.once(5)
			to.HostNetwork = r.boolean()
		case `"hostPID"`:
			o.once(6)
			to.HostPID = r.boolean()
		case `"hostIPC"`:
			o.once(7)
			to.HostIPC = r.boolean()
		case `"hostUsers"`:
			o.once(8)
			to.HostUsers = r.booleanPointer()
		case `"os"`:
			o.once(9)
			to.OS = pointer(r, (*reader).os)
		default:
			r.c.Skip()
		}
	}
}

func (r *reader) os(to *corev1.PodOS) {
	for o := r.object(); o.next(); {
		switch string(o.name()) {
		case `"name"`:
			o.once(0)
			to.Name = corev1.OSName(r.string())
		default:
			r.c.Skip()
		}
	}
}
