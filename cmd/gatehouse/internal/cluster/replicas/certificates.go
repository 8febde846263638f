package replicas

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// handshakeTimeout bounds how long a pod is waited for.
const handshakeTimeout = 10 * time.Second

// Certificates returns what a pod of any program presents at a port, the leaf first, which nobody has verified. It needs the right to
// create pods/portforward, and sends nothing but the beginning of a TLS handshake.
func Certificates(ctx context.Context, access *rest.Config, namespace, pod string, port int, serverName string) ([]*x509.Certificate, error) {
	client, err := corev1client.NewForConfig(access)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	forward := client.RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("portforward").URL()
	forward.RawQuery = ""
	transport, err := forwardTransport(access, forward, port)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	raw, err := transport.DialContext(ctx, "tcp", "")
	if err != nil {
		return nil, err
	}
	defer raw.Close() //nolint:errcheck // nothing was sent
	var seen []*x509.Certificate
	conn := tls.Client(raw, &tls.Config{
		ServerName: serverName, MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: true, // #nosec G402 -- the caller verifies them
		VerifyConnection: func(state tls.ConnectionState) error {
			seen = state.PeerCertificates
			return nil
		},
	})
	// A server that asks for a client certificate may end the handshake then.
	if err := conn.HandshakeContext(ctx); err != nil && len(seen) == 0 {
		return nil, err
	}
	if len(seen) == 0 {
		return nil, errors.New("it presents no certificate")
	}
	return seen, nil
}
