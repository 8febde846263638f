package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	applydiscoveryv1 "k8s.io/client-go/applyconfigurations/discovery/v1"
)

const (
	// ServicePort is the port of the Services that ServiceFor makes, and what an admission webhook's registration means
	// when it names none.
	ServicePort = 443

	fieldManager   = "gatehouse-test"
	defaultAccount = "default"
	rootCAConfig   = "kube-root-ca.crt"
)

// CreateNamespace makes a namespace in which pods can be created: with the "default" service account and the CA
// ConfigMap that kube-controller-manager provides, made by hand where it does not run. A namespace of that name must
// not exist yet.
func (c *Cluster) CreateNamespace(ctx context.Context, name string, labels map[string]string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	_, err := c.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil {
		return fmt.Errorf("create namespace %q: %w", name, err)
	}
	return c.completeNamespace(ctx, name)
}

// completeNamespace waits for what the controllers put into a namespace, or puts it there in their place.
func (c *Cluster) completeNamespace(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("gave up after %s", startTimeout))
	defer cancel()
	step := c.namespaceIsComplete
	if c.controllerManager == nil {
		step = c.fillNamespace
	}
	err := poll(ctx, func(ctx context.Context) error { return step(ctx, name) }, nil)
	if err != nil {
		return fmt.Errorf("wait for the default service account of namespace %q: %w", name, err)
	}
	return nil
}

func (c *Cluster) namespaceIsComplete(ctx context.Context, name string) error {
	_, accountErr := c.client.CoreV1().ServiceAccounts(name).Get(ctx, defaultAccount, metav1.GetOptions{})
	_, configErr := c.client.CoreV1().ConfigMaps(name).Get(ctx, rootCAConfig, metav1.GetOptions{})
	return errors.Join(accountErr, configErr)
}

func (c *Cluster) fillNamespace(ctx context.Context, name string) error {
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	account := applycorev1.ServiceAccount(defaultAccount, name)
	_, accountErr := c.client.CoreV1().ServiceAccounts(name).Apply(ctx, account, options)
	config := applycorev1.ConfigMap(rootCAConfig, name).WithData(map[string]string{"ca.crt": string(c.authority.certPEM)})
	_, configErr := c.client.CoreV1().ConfigMaps(name).Apply(ctx, config, options)
	return errors.Join(accountErr, configErr)
}

// ServiceFor makes a Service without selector, port [ServicePort], and an EndpointSlice for each given port of
// [ServiceAddress]: one webhook server, or several replicas. Called again, it sets the Service's endpoints to exactly
// these, as a rollout does; without ports there are none. The namespace is made if it is missing.
//
// The API server learns of a change by a watch, a moment after ServiceFor returns: a test waits for what it wants to
// see. Before Kubernetes 1.37 it also goes on using the connections it has. The webhook's certificate must be for
// NAME.NAMESPACE.svc.
func (c *Cluster) ServiceFor(ctx context.Context, namespace, name string, ports ...int) error {
	if !Namespaced() {
		return fmt.Errorf("service %s/%s: its endpoints need a network namespace; hint: start the tests with RunInNamespace, "+
			"or register the webhook by URL where Namespaced is false", namespace, name)
	}
	_, err := c.client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		err = c.CreateNamespace(ctx, namespace, nil)
	}
	if err != nil {
		return err
	}
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	service := applycorev1.Service(name, namespace).WithSpec(applycorev1.ServiceSpec().
		WithPorts(applycorev1.ServicePort().WithPort(ServicePort).WithTargetPort(intstr.FromInt32(ServicePort))))
	_, err = c.client.CoreV1().Services(namespace).Apply(ctx, service, options)
	if err != nil {
		return fmt.Errorf("apply service %s/%s: %w", namespace, name, err)
	}

	// Publish before withdrawing, so that a rollout never leaves the Service without an endpoint.
	wanted := map[string]bool{}
	for _, port := range ports {
		slice := endpointSlice(namespace, name, port)
		wanted[*slice.Name] = true
		_, err = c.client.DiscoveryV1().EndpointSlices(namespace).Apply(ctx, slice, options)
		if err != nil {
			return fmt.Errorf("apply endpoint %d of service %s/%s: %w", port, namespace, name, err)
		}
	}
	slices, err := c.client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + name + "," + discoveryv1.LabelManagedBy + "=" + fieldManager,
	})
	if err != nil {
		return fmt.Errorf("list the endpoints of service %s/%s: %w", namespace, name, err)
	}
	var errs []error
	for _, slice := range slices.Items {
		if wanted[slice.Name] {
			continue
		}
		err := c.client.DiscoveryV1().EndpointSlices(namespace).Delete(ctx, slice.Name, metav1.DeleteOptions{})
		if err != nil {
			errs = append(errs, fmt.Errorf("withdraw endpoint slice %s/%s: %w", namespace, slice.Name, err))
		}
	}
	return errors.Join(errs...)
}

// endpointSlice says that it is managed by us: kube-controller-manager leaves such a slice alone.
func endpointSlice(namespace, service string, port int) *applydiscoveryv1.EndpointSliceApplyConfiguration {
	return applydiscoveryv1.EndpointSlice(fmt.Sprintf("%s-%d", service, port), namespace).
		WithLabels(map[string]string{discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: fieldManager}).
		WithAddressType(discoveryv1.AddressTypeIPv4).
		WithEndpoints(applydiscoveryv1.Endpoint().
			WithAddresses(ServiceAddress).
			WithConditions(applydiscoveryv1.EndpointConditions().WithReady(true))).
		WithPorts(applydiscoveryv1.EndpointPort().
			WithName("").
			WithProtocol(corev1.ProtocolTCP).
			WithPort(int32(port))) // #nosec G115 -- a port
}

// WebhookClientConfig returns how an admission webhook registration names a server that listens at [ListenAddress] on
// that port: by a Service, which it makes with [Cluster.ServiceFor], or by URL where there is no network namespace.
// The server's certificate should be for NAME.NAMESPACE.svc and 127.0.0.1; caPEM is what verifies it.
func (c *Cluster) WebhookClientConfig(
	ctx context.Context, namespace, name string, port int, path string, caPEM []byte,
) (admissionregistrationv1.WebhookClientConfig, error) {
	config := admissionregistrationv1.WebhookClientConfig{CABundle: caPEM}
	if !Namespaced() {
		url := "https://" + net.JoinHostPort(loopbackAddress, strconv.Itoa(port)) + path
		config.URL = &url
		return config, nil
	}
	err := c.ServiceFor(ctx, namespace, name, port)
	if err != nil {
		return config, err
	}
	config.Service = &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: name, Path: &path}
	return config, nil
}
