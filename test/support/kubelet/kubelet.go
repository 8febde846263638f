// Package kubelet runs pods of a real API server as processes of this machine, as far as tests of an install need it.
//
// It is a scheduler and a kubelet for the pods of one program: each pod gets an address of its own in the network
// namespace of the test, its process is started with the arguments, the environment, the mounted files and the
// ServiceAccount's token that its spec says, is asked whether it is ready as its probe says, and is ended as its grace
// period says. Its ports are forwarded to users of the API server. Everything in between is Kubernetes' own:
// kube-controller-manager makes the pods, replaces them, and keeps the endpoints of Services. It speaks to the API server
// as a node does, with a node's rights.
//
// What it does not do: limits, several containers, and images, for which a program of this machine stands, unless the test has
// unpacked them. The users of security contexts are replaced by one that no image knows, as OpenShift does.
package kubelet

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// NodeName is the name of the node.
const NodeName = "node-1"

const (
	// firstAddress is that of the first pod of the first kubelet. The API server and other servers of tests are below it.
	firstAddress = "192.0.2.20"
	// kubelets is how many can run at one time, and blockSize how many pods each can start.
	kubelets, blockSize = 5, 45
	// interval is how often pods are listed, and asked whether they are ready.
	interval = 100 * time.Millisecond
	// renewal is how often the node says that it is there, a quarter of the time after which it is given up.
	renewal = 10 * time.Second
	// probeTimeout bounds one request to a pod.
	probeTimeout = 3 * time.Second
)

// Options say what to run.
type Options struct {
	// Cluster is the control plane, with kube-controller-manager.
	Cluster *cluster.Cluster
	// Namespace is that of the pods; those of every other stay pending.
	Namespace string
	// Programs are the paths of the programs that stand for images, by the name of the image without its tag.
	Programs map[string]string
	// Images are those whose own program runs, in a container, by the whole reference in the pod. The test must call
	// [container.Enter].
	Images map[string]Image
	// Dir receives files and logs.
	Dir string
	// Log receives a line for each thing that happens. Nil means none.
	Log io.Writer
}

// Kubelet runs pods. It is safe for concurrent use.
type Kubelet struct {
	options Options
	// admin stands for the scheduler, node is what the node may do.
	admin, node kubernetes.Interface
	client      *http.Client
	// endpoint is where the API server finds the kubelet.
	endpoint netip.AddrPort
	stop     context.CancelFunc
	// running ends with Stop.
	running context.Context
	group   sync.WaitGroup

	// block is the number of the addresses that the pods of this kubelet have.
	block int

	mu sync.Mutex
	// pods are those that run, by UID.
	pods map[string]*Pod
	// started counts the pods that have an address.
	started int
}

// Start makes the node, and runs pods until Stop.
func Start(ctx context.Context, options Options) (*Kubelet, error) {
	if options.Log == nil {
		options.Log = io.Discard
	}
	k := &Kubelet{
		options: options, admin: options.Cluster.Client(), pods: map[string]*Pod{},
		client: &http.Client{Timeout: probeTimeout, Transport: &http.Transport{DisableKeepAlives: true}},
	}
	access, err := options.Cluster.ConfigFor("system:node:"+NodeName, "system:nodes")
	if err != nil {
		return nil, err
	}
	if k.node, err = kubernetes.NewForConfig(access); err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	k.running, k.stop = running, stop
	if k.endpoint, err = k.serve(running); err != nil {
		k.stop()
		return nil, fmt.Errorf("listen for the API server: %w", err)
	}
	if err := k.register(ctx); err != nil {
		k.stop()
		return nil, fmt.Errorf("make the node: %w", err)
	}
	select {
	case k.block = <-blocks:
	case <-ctx.Done():
		k.stop()
		return nil, fmt.Errorf("wait for addresses: %w", context.Cause(ctx))
	}
	k.group.Go(func() { k.keepNode(k.running) })
	k.group.Go(func() { k.run(k.running) })
	return k, nil
}

// Stop ends every process at once.
func (k *Kubelet) Stop() {
	k.stop()
	k.group.Wait()
	for _, p := range k.Pods() {
		p.end()
	}
	blocks <- k.block
}

// blocks are the numbers of the blocks of addresses that no kubelet has.
var blocks = freeBlocks() //nolint:gochecknoglobals // the kubelets of a process share its network namespace

func freeBlocks() chan int {
	free := make(chan int, kubelets)
	for block := range kubelets {
		free <- block
	}
	return free
}

// address returns the address of the pod with a number.
func (k *Kubelet) address(pod int) netip.Addr {
	first := netip.MustParseAddr(firstAddress).As4()
	first[3] += byte(k.block*blockSize + pod) //nolint:gosec // 225 addresses, from 20 on
	return netip.AddrFrom4(first)
}

// register makes the node as a kubelet does, with the node's own rights.
func (k *Kubelet) register(ctx context.Context) error {
	capacity := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("200"), corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("16Gi")}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: NodeName, Labels: map[string]string{corev1.LabelHostname: NodeName, corev1.LabelOSStable: "linux"}},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity,
			Conditions:      []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}},
			Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: k.endpoint.Addr().String()}},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(k.endpoint.Port())}},
		},
	}
	_, err := k.node.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = k.node.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	}
	if err != nil {
		return err
	}
	return k.renew(ctx)
}

// keepNode renews the node's Lease.
func (k *Kubelet) keepNode(ctx context.Context) {
	tick := time.NewTicker(renewal)
	defer tick.Stop()
	for {
		err := k.renew(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			k.logf("the node's Lease: %v", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (k *Kubelet) renew(ctx context.Context) error {
	leases := k.node.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NowMicro()
	lease, err := leases.Get(ctx, NodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: NodeName},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: new(NodeName), LeaseDurationSeconds: new(int32(40)), RenewTime: &now},
		}, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	lease.Spec.RenewTime = &now
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

// Pods returns those whose processes have been started, in the order of their names.
func (k *Kubelet) Pods() []*Pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.SortedFunc(maps.Values(k.pods), func(a, b *Pod) int { return cmp.Compare(a.Name, b.Name) })
}

// run lists the pods of the namespace again and again, which is simpler than a watch and soon enough.
func (k *Kubelet) run(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		list, err := k.admin.CoreV1().Pods(k.options.Namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err == nil {
			k.sync(ctx, list.Items)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// sync begins with new pods, and forgets those that are gone.
func (k *Kubelet) sync(ctx context.Context, pods []corev1.Pod) {
	there := map[string]bool{}
	for i := range pods {
		pod := &pods[i]
		uid := string(pod.UID)
		there[uid] = true
		k.mu.Lock()
		running := k.pods[uid]
		k.mu.Unlock()
		switch {
		case running != nil:
			running.update(pod)
		case pod.DeletionTimestamp != nil:
			k.logf("pod %s: deleted before it ran", pod.Name)
			_ = k.remove(ctx, pod) // it is tried again
		case pod.Status.Phase != corev1.PodPending:
		case pod.Spec.NodeName == "":
			if err := k.bind(ctx, pod); err != nil && !apierrors.IsConflict(err) {
				k.logf("pod %s: bind: %v", pod.Name, err)
			}
		case pod.Spec.NodeName == NodeName:
			k.begin(ctx, pod)
		}
	}
	for _, p := range k.Pods() {
		if !there[string(p.uid)] {
			p.gone()
			k.mu.Lock()
			delete(k.pods, string(p.uid))
			k.mu.Unlock()
		}
	}
}

// bind gives a pod to the node, as the scheduler does.
func (k *Kubelet) bind(ctx context.Context, pod *corev1.Pod) error {
	return k.admin.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: NodeName},
	}, metav1.CreateOptions{})
}

// begin runs a pod in a goroutine of its own.
func (k *Kubelet) begin(ctx context.Context, pod *corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.started == blockSize {
		_, _ = fmt.Fprintf(k.options.Log, "kubelet: no address is left for the pod %s\n", pod.Name)
		return
	}
	p := &Pod{
		Name: pod.Name, Address: k.address(k.started), uid: pod.UID, kubelet: k, spec: pod.DeepCopy(),
		dir: filepath.Join(k.options.Dir, pod.Name), deleted: make(chan struct{}), lost: make(chan struct{}),
	}
	k.started++
	k.pods[string(pod.UID)] = p
	k.group.Go(func() { p.run(ctx) })
}

// remove ends the object of a pod whose process has ended.
func (k *Kubelet) remove(ctx context.Context, pod *corev1.Pod) error {
	err := k.node.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	if apierrors.IsForbidden(err) {
		// The node's authorizer may not know yet that the pod is here.
		err = k.admin.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID},
		})
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (k *Kubelet) logf(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, _ = fmt.Fprintf(k.options.Log, "%s kubelet: "+format+"\n", append([]any{time.Now().Format("15:04:05.000")}, args...)...)
}
