package install

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// TestIncompleteAuditRights: rights of policies that are not all known are not printed, because they would narrow a role.
func TestIncompleteAuditRights(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		forbidden, broken string
		code              int
		says              string
	}{
		"all read":             {"", "object.metadata.name != ''", cli.ExitYes, "  - configmaps\n"},
		"no right to profiles": {"sidecarprofiles", "object.metadata.name != ''", cli.ExitUnknown, "missing right: list sidecarprofiles.gatehouse.dev"},
		"a policy with errors": {"", "objekt.metadata.name != ''", cli.ExitUnknown, "AdmissionPolicy/other has errors, so that nothing can be decided by it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := fakeapi.New(
				fakeapi.Resource{GroupVersionResource: v1alpha1.GroupVersion.WithResource("admissionpolicies"), Kind: "AdmissionPolicy"},
				fakeapi.Resource{GroupVersionResource: v1alpha1.GroupVersion.WithResource("sidecarprofiles"), Kind: "SidecarProfile"},
			)
			for name, expression := range map[string]string{"team": "has(object.metadata.labels)", "other": c.broken} {
				api.Put(map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "AdmissionPolicy", "metadata": map[string]any{"name": name}, "spec": map[string]any{
					"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
						"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"configmaps"},
					}}},
					"validations": []any{map[string]any{"expression": expression}}, "validationActions": []any{"Deny"},
				}})
			}
			api.Intercept = func(r *fakeapi.Request) (any, error) {
				if c.forbidden != "" && r.Resource == c.forbidden {
					return nil, apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource(r.Resource).GroupResource(), "", nil)
				}
				return nil, nil
			}
			got := clitest.Run(t.Context(), "", []string{"manifests", "--audit", "--kubeconfig", fakeapi.Kubeconfig(t, api)}, NewManifestsCommand)
			if got.Code != c.code || !strings.Contains(got.Out+got.Err, c.says) || got.Code != cli.ExitYes && got.Out != "" {
				t.Errorf("got %+v, want %d and %s", got, c.code, c.says)
			}
		})
	}
}
