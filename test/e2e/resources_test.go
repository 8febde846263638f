package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// resourceInstall is a server whose policies and profiles are custom resources.
type resourceInstall struct {
	*install
	server *gatehouse.Server
}

// resourceOptions is how an install differs from the printed one.
type resourceOptions struct {
	// namespace and name are those of the install, for several in a cluster.
	namespace, name string
	// without are rights that it does not get.
	without []missingRight
	// reach is the address of the API server to it, instead of the API server's own.
	reach string
	// alone: its webhooks match no namespace, so that other tests do not notice it.
	alone bool
}

// missingRight is a verb of a resource, in all the printed roles.
type missingRight struct{ resource, verb string }

// applyDefinitions applies the CustomResourceDefinitions.
func (w *world) applyDefinitions(ctx context.Context) error {
	output, err := w.Kubectl(ctx, "apply", "--server-side", "--force-conflicts", "--kustomize", "../../manifests/crds").CombinedOutput()
	if err == nil {
		output, err = w.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd", "--all").CombinedOutput()
	}
	if err != nil {
		return fmt.Errorf("the definitions: %w: %s", err, output)
	}
	return nil
}

// newResourceInstall installs a server, and does not start it.
func newResourceInstall(t *testing.T, w *world, how resourceOptions) *resourceInstall {
	t.Helper()
	if how.namespace == "" {
		how.namespace, how.name = system, "gatehouse"
	}
	c := &resourceInstall{install: w.newInstall(t, how.namespace, how.name, "--custom-resources")}
	printed := c.manifests(t)
	must(t, w.apply(t.Context(), c.without(t, printed, how)))
	c.command(t, printed, map[string]string{"--in-cluster": c.kubeconfig(t, how.reach)}, "--namespace", c.namespace, "--log-level", "info")
	return c
}

// without takes rights away, and the webhooks but that for documents if it is to be alone.
func (c *resourceInstall) without(t *testing.T, printed string, how resourceOptions) string {
	t.Helper()
	missing := slices.Clone(how.without)
	text := rewritten(t, printed, func(o *unstructured.Unstructured) {
		switch o.GetKind() {
		case "Role", "ClusterRole":
			narrow(t, o, func(resource, verb string) bool {
				this := missingRight{resource, verb}
				missing = slices.DeleteFunc(missing, func(r missingRight) bool { return r == this })
				return slices.Contains(how.without, this)
			})
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
			if how.alone {
				eachWebhook(t, o, func(webhook map[string]any) {
					must(t, unstructured.SetNestedField(webhook, "has-this", "namespaceSelector", "matchLabels", "nobody"))
				})
			}
		}
	})
	if len(missing) > 0 {
		t.Fatalf("no role has %+v:\n%s", missing, printed)
	}
	return text
}

// start starts the server, waits until it is ready, and makes it the endpoint of its Service.
func (c *resourceInstall) start(t *testing.T) *resourceInstall {
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

// reviews is where a server that was launched answers reviews.
func (c *resourceInstall) reviews(t *testing.T) netip.AddrPort {
	t.Helper()
	for _, line := range c.lines(t) {
		if line.Message == "serving" {
			address, err := netip.ParseAddrPort(line.Reviews)
			must(t, err)
			return address
		}
	}
	t.Fatal("it does not serve")
	return netip.AddrPort{}
}

// launched starts a server that need not become ready, and returns the address of its listener for health once it says.
func (c *resourceInstall) launched(t *testing.T) string {
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
	support.Eventually(t, "that it serves", func() error {
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
	Level, Kind, Object, Error, Hint, Finding, Digest, Ops, Reviews, Missing string

	Message string `json:"msg"`
	text    string
}

func (c *resourceInstall) lines(t *testing.T) []logLine {
	t.Helper()
	var lines []logLine
	for text := range strings.Lines(c.readLog(t)) {
		line := logLine{text: text}
		if json.Unmarshal([]byte(text), &line) == nil { // the last may not be whole
			lines = append(lines, line)
		}
	}
	return lines
}

// logged waits for a line that is as wanted, and returns how many there are.
func (c *resourceInstall) logged(t *testing.T, what string, wanted func(*logLine) bool) int {
	t.Helper()
	n := 0
	support.Eventually(t, "a log line about "+what, func() error {
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

// hasConditions waits until the conditions of an object have all of these texts.
func (w *world) hasConditions(t *testing.T, kind, namespace, name string, texts ...string) {
	t.Helper()
	support.Eventually(t, "the status of "+kind+" "+name, func() error {
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
	support.Eventually(t, "an Event "+reason+" about "+kind+" "+name, func() error {
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
	support.Eventually(t, "the verdict on "+name, func() error {
		if got := w.verdict(t.Context(), pod(name)); (got == "") != (text == "") || !strings.Contains(got, text) {
			return fmt.Errorf("got %q, want %q", got, text)
		}
		return nil
	})
}

// reviewer asks about pods in the namespace "shop".
func (c *resourceInstall) reviewer(t *testing.T) *reviewer {
	t.Helper()
	found, err := c.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), c.name, metav1.GetOptions{})
	must(t, err)
	return c.newReviewer(found.Webhooks[0].ClientConfig.CABundle, c.server.Reviews, "shop")
}

// createShop makes the namespace that the tests of custom resources create pods in.
func (w *world) createShop(t *testing.T) {
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

// sidecarImages waits until a pod that asks gets these images of sidecars.
func (w *world) sidecarImages(t *testing.T, want ...string) {
	t.Helper()
	support.Eventually(t, "injection", func() error {
		created, err := w.Client().CoreV1().Pods("shop").Create(t.Context(), pod("asking", asking), dryRun)
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
