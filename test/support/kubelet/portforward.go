package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

const (
	// streamTimeout bounds the time in which both streams of a connection must begin, and idleTimeout a connection that is
	// not used. Both are a kubelet's.
	streamTimeout = 30 * time.Second
	idleTimeout   = 4 * time.Hour
)

// serve listens for the API server until the context ends, with a certificate that it verifies, and accepts nobody else. Of a
// kubelet's paths it has the one that forwards ports.
func (k *Kubelet) serve(ctx context.Context) (netip.AddrPort, error) {
	certPEM, keyPEM, err := k.options.Cluster.Serve(cluster.ServiceAddress)
	if err != nil {
		return netip.AddrPort{}, err
	}
	certificate, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return netip.AddrPort{}, err
	}
	authority, err := os.ReadFile(k.options.Cluster.CAFile())
	if err != nil {
		return netip.AddrPort{}, err
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(authority)
	listener, err := net.Listen("tcp", net.JoinHostPort(cluster.ServiceAddress, "0")) //nolint:noctx // it does not wait
	if err != nil {
		return netip.AddrPort{}, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/portForward/{namespace}/{pod}", func(w http.ResponseWriter, r *http.Request) {
		if user := r.TLS.PeerCertificates[0].Subject.CommonName; user != cluster.KubeletClient {
			http.Error(w, fmt.Sprintf("%q may not forward ports", user), http.StatusForbidden)
			return
		}
		// API servers make SPDY of WebSockets for a node that does not declare that it knows them.
		portforward.ServePortForward(w, r, &forwarder{k, ctx}, r.PathValue("pod"), "", &portforward.V4Options{}, idleTimeout, streamTimeout, portforward.SupportedProtocols)
	})
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: probeTimeout,
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
		},
		// SPDY takes over a connection of HTTP/1.1.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	k.group.Go(func() { _ = server.ServeTLS(listener, "", "") }) // until it is closed
	return netip.ParseAddrPort(listener.Addr().String())
}

// forwarder implements portforward.PortForwarder.
type forwarder struct {
	kubelet *Kubelet
	running context.Context //nolint:containedctx // that of PortForward never ends
}

// PortForward implements portforward.PortForwarder. It connects to the port of a pod as a container runtime does: from the
// pod's loopback interface, which here is that of all pods.
func (f *forwarder) PortForward(ctx context.Context, name, _ string, port int32, stream io.ReadWriteCloser) error {
	pod := f.kubelet.podNamed(name)
	if pod == nil {
		return fmt.Errorf("the pod %s does not run here", name)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.running, cancel)() //nolint:contextcheck // see forwarder
	dialer := net.Dialer{Timeout: probeTimeout, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}
	connection, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(pod.Address.String(), fmt.Sprint(port)))
	if err != nil {
		return err
	}
	defer connection.Close() //nolint:errcheck // the process may have ended
	defer context.AfterFunc(ctx, func() { _ = connection.Close() })()
	go func() {
		_, _ = io.Copy(connection, stream) // the caller ends it, or the process
		if tcp, ok := connection.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
	}()
	_, _ = io.Copy(stream, connection) // as above
	return nil
}

// podNamed returns the pod of a name that runs, or nil.
func (k *Kubelet) podNamed(name string) *Pod {
	for _, p := range k.Pods() {
		if p.Name == name {
			return p
		}
	}
	return nil
}
