package sidecar

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
)

// Spliced is Decide, and the text that the editors make of the pod beside the
// patch: what the patch must come to, but for the status annotation.
func (s *Set) Spliced(in Input) (Decision, []byte) {
	sc := new(scratch)
	in.Pod = trimmed(in.Pod)
	m := &sc.maker
	m.set, m.in, m.pod, m.text, m.reader = s, &in, &sc.pod, in.Pod, &sc.reader
	m.decide(sc)
	if len(m.pending.splices) > 0 {
		return m.Decision, m.pending.result()
	}
	return m.Decision, m.text
}

// Stripped is the text of a pod without what its status annotation lists, and
// false if that cannot be read.
func Stripped(pod []byte) ([]byte, bool) {
	var sc scratch
	pod = trimmed(pod)
	if err := sc.pod.parse(&sc.reader, pod); err != nil || sc.pod.status == nil {
		return nil, false
	}
	s, err := parseStatus(sc.pod.status.Text())
	if err != nil {
		return nil, false
	}
	out, _ := s.undo().revert(nil, pod, "", nil)
	return out, true
}

// AsWritten is a pod's spec as it is added.
func AsWritten(spec []byte) []byte { return asWritten(spec, reflect.TypeFor[corev1.PodSpec]()) }
