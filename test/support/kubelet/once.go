package kubelet

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// once runs the process of a pod that is not to be started again, such as that of a Job, and tells the API server with what
// it ended, until the pod is deleted.
func (p *Pod) once(ctx context.Context) {
	code, again := p.outcome(ctx)
	for again {
		if !p.wait(ctx, time.Second, nil) {
			return
		}
		code, again = p.outcome(ctx)
	}
	p.kubelet.say("pod %s: ended with the code %d", p.Name, code)
	told := p.ended(ctx, code) == nil
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.lost:
			return
		case <-p.deleted:
			p.finish(ctx)
			return
		case <-tick.C:
			if !told {
				told = p.ended(ctx, code) == nil
			}
		}
	}
}

// outcome runs the process until it ends, or the pod is not wanted any more. Again means that it could not be started.
func (p *Pod) outcome(ctx context.Context) (code int, again bool) {
	process, err := p.prepare(ctx)
	if err == nil {
		err = process.Start(ctx)
	}
	if err != nil {
		p.kubelet.say("pod %s: %v", p.Name, err)
		return 0, true
	}
	p.hold(process)
	p.kubelet.say("pod %s: started, to run once", p.Name)
	select {
	case <-process.Exited():
	case <-p.deleted:
		_ = process.Stop()
	case <-p.lost:
		_ = process.Kill()
	case <-ctx.Done():
		_ = process.Kill()
	}
	return process.ExitCode(), false
}

func (p *Pod) hold(process *cluster.Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.process = process
}

// ended writes the pod's last status.
func (p *Pod) ended(ctx context.Context, code int) error {
	phase := corev1.PodSucceeded
	if code != 0 {
		phase = corev1.PodFailed
	}
	now := metav1.Now()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.uid}, "status": corev1.PodStatus{
		Phase: phase, PodIP: p.Address.String(), PodIPs: []corev1.PodIP{{IP: p.Address.String()}}, StartTime: &now,
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: p.spec.Spec.Containers[0].Name, Image: p.spec.Spec.Containers[0].Image,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: int32(code), FinishedAt: now}}, //nolint:gosec // a byte at most
		}},
	}})
	if err != nil {
		return err
	}
	_, err = p.kubelet.node.CoreV1().Pods(p.spec.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil // it is deleted
	}
	if err != nil && ctx.Err() == nil {
		p.kubelet.say("pod %s: status: %v", p.Name, err)
	}
	return err
}
