package podsecurity

import (
	"hash/maphash"

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
// absent, and a member that is not known here is passed by. What is looked at
// and has another type, and any member that stands twice in an object that is
// looked into, is an error that names it: readers of such an object disagree.
// What is passed by may say anything. An absent object is an empty pod.
//
// The fields are read one by one, in one pass over the text, because most of a
// pod no check looks at, and decoding all of it costs several times as much. That
// none is forgotten, a test holds against the source of the checks.
func Decode(object rawjson.Value) (*Pod, error) {
	pod := new(Pod)
	if len(object) == 0 {
		return pod, nil
	}
	r := reader{text: object, c: object.Cursor(), seed: maphash.MakeSeed()}
	r.pod(pod)
	if r.err != nil {
		return nil, r.err
	}
	return pod, nil
}

func (r *reader) pod(to *Pod) {
	for o := r.object(); o.next(); {
		switch string(o.name()) {
		case `"metadata"`:
			r.metadata(&to.Metadata)
		case `"spec"`:
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
			to.Containers = list(r, (*reader).container)
		case `"initContainers"`:
			to.InitContainers = list(r, (*reader).container)
		case `"ephemeralContainers"`:
			to.EphemeralContainers = list(r, (*reader).ephemeralContainer)
		case `"volumes"`:
			to.Volumes = list(r, (*reader).volume)
		case `"securityContext"`:
			to.SecurityContext = pointer(r, (*reader).podSecurityContext)
		case `"hostNetwork"`:
			to.HostNetwork = r.boolean()
		case `"hostPID"`:
			to.HostPID = r.boolean()
		case `"hostIPC"`:
			to.HostIPC = r.boolean()
		case `"hostUsers"`:
			to.HostUsers = r.booleanPointer()
		case `"os"`:
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
			to.Name = corev1.OSName(r.string())
		default:
			r.c.Skip()
		}
	}
}
