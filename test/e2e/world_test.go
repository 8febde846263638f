// Package e2e shows Gatehouse to a real API server and looks at what its users see: people who log in, people who
// create objects, and the administrator while things go wrong.
//
// The tests share one control plane and one server. They keep apart by namespaces and labels; those that break
// something for everybody are not parallel, and so run before all others.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

const (
	// system is the namespace that Gatehouse runs in, as far as the API server knows.
	system = "gatehouse-system"
	// cacheTTL is how long the API server believes an answer about a token. To that it adds ten seconds for a yes.
	cacheTTL = time.Second
	// deadline bounds every call, on a busy machine too.
	deadline = 40 * time.Second
	// examples are the repository's own, each a directory below. One of them has the profile that most tests look at.
	examples       = "../../manifests/examples"
	exampleProfile = examples + "/log-shipper/profile.yaml"
)

// exampleNames are the examples of sidecars.
func exampleNames() []string {
	return []string{"log-shipper", "mesh-proxy", "secrets-agent", "otel-collector", "mesh-preset"}
}

// world is what the tests share: a control plane, a server, and its documents.
type world struct {
	*cluster.Cluster
	// gatehouse serves the documents in config.
	gatehouse *gatehouse.Server
	config    string
	// audit is the API server's audit log.
	audit string

	dir string
	// authority signs certificates for webhooks, and the one that the API server shows them for token reviews.
	authority *cluster.Authority
	// serving are the flags of every server's certificates.
	serving []string

	mu      sync.Mutex
	servers []*gatehouse.Server
	// secrets are texts that nobody may write down, and traces others that must be found by who looks for them: that no
	// secret was found means something only if the right places were looked at.
	secrets, traces []string
}

var shared struct {
	once sync.Once
	*world
	err error
}

// sharedWorld returns what the tests share, started by the first test that asks.
func sharedWorld(t *testing.T) *world {
	t.Helper()
	shared.once.Do(func() {
		how := "through a Service, over HTTP/1.1 with SNI"
		if !cluster.Namespaced() {
			how = "by loopback URL, over HTTP/2"
		}
		t.Log("the API server calls the webhooks " + how)
		shared.world, shared.err = begin(context.WithoutCancel(t.Context()))
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	w := shared.world
	w.LogOnFailure(t)
	before, err := os.ReadFile(w.gatehouse.Log())
	must(t, err)
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		log, _ := os.ReadFile(w.gatehouse.Log())
		const most = 8 << 10
		log = log[len(before):]
		t.Logf("gatehouse serve logged, at the end:\n%s", log[max(0, len(log)-most):])
	})
	return w
}

func begin(ctx context.Context) (*world, error) {
	_, err := gatehouse.Binary()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "gatehouse-e2e-*")
	if err != nil {
		return nil, err
	}
	w := &world{dir: dir, config: filepath.Join(dir, "config"), audit: filepath.Join(dir, "audit.log")}
	err = w.start(ctx)
	if err != nil {
		return nil, errors.Join(err, w.end(ctx))
	}
	return w, nil
}

func (w *world) start(ctx context.Context) error {
	err := w.certificates()
	if err != nil {
		return err
	}
	directories := []string{"testdata/config"}
	for _, example := range exampleNames() {
		directories = append(directories, filepath.Join(examples, example))
	}
	for _, from := range directories {
		err := os.CopyFS(filepath.Join(w.config, filepath.Base(from)), os.DirFS(from))
		if err != nil {
			return err
		}
	}
	w.gatehouse, err = w.serve(ctx, "gatehouse", w.config)
	if err != nil {
		return err
	}
	flags, err := w.apiServerFlags(ctx)
	if err != nil {
		return err
	}
	w.Cluster, err = cluster.Start(ctx, cluster.Options{ControllerManager: true, APIServerFlags: flags("v1beta1")})
	if err != nil {
		return err
	}
	err = w.createNamespaces(ctx)
	if err != nil {
		return err
	}
	err = w.register(ctx, "gatehouse", w.config, w.gatehouse)
	if err != nil {
		return err
	}
	return w.waitUntilRegistered(ctx)
}

// certificates makes one serving certificate for all servers, because it is their names that matter.
func (w *world) certificates() error {
	var err error
	w.authority, err = cluster.NewAuthority("gatehouse")
	if err != nil {
		return err
	}
	hosts := []string{cluster.ListenAddress()}
	for _, service := range []string{"gatehouse", "outage", "rollout"} {
		hosts = append(hosts, service+"."+system+".svc")
	}
	cert, key, err := w.authority.Serve(hosts...)
	if err != nil {
		return err
	}
	clientCert, clientKey, err := w.authority.Client("kube-apiserver")
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"ca.crt": w.authority.CertPEM(), "tls.crt": cert, "tls.key": key, "client.crt": clientCert, "client.key": clientKey,
	} {
		err := os.WriteFile(w.path(name), content, 0o600)
		if err != nil {
			return err
		}
	}
	w.serving = []string{"--tls-cert", w.path("tls.crt"), "--tls-key", w.path("tls.key"), "--client-ca", w.path("ca.crt")}
	return nil
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// serve starts another server. It runs until all tests have.
func (w *world) serve(ctx context.Context, name, config string, flags ...string) (*gatehouse.Server, error) {
	if len(flags) == 0 {
		flags = w.serving
	}
	server, err := gatehouse.Start(ctx, w.path(name+".log"), append([]string{
		"--config", config, "--listen", net.JoinHostPort(cluster.ListenAddress(), "0"), "--ops-listen", "127.0.0.1:0",
		"--log-level", "debug", "--drain-delay", "2s",
	}, flags...)...)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.servers = append(w.servers, server)
	return server, nil
}

// auditPolicy makes the API server note every patch of a webhook in the namespaces of the examples, where pods are
// small, and the annotations of webhooks everywhere.
const auditPolicy = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],"rules":[
	{"level":"Request","verbs":["create"],"resources":[{"group":"","resources":["pods"]}],
		"namespaces":["shop","orders","payments","catalogue","shipping","order"]},
	{"level":"Metadata"}]}`

// apiServerFlags make an API server that asks for token reviews in a version, with the kubeconfig that
// 'gatehouse manifests' prints, and that writes an audit log.
func (w *world) apiServerFlags(ctx context.Context) (func(version string) []string, error) {
	kubeconfig, err := gatehouse.Run(ctx, "manifests", "--authentication", "--url", "https://"+w.gatehouse.Reviews.String(),
		"--ca-file", w.path("ca.crt"), "--client-cert", w.path("client.crt"), "--client-key", w.path("client.key"))
	if err != nil {
		return nil, err
	}
	for name, content := range map[string]string{
		"token-webhook.yaml": kubeconfig,
		"audit-policy.yaml":  auditPolicy,
	} {
		err := os.WriteFile(w.path(name), []byte(content), 0o600)
		if err != nil {
			return nil, err
		}
	}
	return func(version string) []string {
		return []string{
			"--authentication-token-webhook-config-file=" + w.path("token-webhook.yaml"),
			"--authentication-token-webhook-version=" + version,
			"--authentication-token-webhook-cache-ttl=" + cacheTTL.String(),
			"--audit-log-path=" + w.audit,
			"--audit-policy-file=" + w.path("audit-policy.yaml"),
		}
	}, nil
}

// createNamespaces creates the namespaces of the documents.
func (w *world) createNamespaces(ctx context.Context) error {
	files := []string{"testdata/config/namespaces.yaml", "testdata/config/sidecars.yaml"}
	for _, example := range exampleNames() {
		files = append(files, filepath.Join(examples, example, "namespace.yaml"))
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for document := range strings.SplitSeq(string(content), "\n---\n") {
			if !strings.Contains(document, "kind: Namespace\n") {
				continue
			}
			var namespace corev1.Namespace
			err := yaml.UnmarshalStrict([]byte(document), &namespace)
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			err = w.createNamespace(ctx, &namespace)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *world) createNamespace(ctx context.Context, namespace *corev1.Namespace) error {
	err := w.CreateNamespace(ctx, namespace.Name, namespace.Labels)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	if len(namespace.Annotations) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": namespace.Annotations}})
	if err != nil {
		return err
	}
	_, err = w.Client().CoreV1().Namespaces().Patch(ctx, namespace.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// register applies what 'gatehouse manifests' prints for a server with these documents: by a Service of that name, or
// by URL where there is no network namespace.
func (w *world) register(ctx context.Context, name, config string, servers ...*gatehouse.Server) error {
	address := []string{"--url", "https://" + servers[0].Reviews.String()}
	if cluster.Namespaced() {
		address = []string{"--service", system + "/" + name}
		err := w.endpoints(ctx, name, servers...)
		if err != nil {
			return err
		}
	}
	args := append([]string{"manifests", "--name", name, "--ca-file", w.path("ca.crt"), "--config", config}, address...)
	documents, err := gatehouse.Run(ctx, args...)
	if err != nil {
		return err
	}
	return w.apply(ctx, gatehouse.Patient(documents))
}

// endpoints makes these servers the Service's endpoints.
func (w *world) endpoints(ctx context.Context, service string, servers ...*gatehouse.Server) error {
	ports := make([]int, 0, len(servers))
	for _, s := range servers {
		ports = append(ports, int(s.Reviews.Port()))
	}
	return w.ServiceFor(ctx, system, service, ports...)
}

func (w *world) apply(ctx context.Context, documents string) error {
	_, err := w.applyOutput(ctx, documents)
	return err
}

// applyOutput is apply, and returns what kubectl says.
func (w *world) applyOutput(ctx context.Context, documents string) (string, error) {
	kubectl := w.Kubectl(ctx, "apply", "--filename", "-")
	kubectl.Stdin = strings.NewReader(documents)
	output, err := kubectl.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl apply: %w: %s", err, output)
	}
	return string(output), nil
}

// waitUntilRegistered waits until the API server, which learns of a registration by a watch, asks both endpoints.
func (w *world) waitUntilRegistered(ctx context.Context) error {
	return support.Poll(ctx, func() error {
		created, err := w.Client().CoreV1().Pods("inject").Create(ctx, pod("canary"), dryRun)
		if err != nil {
			return err
		}
		if injected(created) != 1 {
			return errors.New("a pod is not injected yet")
		}
		_, err = w.Client().CoreV1().ConfigMaps("reload").Create(ctx, configMap("red", nil), dryRun)
		if err == nil {
			return errors.New("a violation is not refused yet")
		}
		return nil
	})
}

// end ends what was begun and returns what is wrong with what it leaves behind.
func (w *world) end(ctx context.Context) error {
	errs := []error{w.findSecrets(ctx)}
	for _, s := range w.servers {
		s.Kill()
	}
	if w.Cluster != nil {
		errs = append(errs, w.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(w.dir))...)
}

// findSecrets looks for what was given to [world.secret] in everything that the tests made servers write: documents,
// logs, metrics, audit log.
func (w *world) findSecrets(ctx context.Context) error {
	if w.Cluster == nil || len(w.secrets) == 0 {
		return nil
	}
	written := map[string][]byte{}
	for _, dir := range []string{w.dir, w.Dir()} {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() || strings.Contains(path, "/etcd/") {
				return err
			}
			written[path], err = os.ReadFile(path)
			return err
		})
		if err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	for _, s := range w.servers {
		_, metrics, err := s.Get(ctx, "/metrics")
		if err == nil { // some were stopped
			written["the metrics of "+s.Log()] = []byte(metrics)
		}
	}
	var errs []error
	for where, content := range written {
		for _, secret := range w.secrets {
			if containsSecret(content, secret) {
				errs = append(errs, fmt.Errorf("%s holds what is secret: %.16s…", where, secret))
			}
		}
	}
	for _, trace := range w.traces {
		found := false
		for _, content := range written {
			found = found || bytes.Contains(content, []byte(trace))
		}
		if !found {
			errs = append(errs, fmt.Errorf("the search for secrets did not come across %s", trace))
		}
	}
	return errors.Join(errs...)
}

// containsSecret reports whether a content has the beginning or the end of a secret in it.
func containsSecret(content []byte, secret string) bool {
	const enough = 16
	most := min(len(secret), enough)
	return bytes.Contains(content, []byte(secret[:most])) || bytes.Contains(content, []byte(secret[len(secret)-most:]))
}

// secret notes a text for findSecrets, and returns it. Of a token, what stands in front, such as its id, is public.
func (w *world) secret(text string) string {
	part := text[strings.LastIndexByte(text, '.')+1:]
	if strings.HasPrefix(text, "gatehouse_") {
		part = text[strings.LastIndexByte(text, '_')+1:]
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	const least = 8 // less than that is found everywhere
	if len(part) >= least {
		w.secrets = append(w.secrets, part)
	}
	return text
}

// expectTraces notes texts that findSecrets must find.
func (w *world) expectTraces(traces ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.traces = append(w.traces, traces...)
}

// tests are the package's tests and what comes behind them.
type tests struct{ m *testing.M }

// Run implements what [cluster.RunInNamespace] runs.
func (r tests) Run() int {
	code := r.m.Run()
	if shared.world == nil {
		return code
	}
	err := shared.end(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	return code
}

func TestMain(m *testing.M) { os.Exit(cluster.RunInNamespace(tests{m})) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// refusal returns an error unless err is a refusal with the code and all of the texts.
func refusal(err error, code int32, texts ...string) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return fmt.Errorf("got %w, want a refusal that says %q", err, texts)
	}
	if status.Status().Code != code {
		return fmt.Errorf("got the code %d, want %d: %w", status.Status().Code, code, err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			return fmt.Errorf("got %w, want %q in it", err, text)
		}
	}
	return nil
}
