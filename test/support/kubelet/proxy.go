package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Proxy forwards connections to the cluster IP of a Service to its ready endpoints, as kube-proxy does, until Stop. Two clusters
// of a test process must not have the same cluster IP: the Service has a fixed one that no other test uses.
func (k *Kubelet) Proxy(ctx context.Context, namespace, name string) error {
	service, err := k.admin.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, port := range service.Spec.Ports {
		address := net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(int(port.Port)))
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("the Service %s/%s: %w", namespace, name, err)
		}
		context.AfterFunc(k.running, func() { _ = listener.Close() }) //nolint:contextcheck // until Stop
		k.group.Go(func() {
			for {
				client, err := listener.Accept()
				if err != nil {
					return // it is closed
				}
				k.group.Go(func() {
					if err := k.forward(k.running, client, namespace, name, port.Name); err != nil {
						k.logf("the Service %s/%s: %v", namespace, name, err)
					}
				})
			}
		})
	}
	return nil
}

// forward connects a client to a ready endpoint, until either ends.
func (k *Kubelet) forward(ctx context.Context, client net.Conn, namespace, name, port string) error {
	defer client.Close() //nolint:errcheck // nothing more is written
	slices, err := k.admin.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name})
	if err != nil {
		return err
	}
	for i := range slices.Items {
		endpoint, found := readyEndpoint(&slices.Items[i], port)
		if !found {
			continue
		}
		server, err := new(net.Dialer).DialContext(ctx, "tcp", endpoint.String())
		if err != nil {
			return err
		}
		stop := context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })
		defer stop()
		k.group.Go(func() {
			_, _ = io.Copy(server, client)
			_ = server.Close()
		})
		_, _ = io.Copy(client, server)
		return nil
	}
	return errors.New("no endpoint is ready")
}

// readyEndpoint returns the first ready endpoint of a slice.
func readyEndpoint(slice *discoveryv1.EndpointSlice, port string) (netip.AddrPort, bool) {
	for _, p := range slice.Ports {
		if p.Name == nil || *p.Name != port || p.Port == nil {
			continue
		}
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			address, err := netip.ParseAddr(e.Addresses[0])
			if err == nil && e.Conditions.Ready != nil && *e.Conditions.Ready {
				return netip.AddrPortFrom(address, uint16(*p.Port)), true //nolint:gosec // a port
			}
		}
	}
	return netip.AddrPort{}, false
}
