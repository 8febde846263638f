package kubelet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// The ports that programs listen on without being told otherwise.
const (
	reviewsPort = 9443
	opsPort     = 8080
)

// Pod is a pod whose process runs, or has run.
type Pod struct {
	Name string
	// Address is the pod's own, on which the process listens at the ports that its spec says.
	Address netip.Addr

	uid     types.UID
	kubelet *Kubelet
	spec    *corev1.Pod
	dir     string
	// deleted is closed when the API server wants the pod to end, and lost when its object is gone.
	deleted, lost         chan struct{}
	deletedOnce, lostOnce sync.Once
	grace                 time.Duration

	mu       sync.Mutex
	process  *cluster.Process
	ready    bool
	restarts int32
}

// Process returns what runs in the pod now, nil before it has begun.
func (p *Pod) Process() *cluster.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.process
}

// Ready reports whether the process was ready when it was asked last.
func (p *Pod) Ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready
}

// Restarts returns how often the process has been started again.
func (p *Pod) Restarts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(p.restarts)
}

// Ops returns the URL of a path of the listener for health and metrics.
func (p *Pod) Ops(path string) string {
	return "http://" + netip.AddrPortFrom(p.Address, opsPort).String() + path
}

// Log returns the file that everything the process prints goes to.
func (p *Pod) Log() string { return p.dir + ".log" }

// update takes note of the pod's object.
func (p *Pod) update(pod *corev1.Pod) {
	if pod.DeletionTimestamp != nil {
		p.deletedOnce.Do(func() {
			if pod.DeletionGracePeriodSeconds != nil {
				p.grace = time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
			}
			close(p.deleted)
		})
	}
}

func (p *Pod) gone() { p.lostOnce.Do(func() { close(p.lost) }) }

// end kills the process.
func (p *Pod) end() {
	if process := p.Process(); process != nil {
		_ = process.Kill()
	}
}

// run runs the pod's process, and starts it again when it ends, until the pod is deleted.
func (p *Pod) run(ctx context.Context) {
	const pause = 200 * time.Millisecond
	for {
		process, err := p.prepare(ctx)
		if err == nil {
			err = process.Start(ctx)
		}
		if err != nil {
			p.kubelet.logf("pod %s: %v", p.Name, err)
			if !p.wait(ctx, time.Second) {
				return
			}
			continue
		}
		p.mu.Lock()
		p.process = process
		p.mu.Unlock()
		p.kubelet.logf("pod %s: started at %s", p.Name, p.Address)
		if !p.attend(ctx, process) {
			return
		}
		p.mu.Lock()
		p.restarts++
		p.mu.Unlock()
		p.kubelet.logf("pod %s: its process has ended, and is to be started again", p.Name)
		if !p.wait(ctx, pause) {
			return
		}
	}
}

// wait waits for a time, and reports whether the pod still exists.
func (p *Pod) wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-p.deleted:
		p.finish(ctx)
		return false
	case <-p.lost:
		return false
	case <-timer.C:
		return true
	}
}

// attend asks a process whether it is ready, and reports that to the API server, until it ends. It returns true if the
// process is to be started again: that of a Job is not.
func (p *Pod) attend(ctx context.Context, process *cluster.Process) bool {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	reported := false
	for {
		select {
		case <-ctx.Done():
			return false
		case <-p.lost:
			_ = process.Kill()
			return false
		case <-p.deleted:
			p.terminate(ctx, process)
			p.finish(ctx)
			return false
		case <-process.Exited():
			if p.spec.Spec.RestartPolicy == corev1.RestartPolicyNever {
				p.reportEnd(ctx, process.ExitCode())
				return false
			}
			_ = p.reportReady(ctx, false) // it is reported again when the process has been started
			return true
		case <-tick.C:
		}
		ready := p.ask(ctx, "/readyz") == nil
		select {
		case <-process.Exited():
			continue // it is noticed as such, in its time
		default:
		}
		if ready != p.Ready() || !reported {
			reported = p.reportReady(ctx, ready) == nil
		}
	}
}

// terminate ends a process as a kubelet does: by asking, and by force after the grace period.
func (p *Pod) terminate(ctx context.Context, process *cluster.Process) {
	p.kubelet.logf("pod %s: asked to end within %s", p.Name, p.grace)
	if p.grace > 0 {
		_ = process.Signal(syscall.SIGTERM)
		timer := time.NewTimer(p.grace)
		defer timer.Stop()
		select {
		case <-process.Exited():
		case <-timer.C:
			p.kubelet.logf("pod %s: killed after its grace period", p.Name)
		case <-ctx.Done():
		}
	}
	_ = process.Kill()
}

// finish removes the pod's object.
func (p *Pod) finish(ctx context.Context) {
	for ctx.Err() == nil {
		err := p.kubelet.remove(ctx, p.spec)
		if err == nil {
			p.kubelet.logf("pod %s: ended", p.Name)
			return
		}
		p.kubelet.logf("pod %s: remove: %v", p.Name, err)
		timer := time.NewTimer(interval)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

func (p *Pod) ask(ctx context.Context, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Ops(path), nil)
	if err != nil {
		return err
	}
	response, err := p.kubelet.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // nothing is read from it
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, response.Status)
	}
	return nil
}

// reportReady writes the status of a pod that runs.
func (p *Pod) reportReady(ctx context.Context, ready bool) error {
	condition := corev1.ConditionFalse
	if ready {
		condition = corev1.ConditionTrue
	}
	now := metav1.Now()
	status := corev1.PodStatus{Phase: corev1.PodRunning}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		c := corev1.PodCondition{Type: kind, Status: condition, LastTransitionTime: now}
		if kind == corev1.PodScheduled || kind == corev1.PodInitialized {
			c.Status = corev1.ConditionTrue
		}
		status.Conditions = append(status.Conditions, c)
	}
	container := corev1.ContainerStatus{
		Ready: ready, Started: new(true), RestartCount: int32(p.Restarts()), //nolint:gosec // few
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
	}
	err := p.writeStatus(ctx, status, container)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.ready = ready
	p.mu.Unlock()
	p.kubelet.logf("pod %s: ready %v", p.Name, ready)
	return nil
}

// reportEnd writes the last status of a pod whose process is not to be started again, and waits until the pod is deleted.
func (p *Pod) reportEnd(ctx context.Context, code int) {
	p.kubelet.logf("pod %s: ended with the code %d", p.Name, code)
	phase := corev1.PodSucceeded
	if code != 0 {
		phase = corev1.PodFailed
	}
	ended := &corev1.ContainerStateTerminated{ExitCode: int32(code), FinishedAt: metav1.Now()} //nolint:gosec // a byte at most
	write := func() error {
		return p.writeStatus(ctx, corev1.PodStatus{Phase: phase}, corev1.ContainerStatus{State: corev1.ContainerState{Terminated: ended}})
	}
	for err := write(); err != nil && !apierrors.IsNotFound(err); err = write() {
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

// writeStatus writes the pod's status with that of its container, as the node.
func (p *Pod) writeStatus(ctx context.Context, status corev1.PodStatus, container corev1.ContainerStatus) error {
	now := metav1.Now()
	status.PodIP, status.PodIPs, status.StartTime = p.Address.String(), []corev1.PodIP{{IP: p.Address.String()}}, &now
	container.Name, container.Image = p.spec.Spec.Containers[0].Name, p.spec.Spec.Containers[0].Image
	status.ContainerStatuses = []corev1.ContainerStatus{container}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.uid}, "status": status})
	if err != nil {
		return err
	}
	_, err = p.kubelet.node.CoreV1().Pods(p.spec.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
		p.kubelet.logf("pod %s: status: %v", p.Name, err)
	}
	return err
}

// prepare makes what the spec says into a program that can be started.
func (p *Pod) prepare(ctx context.Context) (*cluster.Process, error) {
	if len(p.spec.Spec.Containers) != 1 {
		return nil, errors.New("it has not exactly one container")
	}
	container := &p.spec.Spec.Containers[0]
	mounts, err := p.mount(ctx, container)
	if err != nil {
		return nil, err
	}
	var environ, values []string
	for _, v := range container.Env {
		value, err := p.value(&v)
		if err != nil {
			return nil, err
		}
		environ = append(environ, v.Name+"="+value)
		values = append(values, "$("+v.Name+")", value)
	}
	args := slices.Concat(container.Command, container.Args)
	for i := range args {
		args[i] = strings.NewReplacer(values...).Replace(args[i])
	}
	if len(args) > 0 && args[0] == "serve" {
		args = append(args, "--listen", net.JoinHostPort(p.Address.String(), fmt.Sprint(reviewsPort)), "--ops-listen", net.JoinHostPort(p.Address.String(), fmt.Sprint(opsPort)))
	}
	if image, ok := p.kubelet.options.Images[container.Image]; ok {
		return p.contain(ctx, &image, mounts, args, environ)
	}
	image, _, _ := strings.Cut(container.Image, ":")
	program := p.kubelet.options.Programs[image]
	if program == "" {
		return nil, fmt.Errorf("no program stands for the image %q", container.Image)
	}
	return p.standIn(ctx, program, mounts, args, environ)
}

// standIn returns a program of this machine in place of the image's.
func (p *Pod) standIn(ctx context.Context, program string, mounts map[string]string, args, environ []string) (*cluster.Process, error) {
	kubeconfig, err := p.kubeconfig(ctx)
	if err != nil {
		return nil, err
	}
	// The longest first: one path may be the beginning of another.
	paths := slices.SortedFunc(maps.Keys(mounts), func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	var here []string
	for _, arg := range args {
		for _, path := range paths {
			arg = strings.ReplaceAll(arg, path, mounts[path])
		}
		if arg == "--in-cluster" {
			// Where a pod's credentials are is fixed in a place that this machine has for others.
			here = append(here, "--kubeconfig="+kubeconfig)
			if here[0] == "serve" && slices.Contains(args, "--custom-resources") {
				here = append(here, "--namespace="+p.spec.Namespace)
			}
			continue
		}
		here = append(here, arg)
	}
	return cluster.NewProcess(cluster.ProcessOptions{
		Path: program, Args: here, Env: append([]string{"HOME=" + p.dir, "PATH=" + os.Getenv("PATH")}, environ...), Log: p.Log(), Ready: cluster.Started,
	}), nil
}

// value is that of an environment variable.
func (p *Pod) value(v *corev1.EnvVar) (string, error) {
	switch {
	case v.ValueFrom == nil:
		return v.Value, nil
	case v.ValueFrom.FieldRef != nil:
		switch v.ValueFrom.FieldRef.FieldPath {
		case "metadata.name":
			return p.Name, nil
		case "metadata.namespace":
			return p.spec.Namespace, nil
		case "status.podIP":
			return p.Address.String(), nil
		}
	}
	return "", fmt.Errorf("the environment variable %s comes from where this kubelet does not know", v.Name)
}

// mount writes the files of the volumes, and returns where they are by where the container has them.
func (p *Pod) mount(ctx context.Context, container *corev1.Container) (map[string]string, error) {
	mounts := map[string]string{}
	for _, m := range container.VolumeMounts {
		for i := range p.spec.Spec.Volumes {
			v := &p.spec.Spec.Volumes[i]
			if v.Name != m.Name || strings.HasPrefix(m.MountPath, "/var/run/secrets/kubernetes.io/") {
				continue
			}
			dir := filepath.Join(p.dir, v.Name)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return nil, err
			}
			if err := p.fill(ctx, dir, v); err != nil {
				return nil, fmt.Errorf("volume %s: %w", v.Name, err)
			}
			mounts[m.MountPath] = dir
		}
	}
	return mounts, nil
}

// fill writes the files of a volume. As on a node, they are those of the moment.
func (p *Pod) fill(ctx context.Context, dir string, v *corev1.Volume) error {
	var sources []corev1.VolumeProjection
	switch {
	case v.EmptyDir != nil:
	case v.Projected != nil:
		sources = v.Projected.Sources
	case v.ConfigMap != nil:
		sources = []corev1.VolumeProjection{{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: v.ConfigMap.LocalObjectReference, Items: v.ConfigMap.Items, Optional: v.ConfigMap.Optional}}}
	case v.Secret != nil:
		sources = []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: v.Secret.SecretName}, Items: v.Secret.Items, Optional: v.Secret.Optional}}}
	default:
		return errors.New("it is of a kind that this kubelet does not know")
	}
	for _, source := range sources {
		files := map[string][]byte{}
		var optional *bool
		var err error
		switch {
		case source.ConfigMap != nil:
			optional = source.ConfigMap.Optional
			c, failed := p.kubelet.node.CoreV1().ConfigMaps(p.spec.Namespace).Get(ctx, source.ConfigMap.Name, metav1.GetOptions{})
			err = failed
			for name, text := range c.Data {
				files[name] = []byte(text)
			}
		case source.Secret != nil:
			optional = source.Secret.Optional
			s, failed := p.kubelet.node.CoreV1().Secrets(p.spec.Namespace).Get(ctx, source.Secret.Name, metav1.GetOptions{})
			files, err = s.Data, failed
		default:
			return errors.New("a source is of a kind that this kubelet does not know")
		}
		if err != nil && (!apierrors.IsNotFound(err) || optional == nil || !*optional) {
			return err
		}
		for name, data := range files {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// token returns one of the pod's ServiceAccount, bound to the pod, that the node asked for.
func (p *Pod) token(ctx context.Context) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: new(int64(3607)),
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.uid},
	}}
	token, err := p.kubelet.node.CoreV1().ServiceAccounts(p.spec.Namespace).CreateToken(ctx, p.spec.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("a token of the ServiceAccount %q: %w", p.spec.Spec.ServiceAccountName, err)
	}
	return token.Status.Token, nil
}

// kubeconfig writes one with a token.
func (p *Pod) kubeconfig(ctx context.Context) (string, error) {
	token, err := p.token(ctx)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return "", err
	}
	tokenFile := filepath.Join(p.dir, "token")
	if err := os.WriteFile(tokenFile, []byte(token), 0o600); err != nil {
		return "", err
	}
	access := p.kubelet.options.Cluster.Config()
	path := filepath.Join(p.dir, "kubeconfig")
	return path, cluster.WriteKubeconfigFor(path, access.Host, access.CAData, &clientcmdapi.AuthInfo{TokenFile: tokenFile})
}
