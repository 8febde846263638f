package attack

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// The addresses that clients call from. A client is known by its address, so each has one of its own.
const (
	attackerAddress  = "127.0.0.9"
	ordinaryAddress  = "127.0.0.2"
	certifiedAddress = "127.0.0.3"
)

const serverName = "gatehouse.gatehouse-system.svc"

func TestMain(m *testing.M) { os.Exit(cluster.RunInNamespace(m)) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// site is a control plane with the definitions of custom resources, and what servers in it are started with.
type site struct {
	flags       []string
	memory      int64
	roots       *x509.CertPool
	certificate tls.Certificate
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, content, 0o600))
		return path
	}
	authority, err := cluster.NewAuthority("attack")
	must(t, err)
	certificate, key, err := authority.Serve(serverName, "127.0.0.1")
	must(t, err)
	clientCertificate, clientKey, err := authority.Client("kube-apiserver")
	must(t, err)
	pair, err := tls.X509KeyPair(clientCertificate, clientKey)
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.CertPEM())

	c := cluster.New(t, cluster.Options{})
	for _, arguments := range [][]string{
		{"apply", "--server-side", "--kustomize", "../../manifests/crds"},
		{"wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"},
	} {
		output, err := c.Kubectl(t.Context(), arguments...).CombinedOutput()
		if err != nil {
			t.Fatalf("kubectl %s: %v: %s", arguments[0], err, output)
		}
	}
	config := filepath.Join(dir, "config")
	must(t, os.CopyFS(config, os.DirFS("testdata")))
	_, err = gatehouse.Run(t.Context(), "token", "key", "--out", filepath.Join(config, "login.key"))
	must(t, err)
	ca := file("ca.crt", authority.CertPEM())
	return &site{
		flags: []string{
			"--config", config, "--custom-resources", "--kubeconfig", c.Kubeconfig(), "--back-channel-logout", "24h", "--authorize",
			"--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--drain-delay", "0s",
			"--tls-cert", file("tls.crt", certificate), "--tls-key", file("tls.key", key), "--client-ca", ca,
		},
		memory: chartMemory(t), roots: roots, certificate: pair,
	}
}

// chartMemory is the limit that the chart sets.
func chartMemory(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("../../manifests/chart/gatehouse/values.yaml")
	must(t, err)
	var values struct {
		Resources struct {
			Limits struct{ Memory resource.Quantity }
		}
	}
	must(t, yaml.Unmarshal(text, &values))
	limit := values.Resources.Limits.Memory.Value()
	if limit <= 0 {
		t.Fatal("the chart sets no limit of memory")
	}
	return limit
}

// target is a server under attack, from an address.
type target struct {
	*gatehouse.Server
	*site

	attacker string
}

// from is the same server, attacked from another address.
func (t *target) from(address string) *target {
	other := *t
	other.attacker = address
	return &other
}

func (s *site) start(t *testing.T) *target {
	t.Helper()
	// What Gatehouse derives from the limit of its container.
	t.Setenv("GOMEMLIMIT", strconv.FormatInt(s.memory/10*9, 10))
	server, err := gatehouse.Start(t.Context(), filepath.Join(t.TempDir(), "log"), s.flags...)
	must(t, err)
	t.Cleanup(server.Kill)
	return &target{Server: server, site: s, attacker: attackerAddress}
}

// tcp connects from an address.
func (t *target) tcp(ctx context.Context, from string) (net.Conn, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return dialer.DialContext(ctx, "tcp", t.Reviews.String())
}

// tls connects the attacker, without a client certificate, for a protocol: "h2" or "http/1.1".
func (t *target) tls(ctx context.Context, protocol string) (*tls.Conn, error) {
	below, err := t.tcp(ctx, t.attacker)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(below, &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: t.roots, ServerName: serverName, NextProtos: []string{protocol}})
	err = conn.HandshakeContext(ctx)
	if err == nil && conn.ConnectionState().NegotiatedProtocol != protocol {
		err = fmt.Errorf("no %s", protocol)
	}
	if err != nil {
		_ = below.Close()
		return nil, err
	}
	return conn, nil
}

// transport connects from an address, over "HTTP/1.1" or "HTTP/2".
func (t *target) transport(from, protocol string, certificates ...tls.Certificate) *http.Transport {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return t.tcp(ctx, from) },
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS13, RootCAs: t.roots, ServerName: serverName, Certificates: certificates,
		},
		MaxIdleConnsPerHost: 25, // client-go's
		Protocols:           new(http.Protocols),
	}
	transport.Protocols.SetHTTP1(protocol == "HTTP/1.1")
	transport.Protocols.SetHTTP2(protocol == "HTTP/2")
	return transport
}
