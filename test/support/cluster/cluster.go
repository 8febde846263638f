// Package cluster runs a real Kubernetes control plane for tests, the demonstration and the benchmarks: etcd,
// kube-apiserver and, where asked for, kube-controller-manager, built by test/controlplane.
//
// It does what controller-runtime's envtest does, with the differences that Gatehouse needs. The defaults are those of
// production (Node and RBAC authorization, all default admission plugins including ServiceAccount, endpoints looked up
// for webhooks). Programs cannot outlive the test, not even a killed one, they can be suspended, killed and started
// again on the same port, and they run in a network namespace of their own, where an API server can call a webhook
// through a Service, as in production: see [RunInNamespace].
package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Options say how a control plane differs from the default one. The zero value is the default one.
type Options struct {
	// APIServerFlags are laid over the default flags: "--name=value" or "--name" replaces the default of that name. A flag
	// may be given several times.
	APIServerFlags []string
	// ControllerManager starts kube-controller-manager too. Without it nothing happens to objects behind the test's
	// back, but ReplicaSets make no pods and a deleted namespace stays.
	ControllerManager bool
	// Dir receives data, logs and certificates and is kept. Empty means a temporary directory that Stop removes.
	Dir string
	// Join makes another API server on the etcd of a running cluster, with its authority and service account key. It
	// must be stopped before that cluster.
	Join *Cluster
}

// Cluster is a running control plane.
type Cluster struct {
	assets string
	dir    string
	// temporary reports whether Stop removes the directory.
	temporary bool

	authority   *Authority
	accountKey  *ecdsa.PrivateKey
	etcdAddress string
	address     netip.AddrPort // of the API server
	config      *rest.Config
	client      kubernetes.Interface

	etcd              *Process
	apiServer         *Process
	controllerManager *Process
}

// KubeletClient is the user as whom the API server connects to kubelets, the name that kubeadm gives it.
const KubeletClient = "kube-apiserver-kubelet-client"

const (
	etcdProgram              = "etcd"
	apiServerProgram         = "kube-apiserver"
	controllerManagerProgram = "kube-controller-manager"
	kubectlProgram           = "kubectl"

	// startTimeout is thirty times what a start takes on a busy machine with two cores: some start at the same time.
	startTimeout = 3 * time.Minute
	// askTimeout bounds one question to a program that is starting, or hangs.
	askTimeout = 2 * time.Second

	serviceRange    = "10.96.0.0/16"
	firstServiceIP  = "10.96.0.1"
	accountIssuer   = "https://kubernetes.default.svc.cluster.local"
	adminUser       = "kubernetes-admin"
	adminGroup      = "system:masters" // bypasses authorization, so it works before RBAC's roles exist
	controllersUser = "system:kube-controller-manager"

	// socketPathLimit is the size of sun_path in struct sockaddr_un, without its final zero.
	socketPathLimit = 107
)

// Start starts a control plane and returns when it answers and pods can be created in the namespace "default". The
// context bounds the start only, which takes three minutes at most; [Cluster.Stop] ends what was started.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("gave up after %s", startTimeout))
	defer cancel()

	c := &Cluster{}
	err := c.start(ctx, options)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a control plane: %w", err), c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, options Options) error {
	err := c.prepare(options)
	if err != nil {
		return err
	}
	if options.Join == nil {
		err = c.startEtcd(ctx)
		if err != nil {
			return err
		}
	}
	err = c.startAPIServer(ctx, options.APIServerFlags)
	if err != nil {
		return err
	}
	if options.ControllerManager {
		err = c.startControllerManager(ctx)
		if err != nil {
			return err
		}
	}
	if options.Join != nil {
		return nil
	}
	return c.completeNamespace(ctx, "default")
}

// prepare finds the programs, a directory and the keys.
func (c *Cluster) prepare(options Options) error {
	var err error
	c.assets, err = Assets()
	if err != nil {
		return err
	}
	c.dir = options.Dir
	if c.dir == "" {
		c.dir, err = os.MkdirTemp("", "gatehouse-cluster-*")
		if err != nil {
			return fmt.Errorf("make a directory for the control plane: %w", err)
		}
		c.temporary = true
	}
	c.dir, err = filepath.Abs(c.dir)
	if err != nil {
		return fmt.Errorf("find the control plane's directory: %w", err)
	}
	err = os.MkdirAll(c.dir, 0o700)
	if err != nil {
		return fmt.Errorf("make the control plane's directory: %w", err)
	}

	if options.Join != nil {
		c.authority, c.accountKey, c.etcdAddress = options.Join.authority, options.Join.accountKey, options.Join.etcdAddress
		return nil
	}
	c.etcdAddress = c.path("etcd.sock")
	if len(c.etcdAddress) > socketPathLimit {
		return fmt.Errorf("%s is longer than the %d bytes that a socket's path may have; hint: set a shorter Dir or TMPDIR",
			c.etcdAddress, socketPathLimit)
	}
	c.authority, err = NewAuthority("kubernetes")
	if err != nil {
		return err
	}
	c.accountKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the key for service account tokens: %w", err)
	}
	return nil
}

// startEtcd uses sockets in our directory instead of ports: nobody else can reach them, and none is ever taken.
func (c *Cluster) startEtcd(ctx context.Context) error {
	// etcd 3.6 refuses to advertise a socket. Nobody looks at what it advertises: it has no peers, and the API server
	// does not ask for the members of the cluster.
	const name, unused = "gatehouse", "http://127.0.0.1:1"
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", c.etcdAddress)
	}}
	c.etcd = c.process(etcdProgram, []string{
		"--name=" + name,
		"--data-dir=" + c.path("etcd"),
		"--listen-client-urls=unix://" + c.etcdAddress,
		"--advertise-client-urls=" + unused,
		"--listen-peer-urls=unix://" + c.path("peer.sock"),
		"--initial-advertise-peer-urls=" + unused,
		"--initial-cluster=" + name + "=" + unused,
		// The data need not survive the machine, and waiting for the disk is most of what a write costs.
		"--unsafe-no-fsync=true",
		// It is alone and elects itself once this time is over: most of its start, by default.
		"--election-timeout=100",
		"--heartbeat-interval=20",
		"--log-level=warn",
	}, func(ctx context.Context) error {
		defer transport.CloseIdleConnections()
		return ask(ctx, &http.Client{Transport: transport, Timeout: askTimeout}, "http://etcd/health")
	})
	return c.etcd.Start(ctx)
}

func (c *Cluster) startAPIServer(ctx context.Context, flags []string) error {
	free, err := UnusedAddress(ListenAddress())
	if err != nil {
		return err
	}
	c.address, err = netip.ParseAddrPort(free)
	if err != nil {
		return fmt.Errorf("choose the API server's address: %w", err)
	}
	address := c.address.Addr()
	c.config, err = c.ConfigFor(adminUser, adminGroup)
	if err != nil {
		return err
	}
	c.client, err = kubernetes.NewForConfig(c.config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	err = c.writeAPIServerFiles()
	if err != nil {
		return err
	}

	defaults := []string{
		"--bind-address=" + address.String(),
		"--advertise-address=" + address.String(),
		fmt.Sprintf("--secure-port=%d", c.address.Port()),
		"--cert-dir=" + c.dir,
		"--tls-cert-file=" + c.path("apiserver.crt"),
		"--tls-private-key-file=" + c.path("apiserver.key"),
		"--client-ca-file=" + c.CAFile(),
		"--kubelet-certificate-authority=" + c.CAFile(),
		"--kubelet-client-certificate=" + c.path("kubelet-client.crt"),
		"--kubelet-client-key=" + c.path("kubelet-client.key"),
		"--etcd-servers=unix://" + c.etcdAddress,
		"--service-account-issuer=" + accountIssuer,
		"--service-account-key-file=" + c.path("sa.pub"),
		"--service-account-signing-key-file=" + c.path("sa.key"),
		"--service-cluster-ip-range=" + serviceRange,
		// These are what kubeadm sets.
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		// Nothing here routes a Service's address, so the API server must look up the endpoints itself.
		"--enable-aggregator-routing=true",
	}
	if address.IsLoopback() {
		// An EndpointSlice must not hold a loopback address, so the Service "kubernetes" goes without.
		defaults = append(defaults, "--endpoint-reconciler-type=none")
	}
	client, err := rest.HTTPClientFor(c.config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	client.Timeout = askTimeout
	c.apiServer = c.process(apiServerProgram, mergeFlags(defaults, flags), func(ctx context.Context) error {
		return ask(ctx, client, c.config.Host+"/readyz")
	})
	return c.apiServer.Start(ctx)
}

func (c *Cluster) writeAPIServerFiles() error {
	host := c.address.Addr().String()
	certPEM, keyPEM, err := c.authority.Serve(host, "127.0.0.1", "localhost", firstServiceIP, ServiceAddress,
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
	if err != nil {
		return err
	}
	clientPEM, clientKeyPEM, err := c.authority.Client(KubeletClient)
	if err != nil {
		return err
	}
	accountPrivate, err := encodeKey(c.accountKey)
	if err != nil {
		return err
	}
	accountPublic, err := x509.MarshalPKIXPublicKey(c.accountKey.Public())
	if err != nil {
		return fmt.Errorf("encode the key for service account tokens: %w", err)
	}
	for _, file := range []struct {
		name    string
		content []byte
	}{
		{"ca.crt", c.authority.certPEM},
		{"apiserver.crt", certPEM},
		{"apiserver.key", keyPEM},
		{"kubelet-client.crt", clientPEM},
		{"kubelet-client.key", clientKeyPEM},
		{"sa.key", accountPrivate},
		{"sa.pub", encodePEM("PUBLIC KEY", accountPublic)},
	} {
		err := writePrivate(c.path(file.name), file.content)
		if err != nil {
			return err
		}
	}
	return WriteKubeconfig(c.Kubeconfig(), c.config.Host, c.config.CAData, c.config.CertData, c.config.KeyData)
}

func (c *Cluster) startControllerManager(ctx context.Context) error {
	config, err := c.ConfigFor(controllersUser)
	if err != nil {
		return err
	}
	kubeconfig := c.path("controller-manager.kubeconfig")
	err = WriteKubeconfig(kubeconfig, config.Host, config.CAData, config.CertData, config.KeyData)
	if err != nil {
		return err
	}
	authorityKey, err := encodeKey(c.authority.key)
	if err != nil {
		return err
	}
	err = writePrivate(c.path("ca.key"), authorityKey)
	if err != nil {
		return err
	}
	args := []string{
		"--kubeconfig=" + kubeconfig,
		"--leader-elect=false",
		"--secure-port=0",
		"--root-ca-file=" + c.CAFile(),
		"--service-account-private-key-file=" + c.path("sa.key"),
		"--cluster-signing-cert-file=" + c.CAFile(),
		"--cluster-signing-key-file=" + c.path("ca.key"),
		"--use-service-account-credentials=true",
		// Its dozens of controllers share these limits. At the default of 20 the first five seconds are waiting.
		"--kube-api-qps=1000",
		"--kube-api-burst=1000",
	}
	c.controllerManager = c.process(controllerManagerProgram, args, func(ctx context.Context) error {
		// It serves no readiness here. That it does its work is the better sign anyway.
		return c.namespaceIsComplete(ctx, "default")
	})
	return c.controllerManager.Start(ctx)
}

func (c *Cluster) process(name string, args []string, ready func(context.Context) error) *Process {
	return NewProcess(ProcessOptions{Path: filepath.Join(c.assets, name), Args: args, Log: c.path(name + ".log"), Ready: ready})
}

func (c *Cluster) path(name string) string {
	return filepath.Join(c.dir, name)
}

// ask is one question to a health endpoint.
func ask(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	answer, err := io.ReadAll(io.LimitReader(response.Body, tailSize))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", url, response.Status, strings.TrimSpace(string(answer)))
	}
	return nil
}

// Stop ends every program and removes the temporary directory. Stopping twice is harmless.
func (c *Cluster) Stop() error {
	// An API server takes a second to say goodbye. Where nothing of it is kept, that is a second for nothing.
	end := (*Process).Stop
	if c.temporary {
		end = (*Process).Kill
	}
	var errs []error
	for _, process := range []*Process{c.controllerManager, c.apiServer, c.etcd} {
		if process != nil {
			errs = append(errs, end(process))
		}
	}
	if c.temporary {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}

// Config returns a configuration for the cluster's administrator, without client-side rate limits. It is the caller's
// to change.
func (c *Cluster) Config() *rest.Config {
	return rest.CopyConfig(c.config)
}

// ConfigFor returns a configuration for a user of that name and groups, who may do what RBAC lets them do.
func (c *Cluster) ConfigFor(user string, groups ...string) (*rest.Config, error) {
	certPEM, keyPEM, err := c.authority.Client(user, groups...)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: "https://" + c.address.String(),
		QPS:  -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   c.authority.CertPEM(),
			CertData: certPEM,
			KeyData:  keyPEM,
		},
	}, nil
}

// Serve issues a serving certificate of the cluster's authority for DNS names and IP addresses.
func (c *Cluster) Serve(hosts ...string) (certPEM, keyPEM []byte, err error) {
	return c.authority.Serve(hosts...)
}

// Client returns a client for the cluster's administrator.
func (c *Cluster) Client() kubernetes.Interface {
	return c.client
}

// Kubeconfig returns the path of a kubeconfig file for the cluster's administrator.
func (c *Cluster) Kubeconfig() string {
	return c.path("admin.kubeconfig")
}

// CAFile returns the path of the certificate that signs the API server's own and its clients' certificates.
func (c *Cluster) CAFile() string {
	return c.path("ca.crt")
}

// Dir returns the directory with the cluster's data, logs and certificates.
func (c *Cluster) Dir() string {
	return c.dir
}

// Etcd returns the etcd process, nil for a cluster that joined another.
func (c *Cluster) Etcd() *Process {
	return c.etcd
}

// APIServer returns the kube-apiserver process.
func (c *Cluster) APIServer() *Process {
	return c.apiServer
}

// Kubectl returns a kubectl command for the cluster's administrator, ready to run. It neither reads nor writes the
// caller's own settings and cache: a cached list of resources belongs to an address, and addresses are used again.
// kubectl finds plugins in the PATH, so PATH may be set in the command's Env.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, filepath.Join(c.assets, kubectlProgram), args...) //nolint:gosec // the caller's choice
	command.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "KUBECACHEDIR="+c.path("kubectl-cache"), "KUBERC=off")
	return command
}

// mergeFlags returns the defaults without those that the caller gives, and the caller's flags. Appending them would not do:
// the API server adds up the values of a flag that is a list.
func mergeFlags(defaults, flags []string) []string {
	name := func(flag string) string {
		name, _, _ := strings.Cut(flag, "=")
		return name
	}
	given := map[string]bool{}
	for _, flag := range flags {
		given[name(flag)] = true
	}
	// Of these two, kube-apiserver takes one.
	given["--authorization-mode"] = given["--authorization-mode"] || given["--authorization-config"]
	kept := slices.DeleteFunc(slices.Clone(defaults), func(flag string) bool { return given[name(flag)] })
	return append(kept, flags...)
}
