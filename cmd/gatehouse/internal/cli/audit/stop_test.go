package audit

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// testCluster has a policy about ConfigMaps, and one of these.
func testCluster() *fakeapi.Server {
	api := fakeapi.New(
		fakeapi.Resource{GroupVersionResource: v1alpha1.GroupVersion.WithResource("admissionpolicies"), Kind: "AdmissionPolicy"},
		fakeapi.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("configmaps"), Kind: "ConfigMap", Namespaced: true},
		fakeapi.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("namespaces"), Kind: "Namespace"},
	)
	api.Put(map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "AdmissionPolicy", "metadata": map[string]any{"name": "team"}, "spec": map[string]any{
		"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
			"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"configmaps"},
		}}},
		"validations": []any{map[string]any{"expression": "has(object.metadata.labels)"}}, "validationActions": []any{"Deny"},
	}})
	return api
}

// TestInterrupted: an audit that is cut off reports what it has not judged.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	api := testCluster()
	api.Intercept = func(r *fakeapi.Request) (any, error) {
		if r.Verb == "list" && r.Resource == "configmaps" {
			cancel()
			return nil, context.Canceled
		}
		return nil, nil
	}
	got := clitest.Run(ctx, "", []string{"audit", "--kubeconfig", fakeapi.Kubeconfig(t, api)}, NewCommand)
	for _, want := range []string{
		"the audit was interrupted: objects that are not counted were not judged", "configmaps: the audit ended before all objects were read",
		"0 objects: 0 fail, 0 warn, 0 excepted, 0 cannot be decided; the audit is not complete",
	} {
		if got.Code != cli.ExitUnknown || !strings.Contains(got.Out, want) {
			t.Errorf("got %+v, want %q", got, want)
		}
	}
}

// TestNamespaceFilter: whether the namespaces of -n exist must be known.
func TestNamespaceFilter(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		namespace string
		forbidden bool
		code      int
		says      string
	}{
		"exists":   {"shop", false, cli.ExitYes, `"complete": true`},
		"missing":  {"nosuch", false, cli.ExitUnknown, "--namespace nosuch: there is no such namespace"},
		"no right": {"nosuch", true, cli.ExitUnknown, "missing right: get namespaces"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := testCluster()
			api.Put(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop"}})
			api.Intercept = func(r *fakeapi.Request) (any, error) {
				if c.forbidden && r.Resource == "namespaces" {
					return nil, apierrors.NewForbidden(corev1.Resource("namespaces"), r.Name, nil)
				}
				return nil, nil
			}
			got := clitest.Run(t.Context(), "", []string{"audit", "--kubeconfig", fakeapi.Kubeconfig(t, api), "--partial", "-n", c.namespace, "-o", "json"}, NewCommand)
			if got.Code != c.code || !strings.Contains(got.Out, c.says) {
				t.Errorf("got %+v, want %d and %s", got, c.code, c.says)
			}
		})
	}
}
