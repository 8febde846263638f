package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// uninstalled is what the command says with -o json.
type uninstalled struct {
	Parts []struct{ Kind, Namespace, Name, Outcome, Message, Command string }
}

// of are the parts with an outcome.
func (u *uninstalled) of(outcome string) []string {
	var names []string
	for _, p := range u.Parts {
		if p.Outcome == outcome {
			names = append(names, p.Kind+" "+p.Name)
		}
	}
	return names
}

// uninstall runs the command with the kubeconfig, and returns its exit code and what it says.
func (s *site) uninstall(t *testing.T, kubeconfig string, args ...string) (code int, report uninstalled, stderr string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), binary(t), append([]string{"uninstall", "--kubeconfig", kubeconfig, "-o", "json"}, args...)...)
	var said strings.Builder
	c.Stderr = &said
	output, err := c.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code, err = exit.ExitCode(), nil
	}
	must(t, err)
	if len(output) > 0 {
		must(t, json.Unmarshal(output, &report))
	}
	return code, report, said.String()
}

// createLeftovers creates what the process makes, which nobody runs here: the Secret and the Leases.
func (s *site) createLeftovers(t *testing.T) {
	t.Helper()
	labels := map[string]string{"gatehouse.dev/certificates": "gatehouse-ca", "app.kubernetes.io/managed-by": "gatehouse"}
	_, err := s.Client().CoreV1().Secrets(system).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "gatehouse-ca", Labels: labels}}, metav1.CreateOptions{})
	must(t, err)
	for name, labels := range map[string]map[string]string{
		"gatehouse-ca-x-1": labels, "gatehouse-ca-y-2": labels, "gatehouse-report-x": {"gatehouse.dev/report": "gatehouse"}, "gatehouse-status": nil, "somebody-else": nil,
	} {
		_, err := s.Client().CoordinationV1().Leases(system).Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
		must(t, err)
	}
}

// tryPod creates a pod that asks for a sidecar, in a tenant's namespace.
func (s *site) tryPod(ctx context.Context, namespace string) error {
	_, err := s.Client().CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "x-", Annotations: map[string]string{"sidecar.gatehouse.dev/inject": "true"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "x"}}},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// tryDeployment creates a Deployment in a tenant's namespace.
func (s *site) tryDeployment(ctx context.Context, namespace string) error {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"generateName": "x-"},
		"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"a": "b"}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "x", "image": "x"}}},
			},
		},
	}}
	_, err := s.dynamic.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}).Namespace(namespace).
		Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// waitUntilBlocked waits until what fails closed is refused: nobody answers here.
func (s *site) waitUntilBlocked(t *testing.T, namespace string) {
	t.Helper()
	support.Eventually(t, "the registrations are in force", func() error {
		for what, err := range map[string]error{"a pod": s.tryPod(t.Context(), namespace), "a deployment": s.tryDeployment(t.Context(), namespace)} {
			if err == nil || !strings.Contains(err.Error(), "gatehouse.dev") {
				return fmt.Errorf("%s is not refused while Gatehouse is away: %w", what, err)
			}
		}
		return nil
	})
}

// checkUnblocked wants nothing to wait for Gatehouse any more, at once: uninstall has waited.
func (s *site) checkUnblocked(t *testing.T, namespace string) {
	t.Helper()
	for what, err := range map[string]error{"a pod": s.tryPod(t.Context(), namespace), "a deployment": s.tryDeployment(t.Context(), namespace)} {
		if err != nil {
			t.Errorf("after uninstall, %s is refused: %v", what, err)
		}
	}
}

// selfSigned is the variant that needs nothing besides.
func selfSigned(t *testing.T) *variant {
	t.Helper()
	return kustomized(t, "self-signed")
}

// TestUninstall: from an install with nobody who answers, which refuses what fails closed, to a cluster that waits for
// nobody; a dry run before, and again after.
func TestUninstall(t *testing.T) {
	t.Parallel()
	v := selfSigned(t)
	s := newSite(t, cluster.Options{ControllerManager: true})
	s.install(t, v)
	s.createLeftovers(t)
	tenant := s.NewNamespace(t, nil)
	s.waitUntilBlocked(t, tenant)
	all := []string{
		"MutatingWebhookConfiguration gatehouse", "ValidatingWebhookConfiguration gatehouse", "Deployment gatehouse", "Secret gatehouse-ca",
		"Lease gatehouse-ca-x-1", "Lease gatehouse-ca-y-2", "Lease gatehouse-status", "Lease gatehouse-report-x",
	}

	code, report, stderr := s.uninstall(t, s.Kubeconfig(), "--dry-run")
	if code != 0 || stderr != "" || !slices.Equal(report.of("found"), all) {
		t.Errorf("a dry run ends with %d, finds %q and says %q, want %q", code, report.of("found"), stderr, all)
	}
	s.waitUntilBlocked(t, tenant) // nothing is gone

	code, report, stderr = s.uninstall(t, s.Kubeconfig(), "--yes")
	s.checkUnblocked(t, tenant)
	if code != 0 || stderr != "" || !slices.Equal(report.of("removed"), all) {
		t.Errorf("it ends with %d, removes %q and says %q, want %q", code, report.of("removed"), stderr, all)
	}
	_, err := s.Client().CoordinationV1().Leases(system).Get(t.Context(), "somebody-else", metav1.GetOptions{})
	if err != nil {
		t.Errorf("the Lease of somebody else is gone: %v", err)
	}
	for what, err := range map[string]error{
		"the Secret":     expectNotFound(s.getError(t, "v1", "Secret", system, "gatehouse-ca")),
		"the Deployment": expectNotFound(s.getError(t, "apps/v1", "Deployment", system, "gatehouse")),
		"a registration": expectNotFound(s.getError(t, "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", "gatehouse")),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}

	code, report, stderr = s.uninstall(t, s.Kubeconfig())
	if code != 0 || stderr != "" || len(report.of("removed")) > 0 {
		t.Errorf("the second time it ends with %d, removes %q and says %q, want nothing", code, report.of("removed"), stderr)
	}

	s.kubectl(t, []byte(`{"apiVersion":"gatehouse.dev/v1alpha1","kind":"TokenRevocation","metadata":{"name":"x"},"spec":{"user":"jane","issuedBefore":"2026-01-01T00:00:00Z"}}`), "apply", "--server-side", "-f", "-")
	code, report, stderr = s.uninstall(t, s.Kubeconfig(), "--yes", "--custom-resources")
	if code != 0 || stderr != "" || len(report.of("removed")) != 6 || !strings.Contains(fmt.Sprint(report.Parts), "with all of its objects") {
		t.Errorf("with the custom resources it ends with %d and %v, and says %q", code, report.Parts, stderr)
	}
	if err := expectNotFound(s.getError(t, "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "tokenrevocations.gatehouse.dev")); err != nil {
		t.Errorf("the definition: %v", err)
	}
}

// getError is what reading an object ends with.
func (s *site) getError(t *testing.T, apiVersion, kind, namespace, name string) error {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
	o.SetNamespace(namespace)
	_, err := s.client(t, o).Get(t.Context(), name, metav1.GetOptions{})
	return err
}

// tokenOf makes a token of a ServiceAccount, as a pod has it.
func (s *site) tokenOf(t *testing.T, namespace, account string) string {
	t.Helper()
	token, err := s.Client().CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	return token.Status.Token
}

// hookRights are the objects of the chart's hook that give it rights.
func hookRights(t *testing.T) (account string, objects []*unstructured.Unstructured, args []string) {
	t.Helper()
	for _, o := range charted(t, "self-signed").objects {
		if !isHook(o) {
			continue
		}
		switch o.GetKind() {
		case "Job":
			containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			must(t, err)
			args, _, err = unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
			must(t, err)
			account, _, err = unstructured.NestedString(o.Object, "spec", "template", "spec", "serviceAccountName")
			must(t, err)
		default:
			objects = append(objects, o)
		}
	}
	if account == "" {
		t.Fatal("the chart has no hook that runs a Job")
	}
	return account, objects, args
}

// TestUninstallHook: what the chart runs before it deletes anything can do that with exactly its rights: all its
// arguments but where the cluster is.
func TestUninstallHook(t *testing.T) {
	t.Parallel()
	account, objects, args := hookRights(t)
	s := newSite(t, cluster.Options{})
	s.install(t, selfSigned(t))
	s.createLeftovers(t)
	hook := variant{objects: objects}
	for _, o := range hook.objects {
		o.SetAnnotations(nil) // not for a moment only
	}
	s.install(t, &hook)
	tenant := s.NewNamespace(t, nil)
	s.waitUntilBlocked(t, tenant)
	kubeconfig := s.writeKubeconfig(t, s.tokenOf(t, system, account))
	args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == "uninstall" || arg == "--in-cluster" })
	if len(args) == 0 {
		t.Fatal("the hook has no arguments")
	}
	for round, want := range [][]string{{"MutatingWebhookConfiguration gatehouse", "ValidatingWebhookConfiguration gatehouse"}, nil} {
		code, report, stderr := s.uninstall(t, kubeconfig, args...)
		if code != 0 || stderr != "" || !slices.Equal(report.of("removed"), want) || len(report.Parts) != len(want) {
			t.Errorf("round %d: it ends with %d and %v, and says %q", round, code, report.Parts, stderr)
		}
		s.checkUnblocked(t, tenant)
	}
	must(t, s.getError(t, "v1", "Secret", system, "gatehouse-ca"))

	// It can do nothing else.
	code, report, _ := s.uninstall(t, kubeconfig, "--yes")
	if code != 2 || len(report.of("removed")) > 0 {
		t.Errorf("the whole of uninstall ends with %d and removes %q by the rights of the hook", code, report.of("removed"))
	}
}
