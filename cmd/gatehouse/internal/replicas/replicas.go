// Package replicas finds the servers of Gatehouse in a cluster, and reads what their listeners for health and metrics show:
// recordings and metrics. It connects as kubectl port-forward does, with the rights of the caller: list on pods, and create
// on pods/portforward.
package replicas

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
)

const (
	// Namespace is that of the manifests.
	Namespace = "gatehouse-system"
	// Selector has the labels of the servers in the manifests.
	Selector = "app.kubernetes.io/name=gatehouse,app.kubernetes.io/component=server"

	// opsPortName is the name of the port of --ops-listen in the manifests, and defaultOpsPort
	// its number.
	opsPortName    = "ops"
	defaultOpsPort = 8080
)

// Cluster is where the replicas run.
type Cluster struct {
	Namespace string
	Labels    labels.Selector
	// OpsPort is the port of --ops-listen in the pods, 0 for that of the container port "ops".
	OpsPort int

	access *rest.Config
	client corev1client.CoreV1Interface
}

// NewCluster returns the replicas of the manifests.
func NewCluster(access *rest.Config) (*Cluster, error) {
	client, err := corev1client.NewForConfig(access)
	if err != nil {
		return nil, fmt.Errorf("no client for the API server: %w", err)
	}
	selector, err := labels.Parse(Selector)
	return &Cluster{Namespace: Namespace, Labels: selector, access: access, client: client}, err
}

// Pods returns the pods of the servers in the order of their names, in whatever phase.
func (c *Cluster) Pods(ctx context.Context) ([]corev1.Pod, error) {
	pods, err := c.client.Pods(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: c.Labels.String()})
	if err != nil {
		hint := ""
		if apierr.LacksRight(err, "list") {
			hint = " (hint: " + apierr.BindHint(apierr.RoleConsole, c.Namespace, "list", "pods and create of pods/portforward") + ")"
		}
		return nil, fmt.Errorf("list the pods in %s: %w%s", c.Namespace, err, hint)
	}
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return pods.Items, nil
}

// Configuration returns the documents of the servers' own directory that decide about objects, as YAML, which are the same in every
// replica that runs.
func (c *Cluster) Configuration(ctx context.Context) ([]byte, error) {
	pods, err := c.Pods(ctx)
	if err != nil {
		return nil, err
	}
	running, err := c.Running(pods)
	if err != nil {
		return nil, err
	}
	if len(running) == 0 {
		return nil, fmt.Errorf("no pod with the labels %s runs in the namespace %s", c.Labels, c.Namespace)
	}
	texts, errs := make([][]byte, len(running)), make([]error, len(running))
	var group sync.WaitGroup
	for i, one := range running {
		group.Go(func() {
			if texts[i], errs[i] = one.Configuration(ctx); errs[i] != nil {
				errs[i] = fmt.Errorf("%s: %w", one.Name, errs[i])
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for i := range texts {
		if !bytes.Equal(body(texts[i]), body(texts[0])) {
			return nil, fmt.Errorf("%s and %s have different documents (hint: wait until the rollout of the directory is over)", running[0].Name, running[i].Name)
		}
	}
	return texts[0], nil
}

// body returns documents without the comment in front, which has a digest of everything that is active.
func body(text []byte) []byte {
	const separator = "\n---\n"
	if at := bytes.Index(text, []byte(separator)); at >= 0 {
		return text[at:]
	}
	return nil
}

// Running returns the servers of pods that run. It sends no request.
func (c *Cluster) Running(pods []corev1.Pod) ([]*Replica, error) {
	var replicas []*Replica
	for i := range pods {
		if pods[i].Status.Phase != corev1.PodRunning {
			continue
		}
		one, err := c.replica(&pods[i])
		if err != nil {
			return nil, err
		}
		replicas = append(replicas, one)
	}
	return replicas, nil
}

func (c *Cluster) replica(pod *corev1.Pod) (*Replica, error) {
	port := cmp.Or(c.OpsPort, opsPort(pod))
	forward := c.client.RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	forward.RawQuery = "" // the timeout of access, which is for short requests
	transport, err := forwardTransport(c.access, forward, port)
	if err != nil {
		return nil, err
	}
	return &Replica{
		Name: pod.Name, Client: &http.Client{Transport: transport}, Base: fmt.Sprintf("http://localhost:%d", port), Stall: stallTimeout,
	}, nil
}

// opsPort returns the port for health and metrics of a pod.
func opsPort(pod *corev1.Pod) int {
	for i := range pod.Spec.Containers {
		for _, port := range pod.Spec.Containers[i].Ports {
			if port.Name == opsPortName {
				return int(port.ContainerPort)
			}
		}
	}
	return defaultOpsPort
}
