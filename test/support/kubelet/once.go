package kubelet

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// once runs the process of a pod that is not to be started again, such as that of a Job, and reports how it ended, until the
// pod is deleted.
func (p *Pod) once(ctx context.Context) {
	code, again := p.outcome(ctx)
	for again {
		if !p.wait(ctx, time.Second, nil) {
			return
		}
		code, again = p.outcome(ctx)
	}
	p.kubelet.logf("pod %s: ended with the code %d", p.Name, code)
	reported := p.reportEnd(ctx, code) == nil
	tick := time.NewTicker(interval)
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
			if !reported {
				reported = p.reportEnd(ctx, code) == nil
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
		p.kubelet.logf("pod %s: %v", p.Name, err)
		return 0, true
	}
	p.hold(process)
	p.kubelet.logf("pod %s: started, to run once", p.Name)
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
