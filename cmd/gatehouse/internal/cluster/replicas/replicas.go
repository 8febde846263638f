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
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
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

// Place is a namespace with the labels of pods in it.
type Place struct {
	Namespace string
	Labels    labels.Selector
}

// Cluster is where the replicas run.
type Cluster struct {
	Places []Place
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
	return &Cluster{Places: []Place{{Namespace, selector}}, access: access, client: client}, err
}

// Find returns the replicas that the API server asks: the pods of the Services in webhook configurations, whatever their names are.
func Find(ctx context.Context, access *rest.Config) (*Cluster, error) {
	c, err := NewCluster(access)
	if err != nil {
		return nil, err
	}
	services, err := calledServices(ctx, access)
	if err != nil {
		return nil, err
	}
	c.Places = nil
	for _, of := range services {
		service, err := c.client.Services(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
		if err != nil {
			return nil, apierr.Explain("get the Service "+of.String(), err)
		}
		if len(service.Spec.Selector) == 0 {
			return nil, fmt.Errorf("the Service %s selects no pods, so the servers behind it are not known", of)
		}
		c.Places = append(c.Places, Place{of.Namespace, labels.SelectorFromSet(service.Spec.Selector)})
	}
	return c, nil
}

// calledServices returns the Services that webhooks of Gatehouse call, in the order of their names.
func calledServices(ctx context.Context, access *rest.Config) ([]types.NamespacedName, error) {
	client, err := dynamic.NewForConfig(access)
	if err != nil {
		return nil, fmt.Errorf("no client for the API server: %w", err)
	}
	called := map[types.NamespacedName]bool{}
	for _, resource := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
		list, err := client.Resource(admissionregistrationv1.SchemeGroupVersion.WithResource(resource)).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, apierr.Explain("list the "+resource+", which say where the servers are", err)
		}
		for i := range list.Items {
			var one admissionregistrationv1.ValidatingWebhookConfiguration // the other kind has the same fields, and more
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &one); err != nil {
				return nil, fmt.Errorf("%s %s cannot be read: %w", resource, list.Items[i].GetName(), err)
			}
			for j := range one.Webhooks {
				w := &one.Webhooks[j]
				switch service := w.ClientConfig.Service; {
				case !strings.HasSuffix(w.Name, "."+v1alpha1.GroupVersion.Group):
				case service == nil:
					return nil, fmt.Errorf("the webhook %s calls a server outside of the cluster (hint: name its directory with --config DIR --with-cluster)", w.Name)
				default:
					called[types.NamespacedName{Namespace: service.Namespace, Name: service.Name}] = true
				}
			}
		}
	}
	if len(called) == 0 {
		return nil, errors.New("no webhook configuration of the cluster calls Gatehouse")
	}
	return slices.SortedFunc(maps.Keys(called), func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) }), nil
}

// Pods returns the pods of the servers in the order of their names, in whatever phase.
func (c *Cluster) Pods(ctx context.Context) (all []corev1.Pod, err error) {
	for _, in := range c.Places {
		pods, err := c.client.Pods(in.Namespace).List(ctx, metav1.ListOptions{LabelSelector: in.Labels.String()})
		if err != nil {
			return nil, apierr.Explain("list the pods in "+in.Namespace, err)
		}
		all = append(all, pods.Items...)
	}
	byName := func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace))
	}
	slices.SortFunc(all, byName)
	return slices.CompactFunc(all, func(a, b corev1.Pod) bool { return byName(a, b) == 0 }), nil
}

// String says where the pods are, as in "no pod with ...".
func (c *Cluster) String() string {
	parts := make([]string, len(c.Places))
	for i, in := range c.Places {
		parts[i] = fmt.Sprintf("the labels %s in the namespace %s", in.Labels, in.Namespace)
	}
	return strings.Join(parts, " or ")
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
		return nil, fmt.Errorf("no pod with %s runs", c)
	}
	texts, errs := make([][]byte, len(running)), make([]error, len(running))
	var group sync.WaitGroup
	for i, one := range running {
		group.Go(func() {
			if texts[i], errs[i] = one.Configuration(ctx); errs[i] != nil {
				errs[i] = apierr.Explain(one.Name, errs[i])
			}
		})
	}
	group.Wait()
	if err := cmp.Or(errs...); err != nil {
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
		Name: pod.Name, Client: &http.Client{Transport: transport}, Base: fmt.Sprintf("http://localhost:%d", port), Timeout: transferTimeout,
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
