package kubelet

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// attendOnce waits until a process that is not to be started again, such as that of a Job, has ended, and reports how it
// ended, until the pod is deleted.
func (p *Pod) attendOnce(ctx context.Context, process *cluster.Process) {
	select {
	case <-process.Exited():
	case <-p.deleted:
		_ = process.Stop()
	case <-p.lost:
		_ = process.Kill()
	case <-ctx.Done():
		_ = process.Kill()
	}
	code := process.ExitCode()
	p.kubelet.logf("pod %s: ended with the code %d", p.Name, code)
	for p.reportEnd(ctx, code) != nil {
		if !p.wait(ctx, interval) {
			return
		}
	}
	select {
	case <-ctx.Done():
	case <-p.lost:
	case <-p.deleted:
		p.finish(ctx)
	}
}

// reportEnd writes the pod's last status.
func (p *Pod) reportEnd(ctx context.Context, code int) error {
	phase := corev1.PodSucceeded
	if code != 0 {
		phase = corev1.PodFailed
	}
	ended := &corev1.ContainerStateTerminated{ExitCode: int32(code), FinishedAt: metav1.Now()} //nolint:gosec // a byte at most
	err := p.writeStatus(ctx, corev1.PodStatus{Phase: phase}, corev1.ContainerStatus{State: corev1.ContainerState{Terminated: ended}})
	if apierrors.IsNotFound(err) {
		return nil // it is deleted
	}
	return err
}
