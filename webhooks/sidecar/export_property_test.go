package sidecar

import (
	"context"
	"reflect"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/status"
)

// Spliced is Decide, and the text that the editors make of the pod beside the
// patch: what the patch must come to, but for the status annotation.
func (s *Set) Spliced(in Input) (Decision, []byte) {
	if len(in.Request.Object.Raw) == 0 {
		return s.Decide(context.Background(), in), nil
	}
	sc := new(scratch)
	d := sc.decide(context.Background(), s, &in)
	switch state := &sc.injector.pod; {
	case len(state.Editor.Splices) > 0:
		return d, state.Editor.Result()
	case state.Text != nil:
		return d, state.Text
	default:
		return d, podtext.Trim(in.Request.Object.Raw)
	}
}

// Stripped returns the text of a pod without what its status annotation lists, and
// false if that cannot be read.
func Stripped(pod []byte) ([]byte, bool) {
	var sc scratch
	pod = podtext.Trim(pod)
	if err := sc.Pod.Parse(&sc.Reader, pod); err != nil || sc.Pod.StatusAnnotation == nil {
		return nil, false
	}
	s, err := status.Parse(sc.Pod.StatusAnnotation.Text())
	if err != nil {
		return nil, false
	}
	out, _ := s.Undo().Revert(nil, pod, "", nil)
	return out, true
}

// AsWritten returns a pod's spec as it is added.
func AsWritten(spec []byte) []byte {
	return merge.Canonicalize(spec, reflect.TypeFor[corev1.PodSpec]())
}
