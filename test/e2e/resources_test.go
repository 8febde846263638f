package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/cluster"
	"github.com/gatehouse-dev/gatehouse/test/e2e/gatehouse"
)

// customised is a server whose policies and profiles are custom resources. It runs as the ServiceAccount that
// 'gatehouse manifests' prints, with the rights and the command line of that.
type customised struct {
	*world
	namespace, name string
	flags           []string
	log             string
	server          *gatehouse.Server
}

// customisation is how an install differs from the printed one.
type customisation struct {
	// namespace and name are those of the install, for several in a cluster.
	namespace, name string
	// without are rights that it does not get, each once in the printed roles.
	without []withoutRight
	// reach is the address of the API server to it, instead of the API server's own.
	reach string
	// alone tells that nothing is registered that others would notice: its webhooks are about no namespace.
	alone bool
}

// withoutRight is a verb of a resource, in the roles for custom resources.
type withoutRight struct{ resource, verb string }

// definitionNames are the CustomResourceDefinitions.
func definitionNames() []string {
	var names []string
	for _, plural := range []string{"accesstokens", "admissionpolicies", "admissionpolicybindings", "policyexceptions", "sidecarprofiles", "tokenrevocations"} {
		names = append(names, plural+".gatehouse.dev")
	}
	return names
}

// applyDefinitions applies the CustomResourceDefinitions.
func (w *world) applyDefinitions(ctx context.Context) error {
	output, err := w.Kubectl(ctx, "apply", "--server-side", "--force-conflicts", "--kustomize", "../../manifests/crds").CombinedOutput()
	if err == nil {
		output, err = w.Kubectl(ctx, append([]string{"wait", "--for=condition=Established", "--timeout=30s", "crd"}, definitionNames()...)...).CombinedOutput()
	}
	if err != nil {
		return fmt.Errorf("the definitions: %w: %s", err, output)
	}
	return nil
}

// customise installs a server, and does not start it.
func customise(t *testing.T, w *world, how customisation) *customised {
	t.Helper()
	if how.namespace == "" {
		how.namespace, how.name = system, "gatehouse"
	}
	c := &customised{world: w, namespace: how.namespace, name: how.name, log: w.path(how.name + ".log")}
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(c.log)
			const most = 16 << 10
			t.Logf("%s logged, at the end:\n%s", c.name, log[max(0, len(log)-most):])
		}
	})
	address, listen := []string{"--service", c.namespace + "/" + c.name}, net.JoinHostPort(cluster.ListenAddress(), "0")
	if !cluster.Namespaced() {
		var err error
		listen, err = cluster.UnusedAddress(cluster.ListenAddress())
		must(t, err)
		address = []string{"--url", "https://" + listen}
	}
	printed, err := gatehouse.Run(t.Context(), append([]string{
		"manifests", "--certificates", "self-signed", "--custom-resources", "--name", c.name, "--namespace", c.namespace,
	}, address...)...)
	must(t, err)
	must(t, w.apply(t.Context(), c.narrow(t, printed, how)))
	for line := range strings.Lines(printed) {
		if command, ok := strings.CutPrefix(strings.TrimSpace(line), "# gatehouse serve "); ok {
			c.flags = strings.Fields(command)
		}
	}
	for i, word := range c.flags {
		if word == "--in-cluster" {
			c.flags[i] = "--kubeconfig=" + c.kubeconfig(t, how.reach)
		}
	}
	c.flags = append(c.flags, "--namespace", c.namespace, "--replica", c.name, "--listen", listen, "--ops-listen", "127.0.0.1:0",
		"--drain-delay", "0s", "--rotation-hold", "1s", "--log-level", "info")
	return c
}

// narrow takes rights away, and the webhooks but that for documents if it is to be alone.
func (c *customised) narrow(t *testing.T, printed string, how customisation) string {
	t.Helper()
	var applied []string
	missing := slices.Clone(how.without)
	for text := range strings.SplitSeq(printed, "\n---\n") {
		var document map[string]any
		must(t, yaml.Unmarshal([]byte(text), &document))
		o := unstructured.Unstructured{Object: document}
		switch o.GetKind() {
		case "":
			continue // the header
		case "Role", "ClusterRole":
			if !strings.HasSuffix(o.GetName(), "-resources") {
				break
			}
			var role rbacv1.ClusterRole
			must(t, yaml.UnmarshalStrict([]byte(text), &role))
			var rules []rbacv1.PolicyRule
			for _, rule := range role.Rules {
				for _, resource := range rule.Resources {
					one := rule
					one.Resources = []string{resource}
					one.Verbs = slices.DeleteFunc(slices.Clone(rule.Verbs), func(verb string) bool {
						i := slices.Index(how.without, withoutRight{resource, verb})
						if i >= 0 {
							missing = slices.DeleteFunc(missing, func(r withoutRight) bool { return r == how.without[i] })
						}
						return i >= 0
					})
					if len(one.Verbs) > 0 {
						rules = append(rules, one)
					}
				}
			}
			document["rules"] = rules
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
			list, _, err := unstructured.NestedSlice(document, "webhooks")
			must(t, err)
			for i := range list {
				if how.alone {
					must(t, unstructured.SetNestedMap(list[i].(map[string]any), map[string]any{"nobody": "has-this"}, "namespaceSelector", "matchLabels"))
				}
			}
			document["webhooks"] = list
		}
		content, err := yaml.Marshal(document)
		must(t, err)
		applied = append(applied, string(content))
	}
	if len(missing) > 0 {
		t.Fatalf("no role has %+v:\n%s", missing, printed)
	}
	return strings.Join(applied, "---\n")
}

// kubeconfig is one for the ServiceAccount, with a token as a pod has it.
func (c *customised) kubeconfig(t *testing.T, reach string) string {
	t.Helper()
	request, err := c.Client().CoreV1().ServiceAccounts(c.namespace).CreateToken(t.Context(), c.name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	access, config := c.Config(), clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: access.Host, CertificateAuthority: c.CAFile()}
	if reach != "" {
		config.Clusters["c"] = &clientcmdapi.Cluster{Server: reach, CertificateAuthority: c.path("ca.crt")}
	}
	config.AuthInfos["c"] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	config.CurrentContext = "c"
	path := c.path(c.name + ".kubeconfig")
	must(t, clientcmd.WriteToFile(*config, path))
	return path
}

// start starts the server, waits until it is ready, and makes it the endpoint of its Service.
func (c *customised) start(t *testing.T) *customised {
	t.Helper()
	var err error
	c.server, err = gatehouse.Start(t.Context(), c.log, c.flags...)
	must(t, err)
	t.Cleanup(c.server.Kill)
	if cluster.Namespaced() {
		must(t, c.ServiceFor(t.Context(), c.namespace, c.name, int(c.server.Reviews.Port())))
	}
	return c
}

// launched starts a server that need not become ready, and returns the address of its listener for health once it says.
func (c *customised) launched(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if server, err := gatehouse.Start(ctx, c.log, c.flags...); err == nil {
			<-ctx.Done()
			server.Kill()
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	var ops string
	eventually(t, "that it serves", func() error {
		for _, line := range c.lines(t) {
			if line.Message == "serving" {
				ops = line.Ops
				return nil
			}
		}
		return errors.New("it does not")
	})
	return ops
}

// readyz is what /readyz says.
func readyz(ctx context.Context, ops string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+ops+"/readyz", http.NoBody)
	if err != nil {
		return 0, "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// logLine is what tests look at of a line of the log.
type logLine struct {
	Level, Kind, Object, Error, Hint, Finding, Digest, Ops, Missing, Problem string

	Message string `json:"msg"`
	text    string
}

func (c *customised) lines(t *testing.T) []logLine {
	t.Helper()
	content, err := os.ReadFile(c.log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var lines []logLine
	for text := range bytes.Lines(content) {
		line := logLine{text: string(text)}
		if json.Unmarshal(text, &line) == nil { // the last may not be whole
			lines = append(lines, line)
		}
	}
	return lines
}

// logged waits for a line that is as wanted, and returns how many there are.
func (c *customised) logged(t *testing.T, what string, wanted func(*logLine) bool) int {
	t.Helper()
	n := 0
	eventually(t, "a log line about "+what, func() error {
		n = 0
		for _, line := range c.lines(t) {
			if wanted(&line) {
				n++
			}
		}
		if n == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	return n
}

// conditions are those of an object, each as Type=Status/Reason, and the messages.
func (w *world) conditions(ctx context.Context, kind, namespace, name string) (string, error) {
	output, err := w.Kubectl(ctx, "get", kind, name, "--namespace", namespace, "--output", "json").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, output)
	}
	var object struct {
		Metadata struct{ Generation int64 }
		Status   struct{ Conditions []metav1.Condition }
	}
	if err := json.Unmarshal(output, &object); err != nil {
		return "", err
	}
	var all []string
	for _, c := range object.Status.Conditions {
		if c.ObservedGeneration != object.Metadata.Generation {
			return "", fmt.Errorf("the condition %s is about generation %d of %d", c.Type, c.ObservedGeneration, object.Metadata.Generation)
		}
		all = append(all, fmt.Sprintf("%s=%s/%s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	return strings.Join(all, "\n"), nil
}

// tells waits until the conditions of an object have all of these texts.
func (w *world) tells(t *testing.T, kind, namespace, name string, texts ...string) {
	t.Helper()
	eventually(t, "the status of "+kind+" "+name, func() error {
		got, err := w.conditions(t.Context(), kind, namespace, name)
		if err != nil {
			return err
		}
		for _, text := range texts {
			if !strings.Contains(got, text) {
				return fmt.Errorf("%q is not in\n%s", text, got)
			}
		}
		return nil
	})
}

const healthy, inUse = "Degraded=False/Healthy", "Ready=True/InUse"

// event waits for an Event about an object.
func (w *world) event(t *testing.T, namespace, kind, name, reason, text string) {
	t.Helper()
	eventually(t, "an Event "+reason+" about "+kind+" "+name, func() error {
		found, err := w.Client().CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		var all []string
		for i := range found.Items {
			e := &found.Items[i]
			if e.InvolvedObject.Kind == kind && e.InvolvedObject.Name == name {
				if e.Reason == reason && strings.Contains(e.Message, text) {
					return nil
				}
				all = append(all, e.Reason+": "+e.Message)
			}
		}
		return fmt.Errorf("there are %q", all)
	})
}

// verdict is what the API server says to a pod in the namespace "shop": "" or a refusal.
func (w *world) verdict(ctx context.Context, pod *corev1.Pod) string {
	_, err := w.Client().CoreV1().Pods("shop").Create(ctx, pod, dryRun)
	if err != nil {
		return err.Error()
	}
	return ""
}

// refuses waits until a pod of that name is refused with a text, or admitted where that is "".
func (w *world) refuses(t *testing.T, name, text string) {
	t.Helper()
	eventually(t, "the verdict on "+name, func() error {
		if got := w.verdict(t.Context(), plainPod(name)); (got == "") != (text == "") || !strings.Contains(got, text) {
			return fmt.Errorf("got %q, want %q", got, text)
		}
		return nil
	})
}

// reviewer asks the server itself, as the API server does, which need not be there for it.
type reviewer struct {
	url    string
	client *http.Client
}

func (c *customised) reviewer(t *testing.T) *reviewer {
	t.Helper()
	found, err := c.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), c.name, metav1.GetOptions{})
	must(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(found.Webhooks[0].ClientConfig.CABundle)
	name := c.name + "." + c.namespace + ".svc"
	if !cluster.Namespaced() {
		name = c.server.Reviews.Addr().String()
	}
	return &reviewer{"https://" + c.server.Reviews.String() + "/validate", &http.Client{
		Timeout: deadline, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: name, MinVersion: tls.VersionTLS13}},
	}}
}

// ask is the refusal of a pod of that name, "" for none.
func (r *reviewer) ask(ctx context.Context, name string) (string, error) {
	review := fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","name":%[1]q,"namespace":"shop",
		"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"userInfo":{"username":"somebody"},
		"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":%[1]q,"namespace":"shop"},"spec":{"containers":[{"name":"a","image":"a"}]}}}}`, name)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, strings.NewReader(review))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := r.client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	var answer struct {
		Response struct {
			Allowed bool
			Status  struct{ Message string }
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return "", fmt.Errorf("it answers %s: %w", response.Status, err)
	}
	if answer.Response.Allowed {
		return "", nil
	}
	return "refused: " + answer.Response.Status.Message, nil
}

// shop makes the namespace that the tests of custom resources create pods in.
func (w *world) shop(t *testing.T) {
	t.Helper()
	must(t, w.CreateNamespace(t.Context(), "shop", nil))
}

func policyNamed(name, expression, more string) string {
	return fmt.Sprintf(`
---
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: %s}
spec:
  validationActions: [Deny]%s
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: %q, message: no %[1]s}]
`, name, more, expression)
}

func profileNamed(name string) string {
	return fmt.Sprintf(`
---
apiVersion: gatehouse.dev/v1alpha1
kind: SidecarProfile
metadata: {name: %s}
spec: {template: {spec: {initContainers: [{name: %s, image: x, restartPolicy: Always, startupProbe: {tcpSocket: {port: 1}}}]}}}
`, name, name)
}

func exceptionNamed(name, policy, condition string) string {
	return fmt.Sprintf(`
---
apiVersion: gatehouse.dev/v1alpha1
kind: PolicyException
metadata: {name: %s, namespace: %s}
spec:
  policies: [{name: %s}]
  reason: because
  match: {namespaces: [shop], matchConditions: [{name: c, expression: %q}]}
`, name, system, policy, condition)
}

func plainPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}
}

func askingPod(name string) *corev1.Pod {
	p := plainPod(name)
	p.Annotations = map[string]string{"sidecar.gatehouse.dev/inject": "true"}
	return p
}

// images waits until a pod that asks gets these images of sidecars.
func (w *world) images(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, "injection", func() error {
		created, err := w.Client().CoreV1().Pods("shop").Create(t.Context(), askingPod("asking"), dryRun)
		if err != nil {
			return err
		}
		var got []string
		for i := range created.Spec.InitContainers {
			got = append(got, created.Spec.InitContainers[i].Image)
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("the sidecars have the images %q, want %q", got, want)
		}
		return nil
	})
}

// stays asks for a while and wants the same answer always.
func stays(t *testing.T, what string, lasts time.Duration, condition func() error) {
	t.Helper()
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		if err := condition(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
